#include "control/events/runfiles.h"

#include "control/events/begun.h"
#include "control/events/fields.h"
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/files/regular_file.h"
#include "device/text/plural.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FLUSH_BYTES = 64 * 1024,
    RESERVE_BYTES = 32 * 1024,        /* after the last event: for the end of the run */
    SUMMARY_RESERVE_BYTES = 8 * 1024, /* of summary.txt */
};

static const char NO_END[] = "This run has not ended, or its controller was killed.\n";

const char *fl_runfile_name(fl_runfile file)
{
    static const char *const name[] = {"steps.jsonl", "events.jsonl", "summary.txt"};
    return name[file];
}

void fl_runfiles_init(fl_runfiles *files)
{
    *files = (fl_runfiles){.fd = {-1, -1, -1}};
}

/* Reserve disk space after the end of a file, without changing its length. False if the disk has no
 * space; true also where the file system cannot reserve any. */
static bool reserve_space(int fd, off_t from, off_t size_bytes)
{
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, from, size_bytes) == 0 ||
           (errno != ENOSPC && errno != EDQUOT);
}

/* Open a file of records, to which lines are added. */
static int open_record(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
}

static fl_status create_file(fl_runfiles *files, int dir_fd, fl_runfile file)
{
    const char *name = fl_runfile_name(file);
    files->fd[file] = file == FL_RUNFILE_SUMMARY ? fl_regular_file_replace(dir_fd, name, 0644)
                                                 : open_record(dir_fd, name);
    return files->fd[file] >= 0 ? FL_OK
                                : fl_fail(FL_EIO, "cannot create %s in the run directory: %s", name,
                                          strerror(errno));
}

fl_status fl_runfiles_begin_summary(fl_runfiles *files, int dir_fd)
{
    FL_TRY(create_file(files, dir_fd, FL_RUNFILE_SUMMARY));
    off_t end = lseek(files->fd[FL_RUNFILE_EVENTS], 0, SEEK_END);
    files->full = !reserve_space(files->fd[FL_RUNFILE_EVENTS], end < 0 ? 0 : end, RESERVE_BYTES);
    (void)reserve_space(files->fd[FL_RUNFILE_SUMMARY], 0, SUMMARY_RESERVE_BYTES);
    fl_runfiles_summary(files, NO_END, sizeof NO_END - 1);
    return FL_OK;
}

static fl_status create_all(fl_runfiles *files, int dir_fd)
{
    FL_TRY(create_file(files, dir_fd, FL_RUNFILE_STEPS));
    FL_TRY(create_file(files, dir_fd, FL_RUNFILE_EVENTS));
    return fl_runfiles_begin_summary(files, dir_fd);
}

void fl_runfiles_set_clock(fl_runfiles *files, double elapsed_s)
{
    files->start_us = fl_now_us() - (int64_t)(elapsed_s * 1e6);
    files->start_wall_s = (double)fl_now_wall_ns() * 1e-9 - elapsed_s;
}

fl_status fl_runfiles_open(fl_runfiles *files, int dir_fd)
{
    fl_runfiles_init(files);
    fl_runfiles_set_clock(files, 0.0);
    files->begun_ms = fl_begun_read(dir_fd);
    fl_status status = create_all(files, dir_fd);
    if (status != FL_OK) {
        fl_runfiles_close(files);
    }
    return status;
}

/* reserved: release the space reserved after the end. */
static void close_file(int *fd, bool reserved)
{
    off_t end = *fd < 0 || !reserved ? -1 : lseek(*fd, 0, SEEK_END);
    if (end >= 0 && ftruncate(*fd, end) != 0) {
        fl_log(FL_LOG_DEBUG, "a file of the run keeps its reserve: %s", strerror(errno));
    }
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void fl_runfiles_close(fl_runfiles *files)
{
    if (files->fd[FL_RUNFILE_STEPS] >= 0) {
        fl_runfiles_flush(files);
    }
    for (int i = 0; i < FL_RUNFILES; i++) {
        close_file(&files->fd[i], !files->waits);
    }
    fl_json_fini(&files->steps);
    fl_json_fini(&files->event);
    fl_json_fini(&files->waiting);
}

/* ---- gaps ---- */

static void note_gap(fl_runfiles *files, fl_runfile file, int64_t n_lines, int64_t step, int error)
{
    fl_runfile_gap *gap = &files->gap[file];
    if (gap->n_lines == 0) {
        gap->first_step = step;
        gap->error = error;
    }
    gap->n_lines += n_lines;
}

void fl_runfiles_look(fl_runfiles *files)
{
    struct stat info;
    for (int i = 0; i < FL_RUNFILES; i++) {
        if (files->fd[i] >= 0 && fstat(files->fd[i], &info) == 0 && info.st_nlink == 0) {
            files->gap[i].removed = true;
        }
    }
}

const char *fl_runfile_gap_text(const fl_runfiles *files, fl_runfile file, char *text,
                                size_t size_bytes)
{
    const fl_runfile_gap *gap = &files->gap[file];
    const char *name = fl_runfile_name(file), *why = strerror(gap->error);
    char n[48];
    text[0] = 0;
    if (gap->removed) {
        snprintf(text, size_bytes, "%s was removed while the run trained", name);
    } else if (gap->n_lines > 0 && file == FL_RUNFILE_STEPS) {
        snprintf(text, size_bytes, "%s lacks %s, from step %" PRId64 " on (%s)", name,
                 fl_count(gap->n_lines, "step", n), gap->first_step, why);
    } else if (gap->n_lines > 0 && file == FL_RUNFILE_EVENTS) {
        snprintf(text, size_bytes, "%s lacks %s (%s)", name, fl_count(gap->n_lines, "event", n),
                 why);
    } else if (gap->n_lines > 0) {
        snprintf(text, size_bytes, "%s could not be written (%s)", name, why);
    }
    return text;
}

/* ---- lines ---- */

int fl_runfile_append(int fd, const char *text, size_t size_bytes)
{
    off_t before = lseek(fd, 0, SEEK_END);
    ssize_t n = write(fd, text, size_bytes);
    if (n == (ssize_t)size_bytes) {
        return 0;
    }
    /* Only a write that makes no progress reports why. */
    ssize_t rest = n < 0 ? n : write(fd, text + n, size_bytes - (size_t)n);
    int error = rest < 0 ? errno : ENOSPC;
    if (n > 0 && (before < 0 || ftruncate(fd, before) != 0)) {
        fl_log(FL_LOG_WARN, "a line of the run's record is cut: %s", strerror(errno));
    }
    return error;
}

static int write_lines(int fd, const fl_json *lines)
{
    return lines->broken ? ENOMEM : fl_runfile_append(fd, lines->text, lines->n);
}

void fl_runfiles_step(fl_runfiles *files, const fl_metric_list *metrics, const fl_step_report *step)
{
    fl_json *j = &files->steps;
    files->first_step = files->n_steps++ == 0 ? step->step : files->first_step;
    j->comma = false;
    fl_json_object(j, NULL);
    fl_json_integer(j, "step", step->step);
    fl_json_integer(j, "epoch", step->epoch);
    fl_json_real(j, "loss", step->loss);
    fl_json_real(j, "grad_norm", step->grad_norm);
    fl_json_real(j, "lr", step->lr);
    fl_json_integer(j, "generation", step->generation);
    fl_json_integer(j, "f", step->f);
    fl_json_integer(j, "k", step->k);
    fl_json_integer(j, "r", step->r);
    fl_json_integer(j, "m", step->m);
    fl_json_rounded(j, "ms", step->ms, 3);
    fl_json_integer(j, "samples", step->samples);
    fl_json_integer(j, "tokens", step->tokens);
    fl_fields_metrics(j, "train", metrics, &step->metrics);
    if (step->skipped) {
        fl_json_bool(j, "skipped", true);
    }
    fl_json_close(j, '}');
    fl_json_newline(j);
    if (j->n >= FLUSH_BYTES) {
        fl_runfiles_flush(files);
    }
}

void fl_runfiles_flush(fl_runfiles *files)
{
    if (files->n_steps == 0 || files->waits) {
        return;
    }
    int error = write_lines(files->fd[FL_RUNFILE_STEPS], &files->steps);
    if (error != 0) {
        note_gap(files, FL_RUNFILE_STEPS, files->n_steps, files->first_step, error);
    }
    fl_json_reset(&files->steps);
    files->n_steps = 0;
}

/* ---- events ---- */

/* The events without which a reader would not know how the run ended. */
static bool is_vital(const char *event)
{
    static const char *const vital[] = {"record.incomplete", "worker.lost", "agent.lost",
                                        "run.finished",      "run.stopped", "run.failed",
                                        "run.returning"};
    for (size_t i = 0; i < sizeof vital / sizeof *vital; i++) {
        if (strcmp(event, vital[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* 1.5 -> "1970-01-01T00:00:01.500Z". Returns text. */
static const char *utc_text(double wall_s, char text[40])
{
    time_t seconds = (time_t)wall_s;
    struct tm utc;
    char day[24];
    gmtime_r(&seconds, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, 40, "%s.%03dZ", day, (int)((wall_s - (double)seconds) * 1e3));
    return text;
}

fl_json *fl_runfiles_event(fl_runfiles *files, const char *event, uint32_t generation)
{
    const fl_run_moment now = {.time_s = (double)(fl_now_us() - files->start_us) * 1e-6,
                               .wall_s = (double)fl_now_wall_ns() * 1e-9};
    return fl_runfiles_event_at(files, event, generation, &now);
}

fl_json *fl_runfiles_event_at(fl_runfiles *files, const char *event, uint32_t generation,
                              const fl_run_moment *at)
{
    char wall[40];
    fl_json *j = &files->event;
    files->event_is_vital = is_vital(event);
    fl_json_reset(j);
    fl_json_object(j, NULL);
    fl_json_rounded(j, "time", at->time_s, 6);
    fl_json_text(j, "wall", utc_text(at->wall_s, wall));
    fl_json_text(j, "event", event);
    fl_json_integer(j, "generation", generation);
    return j;
}

/* It stays in memory until the files are cut. */
static void keep_event(fl_runfiles *files)
{
    files->waiting.comma = false;
    files->waiting.broken = files->waiting.broken || files->event.broken;
    fl_json_fields(&files->waiting, &files->event);
}

static void reserve_end(fl_runfiles *files)
{
    int fd = files->fd[FL_RUNFILE_EVENTS];
    off_t end = lseek(fd, 0, SEEK_END);
    files->full = end >= 0 && !reserve_space(fd, end, RESERVE_BYTES);
}

void fl_runfiles_event_end(fl_runfiles *files)
{
    int fd = files->fd[FL_RUNFILE_EVENTS];
    fl_json_close(&files->event, '}');
    fl_json_newline(&files->event);
    if (files->waits) {
        keep_event(files);
        return;
    }
    int error = files->full && !files->event_is_vital ? ENOSPC : write_lines(fd, &files->event);
    if (error != 0) {
        note_gap(files, FL_RUNFILE_EVENTS, 1, 0, error);
    }
    reserve_end(files);
}

static int64_t count_lines(const fl_json *lines)
{
    int64_t n = 0;
    for (size_t i = 0; i < lines->n; i++) {
        n += lines->text[i] == '\n';
    }
    return n;
}

int64_t fl_runfiles_events_bytes(const fl_runfiles *files)
{
    off_t end = lseek(files->fd[FL_RUNFILE_EVENTS], 0, SEEK_END);
    return files->waits ? files->events_bytes + (int64_t)files->waiting.n
           : end < 0    ? 0
                        : (int64_t)end;
}

void fl__runfiles_add_waiting(fl_runfiles *files)
{
    int64_t n = count_lines(&files->waiting);
    int error = n == 0        ? 0
                : files->full ? ENOSPC
                              : write_lines(files->fd[FL_RUNFILE_EVENTS], &files->waiting);
    if (error != 0) {
        note_gap(files, FL_RUNFILE_EVENTS, n, 0, error);
    }
    fl_json_fini(&files->waiting);
    reserve_end(files);
}

/* ---- the summary ---- */

void fl_runfiles_summary(fl_runfiles *files, const char *text, size_t size_bytes)
{
    int fd = files->fd[FL_RUNFILE_SUMMARY];
    if (files->waits) {
        return;
    }
    ssize_t n = pwrite(fd, text, size_bytes, 0); /* it overwrites the reserved space */
    if (n != (ssize_t)size_bytes || ftruncate(fd, (off_t)size_bytes) != 0) {
        note_gap(files, FL_RUNFILE_SUMMARY, 1, 0, n >= 0 ? ENOSPC : errno);
    }
}
