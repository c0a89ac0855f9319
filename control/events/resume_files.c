#include "control/events/resume_files.h"

#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASHES_NAME "weights.jsonl"
#define HASHES_PART HASHES_NAME ".part"

enum { PIECE_BYTES = 64 * 1024, LINE_BYTES_MAX = 16 * 1024, HASH_LINE_MAX = 4096 };

static fl_status fail_errno(const char *name)
{
    return fl_fail(FL_EIO, "%s: %s", name, strerror(errno));
}

/* ---- looking ---- */

/* A named pipe in the file's place would make open itself wait. */
static fl_status open_file(int dir_fd, fl_runfile file, int flags, int *fd)
{
    const char *name = fl_runfile_name(file);
    struct stat what;
    *fd = openat(dir_fd, name, flags | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &what) != 0) {
        return fail_errno(name);
    }
    return S_ISREG(what.st_mode) ? FL_OK : fl_fail(FL_EFORMAT, "%s: not a regular file", name);
}

static fl_status check_line_end(int fd, const char *name, int64_t place)
{
    struct stat what;
    char before = 0;
    if (fstat(fd, &what) != 0) {
        return fail_errno(name);
    }
    if (place < 0 || what.st_size < place) {
        return fl_fail(FL_EFORMAT,
                       "%s: %" PRId64 " bytes found, at least %" PRId64
                       " expected: lines of before the checkpoint are missing",
                       name, (int64_t)what.st_size, place);
    }
    if (place > 0 && (pread(fd, &before, 1, place - 1) != 1 || before != '\n')) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": no end of a line found, where the checkpoint has one",
                       name, place);
    }
    return FL_OK;
}

/* The number of the step in the line that ends at `place`; -1: no such line. */
static int64_t last_step(int fd, int64_t place)
{
    char text[LINE_BYTES_MAX];
    int64_t from = place > LINE_BYTES_MAX ? place - LINE_BYTES_MAX : 0, step = -1;
    ssize_t n = pread(fd, text, (size_t)(place - from), from);
    if (n != place - from || n == 0) {
        return -1;
    }
    const char *before = memrchr(text, '\n', (size_t)n - 1);
    const char *line = before == NULL ? text : before + 1;
    json_t *object = json_loadb(line, (size_t)(text + n - line), 0, NULL);
    const json_t *value = json_object_get(object, "step");
    step = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    json_decref(object);
    return step;
}

static fl_status check_last_step(int fd, const fl_runfiles_place *place)
{
    int64_t found = last_step(fd, place->steps_bytes);
    return found == place->step - 1
               ? FL_OK
               : fl_fail(FL_EFORMAT,
                         "%s: byte %" PRId64 ": the line of step %" PRId64 " found, step %" PRId64
                         " expected before the checkpoint",
                         fl_runfile_name(FL_RUNFILE_STEPS), place->steps_bytes, found,
                         place->step - 1);
}

/* Lines from `from` on; the last one need not be whole. A power failure may leave zeros, of any
 * length: what follows the first of them counts as one line, and is not read. */
static fl_status count_lines(int fd, const char *name, int64_t from, int64_t *n_lines)
{
    char text[PIECE_BYTES];
    ssize_t n;
    bool whole = true, zeros = false;
    *n_lines = 0;
    while (!zeros && (n = pread(fd, text, sizeof text, from)) > 0) {
        const char *zero = memchr(text, 0, (size_t)n);
        zeros = zero != NULL;
        n = zeros ? zero - text + 1 : n;
        for (ssize_t i = 0; i < n; i++) {
            *n_lines += text[i] == '\n';
        }
        whole = text[n - 1] == '\n';
        from += n;
    }
    *n_lines += !whole;
    return n < 0 ? fail_errno(name) : FL_OK;
}

static fl_status look_at_file(int dir_fd, fl_runfile file, const fl_runfiles_place *place,
                              int64_t *n_cut)
{
    bool is_steps = file == FL_RUNFILE_STEPS;
    int64_t at = is_steps ? place->steps_bytes : place->events_bytes;
    int fd = -1;
    fl_status status = open_file(dir_fd, file, O_RDONLY, &fd);
    if (status == FL_OK) {
        status = check_line_end(fd, fl_runfile_name(file), at);
    }
    if (status == FL_OK && is_steps) {
        status = check_last_step(fd, place);
    }
    if (status == FL_OK) {
        status = count_lines(fd, fl_runfile_name(file), at, n_cut);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

fl_status fl_runfiles_check_place(int dir_fd, const fl_runfiles_place *place, fl_runfiles_cut *cut)
{
    fl_runfiles_cut own;
    fl_runfiles_cut *to = cut == NULL ? &own : cut;
    FL_TRY(look_at_file(dir_fd, FL_RUNFILE_STEPS, place, &to->n_steps));
    return look_at_file(dir_fd, FL_RUNFILE_EVENTS, place, &to->n_events);
}

/* ---- continuing ---- */

fl_status fl_runfiles_reopen(fl_runfiles *files, int dir_fd, const fl_runfiles_place *place)
{
    const int flags = O_WRONLY | O_APPEND;
    fl_runfiles_init(files);
    FL_TRY(fl_runfiles_check_place(dir_fd, place, NULL));
    fl_runfiles_set_clock(files, place->elapsed_s);
    files->waits = true;
    files->dir_fd = dir_fd;
    files->steps_bytes = place->steps_bytes;
    files->events_bytes = place->events_bytes;
    fl_status status = open_file(dir_fd, FL_RUNFILE_STEPS, flags, &files->fd[FL_RUNFILE_STEPS]);
    if (status == FL_OK) {
        status = open_file(dir_fd, FL_RUNFILE_EVENTS, flags, &files->fd[FL_RUNFILE_EVENTS]);
    }
    if (status != FL_OK) {
        fl_runfiles_close(files);
    }
    return status;
}

static fl_status cut_file(const fl_runfiles *files, fl_runfile file, int64_t place)
{
    return ftruncate(files->fd[file], place) == 0 ? FL_OK : fail_errno(fl_runfile_name(file));
}

fl_status fl_runfiles_continue(fl_runfiles *files)
{
    files->waits = false;
    FL_TRY(cut_file(files, FL_RUNFILE_STEPS, files->steps_bytes));
    FL_TRY(cut_file(files, FL_RUNFILE_EVENTS, files->events_bytes));
    FL_TRY(fl_runfiles_begin_summary(files, files->dir_fd));
    fl__runfiles_add_waiting(files);
    return FL_OK;
}

fl_status fl_runfiles_resume(fl_runfiles *files, int dir_fd, const fl_runfiles_place *place)
{
    FL_TRY(fl_runfiles_reopen(files, dir_fd, place));
    fl_status status = fl_runfiles_continue(files);
    if (status != FL_OK) {
        fl_runfiles_close(files);
    }
    return status;
}

/* ---- the hashes of weights ---- */

/* Whether the line is whole and has the hash of a layer after at most `step` steps. */
static bool is_kept(const char *line, size_t n, int64_t step)
{
    json_t *object = n > 0 && line[n - 1] == '\n' ? json_loadb(line, n, 0, NULL) : NULL;
    const json_t *value = json_object_get(object, "step");
    bool kept = json_is_integer(value) && json_integer_value(value) <= step;
    json_decref(object);
    return kept;
}

/* Up to the end, or to zeros, as a power failure leaves them. */
static bool copy_kept(FILE *from, FILE *to, int64_t step)
{
    char line[HASH_LINE_MAX];
    while (fgets(line, sizeof line, from) != NULL) {
        size_t n = strlen(line);
        if (n + 1 < sizeof line && (n == 0 || line[n - 1] != '\n')) {
            break;
        }
        if (is_kept(line, n, step) && fwrite(line, 1, n, to) != n) {
            return false;
        }
    }
    return !ferror(from) && fflush(to) == 0 && fsync(fileno(to)) == 0;
}

/* fdopen, or close. */
static FILE *stream_of(int fd, const char *mode)
{
    FILE *stream = fd < 0 ? NULL : fdopen(fd, mode);
    if (stream == NULL && fd >= 0) {
        close(fd);
    }
    return stream;
}

fl_status fl_runfiles_cut_hashes(int dir_fd, int64_t step)
{
    FILE *from = stream_of(openat(dir_fd, HASHES_NAME, O_RDONLY | O_CLOEXEC | O_NONBLOCK), "r");
    if (from == NULL) {
        return errno == ENOENT ? FL_OK : fail_errno(HASHES_NAME);
    }
    FILE *to = stream_of(fl_regular_file_replace(dir_fd, HASHES_PART, 0644), "w");
    bool good = to != NULL && copy_kept(from, to, step);
    int error = errno;
    fclose(from);
    if (to != NULL && fclose(to) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && renameat(dir_fd, HASHES_PART, dir_fd, HASHES_NAME) == 0) {
        return FL_OK;
    }
    errno = good ? errno : error;
    fl_status status = fail_errno(to == NULL ? HASHES_PART : HASHES_NAME);
    unlinkat(dir_fd, HASHES_PART, 0);
    return status;
}

/* ---- a run that cannot go back ---- */

/* The steps that the record has; -1: that cannot be read. */
static int64_t recorded_steps(int dir_fd)
{
    int fd = -1;
    struct stat what = {.st_size = 0};
    int64_t last = -2;
    if (open_file(dir_fd, FL_RUNFILE_STEPS, O_RDONLY, &fd) == FL_OK && fstat(fd, &what) == 0) {
        last = what.st_size == 0 ? -1 : last_step(fd, what.st_size);
    }
    if (fd >= 0) {
        close(fd);
    }
    return what.st_size > 0 && last < 0 ? -1 : last + 1;
}

static void write_message(fl_runfiles *files, const char *message)
{
    char text[FL_MESSAGE_MAX + 2];
    int n = snprintf(text, sizeof text, "%s\n", message);
    fl_runfiles_summary(files, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static int open_to_add(int dir_fd, fl_runfile file, int how)
{
    return openat(dir_fd, fl_runfile_name(file), O_WRONLY | how | O_CLOEXEC | O_NOFOLLOW);
}

void fl_runfiles_append_failed(int dir_fd, double elapsed_s, const char *message)
{
    int64_t steps = recorded_steps(dir_fd);
    fl_runfiles files;
    fl_runfiles_init(&files);
    fl_runfiles_set_clock(&files, elapsed_s);
    files.fd[FL_RUNFILE_EVENTS] = open_to_add(dir_fd, FL_RUNFILE_EVENTS, O_APPEND);
    files.fd[FL_RUNFILE_SUMMARY] = open_to_add(dir_fd, FL_RUNFILE_SUMMARY, 0);
    if (files.fd[FL_RUNFILE_EVENTS] < 0) {
        fl_log(FL_LOG_WARN, "%s: %s", fl_runfile_name(FL_RUNFILE_EVENTS), strerror(errno));
        fl_runfiles_close(&files);
        return;
    }
    fl_json *j = fl_runfiles_event(&files, "run.failed", 0);
    fl_json_text(j, "status", fl_status_text(FL_EFAILED));
    fl_json_text(j, "message", message);
    if (steps >= 0) {
        fl_json_integer(j, "steps", steps);
    }
    fl_runfiles_event_end(&files);
    if (files.fd[FL_RUNFILE_SUMMARY] >= 0) {
        write_message(&files, message);
    }
    fl_runfiles_close(&files);
}
