/* The speed of the running plan, compared with its prediction: for people and for the tuner. No
 * decision to freeze depends on it, so that such decisions are the same in every run. */
#ifndef FL_CONTROL_ELASTIC_MEASURE_H
#define FL_CONTROL_ELASTIC_MEASURE_H

#include <frostline/plan.h>

typedef struct fl_elastic fl_elastic;

typedef struct fl_measure {
    bool pending; /* the step time of the running generation is not reported yet */
} fl_measure;

/* Mean step time, ms, over the last 100 steps of the running generation; 0 before its first step.
 */
double fl_measure_step_ms(const fl_elastic *elastic);

/* Measured step time of the running plan divided by the predicted one; 1 while nothing is measured.
 */
double fl_measure_ratio(const fl_elastic *elastic);

/* The predicted time, ms, of the next steps of `plan`, corrected by the ratio of the running plan.
 */
double fl_measure_predict_ms(const fl_elastic *elastic, const fl_plan *plan);

/* Call it when a transition starts to take effect. */
void fl_measure_switching(fl_elastic *elastic);

/* Report the speed of the running generation once it has run for long enough (or is about to end).
 */
void fl_measure_watch(fl_elastic *elastic, bool ending);

#endif
