/* What live steps teach a profile. Pure: values to values; any thread. */
#ifndef FL_PIPE_PLAN_LEARN_H
#define FL_PIPE_PLAN_LEARN_H

#include "pipe/plan/planner.h"

/* What one stage's workers computed in a step, as live steps showed. */
typedef struct fl_live_stage {
    int64_t n_steps;   /* 0: nothing is known */
    double compute_us; /* forward, backward and loss, of a step that nothing disturbed */
} fl_live_stage;

/* Move the costs of each stage's layers towards what its steps took: by as much as the steps weigh
 * against those that the costs come from already. A stage that took more than three times, or less
 * than a third of what was predicted tells of something else than its layers, and is passed over.
 * input  its profile is the one that is corrected, as it was before
 * live   [plan->K] */
void fl_profile_learn(fl_profile *profile, const fl_plan_input *input, const fl_plan *plan,
                      const fl_live_stage *live);

/* What was tuned for this batch, F, K and R; NULL: nothing. Borrowed. */
const fl_tuned *fl_profile_tuned(const fl_profile *profile, int64_t batch, int F, int K, int R);

/* Remember it, instead of what was known; the oldest goes where there is no more room. */
void fl_profile_remember(fl_profile *profile, const fl_tuned *tuned);

#endif
