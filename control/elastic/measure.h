/* How fast the running plan is, beside what was predicted: for people and the tuner. No decision to
 * freeze goes by it, so that such decisions are the same in every run. */
#ifndef FL_CONTROL_ELASTIC_MEASURE_H
#define FL_CONTROL_ELASTIC_MEASURE_H

#include <frostline/plan.h>

typedef struct fl_elastic fl_elastic;

typedef struct fl_measure {
    bool pending; /* the generation at work is new: its step time is still to be reported */
} fl_measure;

/* Mean step time, ms, of the generation at work over its last 100 steps; 0 before it has any. */
double fl_measure_step_ms(const fl_elastic *elastic);

/* Measured by predicted step time of the running plan; 1 before it has been measured. */
double fl_measure_ratio(const fl_elastic *elastic);

/* The next steps of `plan` as predicted, ms each, corrected by what the running plan measures. */
double fl_measure_predict_ms(const fl_elastic *elastic, const fl_plan *plan);

/* A transition begins to take effect. */
void fl_measure_switching(fl_elastic *elastic);

/* Report how fast the generation at work is, once it has run for long enough (or is about to end).
 */
void fl_measure_watch(fl_elastic *elastic, bool ending);

#endif
