/* The state of a running worker: shared by the files that worker.c's diagram names, and only by
 * them. */
#ifndef FL_LAUNCHER_WORKER_WORKER_STATE_H
#define FL_LAUNCHER_WORKER_WORKER_STATE_H

#include "autodp/sampler.h"
#include "control/link/link.h"
#include "launcher/worker/generation.h"
#include "launcher/worker/processors/crowding.h"
#include "launcher/worker/steps/batch_stream.h"
#include "launcher/worker/steps/kept_reports.h"
#include "pipe/plan/batch/evaluation.h"
#include "pipe/state/checkpoint/checkpoint_writer.h"
#include "pipe/state/migrate.h"
#include "pipe/state/snapshot/snapshot_writer.h"

#include <pthread.h>
#include <stdatomic.h>

/* The progress of opening the next generation. */
typedef enum fl_prepare_state {
    FL_PREPARE_NONE,
    FL_PREPARE_OPENING, /* the prepare thread opens it */
    FL_PREPARE_READY,
    FL_PREPARE_REFUSED,
} fl_prepare_state;

/* The prepare thread: opens the next generation and closes the last one while training continues.
 */
typedef struct fl_prepare_thread {
    pthread_t thread;
    bool running;         /* the thread must be joined */
    pthread_t closer;     /* of the last generation: the thread that opens the next one joins it */
    bool closes;          /* the closer must be joined */
    atomic_int state;     /* fl_prepare_state; while OPENING, only the thread uses `next` */
    uint32_t generation;  /* the one being opened, or opened last */
    atomic_bool given_up; /* this worker has ended the opening itself: that is no refusal */
    int64_t took_us;
    fl_generation *leaving; /* to be closed */
} fl_prepare_thread;

typedef struct fl_worker_state {
    const fl_worker_context *c;
    const fl_worker_birth *birth;
    int rank;
    bool leads; /* the leader of the group: it reports steps and broadcasts commands */
    fl_device *device;
    fl_crowding crowding; /* of the processors that `device` is pinned to */
    fl_net_transport tls;
    const fl_net_transport *transport; /* between hosts: `tls`, or NULL: in plain */
    fl_comm_keeper keeper;             /* while a generation opens, of its thread */
    fl_cache_tiers *tiers;             /* NULL: none */
    fl_link *link;
    fl_message_group *messages;
    fl_generation *now;      /* the generation that trains */
    fl_generation *next;     /* the one being prepared; NULL: none */
    fl_migration *migration; /* to `next`, ready to run; NULL: none */
    bool exchanged;          /* this worker has what it needs from others for `next` */
    fl_prepare_thread prepare_thread;
    fl_parked parked;
    fl_checkpoint_far far; /* of the checkpoint that begins, where the hosts share no files */
    fl_checkpoint_writer *writer; /* NULL: the run has no folder for checkpoints */
    fl_snapshot_writer *snapshots;
    int64_t saved_step;   /* of the last checkpoint that this worker began, -1: none */
    int64_t saved_serial; /* of the request for that one; 0: nobody asked for it */
    int64_t step;         /* the next step */
    int64_t held_us; /* since when all workers have waited at a step for an answer; 0: they train */
    int64_t n_commands;   /* that were applied; the same on every member of the run */
    int64_t last_setting; /* the serial number of the last setting that was applied */
    uint32_t regrouped;   /* the last order to break after which this worker has regrouped */
    int64_t answered[FL_DUE_KINDS]; /* the last step for which an answer of this kind arrived */
    int64_t plan_due; /* the step at which all wait for the commit of the prepared generation; 0:
                         none */
    fl_cursor cursor; /* position of the next batch */
    bool has_joined;  /* with `now`, workers have joined that do not know the run's state yet */
    bool stop;
    bool paused;               /* all workers wait at the control point */
    int64_t end_step;          /* the run ends after this many steps */
    int64_t evaluation_period; /* steps; 0: only at the end */
    bool is_judged;            /* an evaluation may end the run, or be its best one so far */
    int n_skipped;             /* steps in a row whose loss or gradient norm was not finite */
    double lr_factor;          /* factor on the job's learning rate */
    bool hashes_failed;        /* weights.jsonl cannot be written */
    fl_kept_reports kept;
    fl_batch_stream batches;
    int64_t *test_ids[2];   /* [fl_sampler_batch] of the current test batch and of the next one */
    fl_abort_set abort_set; /* nets of `now` and `next`; the link thread may abort them */
} fl_worker_state;

/* A hook for tests: a worker calls it at each of these points if the test program defines it. In
 * any other program it is absent. Points: "begin" (before the first step), "wait" (for the last
 * generation to be closed) and "prepare" (both in the prepare thread), "step" (after each),
 * "evaluate", "vote", "migrate", "exchanged", "migrated", "switch", "close" (in the thread that
 * closes a generation), "part" (its part of a checkpoint is written, and not reported; in the
 * thread that writes it), "end", "saved" (what it writes at the end is on the disk), "met" (that
 * holds for all); of a worker that joins, "enter" and "joined". */
void fl__test_point(const char *point, fl_worker_state *w) __attribute__((weak));

static inline void fl__reach(const char *point, fl_worker_state *w)
{
    if (fl__test_point != NULL) {
        fl__test_point(point, w);
    }
}

/* ---- worker_report.c ---- */

/* How the workers of the running generation exchange data: its first worker tells it. */
void fl_worker_report_comm(fl_worker_state *w);

/* ---- worker_open.c ---- */

/* Open the link, the device, the message group and the first generation. Close it after a failure,
 * too. */
fl_status fl_worker_open(fl_worker_state *w, const char *endpoint) FL_MUST_CHECK;
void fl_worker_close(fl_worker_state *w);

/* Fail if the controller has ended the running generation or is gone: then no wait can succeed. */
fl_status fl_worker_check_abort(fl_worker_state *w) FL_MUST_CHECK;

/* Open a message group of the members under `plan`. */
fl_status fl_worker_open_messages(fl_worker_state *w, const fl_plan *plan,
                                  fl_message_group **out) FL_MUST_CHECK;

/* ---- worker_report.c ---- */

/* Report a finished step: every worker its times, the leader the step and the samples of all
 * replicas; the others keep that, too (kept_reports.h). FL_ENOMEM. */
fl_status fl_worker_report(fl_worker_state *w, const fl_global_batch *batch,
                           const fl_step_result *r, double lr, int64_t took_us) FL_MUST_CHECK;

/* Report how the cache has served up to this step: after a decision, or with `always` if there is
 * anything to report. */
void fl_worker_report_cache(fl_worker_state *w, int64_t step, int64_t epoch, bool always);

/* Report what the stage has captured up to this step: after a failure, or with `always` if it
 * captured something since the last report. */
void fl_worker_report_graphs(fl_worker_state *w, int64_t step, bool always);

/* ---- evaluate.c ---- */

/* Evaluate if this worker has a stage: the workers that train report on what the job evaluates
 * after epoch `epoch`. */
fl_status fl_worker_evaluate(fl_worker_state *w, int64_t epoch) FL_MUST_CHECK;

/* The run ends at this step, after an evaluation that others could have followed: evaluate what the
 * last one has besides, all test samples. */
fl_status fl_worker_evaluate_end(fl_worker_state *w, int64_t epoch) FL_MUST_CHECK;

/* The batch of an evaluation that begins with the set's sample `first`; valid until the second
 * batch after it. */
fl_global_batch fl_worker_test_batch(fl_worker_state *w, const fl_evaluation_set *set,
                                     int64_t first);

/* ---- pass.c ---- */

/* The whole task of a worker that does not train: one pass over the test split. */
fl_status fl_worker_pass(fl_worker_state *w) FL_MUST_CHECK;

/* ---- nonfinite.c ---- */

/* After a step whose loss or gradient norm is not finite: find the first such value, and report it.
 * *ends: the run ends with this step; the same on every worker that trains. */
fl_status fl_worker_nonfinite(fl_worker_state *w, const fl_global_batch *batch,
                              const fl_step_result *r, bool *ends) FL_MUST_CHECK;

/* ---- weight_hashes.c ---- */

/* Where the job asks for it after w->step steps, add hashes of this worker's layers to
 * weights.jsonl. The first failure to write is reported to the controller; the run continues. Fails
 * with the device. */
fl_status fl_worker_hash_weights(fl_worker_state *w) FL_MUST_CHECK;

/* ---- control_point.c ---- */

/* Whether this worker is no longer a member of the run: it then leaves at its control point. */
static inline bool fl_worker_departs(const fl_worker_state *w)
{
    return w->now->plan.departed[w->rank];
}

/* The leader's broadcast at a control point, to standby workers, too. Workers that train know the
 * run's position; a worker that joins takes it from here. */
typedef struct fl_control_message {
    fl_command command;
    int64_t step;      /* the next step */
    fl_cursor cursor;  /* position of the next batch */
    int64_t epoch;     /* of the step before */
    int32_t evaluates; /* the workers that train evaluate first */
    int32_t evaluated; /* they have evaluated, and wait for the decision whether the run goes on */
} fl_control_message;

/* The control point after a step. If `any`, a command is pending (the leader passes it in *what).
 * Executes it, and waits while the run is paused. *switched becomes true if another generation
 * trains from here on. */
fl_status fl_control_point(fl_worker_state *w, bool any, fl_control_message *what,
                           bool *switched) FL_MUST_CHECK;

/* The control point at which a run begins that continues from a checkpoint: wait for the decision
 * that is due there, if any, as the run that wrote the checkpoint did. Also that at which a worker
 * joins: while the run is paused, it waits with the others. */
fl_status fl_control_begin(fl_worker_state *w, fl_control_message *what,
                           bool *switched) FL_MUST_CHECK;

/* For a worker without a stage: wait until the controller announces a broadcast of the leader,
 * receive it into *what, and execute the command. */
fl_status fl_control_stand_by(fl_worker_state *w, fl_control_message *what) FL_MUST_CHECK;

/* Mark as expendable, in the message group, every worker that has no stage now nor in `next` (NULL:
 * there is none) and keeps no moments of a frozen layer. FL_EPEER: a worker that is needed was lost
 * before. */
fl_status fl_worker_release_standby(fl_worker_state *w, const fl_plan *next) FL_MUST_CHECK;

/* ---- setting.c ---- */

/* Execute the setting that the leader broadcast before step `step`; the leader reports it to the
 * controller. */
void fl_setting_apply(fl_worker_state *w, const fl_setting *setting, int64_t step);

/* On the leader of a paused run: wait for a command. If none arrives for a while, the command is
 * FL_COMMAND_NONE; the leader broadcasts it all the same, since the others' waits have deadlines.
 */
fl_status fl_setting_wait(fl_worker_state *w, fl_command *command) FL_MUST_CHECK;

/* On a standby worker of a paused run: take the announcement that belongs to the last command. */
fl_status fl_setting_take_wake(fl_worker_state *w) FL_MUST_CHECK;

/* ---- checkpoint.c ---- */

/* Make what writes checkpoints, if the run has a folder for them. */
fl_status fl_worker_checkpoint_open(fl_worker_state *w) FL_MUST_CHECK;

/* The present generation trains from `step` on. */
void fl_worker_checkpoint_follow(fl_worker_state *w, int64_t step);

/* Begin a checkpoint of the state after `step` steps: training stands still while this worker's
 * part of it is copied. The rest happens in the background, and the controller receives the result;
 * a failure to write does not end the run. serial: of the controller's request; 0: there was none.
 * Fails with the device. */
fl_status fl_worker_checkpoint(fl_worker_state *w, int64_t step, int64_t serial) FL_MUST_CHECK;

/* The same at the end of the run, if it keeps checkpoints and this step has none yet. */
fl_status fl_worker_checkpoint_last(fl_worker_state *w) FL_MUST_CHECK;

/* The others regroup after `step` steps. saved: a checkpoint after this step has all its parts;
 * else this worker's part of it is written again, if there is to be one. */
void fl_worker_checkpoint_regroup(fl_worker_state *w, int64_t step, bool saved);

/* Before the message group is closed: files that are on their way to the head arrive first; with
 * give_up, after a loss, their checkpoint fails. A snapshot that is on its way is dropped. */
void fl_worker_checkpoint_leave(fl_worker_state *w, bool give_up);

/* Wait until this worker's part of the last checkpoint is on the disk. What is not there within
 * fault.deadline is given up, and reported as a failure. */
void fl_worker_checkpoint_settle(fl_worker_state *w);

/* What this worker has of the run's state now. */
fl_checkpoint_state fl_worker_saved_state(fl_worker_state *w);

/* Whether `mine` holds on all members, standby ones too; those that were lost do not count. */
fl_status fl_worker_agree(const fl_worker_state *w, bool mine, bool *all) FL_MUST_CHECK;

/* ---- snapshots.c ---- */

/* Make what takes part in snapshots. */
fl_status fl_worker_snapshots_open(fl_worker_state *w) FL_MUST_CHECK;

/* Copy this worker's part of the state after `step` steps into the snapshot that was requested with
 * this serial number. What goes between hosts follows in the background, then the report. Returns a
 * failure of the device or of the message group. */
fl_status fl_worker_snapshot(fl_worker_state *w, int64_t step, int64_t serial) FL_MUST_CHECK;

/* At the end of the run, on all members: a snapshot that is still on its way is dropped. */
void fl_worker_snapshots_end(fl_worker_state *w);

/* A run on several hosts goes back to the snapshot that the head has: send or get the layers of the
 * workers of other hosts. *own: slot 0 has what this worker needs, unless it is on the head;
 * fl_snapshot_close it, after a failure, too. */
fl_status fl_worker_get_snapshot(fl_worker_state *w, fl_snapshot *own) FL_MUST_CHECK;

/* The same of the checkpoint that the head has, where the hosts share no files. */
fl_status fl_worker_get_saved(fl_worker_state *w, const fl_state_source *saved,
                              fl_snapshot *own) FL_MUST_CHECK;

/* Where the hosts share no files: send the trained weights to the head, or write those of other
 * hosts into the model's file. All members call it at the end of the run. */
fl_status fl_worker_collect_model(fl_worker_state *w) FL_MUST_CHECK;

/* ---- rejoin.c ---- */

typedef struct fl_rejoin_outcome {
    bool leaves;    /* the run is complete */
    bool evaluates; /* the evaluation that is due after w->step steps is still to come */
} fl_rejoin_outcome;

/* The generation is broken (`why`, fl_errmsg): report where this worker stands, wait for the
 * controller's decision, and carry it out. On return `now` is the generation that trains from
 * w->step on. Fails when the run ends, or with a failure of this worker alone. */
fl_status fl_worker_rejoin(fl_worker_state *w, fl_status why,
                           fl_rejoin_outcome *outcome) FL_MUST_CHECK;

/* What the controller has ordered so far, as this worker knows it; and the same as others know it.
 */
fl_run_position fl_worker_position(const fl_worker_state *w);
void fl_worker_adopt(fl_worker_state *w, const fl_run_position *position);

/* ---- join.c ---- */

/* On a worker that joins a run: take part in the preparation of generations, until one with this
 * worker trains, or the run stops. */
fl_status fl_worker_join(fl_worker_state *w) FL_MUST_CHECK;

/* After a switch, on every member: if workers have joined with it, the leader tells them the run's
 * state. */
fl_status fl_worker_share_state(fl_worker_state *w) FL_MUST_CHECK;

/* ---- transition_prepare.c, for transition.c ---- */

/* ② For a refusal, fl_errmsg is the reason. */
void fl__transition_answer(fl_worker_state *w, uint32_t generation, fl_status status);

/* Whether this rank is a member of the next generation, and none of the present one. */
bool fl__transition_joins(const fl_worker_state *w, int rank);

/* Memory for the next generation, and then its opening. lost: as in fl_migrate_options */
fl_status fl__transition_make_next(fl_worker_state *w, const fl_plan *plan) FL_MUST_CHECK;
fl_status fl__transition_open_member(fl_worker_state *w, const fl_plan *plan, bool after_loss,
                                     const bool *lost) FL_MUST_CHECK;

/* Wait for the prepare thread, and for one that still closes a generation. */
void fl__transition_join_thread(fl_worker_state *w);

/* Close a generation while training continues; if no thread can be started, close it at once. */
void fl__transition_close_in_thread(fl_worker_state *w, fl_generation *member);

/* ---- transition.c, transition_prepare.c ---- */

/* Start to open generation plan->generation while the current one runs. The controller receives the
 * result. A failure here is a refusal; training continues. */
void fl_transition_prepare(fl_worker_state *w, const fl_plan *plan);

/* Vote with all workers. If all are ready, state moves and `now` becomes the next generation
 * (*switched); otherwise the next generation is dropped and `now` continues unchanged. step: the
 * next step to run. */
fl_status fl_transition_commit(fl_worker_state *w, int64_t step, bool *switched) FL_MUST_CHECK;

/* Every worker has what it needs from others for the next generation: `now` becomes the next one,
 * which trains from `step` on. Waits for nobody. Fills in the rest of *done, and reports it. */
fl_status fl_transition_finish(fl_worker_state *w, int64_t step,
                               fl_transition_parts *done) FL_MUST_CHECK;

/* A worker was lost, and the generation that trained is broken: those that are left go over to
 * `plan` without a vote. lost [n_workers]: as in fl_migrate_schedule. After a failure `now` has the
 * state that it had. */
fl_status fl_transition_force(fl_worker_state *w, const fl_plan *plan, const bool *lost,
                              int64_t step) FL_MUST_CHECK;

/* On a worker that joins: generation `next` trains now. step: its first step. */
fl_status fl_transition_enter(fl_worker_state *w, int64_t step) FL_MUST_CHECK;

/* Drop the next generation, even if it is still being opened. */
void fl_transition_cancel(fl_worker_state *w);

/* Wait for the prepare thread; called before the worker closes. */
void fl_transition_settle(fl_worker_state *w);

#endif
