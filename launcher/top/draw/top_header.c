/* The controller of the screen: where the run stands, in seven lines. */
#include "launcher/top/draw/top_parts.h"

#include "device/text/number_text.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"
#include "launcher/top/draw/top_hosts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *fl_top_span(double seconds, char text[FL_TOP_SPAN_MAX])
{
    if (!(seconds >= 0.0) || seconds > 1e9) {
        return "-";
    }
    int64_t s = (int64_t)seconds;
    if (s < 60) {
        snprintf(text, FL_TOP_SPAN_MAX, "%" PRId64 "s", s);
    } else if (s < 3600) {
        snprintf(text, FL_TOP_SPAN_MAX, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(text, FL_TOP_SPAN_MAX, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    } else {
        snprintf(text, FL_TOP_SPAN_MAX, "%" PRId64 "d%02" PRId64 "h", s / 86400, s / 3600 % 24);
    }
    return text;
}

/* Writes one line from left to right: names dim, values bright. A pair that does not fit is left
 * out completely. */
typedef struct writer {
    fl_top_cells *cells;
    int x, y;
} writer;

static void put_field(writer *w, const char *name, fl_top_style style, const char *value)
{
    int n = (int)(strlen(name) + strlen(value)) + (*name != 0 && *value != 0);
    if (w->x + n > w->cells->width) {
        w->x = w->cells->width; /* nor does what comes behind it stand here */
        return;
    }
    if (*name != 0) {
        w->x = fl_top_text(w->cells, w->x, w->y, n, FL_TOP_DIM, name) + (*value != 0);
    }
    w->x = fl_top_text(w->cells, w->x, w->y, n, style, value) + 3;
}

static void put_number(writer *w, const char *name, double value, int digits, const char *unit)
{
    char number[FL_NUMBER_TEXT_MAX], text[FL_NUMBER_TEXT_MAX + 16];
    snprintf(text, sizeof text, "%s%s", fl_number_text(value, digits, number),
             isnan(value) ? "" : unit);
    put_field(w, name, FL_TOP_BOLD, text);
}

static fl_top_style state_style(const char *state)
{
    return strcmp(state, "running") == 0  ? FL_TOP_GOOD
           : strcmp(state, "ending") == 0 ? FL_TOP_BAD
                                          : FL_TOP_WARN;
}

/* In the 30 columns at the right. The epoch begins in a fixed column, and further left if its
 * numbers are long. */
static void epoch_and_time(fl_top_cells *c, const fl_top_model *m)
{
    char text[FL_TOP_SPAN_MAX], epochs[64];
    int64_t epoch = m->epoch + 1 < m->epochs ? m->epoch + 1 : m->epochs;
    int n_epochs = snprintf(epochs, sizeof epochs, "epoch %" PRId64 "/%" PRId64, epoch, m->epochs);
    const char *span = fl_top_span(m->time_s, text);
    int n = (int)strlen(span), end = c->width - 1 - n;
    int fixed = c->width - 21, latest = end - 2 - n_epochs, earliest = c->width - 30;
    int at = latest < fixed ? latest : fixed;
    at = at > earliest ? at : earliest;
    fl_top_text(c, at, 0, end - 1 - at, FL_TOP_PLAIN, epochs);
    fl_top_text(c, end, 0, n, FL_TOP_DIM, span);
}

static void first_line(fl_top_cells *c, const fl_top_model *m, const char *silence)
{
    int x = fl_top_text(c, 1, 0, c->width / 3, FL_TOP_BOLD, m->job) + 2;
    if (m->over) {
        bool bad = strncmp(m->how, "failed", strlen("failed")) == 0;
        x = fl_top_text(c, x, 0, c->width - x, bad ? FL_TOP_BAD : FL_TOP_BOLD, m->how);
    } else {
        x = fl_top_text(c, x, 0, c->width - x, state_style(m->state), m->state);
    }
    if (silence != NULL && *silence != 0 && !m->over) {
        fl_top_text(c, x + 2, 0, c->width - x - 2, FL_TOP_BAD, silence);
        return;
    }
    if (c->width - x - 2 >= 30) {
        epoch_and_time(c, m);
    }
}

static void progress_line(fl_top_cells *c, const fl_top_model *m)
{
    char span[FL_TOP_SPAN_MAX], text[64];
    double share = m->steps > 0 ? (double)m->step / (double)m->steps : 0.0;
    int x = fl_top_printf(c, 1, 1, c->width, FL_TOP_PLAIN, "step %" PRId64 "/%" PRId64, m->step,
                          m->steps);
    snprintf(text, sizeof text, "%3.0f %%  %s%s", share * 100.0,
             m->over ? "ended" : fl_top_span(m->left_s, span), m->over ? "" : " left");
    int n = (int)strlen(text), end = c->width - 1 - n;
    fl_top_progress(c, x + 2, 1, end - 2 - (x + 2), share);
    fl_top_text(c, end, 1, n, FL_TOP_PLAIN, text);
}

static void plan_line(fl_top_cells *c, const fl_top_model *m)
{
    char text[96];
    writer w = {c, 1, 2};
    snprintf(text, sizeof text,
             "F %" PRId64 "/%" PRId64 "  K %" PRId64 " x R %" PRId64 " x M %" PRId64, m->F,
             m->blocks, m->K, m->R, m->M);
    put_field(&w, "plan", FL_TOP_BOLD, text);
    snprintf(text, sizeof text, "%" PRId64, m->generation);
    put_field(&w, "generation", FL_TOP_PLAIN, text);
    put_number(&w, "step", m->step_ms, 3, " ms");
    put_number(&w, "predicted", m->predicted_ms, 3, " ms");
    if (strcmp(m->transition, "idle") != 0 && m->transition[0] != 0) {
        put_field(&w, "transition", FL_TOP_WARN, m->transition);
    }
}

enum { RESULT_BYTES = 64 + FL_METRICS_MAX * (FL_METRIC_NAME_MAX + FL_NUMBER_TEXT_MAX + 16) };

/* "0.3, 81.25 %" for an accuracy, "0.3, mae 0.0125" for another metric. */
static const char *evaluation_text(const fl_top_model *m, char text[RESULT_BYTES])
{
    char number[FL_NUMBER_TEXT_MAX];
    int n = snprintf(text, RESULT_BYTES, "%s", fl_number_text(m->evaluated_loss, 4, number));
    for (int i = 0; i < m->n_metrics && n < RESULT_BYTES; i++) {
        const fl_top_metric *metric = &m->metric[i];
        bool named = strcmp(metric->name, FL_ACCURACY) != 0;
        n += snprintf(text + n, RESULT_BYTES - (size_t)n, ", %s%s", named ? metric->name : "",
                      named ? " " : "");
        if (n < RESULT_BYTES && metric->is_share && !isnan(metric->value)) {
            n += snprintf(text + n, RESULT_BYTES - (size_t)n, "%.2f %%", metric->value * 100.0);
        } else if (n < RESULT_BYTES) {
            n += snprintf(text + n, RESULT_BYTES - (size_t)n, "%s",
                          fl_number_text(metric->value, 4, number));
        }
    }
    return text;
}

static void result_line(fl_top_cells *c, const fl_top_model *m)
{
    char text[RESULT_BYTES];
    writer w = {c, 1, 3};
    put_number(&w, "loss", m->loss, 4, "");
    if (!isnan(m->evaluated_loss)) {
        put_field(&w, m->validates ? "validation" : "test", FL_TOP_BOLD, evaluation_text(m, text));
    }
    put_number(&w, "", m->samples_per_s, 4, " samples/s");
    put_number(&w, "MFU", m->mfu * 100.0, 3, " %");
    put_number(&w, "lr", m->lr, 3, "");
    put_number(&w, "gradient", m->grad_norm, 3, "");
}

static void cache_line(fl_top_cells *c, const fl_top_model *m)
{
    char size[FL_SIZE_TEXT_MAX], most[FL_SIZE_TEXT_MAX], text[96];
    writer w = {c, 1, 4};
    bool has_one = m->cache[0] != 0 && strcmp(m->cache, "none") != 0;
    put_field(&w, "cache", strcmp(m->cache, "on") == 0 ? FL_TOP_FROZEN : FL_TOP_PLAIN,
              m->cache[0] == 0 ? "-" : m->cache);
    double asked = (double)m->hits + (double)m->upgrades + (double)m->misses;
    if (has_one && asked > 0.0) {
        put_number(&w, "hits", (double)m->hits / asked * 100.0, 3, " %");
    }
    if (has_one) {
        snprintf(text, sizeof text, "%s of %s", fl_size_text((double)m->cache_used_bytes, size),
                 fl_size_text((double)m->cache_bytes, most));
        put_field(&w, "holds", FL_TOP_PLAIN, text);
    }
    if (m->straggler >= 0) {
        snprintf(text, sizeof text, "worker %" PRId64, m->straggler);
        put_field(&w, "slow by itself", FL_TOP_WARN, text);
    } else {
        put_field(&w, "stragglers", FL_TOP_PLAIN, "none");
    }
}

static void checkpoint_line(fl_top_cells *c, const fl_top_model *m)
{
    char text[96], span[FL_TOP_SPAN_MAX], size[FL_SIZE_TEXT_MAX];
    writer w = {c, 1, 5};
    if (m->checkpoint_step < 0) {
        put_field(&w, "checkpoint", FL_TOP_PLAIN, "none");
    } else {
        snprintf(text, sizeof text, "step %" PRId64, m->checkpoint_step);
        put_field(&w, "checkpoint", FL_TOP_BOLD, text);
        if (m->checkpoint_age_s >=
            0.0) { /* a run that was resumed does not know that of its first */
            snprintf(text, sizeof text, "%s ago", fl_top_span(m->checkpoint_age_s, span));
            put_field(&w, "", FL_TOP_PLAIN, text);
            snprintf(text, sizeof text, "%s", fl_size_text((double)m->checkpoint_bytes, size));
            put_field(&w, "wrote", FL_TOP_PLAIN, text);
            put_number(&w, "in", m->checkpoint_s, 3, " s");
        }
    }
    if (m->best_step >= 0) {
        snprintf(text, sizeof text, "step %" PRId64, m->best_step);
        put_field(&w, "best", FL_TOP_PLAIN, text);
    }
    if (m->n_checkpoints_failed > 0) {
        put_number(&w, "failed", (double)m->n_checkpoints_failed, 3, "");
    }
    if (m->snapshot_step >= 0) {
        snprintf(text, sizeof text, "step %" PRId64, m->snapshot_step);
        put_field(&w, "in memory", FL_TOP_PLAIN, text);
    }
    if (m->n_losses > 0) {
        snprintf(text, sizeof text, "%" PRId64, m->n_losses);
        put_field(&w, "losses", FL_TOP_WARN, text);
    }
    if (m->n_returns > 0) {
        snprintf(text, sizeof text, "%" PRId64 " (%" PRId64 " step%s again)", m->n_returns,
                 m->n_repeated, fl_plural_ending(m->n_repeated, "step"));
        put_field(&w, "went back", FL_TOP_WARN, text);
    }
}

static bool begins_stage(const fl_top_model *m, int layer)
{
    for (int k = 1; k + 1 < m->n_first; k++) {
        if (m->first[k] == layer) {
            return true;
        }
    }
    return false;
}

/* "blocks 3-5 pinned" is too long for many: the first few. */
static void put_pinned(writer *w, const fl_top_model *m)
{
    char text[48] = "";
    int n = 0;
    for (int i = 1; i <= m->blocks && n < 40; i++) {
        if (m->pinned[i]) {
            n += snprintf(text + n, sizeof text - (size_t)n, n == 0 ? "%d" : " %d", i);
        }
    }
    if (n > 0) {
        put_field(w, "pinned", FL_TOP_WARN, text);
    }
}

/* A sign a layer: frozen ones, the frost line, those that train; a stroke where a stage ends. Where
 * there is no room for all, a sign stands for several, and the strokes are left out. Returns x
 * behind them. */
static int put_layers(fl_top_cells *c, const fl_top_model *m, int x, int y, int room)
{
    int n = m->n_first > 0 ? m->first[m->n_first - 1] : 0;
    bool all = n + (int)m->K - 1 <= room;
    for (int i = 0; i < (all ? n : room); i++) {
        bool frozen = (all ? i : i * n / room) < m->frozen_layers;
        if (all && begins_stage(m, i)) {
            fl_top_put(c, x++, y, FL_TOP_PLAIN, fl_top_glyph(c, 0x2502, '|'));
        }
        fl_top_put(c, x++, y, frozen ? FL_TOP_FROZEN : FL_TOP_GOOD,
                   frozen ? fl_top_glyph(c, 0x2592, '*') : fl_top_glyph(c, 0x2588, '='));
    }
    return x;
}

static void frost_line(fl_top_cells *c, const fl_top_model *m)
{
    enum { BEHIND = 24 /* cells of "blocks frozen 12 of 24" */ };
    char text[48];
    writer w = {c, 1, 6};
    int x = fl_top_text(c, 1, 6, c->width, FL_TOP_DIM, "layers") + 1;
    w.x = put_layers(c, m, x, 6, c->width - x - BEHIND) + 2;
    snprintf(text, sizeof text, "%" PRId64 " of %" PRId64, m->F, m->blocks);
    put_field(&w, "blocks frozen", m->F > 0 ? FL_TOP_FROZEN : FL_TOP_PLAIN, text);
    put_pinned(&w, m);
}

int fl_top_head(fl_top_cells *c, const fl_top_model *m, const char *silence)
{
    first_line(c, m, silence);
    progress_line(c, m);
    plan_line(c, m);
    result_line(c, m);
    cache_line(c, m);
    checkpoint_line(c, m);
    frost_line(c, m);
    if (m->n_hosts == 0) {
        return 7;
    }
    fl_top_hosts_line(c, m, 7);
    return 8;
}
