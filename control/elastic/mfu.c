/* Model FLOPs utilization: the operations that the steps of the running plan need, divided by those
 * that its devices could perform in the same time. */
#include "control/elastic/elastic.h"

#include "autodp/sampler.h"
#include "pipe/cost/time/flops.h"

#include <math.h>

fl_mfu fl_mfu_now(const fl_elastic *elastic)
{
    const fl_plan_input *input = elastic->run->options->plan_input;
    const fl_plan *plan = &elastic->plan;
    double ms = fl_measure_step_ms(elastic);
    fl_mfu mfu = {NAN, NAN, NAN};
    if (input == NULL || input->memory_one == NULL) {
        return mfu;
    }
    double flops = fl_flops_step(input->model, input->memory_one, plan->F,
                                 fl_cache_sums_used(elastic->cache, elastic->plan.F),
                                 fl_sampler_batch(elastic->run->options->job));
    double peak = input->profile == NULL ? 0.0 : fl_flops_peak(input, plan->K * plan->R);
    mfu.step_flops = flops > 0.0 ? flops : NAN; /* a plugin may not count them */
    mfu.peak_flops = peak > 0.0 ? peak : NAN;
    mfu.share = ms > 0.0 ? mfu.step_flops / (ms * 1e-3) / mfu.peak_flops : NAN;
    return mfu;
}
