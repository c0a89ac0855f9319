/* From a plan to one worker's part of it, and back. */
#include "autodp/sampler.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/cost/schedule.h"
#include "pipe/state/migrate.h"
#include "pipe/step/pipeline_state.h"

static fl_status shares_create(fl_pipeline *p)
{
    const fl_pipeline_options *o = &p->o;
    int stores[FL_MAX_WORKERS];
    for (int r = 0; r < p->R; r++) {
        stores[r] = fl_activations_store_of(o->activations, fl_plan_rank(o->plan, r, 0));
    }
    FL_TRY(fl_affinity_init(&p->affinity, stores, p->R));
    FL_TRY(fl_batch_split_init(&p->now, o->sizes, fl_sampler_batch(o->job), &p->affinity, p->M,
                               p->place.replica));
    FL_TRY(fl_batch_split_init(&p->coming, o->sizes, fl_sampler_batch(o->job), &p->affinity, p->M,
                               p->place.replica));
    FL_TRY(fl_alloc_array((size_t)p->M, sizeof(size_t), (void **)&p->in_bytes));
    return fl_alloc_array((size_t)p->M, sizeof(size_t), (void **)&p->out_bytes);
}

/* The channel across the cut below `upper` (between stages upper - 1 and upper), one direction. */
static fl_status channel_create(fl_pipeline *p, int upper, bool forward, fl_channel **out)
{
    const fl_stage_memory *m = p->o.memory;
    bool is_above = p->place.stage < upper; /* the neighbour */
    bool sending = forward == is_above;
    size_t bytes = (size_t)(is_above ? m->out_bytes : m->in_bytes);
    int base = p->place.replica * p->K;
    int peer = base + (is_above ? upper : upper - 1);
    uint32_t id = 2 * (uint32_t)(base + upper) + (forward ? 0 : 1);
    return fl_channel_open(p->o.group, sending, peer, id, bytes, FL_QUEUE_DEPTH, out);
}

static fl_status channels_create(fl_pipeline *p)
{
    int stage = p->place.stage;
    if (!p->is_first) {
        FL_TRY(channel_create(p, stage, true, &p->channels[0]));
    }
    if (!p->is_first && p->trains_below) {
        FL_TRY(channel_create(p, stage, false, &p->channels[1]));
    }
    if (!p->is_last) {
        FL_TRY(channel_create(p, stage + 1, true, &p->channels[2]));
    }
    if (!p->is_last && p->trains) {
        FL_TRY(channel_create(p, stage + 1, false, &p->channels[3]));
    }
    p->forward_in.channel = p->channels[0];
    p->backward_out.channel = p->channels[1];
    p->forward_out.channel = p->channels[2];
    p->backward_in.channel = p->channels[3];
    return FL_OK;
}

static fl_status reduce_create(fl_pipeline *p)
{
    FL_TRY(fl_reduce_init(&p->reduce, fl_stage_params(p->stage), p->o.group, p->o.plan, p->place,
                          p->o.job->autodp.bucket_bytes));
    for (int i = 0; i < p->reduce.n; i++) {
        fl_stage_cut_backward(p->stage, p->reduce.lowest_layer[i]);
    }
    p->captured = (fl_captured_step){.group = p->o.group,
                                     .stage = p->stage,
                                     .reduce = &p->reduce,
                                     .stream = p->stream,
                                     .deadline_ms = p->o.job->fault.deadline_ms,
                                     .equal = p->o.sizes != NULL && p->o.sizes->equal,
                                     .sums = p->reduce.n > 0,
                                     .failed = !fl_reduce_can_capture(&p->reduce),
                                     .n_cuts = p->M * p->R};
    return FL_OK;
}

static fl_status stage_input_create(fl_pipeline *p, int n_frozen)
{
    const fl_pipeline_options *o = &p->o;
    fl_stage_input_options stage_input = {.activations = o->activations,
                                          .tiers = o->tiers,
                                          .window_bytes = (size_t)o->memory->window_bytes,
                                          .affinity = &p->affinity,
                                          .model = o->model,
                                          .dataset = o->dataset,
                                          .job = o->job,
                                          .plan = o->plan,
                                          .rank = o->rank,
                                          .device = o->device,
                                          .stream = p->stream,
                                          .stage = p->stage,
                                          .n_frozen = n_frozen,
                                          .sizes = o->sizes,
                                          .capacity = o->capacity};
    return fl_stage_input_init(&p->stage_input, &stage_input);
}

static fl_status sums_create(fl_pipeline *p)
{
    fl_device *d = p->o.device;
    size_t bytes = fl_mirror_device_bytes(d, sizeof p->sums);
    FL_TRY(bytes == 0 ? FL_OK : fl_device_reserve(d, bytes, &p->sums_memory));
    return fl_mirror_init(&p->sums_mirror, d, p->stream, p->sums_memory, sizeof p->sums);
}

static void sums_destroy(fl_pipeline *p)
{
    fl_mirror_fini(&p->sums_mirror);
    fl_device_drop(p->o.device, p->sums_memory, sizeof p->sums);
}

static fl_status fill(fl_pipeline *p)
{
    const fl_plan *plan = p->o.plan;
    int n_frozen = fl_frozen_layers(p->o.model, plan->F);
    bool is_fed = p->is_first && fl_stage_input_is_cached(p->o.activations, plan, n_frozen);
    FL_TRY(p->o.device->ops->stream_create(p->o.device, &p->stream));
    /* All operations of a step, and two optimizers: of this step and of the one before. */
    FL_TRY(fl_device_clock_init(&p->clock, p->o.device, p->stream, 2 * p->M + 2));
    FL_TRY(sums_create(p));
    p->trains = n_frozen < plan->first[p->place.stage + 1];
    p->trains_below = n_frozen < plan->first[p->place.stage];
    FL_TRY(shares_create(p));
    FL_TRY(fl_alloc_array((size_t)(2 * p->M), sizeof *p->ops, (void **)&p->ops));
    fl_schedule_ops(plan->schedule, p->K, p->M, p->place.stage, p->ops);
    p->n_slots = fl_schedule_in_flight(plan->schedule, p->K, p->M, p->place.stage);
    fl_stage_options stage = {.model = p->o.model,
                              .dataset = p->o.dataset,
                              .job = p->o.job,
                              .device = p->o.device,
                              .stream = p->stream,
                              .first = plan->first[p->place.stage],
                              .last = plan->first[p->place.stage + 1],
                              .n_frozen = n_frozen,
                              .enter = is_fed ? n_frozen : 0,
                              .source = p->o.source,
                              .n_slots = p->n_slots,
                              .n_ahead = p->M,
                              .capacity = *p->o.capacity,
                              .memory = *p->o.memory,
                              .handed = p->o.handed,
                              .reserve = p->o.reserve};
    FL_TRY(fl_stage_create(&stage, &p->stage));
    FL_TRY(channels_create(p));
    FL_TRY(reduce_create(p));
    return p->is_first ? stage_input_create(p, n_frozen) : FL_OK;
}

fl_status fl_pipeline_create(const fl_pipeline_options *options, fl_pipeline **out)
{
    fl_pipeline *p = NULL;
    FL_TRY(fl_alloc(sizeof *p, (void **)&p));
    p->o = *options;
    p->summed_step = -1;
    p->K = options->plan->K;
    p->R = options->plan->R;
    p->M = options->plan->M;
    p->place = fl_plan_place(options->plan, options->rank);
    p->is_first = p->place.stage == 0;
    p->is_last = p->place.stage == p->K - 1;
    int replica = p->place.replica, stage = p->place.stage;
    p->below = p->is_first ? -1 : fl_plan_rank(p->o.plan, replica, stage - 1);
    p->above = p->is_last ? -1 : fl_plan_rank(p->o.plan, replica, stage + 1);
    fl_status status = fill(p);
    p->o.handed = NULL; /* the caller's, as the capacity and the source */
    p->o.source = NULL;
    p->o.capacity = NULL;
    if (status != FL_OK) {
        fl_pipeline_destroy(&p);
        return status;
    }
    *out = p;
    return FL_OK;
}

void fl__pipeline_settle(fl_pipeline *p)
{
    if (p->stream != NULL && fl_pipeline_wait(p) != FL_OK) {
        fl_log(FL_LOG_WARN, "work of the device failed: %s", fl_errmsg());
    }
}

/* The stream may still read and write what is given back here. */
static void disconnect(fl_pipeline *p)
{
    fl__pipeline_settle(p);
    fl_captured_step_fini(&p->captured);
    fl_stage_input_fini(&p->stage_input);
    fl_reduce_fini(&p->reduce);
    for (size_t i = 0; i < sizeof p->channels / sizeof *p->channels; i++) {
        fl_channel_close(&p->channels[i]);
    }
}

void fl_pipeline_strip(fl_pipeline *p)
{
    disconnect(p);
    fl_stage_strip(p->stage);
}

void fl_pipeline_destroy(fl_pipeline **pipeline)
{
    fl_pipeline *p = *pipeline;
    if (p == NULL) {
        return;
    }
    disconnect(p);
    fl_stage_destroy(&p->stage);
    sums_destroy(p);
    fl_device_clock_fini(&p->clock);
    p->o.device->ops->stream_destroy(p->o.device, &p->stream);
    fl_batch_split_fini(&p->now);
    fl_batch_split_fini(&p->coming);
    fl_affinity_fini(&p->affinity);
    fl_outputs_fini(&p->outputs);
    fl_free(p->sample_losses);
    fl_free(p->in_bytes);
    fl_free(p->out_bytes);
    fl_free(p->ops);
    fl_free(p);
    *pipeline = NULL;
}
