/* A screen as a value: what stands in each cell, drawn without a terminal. Whatever is drawn
 * outside is dropped, and what came from outside the program cannot steer a terminal. */
#ifndef FL_LAUNCHER_TOP_DRAW_TOP_CELLS_H
#define FL_LAUNCHER_TOP_DRAW_TOP_CELLS_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum fl_top_style {
    FL_TOP_PLAIN,
    FL_TOP_DIM,
    FL_TOP_BOLD,
    FL_TOP_TITLE,  /* of a part of the screen */
    FL_TOP_GOOD,   /* trains */
    FL_TOP_WARN,   /* waits, is paused, is slow */
    FL_TOP_BAD,    /* is lost, has failed */
    FL_TOP_FROZEN, /* below the frost line */
    FL_TOP_MOVE,   /* all-reduce */
    FL_TOP_READ,   /* data */
    FL_TOP_KEYS,   /* the bottom line */
    FL_TOP_STYLES,
} fl_top_style;

typedef struct fl_top_cell {
    uint32_t glyph; /* a character that is one cell wide */
    fl_top_style style;
} fl_top_cell;

/* Zeroed is empty. */
typedef struct fl_top_cells {
    int width, height;
    bool unicode;      /* false: ASCII alone */
    fl_top_cell *cell; /* [height * width] */
} fl_top_cells;

enum { FL_TOP_SIDE_MAX = 1000 }; /* cells; a larger screen is used up to here */

/* Make it so large (0 .. FL_TOP_SIDE_MAX each) and blank. On FL_ENOMEM it is as before. */
fl_status fl_top_cells_resize(fl_top_cells *cells, int width, int height) FL_MUST_CHECK;
void fl_top_cells_fini(fl_top_cells *cells);
void fl_top_cells_clear(fl_top_cells *cells);

/* One of the two, as the screen can show it. */
uint32_t fl_top_glyph(const fl_top_cells *cells, uint32_t unicode, char ascii);

void fl_top_put(fl_top_cells *cells, int x, int y, fl_top_style style, uint32_t glyph);
void fl_top_fill(fl_top_cells *cells, int x, int y, int n, fl_top_style style, uint32_t glyph);

/* Write UTF-8 text into at most `room` cells from x on; what does not fit is cut, the last cell
 * then being an ellipsis. Characters that steer a terminal, or are not one cell wide, become '?'.
 * Returns x behind the text. */
int fl_top_text(fl_top_cells *cells, int x, int y, int room, fl_top_style style, const char *text);

/* Longer text over several lines of `room` cells each, broken at spaces: how many lines it takes,
 * at most `most`; and the same text in n lines from y on, the last one cut where that is too few.
 */
int fl_top_n_lines(const fl_top_cells *cells, int room, int most, const char *text);
void fl_top_lines(fl_top_cells *cells, int x, int y, int room, int n, fl_top_style style,
                  const char *text);

int fl_top_printf(fl_top_cells *cells, int x, int y, int room, fl_top_style style,
                  const char *format, ...) FL_PRINTF(6, 7);

/* As UTF-8 (or ASCII) lines, without blanks at the ends of lines and blank lines at the end. */
void fl_top_cells_write(const fl_top_cells *cells, FILE *out);

/* The character as UTF-8: bytes [5], ended by 0. */
void fl_top_utf8(uint32_t glyph, char bytes[5]);

#endif
