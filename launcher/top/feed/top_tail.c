#include "launcher/top/feed/top_tail.h"

#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"

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

/* A run that goes back cuts its files and continues them: what was read does not stand there any
 * more. */
static bool is_cut(const fl_top_tail *t)
{
    char now[sizeof t->last];
    ssize_t n = t->n_last == 0 ? 0 : pread(t->fd, now, t->n_last, t->at - (off_t)t->n_last);
    return n != (ssize_t)t->n_last || memcmp(now, t->last, t->n_last) != 0;
}

static void begin_again(fl_top_tail *t)
{
    (void)lseek(t->fd, 0, SEEK_SET);
    t->from = t->n = t->n_last = 0;
    t->at = 0;
    t->skips = false;
    t->was_cut = true;
}

static void remember_last(fl_top_tail *t)
{
    size_t n = t->at < (int64_t)sizeof t->last ? (size_t)t->at : sizeof t->last;
    ssize_t got = pread(t->fd, t->last, n, t->at - (off_t)n);
    t->n_last = got == (ssize_t)n ? n : 0;
}

/* Read the next part of the file after the bytes in memory. False at the end of the file. */
static bool fill_buffer(fl_top_tail *t)
{
    memmove(t->text, t->text + t->from, t->n);
    t->from = 0;
    if (t->fd >= 0 && is_cut(t)) {
        begin_again(t);
    }
    if (t->n == FL_TOP_LINE_MAX) {
        t->n = 0;
        t->skips = true;
    }
    ssize_t got = t->fd < 0 ? 0 : read(t->fd, t->text + t->n, FL_TOP_LINE_MAX - t->n);
    if (got <= 0) {
        return false;
    }
    t->n += (size_t)got;
    t->at += got;
    remember_last(t);
    return true;
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
