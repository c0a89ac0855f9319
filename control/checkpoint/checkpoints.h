/* The checkpoints of a run, as the controller makes them:
 *
 *     due, or asked for ① ──> command to the leader, for a step ahead
 *     the reports of all steps before it are counted ② ──> the controller's state is captured
 *     every worker has finished its part ③ ──> commit, in a thread of its own ④ ──> durable ⑤
 *
 * After the last step workers begin a checkpoint by themselves; its first report starts ③, and ②
 * follows when all parts are there. If the workers were further than the controller's state when
 * the command reached them, their folder is dropped, and they are asked again with a longer lead;
 * if the plan changed at that very step, with a shorter one, between two changes.
 * Where workers wait at an earlier step for a change of the plan, they save that step: the
 * controller captures its state before it commits the change.
 * A failure at any point leaves the older checkpoints as they are, and the run goes on.
 *
 *     ask.c           ①, and schedule.c: when
 *     capture.c       ②, the state that is captured
 *     collection.c    ③, what workers report
 *     settle.c        ② to ⑤, as the reports arrive
 *     commit.c        ④, and which folders are removed
 *     outcomes.c      what became of each */
#ifndef FL_CONTROL_CHECKPOINT_CHECKPOINTS_H
#define FL_CONTROL_CHECKPOINT_CHECKPOINTS_H

#include "autodp/ledger.h"
#include "control/checkpoint/collection.h"
#include "control/checkpoint/commit.h"
#include "control/checkpoint/schedule.h"
#include "control/state/sums/checkpoint_sums.h"

enum { FL_CHECKPOINT_OUTCOMES = 8, FL_CHECKPOINT_OPEN = 2 };

/* What became of a checkpoint. */
typedef struct fl_checkpoint_outcome {
    int64_t ticket;
    bool good;
    char why[1100]; /* it failed */
    int64_t step;
    bool is_best;                /* of the best evaluation so far: train.metric */
    int64_t bytes, linked_bytes; /* of its files: written; linked to an older checkpoint's */
    double copy_ms, write_ms;    /* the longest of any worker */
    double commit_ms;
    double seconds; /* from the request, or from the first report */
} fl_checkpoint_outcome;

typedef struct fl_checkpoints {
    /* borrowed while the run lasts */
    const fl_run_facts *run;
    const fl_elastic *elastic;
    fl_router *router;
    fl_event_log *log;
    fl_ledger *ledger;
    void (*written)(void *context, const fl_checkpoint_outcome *outcome); /* one is durable */
    bool (*hurried)(void *context); /* whether the user wants the run to end at once */
    void *context;

    const fl_checkpoint_store *store; /* NULL: this run cannot write checkpoints */
    fl_checkpoint_schedule schedule;
    fl_checkpoint_sums sums;
    double base_lr; /* the job's train.lr before any command */
    int n_skipped;  /* steps in a row that were not finite */

    int64_t ticket;        /* of the current checkpoint, or of the next one */
    int64_t ticket_wanted; /* the highest one that a request waits for */
    fl_checkpoint_outcome outcome[FL_CHECKPOINT_OUTCOMES]; /* a ring, by ticket */

    bool asked, again;          /* the workers were asked; are to be asked again */
    int64_t target;             /* the step that they were asked for; 0: the present one */
    int64_t serial;             /* of the last request; 0: none was made */
    int64_t keep_step;          /* the workers wait there for fl_checkpoints_keep; 0: they do not */
    int64_t best_asked;         /* the last step of fl_checkpoints_keep; 0: none */
    int n_late;                 /* tries for which the workers were already further */
    int n_switched;             /* tries whose step was that of a change of the plan */
    int64_t begun_us;           /* when the checkpoint was asked for, or its first report arrived */
    int64_t moved_us;           /* when something last happened to it */
    int64_t last_step, last_us; /* of the last try by the schedule */

    fl_checkpoint *captured; /* ②; NULL: nothing is captured */
    int n_open;
    fl_collection *open[FL_CHECKPOINT_OPEN]; /* [n_open] ③, in the order of their steps */
    /* later reports are dropped: of this request and those before it; of this step, if nobody has
     * asked for it (-1: none); of generations before `since` */
    int64_t dropped_serial, dropped_step;
    uint32_t since;
    bool committing;
    fl_commit *commit;      /* ④; NULL without a store, or once it is given up */
    fl_collection *settled; /* the collection being committed; NULL: a folder is being removed */
    fl_checkpoint_outcome last_good; /* of the newest one that this run wrote */
    fl_checkpoint *newest;           /* ⑤; NULL: no checkpoint is durable */
} fl_checkpoints;

/* Set the borrowed fields before the call, and call it before a checkpoint is restored. The store
 * is that of the options; for a run that continues from a checkpoint, that is the first durable
 * one. */
fl_status fl_checkpoints_open(fl_checkpoints *checkpoints) FL_MUST_CHECK;
void fl_checkpoints_close(fl_checkpoints *checkpoints);

/* A step was counted: run->stats has it as its last one. */
void fl_checkpoints_counted(fl_checkpoints *checkpoints);

/* A worker reports. */
void fl_checkpoints_file(fl_checkpoints *checkpoints, int rank,
                         const fl_checkpoint_file_report *report);
void fl_checkpoints_part(fl_checkpoints *checkpoints, int rank,
                         const fl_checkpoint_part_report *report);

/* The controller did not run for this long, until now_us: the time does not count against the
 * checkpoint that is being written. */
void fl_checkpoints_forgive(fl_checkpoints *checkpoints, int64_t gap_us, int64_t now_us);

/* The step whose state the workers were asked to save and which is not counted yet; 0: none. While
 * the run is paused, they save the present one. */
int64_t fl_checkpoints_awaited(const fl_checkpoints *checkpoints, bool paused);

/* Ask for checkpoints that are due, commit those that are complete, give up those that are stuck;
 * called in every turn of the loop. Never waits. paused: the run pauses at a control point. */
void fl_checkpoints_watch(fl_checkpoints *checkpoints, bool paused, int64_t now_us);

/* All workers have left: commit what is complete, give up the rest, and remove its folders. Waits
 * for the disk, at most fault.deadline for each of them, and until the user is hurried. */
void fl_checkpoints_finish(fl_checkpoints *checkpoints);

/* A worker was lost, and the others regroup: a checkpoint that they have not finished is given up,
 * and one that was asked for is asked for again. Only that of a run which ends may still get all
 * its parts until they regroup. */
void fl_checkpoints_interrupt(fl_checkpoints *checkpoints, const char *why);

/* They regroup now, after `step` steps; the plan is still the one before. What is not finished is
 * given up. Returns whether the checkpoint after this step is durable, or has all its parts. If
 * not, and the run ends here, those that are left write it again under their new plan. */
bool fl_checkpoints_regroup(fl_checkpoints *checkpoints, int64_t step, const char *why);

/* Whether a run that ends after `step` steps needs no worker for its last checkpoint: it has all
 * parts, or the job wants none. */
bool fl_checkpoints_has_last(const fl_checkpoints *checkpoints, int64_t step);

/* The workers wait after `step` steps, whose evaluation is the best so far: ask them for a
 * checkpoint. False if an older one is still being written: call it again. */
bool fl_checkpoints_keep(fl_checkpoints *checkpoints, int64_t step, int64_t now_us);

/* Ask for a checkpoint now. *ticket names it. FL_ENOTSUP, FL_EBUSY, FL_EFAILED: there can be
 * none, and why. */
fl_status fl_checkpoints_request(fl_checkpoints *checkpoints, int64_t *ticket) FL_MUST_CHECK;

/* What became of it; NULL while it is in progress. */
const fl_checkpoint_outcome *fl_checkpoints_outcome_of(const fl_checkpoints *checkpoints,
                                                       int64_t ticket);

/* ---- capture.c ---- */

/* Fill *out, which is zeroed, with everything but the files, after run->stats->steps steps.
 * FL_ENOMEM. */
fl_status fl_checkpoints_capture(const fl_checkpoints *checkpoints,
                                 fl_checkpoint *out) FL_MUST_CHECK;

/* Whether both checkpoints, of one step, have the same plan and the same settings of the run. Pure.
 */
bool fl_checkpoint_has_state(const fl_checkpoint *before, const fl_checkpoint *now);

/* FL_EFAILED names a file that this checkpoint must have and does not. */
fl_status fl_checkpoints_check_files(const fl_checkpoints *checkpoints,
                                     const fl_checkpoint *checkpoint) FL_MUST_CHECK;

/* ---- checkpoint_events.c ---- */

void fl_event_log_checkpoint(fl_event_log *log, const fl_checkpoint_outcome *outcome);

/* step -1: it is unknown. */
void fl_event_log_no_checkpoint(fl_event_log *log, int64_t step, const char *why);

#endif
