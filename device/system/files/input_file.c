#include "device/system/files/input_file.h"

#include "device/system/clock.h"
#include "device/system/files/file_kind.h"
#include "device/text/shown_text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static fl_status refuse_kind(const char *path, mode_t mode)
{
    char shown[FL_SHOWN_PATH_BYTES];
    return fl_fail(FL_EIO, "%s: cannot be read: found %s, allowed: a file, a pipe or a terminal",
                   fl_text_shown(path, shown, sizeof shown), fl_file_kind(mode));
}

static fl_status fail_open(const char *path)
{
    char shown[FL_SHOWN_PATH_BYTES];
    struct stat what;
    int error = errno;
    if (error == ENXIO && stat(path, &what) == 0 && S_ISSOCK(what.st_mode)) {
        return refuse_kind(path, what.st_mode);
    }
    return fl_fail(FL_EIO, "%s: cannot be opened: %s", fl_text_shown(path, shown, sizeof shown),
                   strerror(error));
}

fl_status fl__input_open_within(const char *path, int writer_ms, int whole_ms, fl_input *in)
{
    struct stat what;
    /* Without O_NONBLOCK, open itself would wait for a named pipe's writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return fail_open(path);
    }
    if (fstat(fd, &what) != 0) {
        fl_status status = fail_open(path);
        close(fd);
        return status;
    }
    if (!S_ISREG(what.st_mode) && !S_ISFIFO(what.st_mode) && isatty(fd) == 0) {
        close(fd);
        return refuse_kind(path, what.st_mode);
    }
    *in = (fl_input){.path = path,
                     .fd = fd,
                     .is_regular = S_ISREG(what.st_mode),
                     .has_writer = !S_ISFIFO(what.st_mode),
                     .whole_ms = whole_ms,
                     .writer_us = fl_deadline_us(writer_ms),
                     .until_us = fl_deadline_us(whole_ms)};
    return FL_OK;
}

fl_status fl_input_open(const char *path, fl_input *in)
{
    return fl__input_open_within(path, FL_INPUT_WRITER_MS, FL_INPUT_WHOLE_MS, in);
}

void fl_input_close(fl_input *in)
{
    close(in->fd);
    in->fd = -1;
}

static fl_status check_limits(const fl_input *in)
{
    if (in->is_regular) {
        return FL_OK;
    }
    if (fl_left_ms(in->until_us) == 0) {
        return fl_fail(FL_EIO,
                       "%s: cannot be read: it has not ended in %d s; allowed: a file, or a pipe "
                       "whose writer ends by then",
                       in->path, in->whole_ms / 1000);
    }
    return in->n_bytes <= FL_INPUT_PIPE_BYTES
               ? FL_OK
               : fl_fail(FL_EIO, "%s: cannot be read: more than %d MiB from a pipe", in->path,
                         FL_INPUT_PIPE_BYTES >> 20);
}

/* Wait for bytes or the end. 0: the time for that is over. */
static int await(const fl_input *in)
{
    if (in->is_regular) {
        return 1;
    }
    struct pollfd one = {.fd = in->fd, .events = POLLIN};
    return poll(&one, 1, (int)fl_left_ms(in->has_writer ? in->until_us : in->writer_us));
}

/* A named pipe without a writer has no bytes for poll, and an end for read. */
fl_status fl_input_read(fl_input *in, void *buffer, size_t capacity, size_t *n)
{
    for (;;) {
        FL_TRY(check_limits(in));
        int ready = await(in);
        ssize_t got = ready < 0 ? -1 : read(in->fd, buffer, capacity);
        bool again = got < 0 && errno == EAGAIN;
        /* A file of the kernel may wait for what comes next, as /proc/kmsg does. */
        if (got < 0 && errno != EINTR && (!again || in->is_regular)) {
            return fl_fail(FL_EIO, "%s: cannot be read: %s", in->path,
                           again ? "it has no end" : strerror(errno));
        }
        if (got == 0 && ready == 0 && !in->has_writer) {
            return fl_fail(FL_EIO, "%s: cannot be read: a pipe, and no program writes to it",
                           in->path);
        }
        in->has_writer = in->has_writer || ready > 0 || again;
        if (got >= 0) {
            in->n_bytes += got;
            *n = (size_t)got;
            return FL_OK;
        }
    }
}

fl_status fl_input_fill(fl_input *in, void *text, size_t capacity, size_t *length)
{
    *length = 0;
    for (size_t n = 1; n > 0 && *length < capacity; *length += n) {
        FL_TRY(fl_input_read(in, (char *)text + *length, capacity - *length, &n));
    }
    return FL_OK;
}

fl_status fl_input_load(const char *path, void *text, size_t capacity, size_t *length)
{
    fl_input in;
    FL_TRY(fl_input_open(path, &in));
    fl_status status = fl_input_fill(&in, text, capacity, length);
    fl_input_close(&in);
    return status;
}
