/* The snapshots of a run, as the controller makes them: copies of the whole state in memory
 * (pipe/state/snapshot/snapshot.h), to which the run goes back when a lost worker had layers that
 * no other one has.
 *
 *     due ① ──> command to the leader, for a step ahead
 *     the reports of all steps before it are counted ② ──> the controller's state is captured
 *     every worker has copied its layers, and those of other hosts are on the head ③ ──> complete:
 * it takes the place of the one before ④
 *
 * A snapshot whose workers were further than asked for, or that a loss or a change of the plan came
 * across, is dropped; the one before stays, and the next one comes when it is due.
 *
 * The snapshot before the newest one stays until its slot is needed: the run goes back to it if the
 * newest one turns out to be damaged (fl_kept_snapshot_check).
 *
 * `auto` takes them as often as costs less than 1 % of the time, so that one goes from host to host
 * for at most 10 % of it, at most every 5 s, and while the plan has one replica: with more, each
 * layer has another owner. When a loss or a change of the plan leaves one replica, it takes one at
 * once, and the next one so much later. */
#ifndef FL_CONTROL_CHECKPOINT_SNAPSHOTS_H
#define FL_CONTROL_CHECKPOINT_SNAPSHOTS_H

#include "control/checkpoint/checkpoints.h"
#include "pipe/state/snapshot/snapshot.h"

/* What outlives the controller that made it. A struct of zeros holds nothing. */
typedef struct fl_kept_snapshot {
    fl_snapshot memory;        /* no slots: this run makes no snapshots */
    fl_checkpoint *checkpoint; /* of the newest complete snapshot, without files; or NULL */
    int slot;                  /* where that lies */
    fl_checkpoint *older;      /* of the snapshot before it, in the other slot; or NULL */
} fl_kept_snapshot;

/* Before a run goes back: compare the newest snapshot with its hashes. One that is damaged, or
 * newer than `recorded`, is dropped, with a warning, and the older one takes its place. Reads the
 * snapshot's whole memory.
 * recorded  the files of the run have the steps before that one; INT64_MAX: all of them */
void fl_kept_snapshot_check(fl_kept_snapshot *kept, int64_t recorded);

void fl_kept_snapshot_fini(fl_kept_snapshot *kept);

typedef struct fl_snapshots {
    /* borrowed while the run lasts */
    const fl_run_facts *run;
    const fl_elastic *elastic;
    fl_router *router;
    fl_event_log *log;
    const fl_checkpoints *checkpoints; /* which capture the controller's state */
    fl_kept_snapshot *kept;            /* NULL: no snapshots */

    bool is_auto;
    fl_checkpoint_schedule schedule;
    int64_t last_step, last_us; /* of the last one that was asked for; last_us: later than that by
                                   as much as it came early */
    bool had_replicas;          /* auto: the plan before had more than one replica */
    bool at_once;               /* auto: until the first one of a plan with one replica */
    int n_late;                 /* tries in a row for which the workers were already further */

    bool asked;
    int64_t target; /* the step that was asked for, then that of the first report */
    int64_t serial; /* of the last request */
    int slot;       /* that it fills */
    int64_t asked_us;
    fl_checkpoint *captured; /* ② */
    int n_reports;
    bool reported[FL_MAX_WORKERS]; /* ③ by rank */
    bool failed;                   /* this one cannot become complete */
    bool moves;                    /* parts of it go from host to host */
    uint32_t generation;
    int64_t bytes, copy_us; /* copy_us: the longest of any worker */

    int64_t n_taken;
} fl_snapshots;

/* Set the borrowed fields before the call. */
void fl_snapshots_open(fl_snapshots *snapshots);
void fl_snapshots_close(fl_snapshots *snapshots);

/* A step was counted: run->stats has it as its last one. */
void fl_snapshots_counted(fl_snapshots *snapshots);

void fl_snapshots_reported(fl_snapshots *snapshots, int rank, const fl_snapshot_report *report);

/* A worker was lost, and the others regroup. */
void fl_snapshots_interrupt(fl_snapshots *snapshots);

/* The step of the newest complete snapshot; -1 without one. */
int64_t fl_snapshots_step(const fl_snapshots *snapshots);

/* Drive them, in every turn of the loop. paused: the run pauses at a control point. */
void fl_snapshots_watch(fl_snapshots *snapshots, bool paused, int64_t now_us);

#endif
