#include "launcher/top/top_tail.h"

#include "device/alloc.h"
#include "device/regular_file.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

void fl_top_tail_open(fl_top_tail *t, const char *path)
{
    void *memory = NULL;
    *t = (fl_top_tail){.fd = -1};
    if (fl_alloc(FL_TOP_LINE_MAX + 1, &memory) == FL_OK) {
        t->text = memory;
        t->fd = fl_regular_file_open(AT_FDCWD, path, NULL);
        t->open = true;
    }
}

void fl_top_tail_close(fl_top_tail *t)
{
    if (t->open && t->fd >= 0) {
        close(t->fd);
    }
    fl_free(t->text);
    *t = (fl_top_tail){.fd = -1};
}

/* Read the next part of the file after the bytes in memory. False at the end of the file. */
static bool fill_buffer(fl_top_tail *t)
{
    memmove(t->text, t->text + t->from, t->n);
    t->from = 0;
    if (t->n == FL_TOP_LINE_MAX) {
        t->n = 0;
        t->skips = true;
    }
    ssize_t got = t->fd < 0 ? 0 : read(t->fd, t->text + t->n, FL_TOP_LINE_MAX - t->n);
    t->n += got > 0 ? (size_t)got : 0;
    return got > 0;
}

const char *fl_top_tail_next(fl_top_tail *t)
{
    while (t->open) {
        char *begin = t->text + t->from;
        char *end = memchr(begin, '\n', t->n);
        if (end == NULL) {
            if (!fill_buffer(t)) {
                return NULL;
            }
            continue;
        }
        size_t length = (size_t)(end - begin);
        bool whole = !t->skips;
        *end = 0;
        t->from += length + 1;
        t->n -= length + 1;
        t->skips = false;
        if (whole) {
            return begin;
        }
    }
    return NULL;
}
