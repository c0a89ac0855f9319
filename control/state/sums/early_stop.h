/* Whether a run still improves, by its evaluations: train.metric, train.stop_after. Pure. */
#ifndef FL_CONTROL_STATE_SUMS_EARLY_STOP_H
#define FL_CONTROL_STATE_SUMS_EARLY_STOP_H

#include "control/link/wire/wire.h"

#include <frostline/job.h>

/* What counts as an improvement, and for how long a run may lack it. */
typedef struct fl_stop_rule {
    int64_t patience; /* steps without improvement after which the run ends; 0: it does not */
    int metric;       /* of the model's loss; -1: the loss itself */
    bool higher;      /* a higher value is better */
    bool keeps_best;  /* the best checkpoint is kept, also without a patience */
    double margin;    /* a value is better only by more than this */
} fl_stop_rule;

/* How a run has improved so far: a plain value. */
typedef struct fl_early_stop {
    int64_t judged;     /* steps done before the last evaluation; 0: none yet */
    int64_t best_step;  /* steps done before the best one; before the first one while no value was
                         * finite; 0: none yet */
    int64_t best_epoch; /* to which the last of these steps belongs, from 1 */
    double best;        /* its value; NAN while no value was finite */
    int64_t end_step;   /* the run ends after this many steps for lack of improvement; 0: it does
                         * not */
} fl_early_stop;

/* The name of what must improve. */
const char *fl_stop_rule_name(const fl_job *job);

/* The rule of a job. metrics: of the model's loss. Returns FL_EINVAL if train.metric names
 * none of them; the message lists them. */
fl_status fl_stop_rule_of(const fl_job *job, const fl_metric_list *metrics, int64_t steps_per_epoch,
                          int64_t n_steps, fl_stop_rule *out) FL_MUST_CHECK;

/* The value that the rule looks at: of the validation samples, or of the test samples where there
 * are no others. NAN if the evaluation does not have it. */
double fl_stop_rule_value(const fl_stop_rule *rule, const fl_eval_report *eval);

/* Take an evaluation into account. Sets end_step if it shows that the run has lacked improvement
 * for `patience` steps. Without a patience or a best checkpoint to keep, and for an evaluation of a
 * step that was judged already, nothing changes. */
void fl_early_stop_judge(fl_early_stop *stop, const fl_stop_rule *rule, const fl_eval_report *eval);

/* Steps done before the best evaluation so far, whose checkpoint is kept; 0: none is kept. */
int64_t fl_stop_rule_best(const fl_stop_rule *rule, const fl_early_stop *stop);

/* Whether a run that continues after `step` steps is at its end already: its evaluation after that
 * step has shown that it lacks improvement, by this rule. */
bool fl_early_stop_holds(const fl_early_stop *stop, const fl_stop_rule *rule, int64_t step);

#endif
