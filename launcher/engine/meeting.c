#include "launcher/engine/meeting.h"

#include "launcher/engine/meeting_tidy.h"

#include "device/clock.h"
#include "device/folders.h"
#include "device/log.h"
#include "device/plain_name.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOIN_FILE "join"
#define OVER_FILE "over"
#define LOCKS_FILE "locks"

enum {
    FILE_MAX = 256,
    FILE_NAME = 32,
    LOOK_MS = 100,   /* a file system on a network is asked no more often */
    GONE_CODE = 3,   /* of a head whose code nobody knows any more */
    LEAVE_MS = 5000, /* for tasks to see that the head has ended */
    SHOW_MS = 10000, /* until the head says for whom it waits */
    DEVICES_MAX = 1 << 16,
};

/* ---- files ---- */

static void join_path(const char *dir, const char *name, char path[PATH_MAX + FILE_NAME])
{
    snprintf(path, PATH_MAX + FILE_NAME, "%s/%s", dir, name);
}

static fl_status write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + FILE_NAME], part[PATH_MAX + FILE_NAME + 8];
    join_path(dir, name, path);
    snprintf(part, sizeof part, "%s.part", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t n = strlen(text);
    bool good = fd >= 0 && write(fd, text, n) == (ssize_t)n;
    good = fd >= 0 && close(fd) == 0 && good && rename(part, path) == 0;
    return good ? FL_OK : fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
}

/* False while it is not there. */
static bool read_file(const char *dir, const char *name, char text[FILE_MAX])
{
    char path[PATH_MAX + FILE_NAME];
    join_path(dir, name, path);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_MAX - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

static void remove_file(const char *dir, const char *name)
{
    char path[PATH_MAX + FILE_NAME];
    join_path(dir, name, path);
    (void)unlink(path); /* it may be gone, or was never written */
}

static void task_file(int rank, char name[FILE_NAME])
{
    snprintf(name, FILE_NAME, "task-%d", rank);
}

static bool has_file(const char *dir, const char *name)
{
    char path[PATH_MAX + FILE_NAME];
    join_path(dir, name, path);
    return access(path, F_OK) == 0;
}

static void lock_file(int rank, char name[FILE_NAME])
{
    snprintf(name, FILE_NAME, rank == 0 ? FL_MEETING_HEAD : FL_MEETING_LOCK "%d", rank);
}

static void left_file(int rank, char name[FILE_NAME])
{
    snprintf(name, FILE_NAME, FL_MEETING_LEFT "%d", rank);
}

static bool is_held(const char *dir, int rank)
{
    char name[FILE_NAME];
    lock_file(rank, name);
    return fl_meeting_is_held(dir, name);
}

static bool has_left(const char *dir, int rank)
{
    char name[FILE_NAME];
    left_file(rank, name);
    return has_file(dir, name);
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* ---- the folder ---- */

fl_status fl_meeting_open(const char *parent, const fl_engine_task *task, fl_meeting *out)
{
    char failed[PATH_MAX];
    struct stat info;
    *out = (fl_meeting){.rank = task->rank, .n = task->n, .lock_fd = -1};
    errno = fl_folders_make(parent, failed);
    if (errno != 0) {
        return fl_fail(FL_EIO, "%s: cannot make %s: %s", task->engine, failed, strerror(errno));
    }
    int n = snprintf(out->dir, sizeof out->dir, "%s/" FL_MEETING_FOLDER "%s", parent, task->start);
    if (n < 0 || n >= PATH_MAX - FILE_NAME) {
        return fl_fail(FL_EINVAL, "%s: the path of the run directory is too long", task->engine);
    }
    if ((mkdir(out->dir, 0700) != 0 && errno != EEXIST) || lstat(out->dir, &info) != 0) {
        return fl_fail(FL_EIO, "%s: cannot make %s: %s", task->engine, out->dir, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
        return fl_fail(FL_EINVAL,
                       "%s: %s: found what others may read, allowed: a folder of this user's "
                       "with mode 0700",
                       task->engine, out->dir);
    }
    char lock[FILE_NAME];
    lock_file(task->rank, lock);
    out->lock_fd = fl_meeting_hold(out->dir, lock);
    if (task->rank == 0) {
        fl_meeting_tidy(parent, out->dir);
    }
    return FL_OK;
}

fl_status fl_meeting_enter(const fl_meeting *m, const fl_meeting_host *self)
{
    char text[FILE_MAX], name[FILE_NAME];
    snprintf(text, sizeof text, "%s %s %d\n", self->name, self->address, self->n_devices);
    task_file(m->rank, name);
    return write_file(m->dir, name, text);
}

/* ---- the head ---- */

static bool parse_host(const char *text, fl_meeting_host *host)
{
    struct in_addr address;
    char after;
    return sscanf(text, "%63s %15s %d%c", host->name, host->address, &host->n_devices, &after) ==
               4 &&
           after == '\n' && inet_pton(AF_INET, host->address, &address) == 1 &&
           fl_name_is_plain(host->name, FL_ENGINE_TEXT - 1) && host->n_devices >= 1 &&
           host->n_devices <= DEVICES_MAX;
}

static const char *name_of(const fl_engine_task *task, int rank, char name[FL_ENGINE_TEXT])
{
    if (task->nodes == NULL || !fl_node_list_get(task->nodes, rank, name)) {
        snprintf(name, FL_ENGINE_TEXT, "task %d", rank);
    }
    return name;
}

/* Those that are missing: "n2, n3". */
static void list_missing(const fl_engine_task *task, const fl_meeting_host *hosts, char *text,
                         size_t size_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < task->n && used < size_bytes; i++) {
        char name[FL_ENGINE_TEXT];
        if (hosts[i].n_devices == 0) {
            used += (size_t)snprintf(text + used, size_bytes - used, "%s%s", used == 0 ? "" : ", ",
                                     name_of(task, i, name));
        }
    }
}

/* One whose lock is free was killed, if locks reach this host: that of any task was seen held. */
static bool has_ended(const fl_meeting *m, int rank, bool entered, bool locks_reach)
{
    return has_left(m->dir, rank) || (entered && locks_reach && !is_held(m->dir, rank));
}

/* Read what has come; *all: nothing is missing. */
static fl_status read_tasks(const fl_meeting *m, const fl_engine_task *task, fl_meeting_host *hosts,
                            bool *all)
{
    char text[FILE_MAX], name[FILE_NAME], host[FL_ENGINE_TEXT];
    bool locks_reach = false;
    *all = true;
    for (int i = 1; i < m->n; i++) {
        hosts[i].held = hosts[i].held || is_held(m->dir, i);
        locks_reach = locks_reach || hosts[i].held;
    }
    for (int i = 0; i < m->n; i++) {
        if (i > 0 && has_ended(m, i, hosts[i].n_devices != 0, locks_reach)) {
            return fl_fail(FL_EPEER, "%s: task %d (%s) has ended before the run began",
                           task->engine, i, name_of(task, i, host));
        }
        task_file(i, name);
        if (hosts[i].n_devices != 0) {
            continue;
        }
        if (!read_file(m->dir, name, text)) {
            *all = false;
        } else if (!parse_host(text, &hosts[i])) {
            return fl_fail(FL_EFORMAT, "%s/%s: no task wrote this", m->dir, name);
        }
    }
    return FL_OK;
}

static void note_locks(const fl_meeting *m, const fl_meeting_host *hosts)
{
    bool any = false;
    for (int i = 1; i < m->n; i++) {
        any = any || hosts[i].held;
    }
    if (any && write_file(m->dir, LOCKS_FILE, "") != FL_OK) {
        fl_log(FL_LOG_DEBUG, "%s", fl_errmsg());
    }
}

fl_status fl_meeting_gather(const fl_meeting *m, const fl_engine_task *task, int64_t timeout_ms,
                            int (*stop)(void), fl_meeting_host *hosts, int *number)
{
    char missing[512];
    int64_t until_us = fl_deadline_us(timeout_ms), show_us = fl_deadline_us(SHOW_MS);
    memset(hosts, 0, (size_t)m->n * sizeof *hosts);
    *number = 0;
    for (bool all = false, shown = false; true; nap()) {
        FL_TRY(read_tasks(m, task, hosts, &all));
        if (all) {
            note_locks(m, hosts);
            return FL_OK;
        }
        *number = stop();
        if (*number != 0) {
            return fl_fail(FL_ESTOPPED, "stopped by signal %d before the run began", *number);
        }
        if (!shown && fl_left_ms(show_us) == 0) {
            list_missing(task, hosts, missing, sizeof missing);
            fl_log(FL_LOG_INFO, "%s: waits in %s for %s", task->engine, m->dir, missing);
            shown = true;
        }
        if (fl_left_ms(until_us) == 0) {
            list_missing(task, hosts, missing, sizeof missing);
            return fl_fail(FL_EDEADLINE,
                           "%s: no sign of %s in %s for %lld s; is it on a file system that all "
                           "hosts share?",
                           task->engine, missing, m->dir, (long long)timeout_ms / 1000);
        }
    }
}

fl_status fl_meeting_announce(const char *dir, const char *endpoint)
{
    return write_file(dir, JOIN_FILE, endpoint);
}

/* What a task that was killed has left. */
static void remove_tasks(const fl_meeting *m)
{
    char name[FILE_NAME];
    for (int i = 0; i < m->n; i++) {
        task_file(i, name);
        remove_file(m->dir, name);
    }
}

static bool has_tasks(const char *dir)
{
    bool any = false;
    DIR *folder = opendir(dir);
    for (const struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        any = any || strncmp(e->d_name, "task-", 5) == 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return any;
}

static bool has_living_tasks(const fl_meeting *m)
{
    char name[FILE_NAME];
    bool any = false;
    for (int i = 1; i < m->n; i++) {
        task_file(i, name);
        any = any || (has_file(m->dir, name) && !fl_meeting_has_lost(m->dir, i));
    }
    return any;
}

/* They have said so, or were killed. */
static bool have_all_left(const fl_meeting *m)
{
    char lock[FILE_NAME];
    bool all = true;
    for (int i = 1; i < m->n; i++) {
        lock_file(i, lock);
        bool killed = i != m->rank && has_file(m->dir, lock) && !is_held(m->dir, i);
        all = all && (has_left(m->dir, i) || killed);
    }
    return all;
}

void fl_meeting_end(const fl_meeting *m, int exit_code)
{
    char text[FILE_MAX], own[FILE_NAME];
    bool began = has_file(m->dir, JOIN_FILE);
    if (exit_code == 0 && began) {
        remove_tasks(m);
        return;
    }
    snprintf(text, sizeof text, "%d\n", exit_code);
    if (write_file(m->dir, OVER_FILE, text) != FL_OK) {
        fl_log(FL_LOG_WARN, "%s", fl_errmsg()); /* the others wait for as long as they may */
    }
    task_file(m->rank, own);
    remove_file(m->dir, own);
    for (int64_t until_us = fl_deadline_us(LEAVE_MS);
         fl_left_ms(until_us) > 0 && (began ? has_living_tasks(m) : !have_all_left(m)); nap()) {
    }
    if (began || have_all_left(m)) {
        fl_meeting_clear(m->dir);
    } else { /* one that is late, if it comes at all, finds the last word */
        remove_file(m->dir, FL_MEETING_KEYS);
    }
}

bool fl_meeting_has_lost(const char *dir, int rank)
{
    return has_left(dir, rank) || (has_file(dir, LOCKS_FILE) && !is_held(dir, rank));
}

/* ---- the others ---- */

/* A lock that this task has seen held and that is free twice in a row. On a file system whose locks
 * do not reach this host, it never looks held. */
static bool has_died(const char *dir, bool *was_held, int *n_free)
{
    bool held = is_held(dir, 0);
    *was_held = *was_held || held;
    *n_free = held ? 0 : *n_free + 1;
    return *was_held && *n_free > 1;
}

fl_status fl_meeting_await(const fl_meeting *m, int64_t timeout_ms, int (*stop)(void),
                           char endpoint[FL_MEETING_ENDPOINT], int *exit_code)
{
    char text[FILE_MAX];
    bool was_held = false;
    int n_free = 0;
    for (int64_t until_us = fl_deadline_us(timeout_ms); fl_left_ms(until_us) > 0; nap()) {
        int number = stop();
        if (number != 0) {
            *exit_code = number;
            return fl_fail(FL_ESTOPPED, "stopped by signal %d before the run began", number);
        }
        if (read_file(m->dir, OVER_FILE, text)) {
            *exit_code = (int)strtol(text, NULL, 10) & 0xff;
            return fl_fail(FL_EFAILED, "the head has ended with exit code %d before the run began",
                           *exit_code);
        }
        if (read_file(m->dir, JOIN_FILE, text)) {
            text[FL_MEETING_ENDPOINT - 1] = '\0';
            memcpy(endpoint, text, FL_MEETING_ENDPOINT);
            return FL_OK;
        }
        if (access(m->dir, F_OK) != 0 && errno == ENOENT) {
            *exit_code = GONE_CODE;
            return fl_fail(FL_EFAILED, "the head has ended before the run began, and removed %s",
                           m->dir);
        }
        if (has_died(m->dir, &was_held, &n_free)) {
            *exit_code = GONE_CODE;
            return fl_fail(FL_EFAILED, "the head was killed before the run began");
        }
    }
    return fl_fail(FL_EDEADLINE,
                   "no sign of the head in %s for %lld s; is it on a file system that all hosts "
                   "share?",
                   m->dir, (long long)timeout_ms / 1000);
}

/* ---- the end ---- */

void fl_meeting_leave(const fl_meeting *m, bool joined)
{
    char name[FILE_NAME], left[FILE_NAME];
    bool over = m->rank > 0 && (!joined || has_file(m->dir, OVER_FILE));
    task_file(m->rank, name);
    remove_file(m->dir, name);
    if (over) { /* the head reads that, and removes the folder once all have left */
        left_file(m->rank, left);
        (void)write_file(m->dir, left, "");
    }
    bool had_head = has_file(m->dir, FL_MEETING_HEAD); /* one that is late reads the files */
    if (over && had_head && have_all_left(m) && !is_held(m->dir, 0)) {
        fl_meeting_clear(m->dir); /* there is no head any more */
    }
    if (!over && !has_file(m->dir, OVER_FILE) && !has_tasks(m->dir)) {
        fl_meeting_clear(m->dir);
    }
    if (m->lock_fd >= 0) {
        close(m->lock_fd);
    }
}

void fl_meeting_abandon(const fl_meeting *m)
{
    if (!is_held(m->dir, 0)) {
        fl_meeting_clear(m->dir);
    }
}
