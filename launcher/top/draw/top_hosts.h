/* The hosts of a run on several, and their names where there is little room. Pure. */
#ifndef FL_LAUNCHER_TOP_DRAW_TOP_HOSTS_H
#define FL_LAUNCHER_TOP_DRAW_TOP_HOSTS_H

#include "launcher/top/draw/top_cells.h"
#include "launcher/top/model/top_model.h"

/* In line y: first the hosts that are not in the run, each with its state, then as many others as
 * fit, then how many are left out: "+2 (1 lost)". */
void fl_top_hosts_line(fl_top_cells *cells, const fl_top_model *model, int y);

/* How a name that is too long is shortened. */
typedef enum fl_top_cut {
    FL_TOP_CUT_LABEL,  /* up to its first '.', and that in its middle */
    FL_TOP_CUT_MIDDLE, /* in its middle */
    FL_TOP_CUT_END,    /* behind its begin */
    FL_TOP_CUTS,
} fl_top_cut;

/* The first way by which the names of the run's hosts differ in `room` cells; none: the first. */
fl_top_cut fl_top_hosts_cut(const fl_top_model *model, int room);

/* The name in at most `room` cells. Returns text. */
enum { FL_TOP_HOST_TEXT = FL_HOST_TEXT + 4 };
const char *fl_top_host_shorten(const char *name, int room, fl_top_cut cut, bool unicode,
                                char text[FL_TOP_HOST_TEXT]);

#endif
