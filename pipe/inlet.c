#include "pipe/inlet.h"

bool fl_inlet_is_fed(const fl_activations *activations, const fl_plan *plan, int n_frozen)
{
    return activations != NULL && n_frozen > 0 && n_frozen < plan->first[1];
}

fl_status fl_inlet_init(fl_inlet *inlet, const fl_inlet_options *options)
{
    const fl_inlet_options *o = options;
    int depth = 2 * o->plan->M; /* the step at work, and the one after it */
    *inlet = (fl_inlet){.o = *o};
    if (!fl_inlet_is_fed(o->activations, o->plan, o->n_frozen)) {
        return fl_loader_create(o->dataset, o->max_samples, depth, &inlet->loader);
    }
    fl_feed_options feed = {.activations = o->activations,
                            .model = o->model,
                            .dataset = o->dataset,
                            .job = o->job,
                            .device = o->device,
                            .stage = o->stage,
                            .store = fl_activations_store_of(o->activations, o->rank),
                            .homes = o->homes,
                            .n_frozen = o->n_frozen,
                            .max_samples = o->max_samples,
                            .depth = depth};
    return fl_feed_create(&feed, &inlet->feed);
}

void fl_inlet_fini(fl_inlet *inlet)
{
    fl_feed_destroy(&inlet->feed);
    fl_loader_destroy(&inlet->loader);
}

fl_status fl_inlet_request(fl_inlet *inlet, const fl_shares *shares)
{
    const fl_job *job = inlet->o.job;
    const fl_global_batch *batch = &shares->batch;
    int F = inlet->o.plan->F;
    for (int m = 0; m < shares->M; m++) {
        fl_load_request request = {.split = batch->split,
                                   .seed = job->train.seed,
                                   .epoch = fl_augment_epoch(job, F, batch->epoch),
                                   .augment = batch->split == FL_TRAIN && fl_augments(job, F)};
        request.ids = fl_shares_micro(shares, m, &request.n);
        if (request.n > 0) {
            FL_TRY(inlet->feed != NULL ? fl_feed_request(inlet->feed, &request)
                                       : fl_loader_request(inlet->loader, &request));
        }
    }
    return FL_OK;
}

static fl_status take_raw(fl_inlet *inlet, const fl_tensor *input)
{
    fl_device *device = inlet->o.device;
    fl_tensor raw;
    FL_TRY(fl_loader_take(inlet->loader, inlet->o.job->fault.deadline_ms, &raw));
    size_t bytes = (size_t)(raw.n_tokens * raw.width) * fl_dtype_size(raw.dtype);
    FL_TRY(device->ops->copy_in(device, NULL, input->data, raw.data, bytes));
    FL_TRY(device->ops->sync(device, NULL));
    fl_loader_release(inlet->loader);
    return FL_OK;
}

fl_status fl_inlet_take(fl_inlet *inlet, int slot, const fl_micro_batch *what, int64_t step,
                        const fl_tensor *input)
{
    if (inlet->feed == NULL) {
        return take_raw(inlet, input);
    }
    fl_load_request request = {
        .split = what->split, .epoch = what->epoch, .ids = what->ids, .n = what->n};
    return fl_feed_take(inlet->feed, slot, &request, step, input, inlet->o.job->fault.deadline_ms);
}
