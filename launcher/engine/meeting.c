#include "launcher/engine/meeting.h"

#include "device/errors/io_status.h"
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/folders.h"
#include "launcher/engine/meeting_files.h"
#include "launcher/engine/meeting_life.h"
#include "launcher/engine/meeting_tidy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAVE_MS = 5000 }; /* for tasks to see that the head has ended */

/* ---- the beginning ---- */

/* A start whose tasks were killed may have had the same name. What it has left of this task is not
 * for those of this start. */
static void forget_former(const fl_meeting *m)
{
    char name[FL__MEETING_NAME];
    fl__meeting_name_left(m->rank, name);
    fl__meeting_remove(m->dir, name);
    fl__meeting_name_task(m->rank, name);
    fl__meeting_remove(m->dir, name);
    if (m->rank == 0) {
        fl__meeting_remove(m->dir, FL__MEETING_JOIN);
        fl__meeting_remove(m->dir, FL__MEETING_OVER);
        fl__meeting_remove(m->dir, FL_MEETING_KEYS);
    }
}

fl_status fl_meeting_open(const char *parent, const fl_engine_task *task, fl_meeting *out)
{
    char failed[PATH_MAX];
    struct stat info;
    *out = (fl_meeting){.rank = task->rank, .n = task->n, .lock_fd = -1};
    errno = fl_folders_make(parent, failed);
    if (errno != 0) {
        return fl_fail(fl_io_status(errno), "%s: cannot make %s: %s", task->engine, failed,
                       strerror(errno));
    }
    int n = snprintf(out->dir, sizeof out->dir, "%s/" FL_MEETING_FOLDER "%s", parent, task->start);
    if (n < 0 || n >= PATH_MAX - FL__MEETING_NAME) {
        return fl_fail(FL_EINVAL, "%s: the path of the run directory is too long", task->engine);
    }
    if ((mkdir(out->dir, 0700) != 0 && errno != EEXIST) || lstat(out->dir, &info) != 0) {
        return fl_fail(fl_io_status(errno), "%s: cannot make %s: %s", task->engine, out->dir,
                       strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
        return fl_fail(FL_EINVAL,
                       "%s: %s: found what others may read, allowed: a folder of this user's "
                       "with mode 0700",
                       task->engine, out->dir);
    }
    out->lock_fd = fl_meeting_hold(out->dir, task->rank);
    if (out->lock_fd >= 0) {
        forget_former(out);
    }
    if (task->rank == 0) {
        fl_meeting_tidy(parent, out->dir);
    }
    return FL_OK;
}

fl_status fl_meeting_enter(const fl_meeting *m, const fl_meeting_host *self)
{
    char text[FL__MEETING_TEXT], name[FL__MEETING_NAME];
    snprintf(text, sizeof text, "%s %s %d\n", self->name, self->address, self->n_devices);
    fl__meeting_name_task(m->rank, name);
    return fl__meeting_write(m->dir, name, text);
}

fl_status fl_meeting_announce(const char *dir, const char *endpoint)
{
    return fl__meeting_write(dir, FL__MEETING_JOIN, endpoint);
}

/* A task that has not joined ends when the folder is gone. */
bool fl_meeting_has_lost(const char *dir, int rank)
{
    return fl__meeting_is_gone(dir) || fl_meeting_life(dir, rank) == FL_TASK_HAS_ENDED;
}

/* ---- the end ---- */

static bool have_others_ended(const fl_meeting *m)
{
    bool all = true;
    for (int i = 0; i < m->n && all; i++) {
        all = i == m->rank || fl_meeting_life(m->dir, i) == FL_TASK_HAS_ENDED;
    }
    return all;
}

void fl_meeting_end(const fl_meeting *m, int exit_code)
{
    char text[16];
    bool began = fl__meeting_has(m->dir, FL__MEETING_JOIN);
    if (exit_code == 0 && began) {
        fl_meeting_clear(m->dir);
        return;
    }
    snprintf(text, sizeof text, "%d\n", exit_code);
    if (fl__meeting_write(m->dir, FL__MEETING_OVER, text) != FL_OK) {
        fl_log(FL_LOG_WARN, "%s", fl_errmsg()); /* the others wait for as long as they may */
    }
    for (int64_t until_us = fl_deadline_us(LEAVE_MS);
         fl_left_ms(until_us) > 0 && !have_others_ended(m); fl__meeting_nap()) {
    }
    if (began) { /* all tasks have come */
        fl_meeting_clear(m->dir);
    } else { /* one that is late, if it comes at all, finds the last word */
        fl__meeting_remove(m->dir, FL_MEETING_KEYS);
    }
}

void fl_meeting_leave(const fl_meeting *m)
{
    char name[FL__MEETING_NAME];
    fl__meeting_name_left(m->rank, name);
    if (access(m->dir, F_OK) == 0 && fl__meeting_write(m->dir, name, "") != FL_OK) {
        fl_log(FL_LOG_DEBUG, "%s", fl_errmsg()); /* the last task may remove the folder now */
    }
    fl__meeting_name_task(m->rank, name);
    fl__meeting_remove(m->dir, name);
    if (have_others_ended(m)) {
        fl_meeting_clear(m->dir);
    }
    if (m->lock_fd >= 0) {
        close(m->lock_fd);
    }
}

void fl_meeting_abandon(const fl_meeting *m)
{
    if (fl_meeting_life(m->dir, 0) != FL_TASK_LIVES) {
        fl_meeting_clear(m->dir);
    }
}
