/* The whole screen of `frostline top`. Pure: from what is known to cells.
 *
 *     head     job, state, progress, plan, loss, speed, MFU, cache, the frost line
 *     grid     a row a replica, a column a stage: which worker has which layers
 *     workers  each one's shares of time, and what it does
 *     curves   loss and samples a second over the steps
 *     events   the newest last
 *     keys     or a question, or the result of the last command
 *
 * The parts stand below each other; on a screen of at least 120 cells, the curves stand to the
 * right of the others. Parts that do not fit are left out: first events and curves, then workers,
 * then the grid. */
#ifndef FL_LAUNCHER_TOP_DRAW_TOP_LAYOUT_H
#define FL_LAUNCHER_TOP_DRAW_TOP_LAYOUT_H

#include "launcher/top/draw/top_cells.h"
#include "launcher/top/model/top_model.h"

enum { FL_TOP_LEAST_WIDTH = 40, FL_TOP_LEAST_HEIGHT = 10 };

/* The state of the screen that does not belong to the run. */
typedef struct fl_top_view {
    bool keys;            /* there is a keyboard: the bottom line explains its keys */
    bool help;            /* instead of the run */
    int scroll;           /* workers scrolled past */
    const char *question; /* in the place of the keys; "" or NULL: none */
    const char *note;     /* what became of the last command; "" or NULL: none */
    bool bad_note;
    const char *silence; /* why what is shown may be old; "" or NULL: it is not */
} fl_top_view;

/* Draw over everything. Returns how far `scroll` may go. */
int fl_top_layout(fl_top_cells *cells, const fl_top_model *model, const fl_top_view *view);

#endif
