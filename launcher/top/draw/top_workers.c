/* The workers: the grid of replicas and stages, and what each one does with its time. */
#include "launcher/top/draw/top_parts.h"

#include "device/text/size_text.h"
#include "launcher/top/draw/top_hosts.h"

#include <inttypes.h>
#include <string.h>

enum { NAME = 11 /* cells of " replica 3 " */, CELL_LEAST = 12, CELL_MOST = 34 };

static bool has_place(const fl_top_worker *w)
{
    return w->replica >= 0 && w->stage >= 0;
}

static fl_top_style state_style(const fl_top_model *m, const fl_top_worker *w)
{
    bool bad = strcmp(w->state, "gone") == 0 || strcmp(w->state, "lost") == 0;
    return bad                                ? FL_TOP_BAD
           : fl_top_model_is_slow(m, w->rank) ? FL_TOP_WARN
           : strcmp(w->state, "active") != 0  ? FL_TOP_DIM
                                              : FL_TOP_PLAIN;
}

static bool some_stand_by(const fl_top_model *m)
{
    return m->n_workers > 0 && !has_place(&m->worker[m->n_workers - 1]);
}

int fl_top_grid_lines(const fl_top_model *m)
{
    return 1 + (int)m->R + some_stand_by(m);
}

/* ---- the grid ---- */

static int cell_width(const fl_top_model *m, int width)
{
    int each = (width - NAME) / (int)m->K;
    return each > CELL_MOST ? CELL_MOST : each;
}

/* "w3 0-8" and the worker's shares, as far as they fit, or its state if that is not normal. */
static void grid_cell(fl_top_cells *c, const fl_top_model *m, const fl_top_worker *w, int x, int y,
                      int width)
{
    bool cuts = w->stage + 1 < m->n_first;
    fl_top_style style = state_style(m, w);
    int end = x + width - 2;
    x = fl_top_printf(c, x, y, end - x, style == FL_TOP_PLAIN ? FL_TOP_BOLD : style, "w%d%s",
                      w->rank, fl_top_model_is_slow(m, w->rank) ? "!" : "");
    if (cuts && width >= CELL_LEAST) {
        int first = m->first[w->stage], last = m->first[w->stage + 1] - 1;
        bool frozen = last < m->frozen_layers;
        x = fl_top_printf(c, x + 1, y, end - x - 1, frozen ? FL_TOP_FROZEN : FL_TOP_PLAIN, "%d-%d",
                          first, last);
    }
    int bar = end - x - 1;
    if (strcmp(w->state, "active") != 0) {
        fl_top_text(c, x + 1, y, bar, style, w->state);
    } else if (bar >= 4) {
        fl_top_shares(c, x + 1, y, bar > 16 ? 16 : bar, w->share);
    }
}

static void grid_title(fl_top_cells *c, const fl_top_model *m, fl_top_box box, int each)
{
    fl_top_rule(c, box.x, box.y, box.width, "");
    for (int k = 0; k < m->K && each >= 4; k++) {
        int x = box.x + NAME + k * each;
        fl_top_put(c, x - 1, box.y, FL_TOP_PLAIN, ' ');
        x = fl_top_printf(c, x, box.y, each - 1, FL_TOP_TITLE, each >= 10 ? "stage %d" : "s%d", k);
        fl_top_put(c, x, box.y, FL_TOP_PLAIN, ' ');
    }
}

static void standby_line(fl_top_cells *c, const fl_top_model *m, fl_top_box box, int y)
{
    int x = fl_top_text(c, box.x + 1, y, NAME, FL_TOP_DIM, "no stage") + 1;
    for (int i = 0; i < m->n_workers; i++) {
        const fl_top_worker *w = &m->worker[i];
        if (!has_place(w) && x < box.x + box.width) {
            x = fl_top_printf(c, x, y, box.x + box.width - x, state_style(m, w), "w%d %s", w->rank,
                              w->state) +
                2;
        }
    }
}

void fl_top_grid(fl_top_cells *c, const fl_top_model *m, fl_top_box box)
{
    int each = cell_width(m, box.width);
    if (box.height < 1) {
        return;
    }
    grid_title(c, m, box, each);
    /* The line of those without a stage is the last one, also when replicas do not all fit. */
    int rows = box.height - 1 - some_stand_by(m);
    for (int r = 0; r < m->R && r < rows; r++) {
        fl_top_printf(c, box.x + 1, box.y + 1 + r, NAME - 1, FL_TOP_DIM, "replica %d", r);
    }
    for (int i = 0; i < m->n_workers; i++) {
        const fl_top_worker *w = &m->worker[i];
        int x = box.x + NAME + w->stage * each;
        if (has_place(w) && w->replica < rows && w->stage < m->K && each >= 4) {
            grid_cell(c, m, w, x, box.y + 1 + w->replica, each);
        }
    }
    if (some_stand_by(m) && rows >= 0) {
        standby_line(c, m, box, box.y + box.height - 1);
    }
}

/* ---- the list ---- */

/* Cells of "  3  0.1  active   " and of "compute 100 %  wait ..." behind the bar. */
enum {
    LEFT = 21,
    PERCENT = 6,
    BAR_LEAST = 8,
    BAR_GOOD = 12,
    BAR_MOST = 40,
    OPERATION = 14,
    GPU = 4,
    MEMORY = 10,
    HOST_MOST = 16 /* with the space before it */
};

typedef struct columns {
    int bar, percents, operation, gpu, memory, host; /* where they begin; 0: no room, or none */
    int bar_width, host_width;
    fl_top_cut cut; /* of the hosts' names */
} columns;

static bool some_have_gpus(const fl_top_model *m)
{
    return m->n_workers > 0 && m->worker[0].gpu >= 0;
}

/* Cells of the longest name, and of the space before it; 0: the run has one host. */
static int host_width(const fl_top_model *m)
{
    int longest = m->n_hosts > 0 ? (int)strlen("host") : -1;
    for (int i = 0; i < m->n_workers && m->n_hosts > 0; i++) {
        int n = (int)strlen(m->worker[i].host);
        longest = n > longest ? n : longest;
    }
    return longest + 1 < HOST_MOST ? longest + 1 : HOST_MOST;
}

static columns columns_of(int width, bool gpus, int hosts)
{
    columns at = {.bar = LEFT};
    int left = width - LEFT - 1;
    at.host_width = left >= BAR_LEAST + hosts ? hosts : 0;
    left -= at.host_width;
    at.percents = left >= BAR_LEAST + FL_TOP_SHARES * PERCENT;
    left -= at.percents ? FL_TOP_SHARES * PERCENT : 0;
    at.operation = left >= BAR_GOOD + OPERATION;
    left -= at.operation ? OPERATION + 1 : 0;
    at.memory = left >= BAR_GOOD + MEMORY;
    left -= at.memory ? MEMORY : 0;
    at.gpu = gpus && left >= BAR_GOOD + GPU;
    left -= at.gpu ? GPU : 0;
    at.bar_width = left > BAR_MOST ? BAR_MOST : left;
    int x = LEFT + at.bar_width;
    if (at.host_width > 0) {
        at.host = x;
        x += at.host_width;
    }
    if (at.percents) {
        at.percents = x;
        x += FL_TOP_SHARES * PERCENT;
    }
    if (at.gpu) {
        at.gpu = x;
        x += GPU;
    }
    if (at.memory) {
        at.memory = x;
        x += MEMORY;
    }
    if (at.operation) {
        at.operation = x + 1;
    }
    return at;
}

static void list_title(fl_top_cells *c, fl_top_box box, const columns *at)
{
    static const char *const brief[FL_TOP_SHARES] = {"comp", "wait", "redu", "data", "idle"};
    fl_top_rule(c, box.x, box.y, box.width, "worker  r.s state");
    for (fl_top_share i = 0; i < FL_TOP_SHARES && at->percents > 0; i++) {
        int x = box.x + at->percents + (int)i * PERCENT;
        fl_top_put(c, x - 1, box.y, FL_TOP_PLAIN, ' ');
        fl_top_put(c, x, box.y, fl_top_share_style(i), fl_top_share_glyph(c, i));
        fl_top_text(c, x + 1, box.y, PERCENT - 1, FL_TOP_TITLE, brief[i]);
    }
    if (at->host > 0) {
        fl_top_printf(c, box.x + at->host, box.y, at->host_width, FL_TOP_TITLE, " host");
    }
    if (at->gpu > 0) {
        fl_top_printf(c, box.x + at->gpu, box.y, GPU, FL_TOP_TITLE, " gpu");
    }
    if (at->memory > 0) {
        fl_top_printf(c, box.x + at->memory, box.y, MEMORY, FL_TOP_TITLE, " %8s ", "memory");
    }
    if (at->operation > 0) {
        fl_top_printf(c, box.x + at->operation - 1, box.y, OPERATION, FL_TOP_TITLE, " does ");
    }
}

static void list_row(fl_top_cells *c, const fl_top_model *m, const fl_top_worker *w, fl_top_box box,
                     const columns *at)
{
    char place[24] = "-", size[FL_SIZE_TEXT_MAX], host[FL_TOP_HOST_TEXT];
    fl_top_style style = state_style(m, w);
    if (has_place(w)) {
        snprintf(place, sizeof place, "%d.%d", w->replica, w->stage);
    }
    fl_top_printf(c, box.x, box.y, LEFT - 1, style, "%5d%s %5s %s", w->rank,
                  fl_top_model_is_slow(m, w->rank) ? "!" : " ", place, w->state);
    fl_top_shares(c, box.x + at->bar, box.y, at->bar_width, w->share);
    for (int i = 0; i < FL_TOP_SHARES && at->percents > 0; i++) {
        fl_top_printf(c, box.x + at->percents + i * PERCENT, box.y, PERCENT, FL_TOP_PLAIN,
                      "%5.0f%%", w->share[i] * 100.0);
    }
    if (at->host > 0) {
        int room = at->host_width - 1;
        fl_top_text(c, box.x + at->host + 1, box.y, room, FL_TOP_PLAIN,
                    fl_top_host_shorten(w->host, room, at->cut, c->unicode, host));
    }
    if (at->gpu > 0) {
        fl_top_printf(c, box.x + at->gpu, box.y, GPU, FL_TOP_PLAIN, " %3d", w->gpu);
    }
    if (at->memory > 0) {
        fl_top_printf(c, box.x + at->memory, box.y, MEMORY, FL_TOP_PLAIN, " %8s",
                      fl_size_text((double)w->memory_bytes, size));
    }
    if (at->operation > 0) {
        fl_top_text(c, box.x + at->operation, box.y, box.width - at->operation, style,
                    w->operation);
    }
}

int fl_top_workers(fl_top_cells *c, const fl_top_model *m, fl_top_box box, int scroll)
{
    int rows = box.height - 1;
    if (rows < 1) {
        return 0;
    }
    columns at = columns_of(box.width, some_have_gpus(m), host_width(m));
    at.cut = at.host > 0 ? fl_top_hosts_cut(m, at.host_width - 1) : FL_TOP_CUT_LABEL;
    int hidden = m->n_workers > rows ? m->n_workers - rows : 0;
    int from = scroll < 0 ? 0 : scroll > hidden ? hidden : scroll;
    list_title(c, box, &at);
    for (int i = 0; i < rows && from + i < m->n_workers; i++) {
        list_row(c, m, &m->worker[from + i], (fl_top_box){box.x, box.y + 1 + i, box.width, 1}, &at);
    }
    if (hidden > 0) {
        char text[48];
        snprintf(text, sizeof text, " %d-%d of %d ", from + 1, from + rows, m->n_workers);
        int n = (int)strlen(text);
        fl_top_text(c, box.x + box.width - n - 1, box.y, n, FL_TOP_WARN, text);
    }
    return hidden;
}
