/* Runs that lose a worker whose layers no other one has, and go back: what their tests share. */
#ifndef FL_TESTS_SUPPORT_RUNS_RESTART_H
#define FL_TESTS_SUPPORT_RUNS_RESTART_H

#include "support/runs/live_run.h"
#include "support/runs/scenario.h"

enum { RESTART_SAMPLES = 100, RESTART_STEPS = 30, RESTART_FATAL_STEP = 13 };

/* How all of them train. */
extern const char *const *const restart_sets;

/* A pipeline of two workers, without a third one. */
#define RESTART_STAGES                                                                             \
    "pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count", "2", "fault.on_loss", "continue"

extern double *restart_one; /* [RESTART_STEPS] losses of one worker, after restart_set_up */

/* Of the group of tests: the folder, and restart_one. */
int restart_set_up(void **state);
int restart_tear_down(void **state);

/* Worker 1 does `act` at RESTART_FATAL_STEP. */
void restart_start(scenario *s, const char *name, const char *const *more,
                   void (*act)(fl_worker_state *w));

/* What it can do: die once a checkpoint is durable; die once in the run, after a snapshot. */
void restart_kill_later(fl_worker_state *w);
void restart_kill_once_snapped(fl_worker_state *w);

/* The losses of a run that has ended are these. */
void restart_expect_losses(const scenario *s, const double *expected);

/* The run's summary.txt has this text. */
void restart_expect_summary(const char *dir, const char *text);

/* A number of the status, below `recovery`; and wait until it is `least`. */
int64_t restart_recovery_number(live_run *run, const char *key);
void restart_await(live_run *run, const char *key, int64_t least);

#endif
