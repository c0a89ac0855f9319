/* The steps at which a decision takes effect. They are known before the run starts, to the
 * controller and to every worker alike: a worker that comes to one of them waits there until the
 * controller has answered for it, with a commit, a cancellation or a pass. So a decision takes
 * effect at the same step in every run of a job, however long it took to prepare. */
#ifndef FL_CONTROL_ELASTIC_DUE_STEPS_H
#define FL_CONTROL_ELASTIC_DUE_STEPS_H

#include "control/elastic/recording.h"
#include "control/link/link.h"

#include <frostline/job.h>

typedef struct fl_due_steps {
    const fl_job *job;
    int64_t steps_per_epoch, n_steps;
    const fl_recording *recording; /* of the run that is to be repeated, which then has the steps of
                                      all decisions; NULL: none */
    int64_t lead; /* steps from what a decision is based on to the step at which it takes effect */
} fl_due_steps;

/* How many steps ahead decisions are taken: as many as take about 200 ms on processors of a nominal
 * speed, between 6 and 64, and fewer than an interval of the freeze policy. It depends on the job
 * and the model alone, so that it is the same in every run.
 * step_flops  operations of one step, 0: unknown
 * n_cores     processors of all devices */
int64_t fl_due_lead(const fl_due_steps *due, double step_flops, int64_t n_cores);

/* The step at which the freeze policy's decision after `step` steps takes effect; 0 if no decision
 * is due there, or the run ends before. */
int64_t fl_due_policy(const fl_due_steps *due, int64_t step);

/* Whether an answer of this kind is due at `step`, the number of steps that are done. */
bool fl_due_at(const fl_due_steps *due, fl_due_kind kind, int64_t step);

/* The first of the steps from .. to at which any answer is due; 0: there is none. */
int64_t fl_due_first(const fl_due_steps *due, int64_t from, int64_t to);

#endif
