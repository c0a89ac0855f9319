#include "launcher/run/runs/run_ending.h"

#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/files/regular_file.h"
#include "launcher/run/runs/returning.h"
#include "launcher/run/runs/run_hold.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100 };

/* What the record says. */
typedef struct run_record {
    bool exists, ends;
    long writer;  /* the process that has begun or continued the run last; 0: not known */
    long since_s; /* since the first event of the end; -1: not known */
} run_record;

static bool has_event(const char *line, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "\"event\": \"%s\"", name);
    return strstr(line, text) != NULL;
}

static void take_line(const char *line, run_record *record)
{
    static const char key[] = "\"controller_pid\": ", wall_key[] = "\"wall\": \"";
    static const char *const ends[] = {"run.stopping", "run.stopped", "run.failed", "run.finished"};
    const char *pid = strstr(line, key), *wall = strstr(line, wall_key);
    if (pid != NULL && (record->writer == 0 || has_event(line, "run.resumed"))) {
        record->writer = strtol(pid + strlen(key), NULL, 10);
    }
    record->ends = record->ends && !has_event(line, "run.resumed");
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !record->ends; i++) {
        record->ends = has_event(line, ends[i]);
        record->since_s =
            record->ends && wall != NULL ? fl_seconds_since(wall + strlen(wall_key)) : -1;
    }
}

static run_record read_record(int dir)
{
    run_record record = {.since_s = -1};
    int fd = fl_regular_file_open(dir, "events.jsonl", NULL);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t capacity = 0;
    record.exists = fd >= 0;
    while (file != NULL && getline(&line, &capacity, file) > 0) {
        take_line(line, &record);
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    } else if (fd >= 0) {
        close(fd);
    }
    return record;
}

/* A process that resumes a run leaves the end of its record as it is until its workers are ready.
 * The record has the process as that sees itself. */
fl_run_ending fl_run_ending_look(const char *path)
{
    fl_run_ending out = {.since_s = -1};
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && fl__run_is_held_in(dir, &out.holder)) {
        run_record record = read_record(dir);
        pid_t own = fl__run_own_pid(out.holder);
        out.starts = !record.exists;
        out.ends = record.ends && (own == 0 || own == record.writer);
        out.since_s = record.since_s;
    }
    if (dir >= 0) {
        close(dir);
    }
    return out;
}

int fl_run_await_end(const char *path, int64_t timeout_ms, int (*stop)(void))
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    int64_t until_us = fl_deadline_us(timeout_ms);
    int number = 0;
    fl_run_ending now = fl_run_ending_look(path);
    if (now.ends || now.starts) {
        fl_log(FL_LOG_INFO, "waits up to %lld s for the process that %s the run in %s",
               (long long)timeout_ms / 1000, now.ends ? "ends" : "starts", path);
    }
    while (number == 0 && (now.ends || now.starts) && fl_left_ms(until_us) > 0) {
        nanosleep(&pause, NULL);
        number = stop == NULL ? 0 : stop();
        now = fl_run_ending_look(path);
    }
    return number;
}
