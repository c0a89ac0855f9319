/* The signals of a run: the controller reads them as data, its workers see few of them. */
#ifndef FL_CONTROL_CONTROLLER_SIGNALS_H
#define FL_CONTROL_CONTROLLER_SIGNALS_H

#include <frostline/status.h>

#include <signal.h>

typedef struct fl_signals {
    int fd; /* readable when one is pending; -1 before fl_signals_open */
    sigset_t taken, mask_before;
    struct sigaction child_before, pipe_before;
} fl_signals;

/* Before the workers are forked: block SIGINT, SIGTERM, SIGCHLD, and SIGHUP unless the program runs
 * under nohup; ignore SIGPIPE. */
void fl_signals_block(fl_signals *signals);

/* In a forked worker: SIGINT and SIGHUP are the controller's business, SIGTERM waits for the link.
 */
void fl_signals_in_worker(const fl_signals *signals);

/* After the fork, in the controller. */
fl_status fl_signals_open(fl_signals *signals) FL_MUST_CHECK;

/* The next pending signal's number, 0 if there is none. Never waits. */
int fl_signals_next(fl_signals *signals);

/* Everything as it was before fl_signals_block. What is still pending is dropped. */
void fl_signals_restore(fl_signals *signals);

#endif
