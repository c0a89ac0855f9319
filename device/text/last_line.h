/* The last line that is not empty of what a program says, as it comes in pieces: a word that no
 * terminal obeys. */
#ifndef FL_DEVICE_TEXT_LAST_LINE_H
#define FL_DEVICE_TEXT_LAST_LINE_H

#include <stdbool.h>
#include <stddef.h>

enum { FL_LAST_LINE_MAX = 500 };

/* All zeros: nothing was said. */
typedef struct fl_last_line {
    char text[FL_LAST_LINE_MAX + 1]; /* a longer line ends in "...", after a whole character */
    size_t n;
    bool cut;
    bool whole; /* the line has ended: the next byte begins another one */
} fl_last_line;

void fl_last_line_add(fl_last_line *line, const char *text, size_t n);

#endif
