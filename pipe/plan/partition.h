/* Where to cut a model into stages. */
#ifndef FL_PIPE_PLAN_PARTITION_H
#define FL_PIPE_PLAN_PARTITION_H

#include <frostline/plan.h>

/* Split n_layers layers into n_stages contiguous, non-empty stages so that the slowest is as fast
 * as possible (dynamic programming over cuts).
 * cost       [n_layers] microseconds, each >= 0
 * fits       tells whether stage `stage` of layers first .. last - 1 fits its device; NULL: all do
 * first      [n_stages + 1] out; unchanged on failure
 * Returns    FL_EINVAL if n_stages > n_layers, FL_EBUDGET if no split fits
 * Threads    pure; any
 * Source     PipeTransformer, arXiv 2102.03161, section 3.2 (ours is exact, theirs greedy) */
typedef bool fl_stage_fits(void *context, int stage, int first, int last);
fl_status fl_partition_optimal(const double *cost, int n_layers, int n_stages, fl_stage_fits *fits,
                               void *context, int *first) FL_MUST_CHECK;

/* What layers cost on each stage's device. */
typedef struct fl_stage_costs {
    int n_layers, n_kinds;
    const double *cost;     /* [n_kinds * n_layers] one kind of device after the other */
    const int *kind;        /* [n_stages] of each stage's device, 0 .. n_kinds - 1; NULL: 0 */
    const double *slowness; /* [n_stages] times as long as its kind, each > 0; NULL: 1 */
} fl_stage_costs;

/* The same where stages run on different devices. */
fl_status fl_partition_on(const fl_stage_costs *costs, int n_stages, fl_stage_fits *fits,
                          void *context, int *first) FL_MUST_CHECK;

/* The paper's Algorithm 1: by parameter count, frozen layers weighing lambda_frozen = 1/6 of it.
 * Each stage takes layers while it stays below its even share of what is left, plus the variance of
 * the sizes that are left over the stages that are left, sizes in millions of parameters. The paper
 * gives all frozen layers to the first stage; here they only weigh less.
 * n_params [n_layers]; frozen [n_layers]
 * first    [n_stages + 1] out; unchanged on failure
 * Returns  FL_EINVAL if n_stages > n_layers
 * Threads  pure; any
 * Source   PipeTransformer, arXiv 2102.03161, section 3.2 */
fl_status fl_partition_greedy(const int64_t *n_params, const bool *frozen, int n_layers,
                              int n_stages, int *first) FL_MUST_CHECK;

#endif
