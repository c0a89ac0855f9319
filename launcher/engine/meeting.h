/* How the tasks of one start find each other: by files in a folder that only their user can read,
 * on a file system that all hosts share.
 *
 *     start    of the head: which start this is (meeting_start.h)
 *     task-R   of each task: its host's name, address and number of devices
 *     keys     of the head: the keys of the run
 *     join     of the head, once it waits for agents: where
 *     over     of the head, if it ends before: its exit code, which is 0 if there is nothing to do
 *     left-R   of each task that leaves: it does not look at the folder any more, and whether its
 *              host cannot take part
 *     head     of the head, locked while it lives
 *     lock-R   of each other task, the same
 *     locks    of the first task that sees a lock of another machine held: locks reach other hosts
 *
 * Each file gets its name when it is whole; the locks are files from their beginning. What these
 * files say of a task, it lives, it has ended, or neither is known, is decided in one place
 * (meeting_life.h). The last task that leaves removes the folder. It stays where one may be late,
 * and would wait for those that have ended, and where all tasks were killed: a later start removes
 * it (meeting_tidy.h). */
#ifndef FL_LAUNCHER_ENGINE_MEETING_H
#define FL_LAUNCHER_ENGINE_MEETING_H

#include "launcher/engine/engine.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define FL_MEETING_KEYS "keys"

enum {
    FL_MEETING_ENDPOINT = 128,
    FL_MEETING_ID = 33,
    FL_MEETING_HOLD_MS = 1000, /* a task that a signal ends lets the head end first for so long:
                                  engines send a signal to all tasks, and not at one moment */
};

/* What a task says of its host. */
typedef struct fl_meeting_host {
    char name[FL_ENGINE_TEXT];
    char address[16]; /* IPv4 */
    int n_devices;
} fl_meeting_host;

typedef struct fl_meeting {
    char dir[PATH_MAX];
    int rank, n;
    int lock_fd;                /* of this task; -1: none */
    char start[FL_MEETING_ID];  /* the identity of this start; "": not known, because this task has
                                   not seen the head alive */
    char former[FL_MEETING_ID]; /* that of a start which is over; "": none is known */
    char told[FL_MEETING_ID];   /* to whose head this task has said which host it has */
    bool is_first;              /* the head: none was in the folder before */
    fl_meeting_host self;
} fl_meeting;

/* Make or open the folder of this start in `parent`, which is made, too, and lock this task's file.
 * fl_io_status; FL_EINVAL if the folder is another user's, or others may enter it. */
fl_status fl_meeting_open(const char *parent, const fl_engine_task *task,
                          fl_meeting *out) FL_MUST_CHECK;

/* Say what this task's host is. fl_io_status; FL_EPEER if somebody has removed the folder. */
fl_status fl_meeting_enter(fl_meeting *m, const fl_meeting_host *self) FL_MUST_CHECK;

/* This task is done with the folder. */
void fl_meeting_leave(const fl_meeting *m);

/* The same of a task whose host cannot take part before a user corrects something: the head learns
 * it. */
void fl_meeting_leave_unfit(const fl_meeting *m);

/* As fl_meeting_leave_unfit, of a task that refuses its job, which all tasks read: once all have
 * left a note, none of this start is late, whichever order they came in. */
void fl_meeting_leave_refused(const fl_meeting *m);

/* ---- the head ---- */

/* Wait for all tasks: hosts [n], by rank. FL_ESTOPPED once `stop` returns a signal's number, which
 * is in *number then; FL_EDEADLINE names the hosts that are missing, FL_EPEER one whose task has
 * ended, FL_EINVAL one that cannot take part; FL_EFORMAT for a file that no task wrote. */
fl_status fl_meeting_gather(const fl_meeting *m, const fl_engine_task *task, int64_t timeout_ms,
                            int (*stop)(void), fl_meeting_host *hosts, int *number) FL_MUST_CHECK;

/* Whether another task has ended, as far as this host can know it. *unfit: because its host cannot
 * take part. */
bool fl_meeting_has_lost(const char *dir, int rank, bool *unfit);

/* Let the others join at this endpoint; the file of keys is there. fl_io_status, FL_EPEER as above.
 */
fl_status fl_meeting_announce(const char *dir, const char *endpoint) FL_MUST_CHECK;

/* The head has ended: tell those that still wait, for a few seconds at most, or remove the folder
 * after a run that all have joined or were lost to (0). */
void fl_meeting_end(const fl_meeting *m, int exit_code);

/* ---- the others ---- */

/* Wait for the head's endpoint. FL_EFAILED if the head has ended before that, or cannot begin
 * because another task has: *exit_code is the head's, or 3 where it has said none; FL_ESTOPPED
 * FL_MEETING_HOLD_MS after `stop` has returned a signal's number, which is in *exit_code then;
 * FL_EDEADLINE. */
fl_status fl_meeting_await(fl_meeting *m, int64_t timeout_ms, int (*stop)(void),
                           char endpoint[FL_MEETING_ENDPOINT], int *exit_code) FL_MUST_CHECK;

/* FL_EFAILED, as of fl_meeting_await, if the head has ended; for a task that has its endpoint, and
 * has not joined. */
fl_status fl_meeting_check_head(const fl_meeting *m, int *exit_code) FL_MUST_CHECK;

/* The exit code of a head that ends now, and has said so to a task that had not joined. */
int fl_meeting_last_word(const fl_meeting *m);

/* The head was lost, as far as this task can tell: nobody needs the folder any more. */
void fl_meeting_abandon(const fl_meeting *m);

#endif
