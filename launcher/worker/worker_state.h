/* What a worker holds while it runs: shared by the files that worker.c's diagram names, and by
 * nobody else. */
#ifndef FL_LAUNCHER_WORKER_WORKER_STATE_H
#define FL_LAUNCHER_WORKER_WORKER_STATE_H

#include "autodp/sampler.h"
#include "control/link/link.h"
#include "launcher/worker/batch_stream.h"
#include "launcher/worker/generation.h"
#include "pipe/state/migrate.h"

#include <pthread.h>
#include <stdatomic.h>

/* Where the opening of the next generation stands. */
typedef enum fl_prepare_state {
    FL_PREPARE_NONE,
    FL_PREPARE_OPENING, /* the prepare thread is at it */
    FL_PREPARE_READY,
    FL_PREPARE_REFUSED,
} fl_prepare_state;

/* A second thread that opens the next generation and closes the last one, while training goes on.
 */
typedef struct fl_prepare_thread {
    pthread_t thread;
    bool running;        /* the thread must be joined */
    atomic_int state;    /* fl_prepare_state; `next` is the thread's while it is OPENING */
    uint32_t generation; /* the one that is, or was last, opened */
    int64_t took_us;
    fl_generation *leaving; /* to be closed */
} fl_prepare_thread;

typedef struct fl_worker_state {
    const fl_worker_context *c;
    int rank;
    bool leads; /* for the group: reports steps, carries commands */
    fl_device *device;
    fl_link *link;
    fl_message_group *messages;
    fl_generation *now;      /* the generation that trains */
    fl_generation *next;     /* the one being prepared; NULL: none */
    fl_migration *migration; /* to `next`, ready to run; NULL: none */
    fl_prepare_thread prepare_thread;
    fl_parked parked;
    int64_t step;    /* that comes next */
    int64_t held_us; /* since when all wait at a step for which an answer is due; 0: they train */
    int64_t answered[FL_DUE_KINDS]; /* the last step for which that answer was heard */
    int64_t plan_due; /* at which all wait for the commit of what is being prepared; 0: nowhere */
    fl_cursor cursor; /* from which its batch is drawn */
    bool stop;
    bool paused;               /* everybody holds at the control point */
    int64_t end_step;          /* the run ends after so many steps */
    int64_t evaluation_period; /* steps; 0: only at the end */
    int n_skipped;             /* steps in a row whose loss or gradient norm was not finite */
    double lr_factor;          /* of the job's learning rate */
    bool hashes_failed;        /* weights.jsonl cannot be written */
    fl_batch_stream batches;
    int64_t *test_ids[2];   /* [train.batch] of the test batch at work and of the one after it */
    fl_abort_set abort_set; /* every net of `now` and `next`; the link's thread may abort them */
} fl_worker_state;

/* Where a test may look at a worker, or harm it: a test program that defines this function is
 * called at each of the named points; in any other program it is absent and nothing happens.
 * Points: "begin" (before the first step), "prepare" (in the prepare thread), "step" (after each),
 * "evaluate", "vote", "migrate", "migrated", "switch", "end". */
void fl__test_point(const char *point, fl_worker_state *w) __attribute__((weak));

static inline void fl__reach(const char *point, fl_worker_state *w)
{
    if (fl__test_point != NULL) {
        fl__test_point(point, w);
    }
}

/* ---- worker_open.c ---- */

/* Link, device, message group and the first generation. To be closed also after a failure. */
fl_status fl_worker_open(fl_worker_state *w, const char *endpoint) FL_MUST_CHECK;
void fl_worker_close(fl_worker_state *w);

/* Fails once the controller has ended the generation that trains, or is gone: there is nothing left
 * to wait for. */
fl_status fl_worker_check_abort(fl_worker_state *w) FL_MUST_CHECK;

/* Open a message group of the members under `plan`. */
fl_status fl_worker_open_messages(fl_worker_state *w, const fl_plan *plan,
                                  fl_message_group **out) FL_MUST_CHECK;

/* ---- worker_report.c ---- */

/* One step that is done: times of every worker, the ledger's part of whoever holds a last stage,
 * and what the leader tells for all. */
void fl_worker_report(fl_worker_state *w, const fl_global_batch *batch, const fl_step_result *r,
                      double lr, int64_t took_us);

/* How the cache served, up to this step: if a decision was taken, or `always` and there is
 * something to tell. */
void fl_worker_report_cache(fl_worker_state *w, int64_t step, int64_t epoch, bool always);

/* ---- nonfinite.c ---- */

/* After a step whose loss or gradient norm is not finite: find where, and tell. *ends: the run ends
 * with this step; the same on every worker that trains. */
fl_status fl_worker_nonfinite(fl_worker_state *w, const fl_global_batch *batch,
                              const fl_step_result *r, bool *ends) FL_MUST_CHECK;

/* ---- weight_hashes.c ---- */

/* Where the job asks for it after w->step steps, add hashes of this worker's layers to
 * weights.jsonl. A failure is warned of once and ends nothing. */
void fl_worker_hash_weights(fl_worker_state *w);

/* ---- control_point.c ---- */

/* This worker is no member of the run any more: it leaves at the control point that it is at. */
static inline bool fl_worker_departs(const fl_worker_state *w)
{
    return w->now->plan.departed[w->rank];
}

/* What the leader tells everybody at a control point, standby workers too. A worker that trains
 * knows where the run stands; one that joins learns it from here. */
typedef struct fl_control_message {
    fl_command command;
    int64_t step;      /* that comes next */
    fl_cursor cursor;  /* from which its batch is drawn */
    int64_t epoch;     /* of the step before */
    int32_t evaluates; /* an evaluation comes first */
} fl_control_message;

/* The control point behind a step. any: a command waits, *what is it where this worker speaks; it
 * is applied, and everybody holds while told to. *switched becomes true when another generation
 * trains from here on. */
fl_status fl_control_point(fl_worker_state *w, bool any, fl_control_message *what,
                           bool *switched) FL_MUST_CHECK;

/* A worker without a stage: wait until the controller wakes it because the leader is about to tell
 * something; hear it into *what, and do it. */
fl_status fl_control_stand_by(fl_worker_state *w, fl_control_message *what) FL_MUST_CHECK;

/* Let the message group do without whoever has no stage now, nor in `next` (NULL: there is none),
 * and keeps nothing of a frozen layer. FL_EPEER: one that is needed was lost before. */
fl_status fl_worker_release_standby(fl_worker_state *w, const fl_plan *next) FL_MUST_CHECK;

/* ---- setting.c ---- */

/* Do what everybody was told before step `step`; the leader tells the controller. */
void fl_setting_apply(fl_worker_state *w, const fl_setting *setting, int64_t step);

/* The leader of a paused run: wait for a command. After a while there is none, FL_COMMAND_NONE,
 * which is to be told all the same, for the others' waits have deadlines. */
fl_status fl_setting_wait(fl_worker_state *w, fl_command *command) FL_MUST_CHECK;

/* A standby worker of a paused run has heard a command: take the wake-up that came with it. */
fl_status fl_setting_take_wake(fl_worker_state *w) FL_MUST_CHECK;

/* ---- transition.c ---- */

/* Begin to open generation plan->generation beside the one that runs. The controller is told when
 * that has ended, well or not; what fails here is a refusal and nothing more. */
void fl_transition_prepare(fl_worker_state *w, const fl_plan *plan);

/* All vote; if all are ready, state moves and `now` becomes the next generation (*switched). Else
 * the next generation is dropped and `now` goes on untouched. step: the next one to run. */
fl_status fl_transition_commit(fl_worker_state *w, int64_t step, bool *switched) FL_MUST_CHECK;

/* Drop the next generation, also one that is still being opened. */
void fl_transition_cancel(fl_worker_state *w);

/* Wait for the prepare thread; called before the worker closes. */
void fl_transition_settle(fl_worker_state *w);

#endif
