/* The events of freezing, transitions, tuning and learning, and their lines for the terminal. They
 * only read the state that they report. */
#ifndef FL_CONTROL_ELASTIC_ELASTIC_EVENTS_H
#define FL_CONTROL_ELASTIC_ELASTIC_EVENTS_H

#include "pipe/cost/time/learn.h"
#include "pipe/plan/tuner.h"

typedef struct fl_elastic fl_elastic;

void fl_event_log_prepare(fl_elastic *elastic);
/* again: the change is taken up again. */
void fl_event_log_cancel(fl_elastic *elastic, const char *why, bool again);
void fl_event_log_transition(fl_elastic *elastic);
void fl_event_log_measured(fl_elastic *elastic, double measured_ms, int64_t n_steps);
void fl_event_log_decided(fl_elastic *elastic, int64_t step, int64_t effect_step);
void fl_event_log_considered(fl_elastic *elastic);
void fl_event_log_tried(fl_elastic *elastic, const fl_tuner_visit *visit);
void fl_event_log_tuned(fl_elastic *elastic);
void fl_event_log_learned(fl_elastic *elastic, const fl_live_stage *live,
                          const double *predicted_us);

#endif
