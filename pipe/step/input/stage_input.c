#include "pipe/step/input/stage_input.h"

#include "pipe/step/input/augmentation.h"

bool fl_stage_input_is_cached(const fl_activations *activations, const fl_plan *plan, int n_frozen)
{
    return activations != NULL && n_frozen > 0 && n_frozen < plan->first[1];
}

static fl_status create_loader(const fl_stage_input_options *o, int depth, fl_loader **out)
{
    const fl_capacity *c = o->capacity;
    const fl_sample_sizes *s = o->sizes;
    int64_t max_samples = fl_capacity_samples(c);
    fl_loader_room room =
        fl_loader_room_ragged(max_samples, depth, c->ahead.tokens * (int64_t)s->row_bytes[0]);
    if (s->equal) {
        FL_TRY(fl_loader_room_equal(o->dataset, max_samples, depth, &room));
    }
    room.device = o->device;
    return fl_loader_create(o->dataset, &room, out);
}

fl_status fl_stage_input_init(fl_stage_input *stage_input, const fl_stage_input_options *options)
{
    const fl_stage_input_options *o = options;
    int depth = 2 * o->plan->M; /* the step at work, and the one after it */
    *stage_input = (fl_stage_input){.o = *o};
    if (!fl_stage_input_is_cached(o->activations, o->plan, o->n_frozen)) {
        return create_loader(o, depth, &stage_input->loader);
    }
    const fl_plan *plan = o->plan;
    fl_cached_input_options feed = {.activations = o->activations,
                                    .model = o->model,
                                    .dataset = o->dataset,
                                    .job = o->job,
                                    .device = o->device,
                                    .stream = o->stream,
                                    .stage = o->stage,
                                    .reader = fl_plan_place(plan, o->rank).replica,
                                    .n_readers = plan->R,
                                    .store = fl_activations_store_of(o->activations, o->rank),
                                    .affinity = o->affinity,
                                    .n_frozen = o->n_frozen,
                                    .sizes = o->sizes,
                                    .capacity = o->capacity,
                                    .depth = depth,
                                    .tiers = o->tiers,
                                    .window_bytes = o->window_bytes};
    return fl_cached_input_create(&feed, &stage_input->feed);
}

void fl_stage_input_fini(fl_stage_input *stage_input)
{
    fl_cached_input_destroy(&stage_input->feed);
    fl_loader_destroy(&stage_input->loader);
}

fl_status fl_stage_input_request(fl_stage_input *stage_input, const fl_batch_split *shares)
{
    const fl_job *job = stage_input->o.job;
    const fl_global_batch *batch = &shares->batch;
    int F = stage_input->o.plan->F;
    for (int m = 0; m < shares->M; m++) {
        fl_load_request request = {.split = batch->split,
                                   .seed = job->train.seed,
                                   .epoch = fl_augment_epoch(job, F, batch->epoch),
                                   .augment =
                                       batch->split == FL_TRAIN && fl_augment_applies(job, F)};
        request.ids = fl_batch_split_micro(shares, m, &request.n);
        if (request.n > 0) {
            FL_TRY(stage_input->feed != NULL ? fl_cached_input_request(stage_input->feed, &request)
                                             : fl_loader_request(stage_input->loader, &request));
        }
    }
    return FL_OK;
}

static fl_status take_raw(fl_stage_input *stage_input, const fl_tensor *input)
{
    fl_device *device = stage_input->o.device;
    fl_tensor raw;
    FL_TRY(fl_loader_take(stage_input->loader, stage_input->o.job->fault.deadline_ms, &raw));
    size_t bytes = (size_t)(raw.n_tokens * raw.width) * fl_dtype_size(raw.dtype);
    FL_TRY(device->ops->copy_in(device, stage_input->o.stream, input->data, raw.data, bytes));
    return fl_loader_release_after(stage_input->loader, stage_input->o.stream);
}

fl_status fl_stage_input_take(fl_stage_input *stage_input, int slot, const fl_micro_batch *what,
                              int64_t step, const fl_tensor *input)
{
    if (stage_input->feed == NULL) {
        return take_raw(stage_input, input);
    }
    fl_load_request request = {
        .split = what->split, .epoch = what->epoch, .ids = what->ids, .n = what->n};
    return fl_cached_input_take(stage_input->feed, slot, &request, step, input,
                                stage_input->o.job->fault.deadline_ms);
}
