#include "control/events/runfiles.h"

#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FLUSH_BYTES = 64 * 1024 };

static int create(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
}

fl_status fl_runfiles_open(fl_runfiles *files, int dir_fd)
{
    *files = (fl_runfiles){.start_us = fl_now_us()};
    files->steps_fd = create(dir_fd, "steps.jsonl");
    files->events_fd = create(dir_fd, "events.jsonl");
    if (files->steps_fd < 0 || files->events_fd < 0) {
        fl_status status =
            fl_fail(FL_EIO, "cannot create %s in the run directory: %s",
                    files->steps_fd < 0 ? "steps.jsonl" : "events.jsonl", strerror(errno));
        fl_runfiles_close(files);
        return status;
    }
    return FL_OK;
}

void fl_runfiles_close(fl_runfiles *files)
{
    if (files->steps_fd >= 0) {
        fl_runfiles_flush(files);
        close(files->steps_fd);
    }
    if (files->events_fd >= 0) {
        close(files->events_fd);
    }
    files->steps_fd = files->events_fd = -1;
    fl_json_fini(&files->steps);
    fl_json_fini(&files->event);
}

static void write_lines(fl_runfiles *files, int fd, const char *name, const fl_json *lines)
{
    off_t before = lseek(fd, 0, SEEK_END);
    ssize_t n = lines->broken ? -1 : write(fd, lines->text, lines->n);
    if (n == (ssize_t)lines->n) {
        return;
    }
    /* No reader is to meet half a line. */
    int error = errno, cut = before < 0 ? -1 : ftruncate(fd, before);
    if (!files->warned) {
        files->warned = true;
        fl_log(FL_LOG_WARN, "cannot write %s (%s); lines of it will be missing%s", name,
               lines->broken ? "out of memory" : strerror(n < 0 ? error : ENOSPC),
               cut == 0 ? "" : ", one is cut");
    }
}

void fl_runfiles_step(fl_runfiles *files, const fl_step_report *step)
{
    fl_json *j = &files->steps;
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
    fl_json_close(j, '}');
    fl_json_newline(j);
    if (j->n >= FLUSH_BYTES) {
        fl_runfiles_flush(files);
    }
}

void fl_runfiles_flush(fl_runfiles *files)
{
    if (files->steps.n > 0 || files->steps.broken) {
        write_lines(files, files->steps_fd, "steps.jsonl", &files->steps);
        fl_json_reset(&files->steps);
    }
}

fl_json *fl_runfiles_event(fl_runfiles *files, const char *event, uint32_t generation)
{
    struct timespec now;
    struct tm utc;
    char wall[40], day[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(wall, sizeof wall, "%s.%03ldZ", day, now.tv_nsec / 1000000);

    fl_json *j = &files->event;
    fl_json_reset(j);
    fl_json_object(j, NULL);
    fl_json_rounded(j, "time", (double)(fl_now_us() - files->start_us) * 1e-6, 6);
    fl_json_text(j, "wall", wall);
    fl_json_text(j, "event", event);
    fl_json_integer(j, "generation", generation);
    return j;
}

void fl_runfiles_event_end(fl_runfiles *files)
{
    fl_json_close(&files->event, '}');
    fl_json_newline(&files->event);
    write_lines(files, files->events_fd, "events.jsonl", &files->event);
}
