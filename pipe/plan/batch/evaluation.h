/* When a run evaluates, and on which samples: functions of the job and of the position alone, so
 * that every plan evaluates alike. */
#ifndef FL_PIPE_PLAN_BATCH_EVALUATION_H
#define FL_PIPE_PLAN_BATCH_EVALUATION_H

#include "autodp/sampler.h"

#include <frostline/job.h>

/* Steps from one evaluation to the next; 0: only the last evaluation takes place. Pure. */
int64_t fl_evaluation_period(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps);

/* Whether the run evaluates after `done` steps, when it evaluates every `period` steps and after
 * the last one, end_step. Pure. */
bool fl_evaluation_is_due(int64_t done, int64_t period, int64_t end_step);

/* Steps without improvement after which train.stop_after ends a run; 0: it does not. Pure. */
int64_t fl_evaluation_patience(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps);

/* Whether the run keeps the checkpoint of its best evaluation: train.metric. Pure. */
bool fl_evaluation_keeps_best(const fl_job *job);

/* Whether the workers wait after the evaluation that follows `done` steps, because it may be the
 * best one, of which a checkpoint is written, or may end the run for lack of improvement: the first
 * one was at least the patience before it. They do not wait after the last one. Pure. */
bool fl_evaluation_is_judged(const fl_job *job, int64_t done, int64_t steps_per_epoch,
                             int64_t n_steps);

/* Samples of one evaluation, out of those that are numbered first .. first + of - 1: all of them,
 * or n, drawn once for the whole run. */
typedef struct fl_evaluation_set {
    int64_t first, n;
    bool drawn;
    fl_permutation order; /* of `of`; holds when drawn */
} fl_evaluation_set;

/* samples: train.evaluate_samples, 0: all. Pure. */
fl_evaluation_set fl_evaluation_set_of(int64_t first, int64_t of, int64_t samples, uint64_t seed);

/* What a run evaluates when an evaluation is due: validation samples, or test samples where there
 * are none, then all of them after the last step. n_test: of the test split, whose first
 * n_validation samples are the validation samples. Pure. */
fl_evaluation_set fl_evaluation_set_due(const fl_job *job, int64_t n_validation, int64_t n_test,
                                        bool last);

/* What a run with validation samples evaluates once more after the last step: all test samples. */
fl_evaluation_set fl_evaluation_set_test(const fl_job *job, int64_t n_validation, int64_t n_test);

/* The id of the i-th sample. Pure. */
int64_t fl_evaluation_sample(const fl_evaluation_set *set, int64_t i);

#endif
