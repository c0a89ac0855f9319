/* Refinement of a profile by live steps. Pure: values to values; any thread. */
#ifndef FL_PIPE_COST_TIME_LEARN_H
#define FL_PIPE_COST_TIME_LEARN_H

#include "autodp/group/group.h"
#include "pipe/cost/time/cost_model.h"

/* The compute time of one stage in a step, as measured on live steps. */
typedef struct fl_live_stage {
    int64_t n_steps;   /* 0: nothing is known */
    double compute_us; /* forward, backward and loss, of a step that nothing disturbed */
} fl_live_stage;

/* Move the costs of each stage's layers towards what its steps took: by as much as the steps weigh
 * against those that the costs come from already. A stage that took more than three times, or less
 * than a third of the prediction has another cause than its layers and is ignored.
 * input  its profile is the one that is corrected, as it was before
 * live   [plan->K] */
void fl_profile_learn(fl_profile *profile, const fl_plan_input *input, const fl_plan *plan,
                      const fl_live_stage *live);

/* A stage of n_layers layers with n_slots micro-batches in flight has captured work, for which the
 * driver of its device holds size_bytes. first: the run's first report takes the place of what is
 * known from earlier runs; later ones can only add. */
void fl_profile_learn_graphs(fl_profile *profile, int n_layers, int n_slots, int64_t size_bytes,
                             bool first);

/* Opening NCCL's communicators in this way took `us`. */
void fl_profile_learn_comm(fl_profile *profile, fl_comm_way way, int64_t us);

/* What is known of each way, microseconds; 0: unknown. */
void fl_profile_comm_times(const fl_profile *profile, int64_t us[FL_COMM_WAYS]);

/* The tuned M for this batch, F, K and R; NULL: there is none. Borrowed. */
const fl_tuned *fl_profile_tuned(const fl_profile *profile, int64_t batch, int F, int K, int R);

/* Store it in place of the known value; without free space, the oldest entry is replaced. */
void fl_profile_remember(fl_profile *profile, const fl_tuned *tuned);

#endif
