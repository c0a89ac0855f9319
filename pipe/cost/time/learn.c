#include "pipe/cost/time/learn.h"

#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/cost/time/cost_model.h"

#include <string.h>

/* The weight of the measurement before the run, in steps; and the largest weight that a profile
 * gathers more stubborn: machines change. */
enum { MEASURED_WORTH = 20, MOST_WORTH = 400, FEWEST_STEPS = 5 };

static const double ODD = 3.0;

static double factor_of(const fl_profile *profile, const fl_live_stage *live, double predicted_us)
{
    if (live->n_steps < FEWEST_STEPS || predicted_us <= 0.0) {
        return 1.0;
    }
    double ratio = live->compute_us / predicted_us;
    if (!(ratio > 1.0 / ODD && ratio < ODD)) {
        return 1.0;
    }
    int64_t known = profile->live_steps < MOST_WORTH ? profile->live_steps : MOST_WORTH;
    double before = (double)(known + MEASURED_WORTH), now = (double)live->n_steps;
    return 1.0 + (ratio - 1.0) * now / (now + before);
}

static void scale_layer(fl_layer_cost *c, bool frozen, double factor)
{
    if (frozen && c->frozen_call_us + c->frozen_us + c->frozen_token_us > 0.0) {
        c->frozen_call_us *= factor;
        c->frozen_us *= factor;
        c->frozen_token_us *= factor;
        return;
    }
    c->fwd_call_us *= factor;
    c->fwd_us *= factor;
    c->fwd_token_us *= factor;
    if (!frozen) {
        c->bwd_call_us *= factor;
        c->bwd_us *= factor;
        c->bwd_token_us *= factor;
    }
}

static void learn(fl_profile *profile, const fl_cost_table *price, const fl_plan *plan,
                  const fl_live_stage *live)
{
    int64_t n_steps = 0;
    for (int s = 0; s < plan->K; s++) {
        double predicted = fl_cost_model_compute(price, fl_plan_grid(plan), plan->first, s);
        double factor = factor_of(profile, &live[s], predicted);
        for (int i = plan->first[s]; i < plan->first[s + 1]; i++) {
            bool frozen = fl_model_block_of(price->input->model, i) <= plan->F;
            scale_layer(&profile->layer[i], frozen, factor);
        }
        if (s == plan->K - 1) {
            profile->loss_call_us *= factor;
            profile->loss_us *= factor;
        }
        n_steps = live[s].n_steps > n_steps ? live[s].n_steps : n_steps;
    }
    profile->live_steps += n_steps < FEWEST_STEPS ? 0 : n_steps;
}

void fl_profile_learn(fl_profile *profile, const fl_plan_input *input, const fl_plan *plan,
                      const fl_live_stage *live)
{
    fl_plan_input mine = *input;
    fl_cost_table price;
    mine.profile = profile;
    mine.F = plan->F;
    fl_cost_table_init(&price, &mine);
    learn(profile, &price, plan, live);
}

void fl_profile_learn_graphs(fl_profile *profile, int n_layers, int n_slots, int64_t size_bytes,
                             bool first)
{
    int64_t pieces = (int64_t)n_layers * n_slots, each = (size_bytes + pieces - 1) / pieces;
    bool larger = first || each > profile->graph_layer_bytes;
    profile->graph_layer_bytes = larger ? each : profile->graph_layer_bytes;
}

static int find(const fl_profile *profile, int64_t batch, int F, int K, int R)
{
    for (int i = 0; i < profile->n_tuned; i++) {
        const fl_tuned *t = &profile->tuned[i];
        if (t->batch == batch && t->F == F && t->K == K && t->R == R) {
            return i;
        }
    }
    return -1;
}

void fl_profile_comm_times(const fl_profile *profile, int64_t us[FL_COMM_WAYS])
{
    us[FL_COMM_NONE] = 0;
    us[FL_COMM_REBUILD] = (int64_t)profile->comm_rebuild_us;
    us[FL_COMM_SPLIT] = (int64_t)profile->comm_split_us;
    us[FL_COMM_SHRINK] = (int64_t)profile->comm_shrink_us;
}

void fl_profile_learn_comm(fl_profile *profile, fl_comm_way way, int64_t us)
{
    double *const time[FL_COMM_WAYS] = {NULL, &profile->comm_rebuild_us, &profile->comm_split_us,
                                        &profile->comm_shrink_us};
    if (time[way] != NULL) {
        *time[way] = (double)fl_comm_time_mixed((int64_t)*time[way], us);
    }
}

const fl_tuned *fl_profile_tuned(const fl_profile *profile, int64_t batch, int F, int K, int R)
{
    int i = find(profile, batch, F, K, R);
    return i < 0 ? NULL : &profile->tuned[i];
}

void fl_profile_remember(fl_profile *profile, const fl_tuned *tuned)
{
    int i = find(profile, tuned->batch, tuned->F, tuned->K, tuned->R);
    if (i < 0 && profile->n_tuned == FL_MAX_TUNED) {
        i = 0;
    }
    if (i >= 0) { /* the newest stands last */
        profile->n_tuned--;
        memmove(&profile->tuned[i], &profile->tuned[i + 1],
                (size_t)(profile->n_tuned - i) * sizeof *tuned);
    }
    profile->tuned[profile->n_tuned++] = *tuned;
}
