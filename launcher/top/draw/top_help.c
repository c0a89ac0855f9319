/* The events, the line of keys, and the page behind `?`. */
#include "launcher/top/draw/top_parts.h"

#include <inttypes.h>
#include <string.h>

void fl_top_events(fl_top_cells *c, const fl_top_model *m, fl_top_box box)
{
    char title[48] = "events";
    if (box.height < 2) {
        return;
    }
    if (m->n_lost > 0) {
        snprintf(title, sizeof title, "events, %" PRId64 " lost", m->n_lost);
    }
    fl_top_rule(c, box.x, box.y, box.width, title);
    int rows = box.height - 1, n = 0;
    while (n < rows && fl_top_model_event_at(m, n) != NULL) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        const fl_top_event *event = fl_top_model_event_at(m, n - 1 - i);
        fl_top_text(c, box.x, box.y + 1 + i, box.width, event->warns ? FL_TOP_WARN : FL_TOP_PLAIN,
                    event->text);
    }
}

static const struct {
    const char *key, *brief, *text;
} keys[] = {
    {"p", "pause", "pause all workers between two steps, or resume"},
    {"s", "scale", "use at most N devices, or K x R of them (\"2x1\")"},
    {"f", "freeze", "freeze the first N blocks"},
    {"t", "thaw", "keep N blocks frozen, thaw the others"},
    {"d", "drain", "drain worker N: it leaves the run; D: drain a host and its workers"},
    {"x", "stop", "stop the run: after the current step, or at the end of the epoch"},
    {"?", "help", "this page"},
    {"q", "quit", "leave; the run goes on"},
    {"up", NULL, "and down: scroll the workers"},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* After the end of the run, too. */
static bool is_kept(const char *key)
{
    return *key == '?' || *key == 'q';
}

void fl_top_keys(fl_top_cells *c, int y, bool over)
{
    int x = 1;
    for (int i = 0; i < N_KEYS; i++) {
        int n = keys[i].brief == NULL ? 0 : (int)(strlen(keys[i].key) + strlen(keys[i].brief)) + 1;
        if (n > 0 && x + n < c->width && (!over || is_kept(keys[i].key))) {
            fl_top_text(c, x, y, n, FL_TOP_KEYS, keys[i].key);
            x = fl_top_text(c, x + (int)strlen(keys[i].key) + 1, y, n, FL_TOP_DIM, keys[i].brief) +
                2;
        }
    }
}

void fl_top_help(fl_top_cells *c)
{
    static const char *const share[FL_TOP_SHARES] = {
        "forward, backward, optimizer",
        "for other stages, and for all workers at the end of a step",
        "gradients being summed over replicas", "reading and preparing samples",
        "standby, paused, evaluation, a transition"};
    int y = 0;
    fl_top_rule(c, 0, y++, c->width, "keys");
    for (int i = 0; i < N_KEYS; i++, y++) {
        fl_top_text(c, 2, y, 4, FL_TOP_KEYS, keys[i].key);
        fl_top_text(c, 6, y, c->width - 7, FL_TOP_PLAIN, keys[i].text);
    }
    fl_top_rule(c, 0, y++, c->width, "where a worker's time goes");
    for (fl_top_share i = 0; i < FL_TOP_SHARES; i++, y++) {
        fl_top_put(c, 2, y, fl_top_share_style(i), fl_top_share_glyph(c, i));
        fl_top_text(c, 4, y, 11, FL_TOP_BOLD, fl_top_share_text(i));
        fl_top_text(c, 16, y, c->width - 17, FL_TOP_PLAIN, share[i]);
    }
    fl_top_rule(c, 0, y++, c->width, "words");
    static const char *const words[] = {
        "w3 0-8      worker 3 has the layers 0 to 8; w3!: its own compute is slow",
        "r.s         replica and stage",
        "F, K, R, M  frozen blocks, stages, replicas, micro-batches of a replica",
        "MFU         share of the devices' peak that the model's mathematics uses"};
    for (int i = 0; i < 4; i++, y++) {
        fl_top_text(c, 2, y, c->width - 3, FL_TOP_PLAIN, words[i]);
    }
    fl_top_text(c, 2, y + 1, c->width - 3, FL_TOP_DIM, "any key goes back");
}
