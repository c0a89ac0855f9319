#include "launcher/top/draw/top_draw.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { COLUMNS_MAX = 2 * FL_TOP_SIDE_MAX, LABEL = 9 /* cells left of a curve */ };

void fl_top_rule(fl_top_cells *cells, int x, int y, int width, const char *title)
{
    fl_top_fill(cells, x, y, width, FL_TOP_DIM, fl_top_glyph(cells, 0x2500, '-'));
    if (*title != 0 && width > 4) {
        fl_top_put(cells, x + 1, y, FL_TOP_PLAIN, ' ');
        int end = fl_top_text(cells, x + 2, y, width - 3, FL_TOP_TITLE, title);
        fl_top_put(cells, end, y, FL_TOP_PLAIN, ' ');
    }
}

void fl_top_progress(fl_top_cells *cells, int x, int y, int n, double share)
{
    double whole = isfinite(share) ? fmin(fmax(share, 0.0), 1.0) * n : 0.0;
    int full = (int)whole;
    fl_top_fill(cells, x, y, n, FL_TOP_DIM, fl_top_glyph(cells, 0x2591, '.'));
    fl_top_fill(cells, x, y, full, FL_TOP_GOOD, fl_top_glyph(cells, 0x2588, '#'));
    int eighths = (int)((whole - full) * 8.0);
    if (cells->unicode && eighths > 0 && full < n) {
        fl_top_put(cells, x + full, y, FL_TOP_GOOD, 0x2590u - (uint32_t)eighths);
    }
}

/* ---- shares ---- */

static const struct {
    uint32_t unicode;
    char ascii;
    fl_top_style style;
    const char *text;
} shares[FL_TOP_SHARES] = {
    [FL_TOP_COMPUTE] = {0x2588, '#', FL_TOP_GOOD, "compute"},
    [FL_TOP_WAIT] = {0x2592, '~', FL_TOP_WARN, "wait"},
    [FL_TOP_REDUCE] = {0x259a, '=', FL_TOP_MOVE, "all-reduce"},
    [FL_TOP_DATA] = {0x2584, '+', FL_TOP_READ, "data"},
    [FL_TOP_IDLE] = {0xb7, '.', FL_TOP_DIM, "idle"},
};

uint32_t fl_top_share_glyph(const fl_top_cells *cells, fl_top_share share)
{
    return fl_top_glyph(cells, shares[share].unicode, shares[share].ascii);
}

fl_top_style fl_top_share_style(fl_top_share share)
{
    return shares[share].style;
}

const char *fl_top_share_text(fl_top_share share)
{
    return shares[share].text;
}

/* Each share ends where the sum so far does, so that rounding adds up to n. */
void fl_top_shares(fl_top_cells *cells, int x, int y, int n, const double share[FL_TOP_SHARES])
{
    double sum = 0.0;
    int at = 0;
    for (fl_top_share i = 0; i < FL_TOP_SHARES; i++) {
        sum += share[i];
        int end = (int)lround(fmin(sum, 1.0) * n);
        fl_top_fill(cells, x + at, y, end - at, shares[i].style, fl_top_share_glyph(cells, i));
        at = end > at ? end : at;
    }
}

/* ---- curves ---- */

/* The part of a screen that a curve is drawn on, in dots: 2 x 4 of them a cell in braille, one in
 * ASCII. */
typedef struct plot {
    fl_top_cells *cells;
    fl_top_box box;
    int width, height; /* dots */
    double bottom, top;
} plot;

static void dot(const plot *p, int x, int y)
{
    static const uint8_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const fl_top_cells *c = p->cells;
    if (x < 0 || y < 0 || x >= p->width || y >= p->height) {
        return;
    }
    int column = p->box.x + (c->unicode ? x / 2 : x), row = p->box.y + (c->unicode ? y / 4 : y);
    uint32_t glyph = '*';
    if (c->unicode && column < c->width && row < c->height && column >= 0 && row >= 0) {
        uint32_t old = c->cell[row * c->width + column].glyph;
        glyph = (old >= 0x2800 && old <= 0x28ff ? old : 0x2800) | bit[y % 4][x % 2];
    }
    fl_top_put(p->cells, column, row, FL_TOP_GOOD, glyph);
}

static int height_of(const plot *p, double value)
{
    double span = p->top - p->bottom;
    double share = span > 0.0 ? (value - p->bottom) / span : 0.5;
    return (int)lround((1.0 - share) * (p->height - 1));
}

/* A line from one column's value to the next one's, over the columns that have none. */
static void line(const plot *p, int from, double old, int to, double now)
{
    int n = to - from, before = height_of(p, old);
    for (int i = 1; i <= n; i++) {
        int y = height_of(p, old + (now - old) * i / n);
        int low = y < before ? y : before + (y > before),
            high = y > before ? y : before - (y < before);
        for (int at = low; at <= high; at++) {
            dot(p, from + i, at);
        }
        dot(p, from + i, y);
        before = y;
    }
}

static void trace(const plot *p, const double *value)
{
    int last = -1;
    for (int x = 0; x < p->width; x++) {
        if (isnan(value[x])) {
            continue;
        }
        if (last < 0) {
            dot(p, x, height_of(p, value[x]));
        } else {
            line(p, last, value[last], x, value[x]);
        }
        last = x;
    }
}

static void label(const plot *p, int row, double value)
{
    char text[16];
    bool large = fabs(value) >= 99999.5;
    snprintf(text, sizeof text, large ? "%.2e" : "%.4g", value);
    int n = (int)strlen(text);
    fl_top_text(p->cells, p->box.x - 1 - n, row, n, FL_TOP_DIM, text);
}

/* Which steps the curve is of, at the right end of its title. */
static void steps_text(fl_top_cells *cells, fl_top_box box, int n_title,
                       const fl_top_series *series)
{
    char text[64];
    if (series->n == 0) {
        return;
    }
    int n = snprintf(text, sizeof text, " steps %" PRId64 "-%" PRId64 " ",
                     series->point[0].index * series->stride, series->newest);
    if (n + n_title + 6 < box.width) {
        fl_top_text(cells, box.x + box.width - n - 1, box.y, n, FL_TOP_DIM, text);
    }
}

void fl_top_curve(fl_top_cells *cells, fl_top_box box, const char *title,
                  const fl_top_series *series, bool from_zero)
{
    double value[COLUMNS_MAX], least, most;
    if (box.height < 3 || box.width < LABEL + 4) {
        return;
    }
    fl_top_rule(cells, box.x, box.y, box.width, title);
    steps_text(cells, box, (int)strlen(title), series);
    plot p = {.cells = cells, .box = {box.x + LABEL, box.y + 1, box.width - LABEL, box.height - 1}};
    p.width = p.box.width * (cells->unicode ? 2 : 1);
    p.height = p.box.height * (cells->unicode ? 4 : 1);
    p.width = p.width > COLUMNS_MAX ? COLUMNS_MAX : p.width;
    if (fl_top_series_columns(series, value, p.width, &least, &most) == 0) {
        fl_top_text(cells, p.box.x, p.box.y, p.box.width, FL_TOP_DIM, "no step yet");
        return;
    }
    p.bottom = from_zero ? fmin(0.0, least) : least;
    p.top = most;
    trace(&p, value);
    label(&p, p.box.y, p.top);
    if (p.top > p.bottom) {
        label(&p, p.box.y + p.box.height - 1, p.bottom);
    }
}
