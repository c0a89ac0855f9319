#include "launcher/run/runs/run_look.h"

#include "control/agent/join/wait_record.h"
#include "control/socket/ctl_names.h"
#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "device/system/machine_name.h"
#include "device/text/shown_text.h"
#include "launcher/run/runs/returning.h"
#include "launcher/run/runs/run_again.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/run_starting.h"
#include "nn/loss.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 512 * 1024 }; /* an event with all candidates is long */

const char *fl_run_state_text(fl_run_state state)
{
    static const char *const text[] = {"live", "finished", "stopped",    "failed",
                                       "lost", "starting", "recovering", "elsewhere"};
    return text[state];
}

bool fl_run_state_lives(fl_run_state state)
{
    return state == FL_RUN_LIVE || state == FL_RUN_STARTING || state == FL_RUN_RECOVERING;
}

const char *fl_run_unreachable_text(const fl_run_entry *entry, char text[FL_UNREACHABLE_TEXT])
{
    char process[32] = "its process";
    text[0] = '\0';
    if (entry->holder > 0) {
        snprintf(process, sizeof process, "process %ld", (long)entry->holder);
    }
    if (entry->unreachable) {
        snprintf(text, FL_UNREACHABLE_TEXT,
                 "goes on, but takes no requests: its " FL_CTL_SOCKET
                 " was removed or replaced; SIGINT or SIGTERM to %s ends the run",
                 process);
    }
    return text;
}

/* ---- lines of its files ---- */

/* The first or the last whole line of the file as JSON; NULL if there is none. A pipe of that name
 * is opened without blocking, and then has no line. */
static json_t *read_line(int fd, bool last, char *buffer)
{
    off_t size = lseek(fd, 0, SEEK_END);
    off_t from = last && size > LINE_MAX_BYTES ? size - LINE_MAX_BYTES : 0;
    ssize_t n = pread(fd, buffer, LINE_MAX_BYTES, from);
    if (n <= 0) {
        return NULL;
    }
    char *end = last ? memrchr(buffer, '\n', (size_t)n) : memchr(buffer, '\n', (size_t)n);
    if (end == NULL) {
        return NULL;
    }
    char *before = last ? memrchr(buffer, '\n', (size_t)(end - buffer)) : NULL;
    char *begin = before == NULL ? buffer : before + 1;
    return json_loadb(begin, (size_t)(end - begin), 0, NULL);
}

/* The offset of the last place where the file has `needle`; -1: it has none. Nothing is read behind
 * zeros, which a power failure or a hole leaves, of any length. */
static off_t find_last(int fd, const char *needle, char *buffer)
{
    size_t length = strlen(needle);
    const char *zero = NULL;
    off_t found = -1;
    ssize_t n;
    for (off_t from = 0;
         zero == NULL && (n = pread(fd, buffer, LINE_MAX_BYTES, from)) >= (ssize_t)length;
         from += n - (ssize_t)length + 1) {
        zero = memchr(buffer, 0, (size_t)n);
        const char *end = zero == NULL ? buffer + n : zero, *at = buffer;
        while ((at = memmem(at, (size_t)(end - at), needle, length)) != NULL) {
            found = from + (at - buffer);
            at++;
        }
    }
    return found;
}

/* The newest event of this name; NULL: the run has written no such event. */
static json_t *read_newest(int fd, const char *wanted, char *buffer)
{
    enum { BEFORE = 256 }; /* an event begins with its time and its name */
    char needle[64];
    snprintf(needle, sizeof needle, "\"event\": \"%s\"", wanted);
    off_t at = find_last(fd, needle, buffer);
    off_t from = at > BEFORE ? at - BEFORE : 0;
    ssize_t n = at < 0 ? 0 : pread(fd, buffer, LINE_MAX_BYTES, from);
    if (at < 0 || n <= at - from) {
        return NULL;
    }
    char *before = memrchr(buffer, '\n', (size_t)(at - from));
    char *begin = before == NULL ? buffer : before + 1;
    char *end = memchr(begin, '\n', (size_t)(buffer + n - begin));
    json_t *event = end == NULL ? NULL : json_loadb(begin, (size_t)(end - begin), 0, NULL);
    const char *name = json_string_value(json_object_get(event, "event"));
    if (name == NULL || strcmp(name, wanted) != 0) {
        json_decref(event); /* the text of another event */
        return NULL;
    }
    return event;
}

/* ---- what they say ---- */

static void copy_text(const json_t *object, const char *key, char *text, size_t size_bytes)
{
    const char *value = json_string_value(json_object_get(object, key));
    snprintf(text, size_bytes, "%s", value == NULL ? "" : value);
}

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double either(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

/* epoch: the newest event epoch.finished, for a run whose last event has no results; may be NULL */
static void read_metrics(const json_t *first, const json_t *last, const json_t *epoch,
                         fl_run_entry *entry)
{
    const json_t *model = json_object_get(first, "model"), *metric;
    size_t i;
    json_array_foreach(json_object_get(model, "metrics"), i, metric)
    {
        fl_metric_result to = {.is_share = json_is_true(json_object_get(metric, "share")),
                               .train = (double)NAN,
                               .validation = (double)NAN};
        char key[sizeof to.name + 8];
        copy_text(metric, "name", to.name, sizeof to.name);
        snprintf(key, sizeof key, "test_%s", to.name);
        to.test = either(real_of(last, key), real_of(epoch, key));
        if (fl_metric_name_is_valid(to.name) && entry->n_metrics < FL_METRICS_MAX) {
            entry->metrics[entry->n_metrics++] = to;
        }
    }
}

static void read_last(const json_t *last, fl_run_entry *entry)
{
    static const char *const ends[] = {"run.finished", "run.stopped", "run.failed"};
    const char *event = json_string_value(json_object_get(last, "event"));
    const json_t *steps = json_object_get(last, "steps");
    entry->state = FL_RUN_LOST;
    for (int i = 0; event != NULL && i < 3; i++) {
        if (strcmp(event, ends[i]) == 0) {
            entry->state = (fl_run_state)(FL_RUN_FINISHED + i);
            entry->steps = json_is_integer(steps) ? (int64_t)json_integer_value(steps) : -1;
            entry->skipped_steps =
                (int64_t)json_integer_value(json_object_get(last, "skipped_steps"));
            entry->loss = real_of(last, "train_loss");
            entry->test_accuracy = real_of(last, "test_accuracy");
            entry->record_incomplete = json_object_get(last, "record_missing") != NULL;
        }
    }
}

/* For a run without an end event: the newest step that it wrote. Its loss is that of the run if
 * this may train, or has finished no epoch. */
static void read_steps(int dir, char *buffer, fl_run_entry *entry)
{
    bool is_over = entry->state == FL_RUN_LOST || entry->state == FL_RUN_FAILED;
    int fd = fl_regular_file_open(dir, "steps.jsonl", NULL);
    json_t *line = fd < 0 ? NULL : read_line(fd, true, buffer);
    const json_t *step = json_object_get(line, "step");
    if (entry->state != FL_RUN_FAILED) {
        entry->steps = json_is_integer(step) ? (int64_t)json_integer_value(step) + 1 : 0;
    }
    entry->loss = is_over ? either(entry->loss, real_of(line, "loss")) : real_of(line, "loss");
    json_decref(line);
    if (fd >= 0) {
        close(fd);
    }
}

/* A run that was resumed may have become longer. */
static void read_length(int fd, const json_t *first, char *buffer, fl_run_entry *entry)
{
    json_t *resumed = read_newest(fd, "run.resumed", buffer);
    const json_t *steps = json_object_get(resumed == NULL ? first : resumed, "steps");
    entry->n_steps = (int64_t)json_integer_value(steps);
    json_decref(resumed);
}

static bool read_events(int dir, char *buffer, fl_run_entry *entry)
{
    int fd = fl_regular_file_open(dir, "events.jsonl", NULL);
    if (fd < 0) {
        return false;
    }
    json_t *first = read_line(fd, false, buffer);
    copy_text(first, "job", entry->job, sizeof entry->job);
    bool has_begun = json_is_string(json_object_get(first, "begun"));
    copy_text(first, has_begun ? "begun" : "wall", entry->started, sizeof entry->started);
    read_length(fd, first, buffer, entry);
    json_t *last = read_line(fd, true, buffer);
    read_last(last, entry);
    json_t *epoch = read_newest(fd, "epoch.finished", buffer);
    entry->loss = either(entry->loss, real_of(epoch, "train_loss"));
    entry->test_accuracy = either(entry->test_accuracy, real_of(epoch, "test_accuracy"));
    entry->n_metrics = 0;
    read_metrics(first, last, epoch, entry);
    json_decref(epoch);
    json_decref(first);
    json_decref(last);
    close(fd);
    return true;
}

/* Whether this process wrote the events. */
static bool is_writer(int fd, pid_t holder, char *buffer)
{
    json_t *resumed = read_newest(fd, "run.resumed", buffer);
    json_t *start = resumed == NULL ? read_line(fd, false, buffer) : resumed;
    const json_t *pid = json_object_get(start, "controller_pid");
    bool same = holder > 0 && json_integer_value(pid) == fl__run_own_pid(holder);
    json_decref(start);
    return same;
}

/* Whether this process has trained the run already: it goes back then, and does not start it. */
static bool has_run(int dir, pid_t holder, char *buffer)
{
    int fd = fl_regular_file_open(dir, "events.jsonl", NULL);
    bool ran = fd >= 0 && is_writer(fd, holder, buffer) &&
               find_last(fd, "\"event\": \"run.running\"", buffer) >= 0;
    if (fd >= 0) {
        close(fd);
    }
    return ran;
}

/* ---- the run ---- */

/* Whether the controller of this run was started on another machine. A socket takes connections
 * from processes of its own machine alone; locks may not reach others, and the process that has one
 * there has no number here. */
static bool is_elsewhere(int dir, pid_t holder, char *buffer, fl_run_entry *entry)
{
    char hostname[FL_HOSTNAME_BYTES], boot[FL_BOOT_ID_BYTES], its_boot[FL_BOOT_ID_BYTES];
    int fd = fl__run_own_pid(holder) > 0 ? -1 : fl_regular_file_open(dir, "events.jsonl", NULL);
    if (fd < 0) {
        return false;
    }
    json_t *resumed = read_newest(fd, "run.resumed", buffer);
    json_t *start = resumed == NULL ? read_line(fd, false, buffer) : resumed;
    copy_text(start, "hostname", entry->hostname, sizeof entry->hostname);
    copy_text(start, "boot_id", its_boot, sizeof its_boot);
    json_decref(start);
    close(fd);
    return its_boot[0] != '\0' && strcmp(its_boot, fl_boot_id(boot)) != 0 &&
           strcmp(entry->hostname, fl_hostname(hostname)) != 0;
}

/* Whether a run that has trained still listens, where no client finds it. One that goes back has
 * recorded that before it stops listening. */
static bool is_unreachable(const char *path, int dir, pid_t holder, char *buffer)
{
    char known[FL_RETURNING_TEXT];
    return has_run(dir, holder, buffer) && fl_run_is_unreachable(path) &&
           fl_run_returning(path, known)[0] == '\0';
}

/* The events show no end of the run, or there are none: it may have written none so far. */
static fl_status look_without_end(const char *path, int dir, char *buffer, fl_run_entry *entry)
{
    pid_t holder = 0;
    bool live = fl_run_is_live(path);
    if (live || fl__run_is_held_in(dir, &holder)) {
        bool elsewhere = !live && is_elsewhere(dir, holder, buffer, entry);
        entry->unreachable = !live && !elsewhere && is_unreachable(path, dir, holder, buffer);
        entry->holder = entry->unreachable ? holder : 0;
        entry->state = live || entry->unreachable     ? FL_RUN_LIVE
                       : elsewhere                    ? FL_RUN_ELSEWHERE
                       : has_run(dir, holder, buffer) ? FL_RUN_RECOVERING
                                                      : FL_RUN_STARTING;
    } else {
        bool any = read_events(dir, buffer, entry); /* it may have ended since they were read */
        entry->untrained = fl_run_again_is_due(dir);
        if (!any && !entry->untrained) {
            char shown[FL_SHOWN_PATH_BYTES];
            return fl_fail(FL_EINVAL, "%s: holds no run: there is no events.jsonl",
                           fl_text_shown(path, shown, sizeof shown));
        }
        bool may_live = entry->state == FL_RUN_LOST && !entry->untrained;
        entry->state = entry->untrained                                  ? FL_RUN_LOST
                       : may_live && is_elsewhere(dir, 0, buffer, entry) ? FL_RUN_ELSEWHERE
                                                                         : entry->state;
    }
    if (entry->started[0] == '\0' && (fl_run_state_lives(entry->state) || entry->untrained)) {
        fl_run_starting_read(path, dir, entry);
    }
    bool no_end = fl_run_state_lives(entry->state) || entry->state == FL_RUN_LOST ||
                  entry->state == FL_RUN_ELSEWHERE;
    if (!entry->untrained && no_end) {
        read_steps(dir, buffer, entry);
    }
    return FL_OK;
}

/* The events show an end. A process that resumes the run leaves them as they are until its workers
 * are ready; the one that wrote them is about to exit. One in another container has no number here:
 * it exits, unless it shows that it starts. */
static void look_after_end(const char *path, int dir, char *buffer, fl_run_entry *entry)
{
    char waits[FL_WAIT_TEXT];
    pid_t holder = 0;
    if (!fl__run_is_held_in(dir, &holder)) {
        return;
    }
    int fd = fl_regular_file_open(dir, "events.jsonl", NULL);
    if (fd >= 0 && !is_writer(fd, holder, buffer)) {
        bool starts = holder > 0 || fl_wait_record_text(path, waits)[0] != '\0';
        entry->state = fl_run_is_live(path) ? FL_RUN_LIVE : starts ? FL_RUN_STARTING : entry->state;
    }
    if (fd >= 0) {
        close(fd);
    }
}

fl_status fl_run_look(const char *path, fl_run_entry *entry)
{
    void *buffer = NULL;
    *entry = (fl_run_entry){.steps = -1, .loss = (double)NAN, .test_accuracy = (double)NAN};
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || realpath(path, entry->path) == NULL) {
        fl_status status = fl_fail(FL_EINVAL, "%s: %s", path, strerror(errno));
        if (dir >= 0) {
            close(dir);
        }
        return status;
    }
    const char *slash = strrchr(entry->path, '/');
    snprintf(entry->name, sizeof entry->name, "%s", slash == NULL ? entry->path : slash + 1);
    fl_status status = fl_alloc(LINE_MAX_BYTES, &buffer);
    if (status == FL_OK && (!read_events(dir, buffer, entry) || entry->state == FL_RUN_LOST)) {
        status = look_without_end(path, dir, buffer, entry);
    } else if (status == FL_OK) {
        look_after_end(path, dir, buffer, entry);
        if (entry->state == FL_RUN_FAILED) {
            read_steps(dir, buffer, entry);
        }
    }
    fl_free(buffer);
    close(dir);
    return status;
}
