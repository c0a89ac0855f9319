#include "launcher/engine/meeting.h"

#include "device/errors/failure.h"
#include "device/errors/io_status.h"
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/files/folders.h"
#include "launcher/engine/meeting_files.h"
#include "launcher/engine/meeting_life.h"
#include "launcher/engine/meeting_start.h"
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

static fl_status fail_if_gone(const char *dir, fl_status status)
{
    return fl__meeting_is_gone(dir) ? fl_fail(FL_EPEER, "%s was removed before the run began", dir)
                                    : status;
}

static fl_status begin_in(fl_meeting *m, const char *parent)
{
    if (m->rank == 0) {
        FL_TRY(fl__meeting_draw(m));
    }
    m->lock_fd = fl_meeting_hold(m);
    if (m->lock_fd >= 0 || fl_meeting_life(m, m->rank) != FL_TASK_LIVES) {
        forget_former(m);
    }
    if (m->rank != 0) {
        (void)fl__meeting_look(m);
        return FL_OK;
    }
    fl_status status = fl__meeting_begin(m);
    FL_TRY(status == FL_OK ? FL_OK : fail_if_gone(m->dir, status));
    fl_meeting_tidy(parent, m->dir);
    return FL_OK;
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
    fl_status status = begin_in(out, parent);
    if (status != FL_OK) {
        fl_failure failure;
        fl_failure_keep(&failure, status);
        fl_meeting_leave(out);
        return fl_failure_raise(&failure);
    }
    return FL_OK;
}

fl_status fl_meeting_enter(fl_meeting *m, const fl_meeting_host *self)
{
    m->self = *self;
    fl_status status = fl__meeting_tell(m, m->start);
    if (status == FL_OK && m->rank != 0) {
        (void)fl__meeting_look(m);
    }
    return status == FL_OK ? FL_OK : fail_if_gone(m->dir, status);
}

fl_status fl_meeting_announce(const char *dir, const char *endpoint)
{
    fl_status status = fl__meeting_write(dir, FL__MEETING_JOIN, endpoint);
    return status == FL_OK ? FL_OK : fail_if_gone(dir, status);
}

/* A task that has not joined ends when the folder is gone. All tasks have come to this start, so
 * that nothing is left of those before. */
bool fl_meeting_has_lost(const char *dir, int rank, bool *unfit)
{
    fl_meeting m = {.rank = 0, .lock_fd = -1};
    snprintf(m.dir, sizeof m.dir, "%s", dir);
    fl__meeting_read_start(dir, m.start);
    *unfit = fl_meeting_is_unfit(&m, rank);
    return fl__meeting_is_gone(dir) || fl_meeting_life(&m, rank) >= FL_TASK_MAY_HAVE_ENDED;
}

/* ---- the end ---- */

/* All have ended, or may have. */
static bool have_others(const fl_meeting *m, fl_task_life ended)
{
    bool all = true;
    for (int i = 0; i < m->n && all; i++) {
        all = i == m->rank || fl_meeting_life(m, i) >= ended;
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
    if (fl__meeting_is_gone(m->dir)) { /* nobody waits there any more */
        return;
    }
    snprintf(text, sizeof text, "%d\n", exit_code);
    if (fl__meeting_write(m->dir, FL__MEETING_OVER, text) != FL_OK) {
        fl_log(FL_LOG_WARN, "%s", fl_errmsg()); /* the others wait for as long as they may */
    }
    for (int64_t until_us = fl_deadline_us(LEAVE_MS);
         fl_left_ms(until_us) > 0 && !fl__meeting_is_gone(m->dir) &&
         !have_others(m, FL_TASK_MAY_HAVE_ENDED);
         fl__meeting_nap()) {
    }
    if (began) { /* all tasks have come */
        fl_meeting_clear(m->dir);
    } else { /* one that is late, if it comes at all, finds the last word */
        fl__meeting_remove(m->dir, FL_MEETING_KEYS);
    }
}

static void leave(const fl_meeting *m, bool unfit)
{
    char name[FL__MEETING_NAME], note[FL_MEETING_NOTE];
    fl__meeting_name_left(m->rank, name);
    fl_meeting_note_left(m->start, unfit, note);
    bool is_told = access(m->dir, F_OK) != 0 || fl__meeting_write(m->dir, name, note) == FL_OK ||
                   fl__meeting_write(m->dir, name, "") == FL_OK; /* without room */
    if (!is_told) {
        fl_log(FL_LOG_DEBUG, "%s", fl_errmsg()); /* the last task may remove the folder now */
    }
    fl__meeting_name_task(m->rank, name);
    fl__meeting_remove(m->dir, name);
    if (have_others(m, FL_TASK_HAS_ENDED)) { /* else one may be late, which looks for a word */
        fl_meeting_clear(m->dir);
    }
    if (m->lock_fd >= 0) {
        close(m->lock_fd);
    }
}

void fl_meeting_leave(const fl_meeting *m)
{
    leave(m, false);
}

void fl_meeting_leave_unfit(const fl_meeting *m)
{
    leave(m, true);
}

void fl_meeting_leave_refused(const fl_meeting *m)
{
    char name[FL__MEETING_NAME];
    bool all = true;
    leave(m, true);
    for (int i = 0; i < m->n && all; i++) {
        fl__meeting_name_left(i, name);
        all = fl__meeting_has(m->dir, name);
    }
    if (all) {
        fl_meeting_clear(m->dir);
    }
}

void fl_meeting_abandon(const fl_meeting *m)
{
    if (fl_meeting_life(m, 0) != FL_TASK_LIVES) {
        fl_meeting_clear(m->dir);
    }
}
