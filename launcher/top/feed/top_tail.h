/* A file that somebody else appends lines to, read line by line as far as it goes. One thread. */
#ifndef FL_LAUNCHER_TOP_FEED_TOP_TAIL_H
#define FL_LAUNCHER_TOP_FEED_TOP_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed is closed. */
typedef struct fl_top_tail {
    int fd;           /* -1: the file could not be opened */
    bool open, skips; /* skips: the rest of a line that is too long */
    char *text;       /* [FL_TOP_LINE_MAX + 1] */
    size_t from, n;   /* of text: what is not handed out yet */
    int64_t at;       /* bytes of the file that were read, */
    char last[64];    /* [n_last] and the last of them */
    size_t n_last;
    bool was_cut; /* the file was cut and continued: its lines come again from the first one. The
                     reader sets it to false. */
} fl_top_tail;

enum { FL_TOP_LINE_MAX = 1 << 20 /* bytes; longer lines are passed over */ };

/* A file that is not there has no lines. */
void fl_top_tail_open(fl_top_tail *tail, const char *path);
void fl_top_tail_close(fl_top_tail *tail);

/* The next complete line without its newline, borrowed until the next call; NULL if there is none
 * yet. Never waits. */
const char *fl_top_tail_next(fl_top_tail *tail);

#endif
