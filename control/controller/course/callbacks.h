/* The callbacks of the program that called fl_run_with. Each is called once its event is in
 * events.jsonl; what it returns is carried out. on_end is called by fl_run_with itself. */
#ifndef FL_CONTROL_CONTROLLER_COURSE_CALLBACKS_H
#define FL_CONTROL_CONTROLLER_COURSE_CALLBACKS_H

#include "control/checkpoint/checkpoints.h"

typedef struct fl_controller fl_controller;

/* The epoch that ended last: stats.past. */
void fl_callbacks_epoch(fl_controller *controller);
void fl_callbacks_evaluation(fl_controller *controller, const fl_eval_report *report);
void fl_callbacks_checkpoint(fl_controller *controller, const fl_checkpoint_outcome *outcome);

#endif
