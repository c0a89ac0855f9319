#include "pipe/cost/time/flops.h"
#include "pipe/cost/plan.h"

#include "nn/model.h"

double fl_flops_step(const fl_model *model, const fl_layer_memory *memory_one, int F, bool fed,
                     int64_t batch)
{
    int n_frozen = fl_frozen_layers(model, F);
    double flops = 0.0;
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        const fl_layer_memory *m = &memory_one[i];
        bool frozen = i < n_frozen;
        double forward = frozen && fed ? 0.0 : (double)m->forward_flops;
        double backward = frozen         ? 0.0
                          : i > n_frozen ? (double)m->backward_flops
                                         : (double)m->lowest_backward_flops;
        flops += forward + backward;
    }
    return flops * (double)batch;
}

double fl_flops_peak(const fl_plan_input *input, int n_workers)
{
    double cores = (double)input->job->devices.cores, n = n_workers;
    double room = input->n_processors > 0 ? input->n_processors / cores : n;
    return (n < room ? n : room) * input->profile->peak_flops_per_us * 1e6;
}
