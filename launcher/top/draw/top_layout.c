#include "launcher/top/draw/top_layout.h"

#include "launcher/top/draw/top_draw.h"
#include "launcher/top/draw/top_parts.h"

#include <string.h>

enum { WIDE = 120 }; /* cells */

/* Lines, with the title. */
enum {
    LEAST_WORKERS = 3,
    LEAST_CURVES = 4,
    MOST_CURVES = 14,
    LEAST_EVENTS = 2,
    MORE_EVENTS = 3,
    MOST_NOTE = 5,
};

static bool is_text(const char *text)
{
    return text != NULL && *text != 0;
}

/* How many lines each part gets, titles included; 0: it is left out. */
typedef struct lines {
    int grid, workers, curves, events;
} lines;

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Give what is left to a part that wants `more`. */
static void grow(int *part, int more, int *left)
{
    int n = more < 0 ? 0 : least(more, *left);
    *part += n;
    *left -= n;
}

/* The fewest lines that make sense of a part, or none. */
static int fewest(int sensible, int *left)
{
    int n = *left >= sensible ? sensible : 0;
    *left -= n;
    return n;
}

static lines share_out(const fl_top_model *m, int left, bool curves_apart)
{
    int grid = fl_top_grid_lines(m), workers = 1 + m->n_workers;
    lines l = {.grid = least(grid, left)};
    left -= l.grid;
    l.workers = fewest(least(workers, LEAST_WORKERS), &left);
    l.curves = curves_apart ? 0 : fewest(LEAST_CURVES, &left);
    l.events = fewest(LEAST_EVENTS, &left);
    grow(&l.workers, l.workers > 0 ? workers - l.workers : 0, &left);
    grow(&l.events, l.events > 0 ? MORE_EVENTS : 0, &left);
    grow(&l.curves, l.curves > 0 ? MOST_CURVES - l.curves : 0, &left);
    grow(&l.events, l.events > 0 ? left : 0, &left);
    return l;
}

static void curves_beside(fl_top_cells *c, const fl_top_model *m, fl_top_box box)
{
    int left = box.width / 2;
    fl_top_curve(c, (fl_top_box){box.x, box.y, left - 1, box.height}, "loss", &m->loss_curve,
                 false);
    fl_top_curve(c, (fl_top_box){box.x + left, box.y, box.width - left, box.height}, "samples/s",
                 &m->rate_curve, true);
}

static void curves_below(fl_top_cells *c, const fl_top_model *m, fl_top_box box)
{
    int upper = box.height / 2;
    fl_top_curve(c, (fl_top_box){box.x, box.y, box.width, upper}, "loss", &m->loss_curve, false);
    fl_top_curve(c, (fl_top_box){box.x, box.y + upper, box.width, box.height - upper}, "samples/s",
                 &m->rate_curve, true);
}

/* Everything between the controller and the bottom line. */
static int body(fl_top_cells *c, const fl_top_model *m, const fl_top_view *v, fl_top_box box)
{
    bool wide = box.width >= WIDE;
    int beside = wide ? box.width * 2 / 5 : 0;
    fl_top_box main = {box.x, box.y, box.width - beside - (wide ? 2 : 0), box.height};
    lines l = share_out(m, box.height, wide);
    fl_top_grid(c, m, (fl_top_box){main.x, main.y, main.width, l.grid});
    main.y += l.grid;
    int scroll =
        fl_top_workers(c, m, (fl_top_box){main.x, main.y, main.width, l.workers}, v->scroll);
    main.y += l.workers;
    if (wide) {
        curves_below(c, m, (fl_top_box){box.x + box.width - beside, box.y, beside, box.height});
    } else {
        curves_beside(c, m, (fl_top_box){main.x, main.y, main.width, l.curves});
        main.y += l.curves;
    }
    fl_top_events(c, m, (fl_top_box){main.x, main.y, main.width, l.events});
    return scroll;
}

/* A refusal may be long: it says what is allowed at its end. */
static int bottom_height(const fl_top_cells *c, const fl_top_view *v, int most)
{
    bool is_note = is_text(v->note) && !is_text(v->question);
    most = most < 1 ? 1 : least(most, MOST_NOTE);
    return is_note ? fl_top_n_lines(c, c->width - 2, most, v->note)
                   : v->keys || is_text(v->question);
}

static void bottom(fl_top_cells *c, const fl_top_model *m, const fl_top_view *v, int height)
{
    int y = c->height - 1;
    if (is_text(v->question)) {
        fl_top_fill(c, 0, y, c->width, FL_TOP_KEYS, ' ');
        fl_top_text(c, 1, y, c->width - 2, FL_TOP_KEYS, v->question);
    } else if (is_text(v->note)) {
        fl_top_lines(c, 1, c->height - height, c->width - 2, height,
                     v->bad_note ? FL_TOP_BAD : FL_TOP_BOLD, v->note);
    } else if (v->keys) {
        fl_top_keys(c, y, m->over);
    }
}

static void too_small(fl_top_cells *c)
{
    fl_top_printf(c, 0, 0, c->width, FL_TOP_WARN, "%d x %d", c->width, c->height);
    fl_top_printf(c, 0, 1, c->width, FL_TOP_PLAIN, "needs %d x %d", FL_TOP_LEAST_WIDTH,
                  FL_TOP_LEAST_HEIGHT);
}

/* No answer came yet, or none ever will. */
static void nothing_known(fl_top_cells *c, const fl_top_model *m, const fl_top_view *v)
{
    const char *why = is_text(v->silence) ? v->silence : "waiting for the first answer of the run";
    if (m->over) {
        fl_top_printf(c, 1, 0, c->width - 2, FL_TOP_BOLD, "the run has ended: %s", m->how);
    } else {
        fl_top_text(c, 1, 0, c->width - 2, FL_TOP_PLAIN, why);
    }
}

int fl_top_layout(fl_top_cells *c, const fl_top_model *m, const fl_top_view *v)
{
    fl_top_cells_clear(c);
    if (c->width < FL_TOP_LEAST_WIDTH || c->height < FL_TOP_LEAST_HEIGHT) {
        too_small(c);
        return 0;
    }
    int scroll = 0, height = 1;
    if (v->help) {
        fl_top_help(c);
    } else if (!m->known) {
        nothing_known(c, m, v);
    } else {
        int head = fl_top_head(c, m, v->silence);
        height = bottom_height(c, v, c->height - head - 1);
        scroll = body(c, m, v, (fl_top_box){0, head, c->width, c->height - head - height});
    }
    bottom(c, m, v, height);
    return scroll;
}
