/* A real run of the toy model in a process of its own, and a client of its control socket. */
#ifndef FL_TESTS_SUPPORT_RUNS_LIVE_RUN_H
#define FL_TESTS_SUPPORT_RUNS_LIVE_RUN_H

#include "launcher/cli/ctl/ctl_client.h"
#include "support/runs/scenario.h"

#include <frostline/status.h>

#include <jansson.h>
#include <sys/types.h>

typedef struct live_run {
    char dir[128]; /* of the run */
    scenario scenario;
    pid_t controller;
    fl_ctl_client_link *ctl;
    int n_asked;
} live_run;

/* The wait is longer than fault.deadline (60 s unless a run sets it): a change that is not made in
 * that time is answered with the reason, which the test then shows. */
enum { LIVE_SAMPLES = 203, LIVE_WAIT_MS = 90000 };

/* Start a run, one at a time, with these fields set (path, value, ..., NULL), wait until it takes
 * requests, and connect. Anything that goes wrong fails the test. */
live_run live_start(const char *const *sets);

/* The same over samples of these lengths (ragged.h). */
live_run live_start_ragged(const char *const *sets, ragged_length *of_sample);

/* The same, and something happens in it: at a test point, or whenever a worker reaches one. */
live_run live_start_with(const char *const *sets, scenario_deed deed,
                         void (*at_point)(const char *point, fl_worker_state *w));

/* A scenario below the root that is there: one that resumes. */
live_run live_start_again(const scenario *what);

/* Ask under a fresh id; the result of a reply that is ok, or, with `code`, the code of one that is
 * not. The caller drops the reference. */
json_t *live_ask(live_run *run, const char *cmd, const char *args);
void live_refused(live_run *run, const char *cmd, const char *args, const char *code);

/* The whole reply to this very text. */
json_t *live_send(live_run *run, const char *text);

/* An integer of the status. */
int64_t live_status(live_run *run, const char *key);

/* Ask, where the result does not matter. */
void live_do(live_run *run, const char *cmd, const char *args);

/* A step's line of steps.jsonl, which must be there. The caller drops the reference. */
json_t *live_step(const live_run *run, int64_t step);

/* The run's ledger proves that it used what it came to exactly once. */
void live_check_ledger(const live_run *run);

/* Wait until this number of steps is done. */
void live_await_step(live_run *run, int64_t step);

/* Wait until the run has n events of this name. */
void live_await_event(live_run *run, const char *event, int n);

/* A worker's process, and waiting until the status shows the worker in this state. */
pid_t live_process_of(live_run *run, int rank);
void live_await_state(live_run *run, int rank, const char *wanted);

/* How many workers the status lists. */
int live_n_workers(live_run *run);

/* Wait for the controller to end; how it did. */
fl_status live_finish(live_run *run);

/* As a user's Ctrl-C: the run ends, and its ledger is exact. */
void live_interrupt(live_run *run);

/* The losses of an ended run, which did at least n_steps; the caller frees them. Removes the run
 * directory. */
double *live_take_losses(live_run *run, int n_steps);

/* Remove the run directory. */
void live_clean(live_run *run);

#endif
