/* The parts of the screen, each drawn into its own box: inside launcher/top_*.c alone. Pure. */
#ifndef FL_LAUNCHER_TOP_DRAW_TOP_PARTS_H
#define FL_LAUNCHER_TOP_DRAW_TOP_PARTS_H

#include "launcher/top/draw/top_draw.h"

/* From the first line on; returns how many lines it took. silence as in fl_top_view. */
int fl_top_head(fl_top_cells *cells, const fl_top_model *model, const char *silence);

/* Title, a row a replica, and those without a stage. */
int fl_top_grid_lines(const fl_top_model *model);
void fl_top_grid(fl_top_cells *cells, const fl_top_model *model, fl_top_box box);

/* Title and a row a worker, from the scroll-th on; returns how far it may be scrolled. */
int fl_top_workers(fl_top_cells *cells, const fl_top_model *model, fl_top_box box, int scroll);

void fl_top_events(fl_top_cells *cells, const fl_top_model *model, fl_top_box box);
/* over: the run has ended, and takes no commands. */
void fl_top_keys(fl_top_cells *cells, int y, bool over);
void fl_top_help(fl_top_cells *cells);

/* "3m12s", "2h05m", "-" for NAN. Returns text. */
enum { FL_TOP_SPAN_MAX = 24 };
const char *fl_top_span(double seconds, char text[FL_TOP_SPAN_MAX]);

#endif
