/* Answers the workers, which wait after an evaluation that may end the run, or is the best one.
 *
 *     evaluation ──> report ──> fl_run_stats_eval judges it ──> CHECKPOINT, if it is the best so
 * far ──> END or PASS to the leader
 *
 * The answer waits while a transition commits, since the leader may be another worker then. It
 * waits for an older checkpoint that is being written, but for no longer than half of
 * fault.deadline. */
#ifndef FL_CONTROL_CONTROLLER_COURSE_STOP_ANSWER_H
#define FL_CONTROL_CONTROLLER_COURSE_STOP_ANSWER_H

#include "control/controller/parts/stop_answer_state.h"
#include "control/link/link.h"

typedef struct fl_controller fl_controller;

/* The evaluation has just been added to the statistics. */
void fl_stop_answer_judged(fl_controller *controller, const fl_eval_report *eval);

/* Send the answer once it can be sent. Called in every turn of the loop. */
void fl_stop_answer_watch(fl_controller *controller);

/* The run ends after `step` steps for lack of improvement: count and report it. */
void fl_stop_answer_end(fl_controller *controller, int64_t step);

#endif
