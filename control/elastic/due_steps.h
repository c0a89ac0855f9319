/* The steps at which decisions take effect. The controller and every worker know them before the
 * run starts. A worker that reaches such a step waits there until the controller has answered for
 * it, with a commit, a cancellation or a pass. A decision therefore takes effect at the same step
 * in every run of a job, however long its preparation takes. */
#ifndef FL_CONTROL_ELASTIC_DUE_STEPS_H
#define FL_CONTROL_ELASTIC_DUE_STEPS_H

#include "control/elastic/recording.h"
#include "control/link/link.h"

#include <frostline/job.h>

typedef struct fl_due_steps {
    const fl_job *job;
    int64_t steps_per_epoch, n_steps;
    const fl_recording *recording; /* of the run that is repeated; it has the steps of all
                                      decisions. NULL: this run repeats none */
    int64_t lead; /* steps from the data of a decision to the step at which it takes effect */
} fl_due_steps;

/* How many steps ahead decisions are taken: as many as take about 200 ms on processors of a nominal
 * speed, between 6 and 64, and fewer than an interval of the freeze policy. It depends on the job
 * and the model alone, so that it is the same in every run.
 * step_flops  operations of one step, 0: unknown
 * n_cores     processors of all devices */
int64_t fl_due_lead(const fl_due_steps *due, double step_flops, int64_t n_cores);

/* The step at which the freeze policy's decision after `step` steps takes effect; 0 if no decision
 * is due then, or if the run ends before it. */
int64_t fl_due_policy(const fl_due_steps *due, int64_t step);

/* Whether an answer of this kind is due at `step`, the number of finished steps. */
bool fl_due_at(const fl_due_steps *due, fl_due_kind kind, int64_t step);

/* The first step in from .. to at which an answer is due that may be a change of the plan; 0: no
 * such answer is due there. */
int64_t fl_due_first(const fl_due_steps *due, int64_t from, int64_t to);

#endif
