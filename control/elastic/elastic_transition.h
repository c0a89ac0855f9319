/* The transition between two plans, from PREPARE to the last worker that has switched. The numbers
 * of answers, the reasons and the times are in elastic->transition. */
#ifndef FL_CONTROL_ELASTIC_ELASTIC_TRANSITION_H
#define FL_CONTROL_ELASTIC_ELASTIC_TRANSITION_H

#include "control/elastic/elastic.h"

/* Ask the workers to prepare elastic->transition.next, whose generation, due step and reason are
 * set. With that plan, *terms take effect. */
void fl_elastic_prepare(fl_elastic *elastic, const fl_elastic_terms *terms, int64_t now_us);

/* Cancel the change in elastic->transition, whether workers prepare it or not. */
void fl_elastic_cancel(fl_elastic *elastic, const char *why);

/* The run ends: a change that is being prepared is over. */
void fl_elastic_leave(fl_elastic *elastic);

/* In every turn of the loop while a transition is in progress: commit or cancel it when its time
 * has come. save_step: see fl_elastic_watch. */
void fl_elastic_drive(fl_elastic *elastic, int64_t save_step, int64_t now_us);

#endif
