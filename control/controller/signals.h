/* The signals of a run: its controller reads them as data, its workers see few of them. */
#ifndef FL_CONTROL_CONTROLLER_SIGNALS_H
#define FL_CONTROL_CONTROLLER_SIGNALS_H

#include <frostline/status.h>

#include <signal.h>
#include <stdbool.h>

typedef struct fl_signals {
    int fd; /* readable when one is pending; -1 before fl_signals_open */
    sigset_t taken, mask_before;
    struct sigaction child_before, pipe_before, size_before;
} fl_signals;

/* Before the workers are forked: block SIGINT, SIGTERM, SIGCHLD, and every other signal that would
 * end the process (SIGHUP, SIGQUIT, SIGUSR1, real-time signals ...) unless the program handles or
 * ignores it; ignore SIGPIPE and SIGXFSZ. */
void fl_signals_block(fl_signals *signals);

/* In a forked worker: SIGINT, SIGHUP and SIGQUIT are the controller's business, SIGTERM waits for
 * the link, and any other has its default effect. */
void fl_signals_in_worker(const fl_signals *signals);

/* Whether this signal asks for the end of the run; the others that are taken ask for nothing. */
bool fl_signals_is_stop(int number);

/* After the fork, in the controller. */
fl_status fl_signals_open(fl_signals *signals) FL_MUST_CHECK;

/* The next pending signal's number, 0 if there is none. Never waits. */
int fl_signals_next(fl_signals *signals);

/* Everything as it was before fl_signals_block. What is still pending is dropped. */
void fl_signals_restore(fl_signals *signals);

#endif
