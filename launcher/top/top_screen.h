/* The terminal, through ncurses: the one part of `frostline top` that knows of it. One screen a
 * process, one thread. */
#ifndef FL_LAUNCHER_TOP_TOP_SCREEN_H
#define FL_LAUNCHER_TOP_TOP_SCREEN_H

#include "launcher/top/draw/top_cells.h"

/* Take over the terminal of standard input and output. Colour where there is one and NO_COLOR is
 * not set. FL_ENOTSUP, with what to do, for a terminal that has no movable cursor. */
fl_status fl_top_screen_open(void) FL_MUST_CHECK;

/* Give it back as it was; also when it was never taken. */
void fl_top_screen_close(void);

/* Make the cells as large as the screen is now. */
fl_status fl_top_screen_fit(fl_top_cells *cells) FL_MUST_CHECK;

void fl_top_screen_show(const fl_top_cells *cells);

/* Wait for a key, for so long: a character or one of FL_TOP_KEY_... of top_ask.h; 0: none came, or
 * the size has changed, or a signal came. */
int fl_top_screen_key(int timeout_ms);

#endif
