/* What the files of a run's checkpoints share; ① to ⑤ as in checkpoints.h. */
#ifndef FL_CONTROL_CHECKPOINT_PARTS_H
#define FL_CONTROL_CHECKPOINT_PARTS_H

#include "control/checkpoint/checkpoints.h"

/* ---- outcomes.c ---- */

/* The checkpoint with the present ticket is over, and so are requests for it. Returns its outcome,
 * which is good or lacks its reason. */
fl_checkpoint_outcome *fl__checkpoints_end_ticket(fl_checkpoints *c, bool good, int64_t step);
void fl__checkpoints_fail_ticket(fl_checkpoints *c, int64_t step, const char *why);

/* Whether the workers write a checkpoint when the run ends: checkpoint.every is not `none`. */
bool fl__checkpoints_wants_last(const fl_checkpoints *c);
void fl__checkpoints_note_written(fl_checkpoints *c, const fl_collection *settled);

/* ---- ask.c ---- */

/* Ask for what is due or requested, if nothing is under way. */
void fl__checkpoints_look_at_schedule(fl_checkpoints *c, bool paused, int64_t now_us);

/* Whether the newest checkpoint is of this step. */
bool fl__checkpoints_has(const fl_checkpoints *c, int64_t step);

/* Whether the run ends soon: nothing more is asked for. */
bool fl__run_is_ending(const fl_run_facts *run);

/* ---- settle.c ---- */

/* *checkpoint becomes NULL; NULL is fine. */
void fl__checkpoints_free_one(fl_checkpoint **checkpoint);
void fl__checkpoints_drop_open(fl_checkpoints *c, int i);

/* ②, now. */
void fl__checkpoints_capture_now(fl_checkpoints *c);

/* A change of the plan that commits at an earlier step than the one that the workers were asked
 * for: they save its state first, so that step is the one to capture. */
void fl__checkpoints_follow_commit(fl_checkpoints *c);

/* Whether every worker has reported its part of an open collection, and every step before it is
 * counted. */
bool fl__checkpoints_is_complete(const fl_checkpoints *c, const fl_collection *collection,
                                 int64_t now_us);

/* The first open collection is complete: commit it, ask again, or fail. */
void fl__checkpoints_settle(fl_checkpoints *c);
void fl__checkpoints_fail_open(fl_checkpoints *c, const char *why);

/* Fill c->commit in; checkpoint NULL removes the step's folder. */
void fl__checkpoints_prepare_commit(fl_checkpoints *c, int64_t step, fl_checkpoint *checkpoint);

/* The commit's thread has ended: ⑤. */
void fl__checkpoints_finish_commit(fl_checkpoints *c);

/* Fail the checkpoint to which nothing has happened for fault.deadline. */
void fl__checkpoints_watch_deadline(fl_checkpoints *c, int64_t now_us);

#endif
