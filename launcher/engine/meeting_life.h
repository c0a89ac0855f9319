/* Whether a task of a start lives. Each task keeps a file locked while it lives: `head` of the
 * head, `lock-R` of each other one. Once it has the lock, it writes into that file on which machine
 * and which file system it is, and of which start (meeting_start.h). The kernel frees the lock when
 * the process ends, however it ends.
 *
 *     left-R is there                                     has ended, or may have: it has said so
 *     the lock is held                                    lives
 *     the lock is free, and its file is written
 *         by a task of this machine and file system       has ended, or may have
 *         by one of another machine, `locks` is there     has ended, or may have
 *         by one of another machine, `locks` is not       not known: locks may not reach this host
 *     the file is empty or missing                        not known: it may come yet
 *
 * It has ended if that is of the start of the task that asks. It may have ended, if one of them
 * knows no start. What is of a start before says nothing.
 *
 * `locks` is written by the first task that sees a lock held on another machine. All hosts mount
 * the file system in the same way, so that locks reach either all of them or none. */
#ifndef FL_LAUNCHER_ENGINE_MEETING_LIFE_H
#define FL_LAUNCHER_ENGINE_MEETING_LIFE_H

#include "launcher/engine/meeting.h"

typedef enum fl_task_life {
    FL_TASK_NOT_KNOWN,
    FL_TASK_LIVES,
    FL_TASK_MAY_HAVE_ENDED, /* or a task of a start before has */
    FL_TASK_HAS_ENDED,
} fl_task_life;

/* Of another task than this process: to close its own file would free the lock. */
fl_task_life fl_meeting_life(const fl_meeting *m, int rank);

/* What an end is to this task, which happened in `start`; "": in one that is not known. */
fl_task_life fl_meeting_end_in(const fl_meeting *m, const char *start);

/* The note of a task that has left: the start that it was of; "": it knows none. False: it has left
 * none. */
bool fl_meeting_read_left(const char *dir, const char *name, char start[FL_MEETING_ID]);

/* The same note, as written into the file. unfit: fl_meeting_leave_unfit. */
enum { FL_MEETING_NOTE = 64 };
void fl_meeting_note_left(const char *start, bool unfit, char text[FL_MEETING_NOTE]);

/* Whether a task that has ended has left because it is unfit. */
bool fl_meeting_is_unfit(const fl_meeting *m, int rank);

/* Lock the file of this task for as long as this process has it open, and say where it is: the
 * descriptor; -1: the file system has no locks, or another process has the lock. m->former
 * is the start that the last process of this rank was of, or "". */
int fl_meeting_hold(fl_meeting *m);

/* Write into the lock of which start this task is; "": it does not know. */
void fl_meeting_mark(int lock_fd, const char *start);

/* Whether a living head holds its lock; true, too, where nobody can know it, as on a file system
 * without locks. A folder without that file has no head yet, or is of an earlier version. */
bool fl_meeting_may_have_head(const char *dir);

#endif
