/* The record of a run that continues: events.jsonl, steps.jsonl, summary.txt and the ledger. */
#ifndef FL_CONTROL_CONTROLLER_COURSE_RECORD_BEGIN_H
#define FL_CONTROL_CONTROLLER_COURSE_RECORD_BEGIN_H

#include <frostline/status.h>

typedef struct fl_controller fl_controller;

/* Cut it behind the checkpoint, and add what has waited. The record of a new run does not wait. */
fl_status fl_record_continue(fl_controller *controller) FL_MUST_CHECK;

/* All workers are ready, or one reports a step, which proves that they are: the same, once. A
 * record that cannot be continued ends the run with FL_EFAILED. */
void fl_record_begin(fl_controller *controller);

#endif
