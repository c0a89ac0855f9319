/* Runs of a real controller over workers that train nothing and misbehave on request.
 *
 *     test process ── fork ──> fl_controller_run ── fork ──> agent ── fork ──> fake workers
 *
 * The test process adopts what the controller leaves behind (it is a child subreaper), so it can
 * tell whether a worker is gone and what it died of. Nothing here waits for a fixed time: every
 * wait looks for what it wants, until a deadline after which the test fails. */
#ifndef FL_TESTS_SUPPORT_RUNS_FAKE_FAKE_RUN_H
#define FL_TESTS_SUPPORT_RUNS_FAKE_FAKE_RUN_H

#include "control/controller/run.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { FAKE_N_JUNK = 12, FAKE_WORKERS_MAX = 8, FAKE_WAIT_MS = 30000 };

typedef enum fake_deed {
    FAKE_NOTHING,     /* a good worker */
    FAKE_EXIT,        /* exit code 3, after a line in its log */
    FAKE_SEGFAULT,    /* dies of SIGSEGV */
    FAKE_STOP,        /* stops itself */
    FAKE_CLOSE,       /* closes its link and lingers */
    FAKE_LEAVE,       /* exit code 0 without fl_link_done */
    FAKE_REPORT,      /* reports a failure of its own and exits */
    FAKE_DIE_LATE,    /* dies after the others have reported a lost peer */
    FAKE_HANG,        /* its link lives, it does not go on; the others run into a deadline */
    FAKE_DONE_STAYS,  /* says done and does not exit */
    FAKE_ONE_STEP_ON, /* ignores every command */
    FAKE_JUNK,        /* sends FAKE_N_JUNK messages that are none of a worker, before its own */
    FAKE_FORMER,      /* sends the same as another process of rank 1 */
    FAKE_LIE,         /* reports a time that cannot be, and lingers */
    FAKE_LATE_LINK,   /* opens its link only when the test lets it */
} fake_deed;

/* Between the test, the controller and the fake workers; in shared memory. */
typedef struct fake_shared {
    _Atomic int64_t done[FAKE_WORKERS_MAX]; /* steps that each worker has finished */
    _Atomic int64_t
        stop_at;          /* the step before which the leader stops; 0: it has no command to stop */
    atomic_int n_reports; /* fake workers that reported a lost peer */
    atomic_bool go_on;    /* the test lets a worker that waits for it go on */
} fake_shared;

typedef struct fake_run {
    int n_workers, k;
    int64_t n_samples, batch, epochs, detect_ms, deadline_ms;
    bool evaluate;
    int64_t step_us; /* that one step is made to last */
    fake_deed deed;  /* of worker `who`, once `at_step` steps are done; -1: before it is ready */
    int who;
    int64_t at_step;
    bool waits_for_test; /* the deed is done only after shared->go_on */
    uint64_t fail_alloc; /* the controller's n-th allocation fails; 0: none */
    int64_t file_limit;  /* bytes that a file may have, as on a full disk; 0: any */
    int terminal;        /* descriptor the controller prints to; -1: RUN/stdout.txt */

    char dir[4096]; /* of the run */
    pid_t controller;
    fake_shared *shared;
} fake_run;

/* What the controller process left. */
typedef struct fake_outcome {
    fl_status status;
    char message[4096]; /* fl_errmsg */
    fl_run_result result;
} fake_outcome;

/* Two workers, one pipeline of two stages, 2 epochs of 5 steps, a detect of three seconds. */
fake_run fake_run_of(fake_deed deed, int who, int64_t at_step);

/* Make the run directory below `parent` (NULL: a fresh one) and fork the controller. */
void fake_start(fake_run *run);

/* Wait until the controller has ended; how it did. */
fake_outcome fake_finish(fake_run *run);

/* Wait for a line with `text` in a file of the run directory, for `steps` finished steps, or for
 * the controller to have started `n` workers: pids [n] out. False when the deadline has passed. */
bool fake_await_line(const fake_run *run, const char *file, const char *text);
bool fake_await_steps(const fake_run *run, int64_t steps);
bool fake_worker_pids(const fake_run *run, pid_t *pids);

/* The agent of a run that has started workers: the parent of this one. */
pid_t fake_agent_pid(pid_t worker);

/* Wait until none of the processes lives; wait statuses of those the test has adopted into
 * wait_statuses [n] (may be NULL). */
bool fake_await_gone(const pid_t *pids, int n, int *wait_statuses);

/* Wait until all have ended, though perhaps nobody has asked for their exit status yet. */
bool fake_await_ended(const pid_t *pids, int n);

/* A file of the run directory as text; the caller frees it. */
char *fake_read(const fake_run *run, const char *file);

/* Whether the run directory holds `file`. */
bool fake_has(const fake_run *run, const char *file);

/* Remove the run directory. */
void fake_clean(fake_run *run);

#endif
