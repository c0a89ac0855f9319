/* Bars and curves in cells. Pure. */
#ifndef FL_LAUNCHER_TOP_DRAW_TOP_DRAW_H
#define FL_LAUNCHER_TOP_DRAW_TOP_DRAW_H

#include "launcher/top/draw/top_cells.h"
#include "launcher/top/model/top_model.h"

typedef struct fl_top_box {
    int x, y, width, height;
} fl_top_box;

/* A title in a line across the box. */
void fl_top_rule(fl_top_cells *cells, int x, int y, int width, const char *title);

/* A progress bar of n cells for a share (0 .. 1). */
void fl_top_progress(fl_top_cells *cells, int x, int y, int n, double share);

/* A worker's shares in n cells; the signs differ, so that they are readable without colour. */
void fl_top_shares(fl_top_cells *cells, int x, int y, int n, const double share[FL_TOP_SHARES]);

/* The sign and the style of one kind of share, and what it is called. */
uint32_t fl_top_share_glyph(const fl_top_cells *cells, fl_top_share share);
fl_top_style fl_top_share_style(fl_top_share share);
const char *fl_top_share_text(fl_top_share share);

/* A curve with a title, the values at its top and bottom, and the steps at its ends. from_zero: the
 * bottom is 0, else the least value. A box of less than 3 lines stays empty. */
void fl_top_curve(fl_top_cells *cells, fl_top_box box, const char *title,
                  const fl_top_series *series, bool from_zero);

#endif
