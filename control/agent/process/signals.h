/* The signals of a run: the controller reads them as data; the workers receive few of them. */
#ifndef FL_CONTROL_AGENT_PROCESS_SIGNALS_H
#define FL_CONTROL_AGENT_PROCESS_SIGNALS_H

#include <frostline/status.h>

#include <signal.h>
#include <stdbool.h>

typedef struct fl_signals {
    int fd; /* readable when one is pending; -1 before fl_signals_open */
    sigset_t taken, mask_before;
    struct sigaction child_before, pipe_before, size_before;
} fl_signals;

/* Exit codes of a process that a stop ends before the run: as those of launcher/cli/cli.h. */
enum { FL_SIGNALS_EXIT_TERMINATED = 5, FL_SIGNALS_EXIT_STOPPED = 130 };

/* The signals that ask for the end of a run, as far as this process takes them: SIGINT and SIGTERM
 * always, the others (SIGHUP, SIGQUIT, SIGXCPU, SIGPWR) unless the program handles or ignores them.
 */
void fl_signals_stops(sigset_t *set);

/* Take all of them out of a set, as for a child that is to receive them. */
void fl_signals_remove_stops(sigset_t *set);

/* From now on these signals end this process at once (exit code 5 for SIGTERM, otherwise 130), also
 * where it is the first process of a container, for which the kernel drops a signal without a
 * handler. Signals that do not ask for an end wait. is_agent: of a host that has not joined a run.
 */
void fl_signals_end_early(bool is_agent);

/* From now on they are pending until somebody takes them: this process has files to close first. */
void fl_signals_hold_stops(void);

/* The signals that end a process by default and do not ask for the end of the run: SIGUSR1,
 * SIGALRM, real-time signals ... Where the process blocks them before fl_signals_block, they are
 * read later. */
void fl_signals_others(sigset_t *set);

/* Call it before the fork. Blocks SIGINT, SIGTERM, SIGCHLD, and every other signal that would end
 * the process (SIGHUP, SIGQUIT, SIGUSR1, real-time signals ...) unless the program handles or
 * ignores it. Ignores SIGPIPE and SIGXFSZ. */
void fl_signals_block(fl_signals *signals);

/* Call it in a forked worker. The worker ignores SIGINT, SIGHUP and SIGQUIT, which the controller
 * handles; SIGTERM waits for the link; any other signal has its default effect. */
void fl_signals_in_worker(const fl_signals *signals);

/* Whether this signal asks for the end of the run. The other signals that are read ask for nothing.
 */
bool fl_signals_is_stop(int number);

/* Call it in the controller, after the fork. */
fl_status fl_signals_open(fl_signals *signals) FL_MUST_CHECK;

/* The number of the next pending signal; 0 if none is pending. Never waits. */
int fl_signals_next(fl_signals *signals);

/* Restore everything as it was before fl_signals_block. Pending signals are dropped. */
void fl_signals_restore(fl_signals *signals);

/* The same, but the signals stay blocked: what is pending, and what comes, is for the next
 * fl_signals_block of this process. */
void fl_signals_keep(fl_signals *signals);

/* The first that is pending of the signals that ask for the end of the run, which is pending no
 * more; 0: none is. */
int fl_signals_take_stop(void);

/* The same, but it stays pending. */
int fl_signals_pending_stop(void);

/* Drop what is pending of the signals that ask for the end of the run. */
void fl_signals_drop_stops(void);

#endif
