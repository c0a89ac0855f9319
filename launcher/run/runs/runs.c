#include "launcher/run/runs/runs.h"

#include "control/socket/ctl_names.h"
#include "device/alloc.h"
#include "device/log.h"
#include "device/regular_file.h"
#include "nn/loss.h"

#include <frostline/job.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HELD_FILE "job.yaml" /* written before events.jsonl */

enum { LINE_MAX_BYTES = 512 * 1024 }; /* an event with all candidates is long */

const char *fl_run_state_text(fl_run_state state)
{
    static const char *const text[] = {"live", "finished", "stopped",   "failed",
                                       "lost", "starting", "recovering"};
    return text[state];
}

bool fl_run_state_lives(fl_run_state state)
{
    return state == FL_RUN_LIVE || state == FL_RUN_STARTING || state == FL_RUN_RECOVERING;
}

/* ---- liveness ---- */

/* A socket's path is limited to 107 bytes; a run directory's path may be longer. */
bool fl_run_is_live(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" FL_CTL_SOCKET, dir);
    /* A full queue of connections is a sign of life, too. */
    bool live = fd >= 0 &&
                (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN);
    if (fd >= 0) {
        close(fd);
    }
    if (dir >= 0) {
        close(dir);
    }
    return live;
}

/* A lock of the process, not of the descriptor: workers do not inherit it, and it goes with the
 * controller however that dies. */
bool fl_run_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &whole) == 0;
}

int fl_run_hold(int dir_fd)
{
    int fd = openat(dir_fd, HELD_FILE, O_RDWR | O_CLOEXEC);
    if (fd < 0 || !fl_run_lock(fd)) {
        fl_log(FL_LOG_DEBUG, "cannot lock " HELD_FILE ": %s", strerror(errno));
    }
    return fd;
}

/* Whether the open file still has the name: another process may have replaced it. */
static bool is_current(int dir_fd, int fd)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && fstatat(dir_fd, HELD_FILE, &there, 0) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

fl_status fl_run_take(int dir_fd, int *held_fd)
{
    int fd = openat(dir_fd, HELD_FILE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fl_fail(FL_EIO, HELD_FILE ": %s", strerror(errno));
    }
    if (fl_run_lock(fd) && is_current(dir_fd, fd)) {
        *held_fd = fd;
        return FL_OK;
    }
    close(fd);
    return fl_fail(FL_EINVAL, HELD_FILE " is locked: another process trains or resumes this run");
}

/* *holder: the process, 0 if that is in another name space or on another host. */
static bool is_held(int dir, pid_t *holder)
{
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = openat(dir, HELD_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool held = fd >= 0 && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    *holder = held ? whole.l_pid : 0;
    if (fd >= 0) {
        close(fd);
    }
    return held;
}

bool fl_run_is_held(const char *path)
{
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    pid_t holder;
    bool held = dir >= 0 && is_held(dir, &holder);
    if (dir >= 0) {
        close(dir);
    }
    return held;
}

/* ---- contents of its events ---- */

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

static void read_metrics(const json_t *first, const json_t *last, fl_run_entry *entry)
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
        to.test = real_of(last, key);
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

/* For a run without an end event: the newest step that it wrote. */
static void read_steps(int dir, char *buffer, fl_run_entry *entry)
{
    int fd = fl_regular_file_open(dir, "steps.jsonl", NULL);
    json_t *line = fd < 0 ? NULL : read_line(fd, true, buffer);
    const json_t *step = json_object_get(line, "step");
    entry->steps = json_is_integer(step) ? (int64_t)json_integer_value(step) + 1 : 0;
    entry->loss = real_of(line, "loss");
    json_decref(line);
    if (fd >= 0) {
        close(fd);
    }
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

/* The newest event run.resumed; NULL: the run was never resumed. */
static json_t *read_resumed(int fd, char *buffer)
{
    enum { BEFORE = 256 }; /* an event begins with its time and its name */
    off_t at = find_last(fd, "\"event\": \"run.resumed\"", buffer);
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
    if (name == NULL || strcmp(name, "run.resumed") != 0) {
        json_decref(event); /* the text of another event */
        return NULL;
    }
    return event;
}

/* A run that was resumed may have become longer. */
static void read_length(int fd, const json_t *first, char *buffer, fl_run_entry *entry)
{
    json_t *resumed = read_resumed(fd, buffer);
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
    copy_text(first, "wall", entry->started, sizeof entry->started);
    read_length(fd, first, buffer, entry);
    json_t *last = read_line(fd, true, buffer);
    read_last(last, entry);
    entry->n_metrics = 0;
    read_metrics(first, last, entry);
    json_decref(first);
    json_decref(last);
    close(fd);
    return true;
}

/* Whether this process has trained the run already: it goes back then, and does not start it. */
static bool has_run(int dir, pid_t holder, char *buffer)
{
    int fd = fl_regular_file_open(dir, "events.jsonl", NULL);
    if (fd < 0) {
        return false;
    }
    json_t *resumed = read_resumed(fd, buffer);
    json_t *start = resumed == NULL ? read_line(fd, false, buffer) : resumed;
    const json_t *pid = json_object_get(start, "controller_pid");
    bool same = holder > 0 && json_integer_value(pid) == holder;
    bool ran = same && find_last(fd, "\"event\": \"run.running\"", buffer) >= 0;
    json_decref(start);
    close(fd);
    return ran;
}

/* The events show no end of the run. */
static void look_without_end(const char *path, int dir, char *buffer, fl_run_entry *entry)
{
    pid_t holder = 0;
    bool live = fl_run_is_live(path);
    if (live || is_held(dir, &holder)) {
        entry->state = live                           ? FL_RUN_LIVE
                       : has_run(dir, holder, buffer) ? FL_RUN_RECOVERING
                                                      : FL_RUN_STARTING;
    } else {
        read_events(dir, buffer, entry); /* it may have ended since they were read */
    }
    if (fl_run_state_lives(entry->state) || entry->state == FL_RUN_LOST) {
        read_steps(dir, buffer, entry);
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
    if (status == FL_OK && !read_events(dir, buffer, entry)) {
        status = fl_fail(FL_EINVAL, "%s: holds no run: there is no events.jsonl", path);
    }
    if (status == FL_OK && entry->state == FL_RUN_LOST) {
        look_without_end(path, dir, buffer, entry);
    }
    fl_free(buffer);
    close(dir);
    return status;
}

/* ---- all runs ---- */

static int newest_first(const void *a, const void *b)
{
    const fl_run_entry *left = a, *right = b;
    int order = strcmp(right->started, left->started);
    return order != 0 ? order : strcmp(left->name, right->name);
}

static fl_status add_entry(fl_run_entry **entries, int *n, const fl_run_entry *entry)
{
    size_t size = sizeof *entry, count = (size_t)*n;
    void *larger = *entries;
    FL_TRY(fl_realloc(&larger, count * size, (count + 1) * size));
    *entries = larger;
    (*entries)[(*n)++] = *entry;
    return FL_OK;
}

fl_status fl_runs_list(const char *dir, fl_run_entry **entries, int *n)
{
    DIR *stream = opendir(dir);
    fl_status status = FL_OK;
    fl_run_entry entry;
    *entries = NULL;
    *n = 0;
    if (stream == NULL && errno == ENOENT) {
        return fl_fail(FL_EIO, "no runs here: there is no folder %s", dir);
    }
    if (stream == NULL) {
        return fl_fail(FL_EIO, "%s: %s", dir, strerror(errno));
    }
    for (struct dirent *d = readdir(stream); d != NULL && status == FL_OK; d = readdir(stream)) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", dir, d->d_name);
        if (d->d_name[0] != '.' && length > 0 && (size_t)length < sizeof path &&
            fl_run_look(path, &entry) == FL_OK) {
            status = add_entry(entries, n, &entry);
        }
    }
    closedir(stream);
    if (status != FL_OK) {
        fl_free(*entries);
        *entries = NULL;
        *n = 0;
    } else if (*n > 1) {
        qsort(*entries, (size_t)*n, sizeof **entries, newest_first);
    }
    return status;
}

/* ---- the run that the user means ---- */

static bool is_meant(const fl_run_entry *entry, const char *name)
{
    return name == NULL || strcmp(entry->name, name) == 0 || strcmp(entry->job, name) == 0;
}

static fl_status check_live(const fl_run_entry *entry, const char *name)
{
    if (entry->state == FL_RUN_STARTING) {
        return fl_fail(FL_EBUSY, "%s: the run is starting and does not answer yet; ask again",
                       name);
    }
    if (entry->state == FL_RUN_RECOVERING) {
        return fl_fail(FL_EBUSY,
                       "%s: recovering: the run goes back after a loss, and answers once its hosts "
                       "have joined again and its workers start; ask again",
                       name);
    }
    return entry->state == FL_RUN_LIVE ? FL_OK
                                       : fl_fail(FL_EINVAL, "%s: the run is over (%s)", name,
                                                 fl_run_state_text(entry->state));
}

/* What was found among the runs of a directory. */
typedef struct below {
    bool any;           /* a run that matches was found */
    int n, n_live;      /* of all runs */
    bool any_over;      /* a run matches, but has ended: */
    fl_run_entry ended; /* the newest such run */
} below;

static fl_status look_below(const char *dir, const char *name, bool live, fl_run_entry *entry,
                            below *found)
{
    fl_run_entry *all = NULL;
    *found = (below){.any = false};
    FL_TRY(fl_runs_list(dir, &all, &found->n));
    for (int i = 0; i < found->n; i++) {
        bool is_live = all[i].state == FL_RUN_LIVE, meant = is_meant(&all[i], name);
        found->n_live += is_live;
        if (!found->any && meant && (!live || is_live)) {
            *entry = all[i];
            found->any = true;
        } else if (!found->any_over && meant && !is_live) {
            found->ended = all[i];
            found->any_over = true;
        }
    }
    fl_free(all);
    return FL_OK;
}

/* A directory with contents that this user may not read: another user's run. */
static bool is_forbidden(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? S_ISDIR(info.st_mode) && access(path, R_OK | X_OK) != 0
                                  : errno == EACCES;
}

/* Whether `name` is itself a directory, or a path below dir. */
static fl_status check_allowed(const char *dir, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.2000s/%.2000s", dir, name);
    const char *which = is_forbidden(name) ? name : is_forbidden(path) ? path : NULL;
    return which == NULL ? FL_OK
                         : fl_fail(FL_EINVAL,
                                   "%s: permission denied: the run belongs to another user", which);
}

/* FL_EINVAL if `name` is a directory of runs instead of a run. */
static fl_status check_not_parent(const char *name)
{
    fl_run_entry *all = NULL;
    char example[sizeof all->name] = "";
    int n = 0;
    if (fl_runs_list(name, &all, &n) == FL_OK && n > 0) {
        snprintf(example, sizeof example, "%s", all[0].name);
    }
    fl_free(all);
    return n == 0 ? FL_OK
                  : fl_fail(FL_EINVAL, "%s: a directory of %d run%s; name one of them, as in %s/%s",
                            name, n, n == 1 ? "" : "s", name, example);
}

/* FL_EINVAL for the directory of a run that lost its events. */
static fl_status check_has_events(const char *name)
{
    char job[PATH_MAX], events[PATH_MAX];
    snprintf(job, sizeof job, "%.2000s/" HELD_FILE, name);
    snprintf(events, sizeof events, "%.2000s/events.jsonl", name);
    bool has_job = access(job, F_OK) == 0;
    return !has_job || access(events, F_OK) == 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: the run's events.jsonl is missing", name);
}

fl_status fl_run_find(const char *dir, const char *name, fl_run_entry *entry)
{
    below found;
    if (name != NULL && fl_run_look(name, entry) == FL_OK) {
        return check_live(entry, name);
    }
    fl_status status = look_below(dir, name, true, entry, &found);
    if (found.any) {
        return FL_OK;
    }
    if (name != NULL) {
        FL_TRY(check_allowed(dir, name));
        FL_TRY(check_not_parent(name));
        FL_TRY(check_has_events(name));
    }
    bool starts = found.any_over && fl_run_state_lives(found.ended.state);
    if (status == FL_OK && (starts || (name != NULL && found.any_over))) {
        return check_live(&found.ended, name == NULL ? found.ended.name : name);
    }
    if (name == NULL) {
        return fl_fail(FL_EINVAL, "no live run in %s; name a run directory", dir);
    }
    if (status != FL_OK) {
        return fl_fail(FL_EINVAL, "%s: not a run directory, and there is no live run in %s", name,
                       dir);
    }
    return fl_fail(FL_EINVAL,
                   "%s: not a run directory, nor the name of one of the %d live runs in %s", name,
                   found.n_live, dir);
}

fl_status fl_run_find_any(const char *dir, const char *name, fl_run_entry *entry)
{
    below found;
    if (fl_run_look(name, entry) == FL_OK) {
        return FL_OK;
    }
    fl_status status = look_below(dir, name, false, entry, &found);
    if (status == FL_OK && found.any) {
        return FL_OK;
    }
    FL_TRY(check_allowed(dir, name));
    FL_TRY(check_not_parent(name));
    FL_TRY(check_has_events(name));
    return fl_fail(FL_EINVAL, "%s: not a run directory, nor the name of one of the %d runs in %s",
                   name, found.n, dir);
}

fl_status fl_run_find_dir(const char *name, char path[PATH_MAX])
{
    fl_run_entry run;
    fl_job job;
    struct stat info;
    fl_job_defaults(&job);
    fl_status status = fl_run_find_any(job.run.dir, name, &run);
    bool is_directory = stat(name, &info) == 0 && S_ISDIR(info.st_mode);
    if (status != FL_OK && is_directory) {
        FL_TRY(check_not_parent(name)); /* a run that lost its events keeps its other files */
    } else {
        FL_TRY(status);
    }
    /* Messages name a directory as the user wrote it. */
    bool by_path = is_directory && (status != FL_OK || fl_run_look(name, &run) == FL_OK);
    if (snprintf(path, PATH_MAX, "%s", by_path ? name : run.path) >= PATH_MAX) {
        return fl_fail(FL_EINVAL, "%.64s...: a path of more than %d bytes", name, PATH_MAX - 1);
    }
    return FL_OK;
}
