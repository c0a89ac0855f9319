#include "pipe/step/pipeline.h"
#include "pipe/plan/plan.h"

#include "autodp/sampler.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/flight.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/plan/schedule.h"
#include "pipe/state/migrate.h"
#include "pipe/step/message_queues.h"
#include "pipe/step/reduce.h"
#include "pipe/step/stage_input.h"

#include <math.h>
#include <string.h>

/* The values that the commit point sums over all workers; then a squared norm for each block. */
enum { SUM_HEAD, SUM_LOSS, SUM_CORRECT, SUM_TARGETS, SUM_FLAG, N_SUMS };
_Static_assert(N_SUMS + FL_MAX_LAYERS <= FL_GROUP_ALL_REDUCE_MAX, "the commit point is one sum");

struct fl_pipeline {
    fl_pipeline_options o;
    fl_place place;
    int K, R, M;
    int n_slots;
    bool is_first, is_last;
    bool trains;       /* some layer of this stage lies above the frost line */
    bool trains_below; /* ... of a stage below */
    fl_stage *stage;
    fl_stage_input stage_input; /* stage 0 only */
    fl_op *ops;                 /* [2 * M] of a training step */
    fl_recv_queue forward_in, backward_in;
    fl_send_queue forward_out, backward_out;
    fl_channel *channels[4];
    fl_reduce reduce;
    fl_affinity homes;     /* of samples, in the run's stores of what frozen layers made of them */
    fl_batch_split now;    /* of the step at work */
    fl_batch_split coming; /* scratch for prefetching the next one */
    size_t *in_bytes;      /* [M] of the step at work: where a micro-batch enters this stage */
    size_t *out_bytes;     /* [M] where it leaves */
    int below, above;      /* ranks of the neighbours; -1: none */
    fl_loss_sums sums;
    fl_step_result times; /* only its microseconds */
    double commit_sums[N_SUMS + FL_MAX_LAYERS];
    double layer_squares[FL_MAX_LAYERS]; /* of this stage's layers */
};

int64_t fl_plan_max_samples(const fl_job *job, const fl_plan *plan)
{
    return fl_split_work_max(fl_split_work_max(job->train.batch, plan->R), plan->M);
}

static int64_t deadline(const fl_pipeline *p)
{
    return fl_deadline_us(p->o.job->fault.deadline_ms);
}

/* ---- 1: share out ---- */

static fl_status measure_messages(fl_pipeline *p)
{
    for (int m = 0; m < p->M; m++) {
        int64_t n;
        const int64_t *ids = fl_batch_split_micro(&p->now, m, &n);
        FL_TRY(fl_stage_boundary_bytes(p->stage, p->now.batch.split, ids, n, &p->in_bytes[m],
                                       &p->out_bytes[m]));
    }
    return FL_OK;
}

static fl_status begin_batch(fl_pipeline *p, const fl_global_batch *batch)
{
    fl_flight_enter(FL_FLIGHT_SHARE, -1, -1, 0);
    FL_TRY(fl_batch_split_run(&p->now, batch));
    FL_TRY(measure_messages(p));
    fl_flight_leave();
    return FL_OK;
}

/* ---- 2: input ---- */

fl_status fl_pipeline_prefetch(fl_pipeline *p, const fl_global_batch *batch)
{
    if (!p->is_first) {
        return FL_OK;
    }
    fl_flight_enter(FL_FLIGHT_SHARE, -1, -1, 0);
    FL_TRY(fl_batch_split_run(&p->coming, batch));
    FL_TRY(fl_stage_input_request(&p->stage_input, &p->coming));
    fl_flight_leave();
    return FL_OK;
}

static fl_status take_input(fl_pipeline *p, int slot, const fl_micro_batch *what,
                            const fl_tensor *input)
{
    int64_t begun = fl_now_us();
    if (input->n_samples == 0) {
        return FL_OK;
    }
    fl_flight_enter(FL_FLIGHT_DATA, -1, -1, 0);
    FL_TRY(fl_stage_input_take(&p->stage_input, slot, what, p->now.batch.step, input));
    fl_flight_leave();
    p->times.data_us += fl_now_us() - begun;
    return FL_OK;
}

/* ---- 3: the clock's list ---- */

static fl_status run_forward(fl_pipeline *p, int micro_batch, int slot, bool training)
{
    fl_micro_batch what = {.split = p->now.batch.split,
                           .seed = p->o.job->train.seed,
                           .epoch = p->now.batch.epoch,
                           .n_global = p->now.batch.n,
                           .training = training};
    what.ids = fl_batch_split_micro(&p->now, micro_batch, &what.n);
    fl_tensor input, output;
    fl_flight_micro_batch(micro_batch);
    FL_TRY(fl_stage_begin(p->stage, slot, &what, &input));
    if (p->is_first) {
        FL_TRY(take_input(p, slot, &what, &input));
    } else {
        int64_t begun = fl_now_us();
        fl_flight_enter(FL_FLIGHT_RECEIVE, p->below, -1, (int64_t)p->in_bytes[micro_batch]);
        FL_TRY(fl_recv_queue_take(&p->forward_in, p->o.device, NULL, input.data, deadline(p)));
        fl_flight_leave();
        p->times.wait_us += fl_now_us() - begun;
    }
    int64_t begun = fl_now_us();
    FL_TRY(fl_stage_forward(p->stage, slot, &output));
    if (p->is_last && !training) {
        FL_TRY(fl_stage_loss(p->stage, slot, false, 0.0f, &p->sums));
    }
    int64_t computed = fl_now_us();
    p->times.compute_us += computed - begun;
    if (!p->is_last) {
        size_t bytes = p->out_bytes[micro_batch];
        fl_flight_enter(FL_FLIGHT_SEND, p->above, -1, (int64_t)bytes);
        FL_TRY(
            fl_send_queue_put(&p->forward_out, p->o.device, NULL, output.data, bytes, deadline(p)));
        fl_flight_leave();
        p->times.wait_us += fl_now_us() - computed;
    }
    return FL_OK;
}

static fl_status layer_done(void *context, int layer)
{
    fl_pipeline *p = context;
    return fl_reduce_layer_done(&p->reduce, layer);
}

static fl_status take_grad_out(fl_pipeline *p, int micro_batch, int slot)
{
    fl_tensor grad_out;
    int64_t begun = fl_now_us();
    fl_stage_grad_out(p->stage, slot, &grad_out);
    fl_flight_enter(FL_FLIGHT_RECEIVE_GRAD, p->above, -1, (int64_t)p->out_bytes[micro_batch]);
    FL_TRY(fl_recv_queue_take(&p->backward_in, p->o.device, NULL, grad_out.data, deadline(p)));
    fl_flight_leave();
    p->times.wait_us += fl_now_us() - begun;
    return FL_OK;
}

static fl_status run_backward(fl_pipeline *p, int micro_batch, int slot)
{
    bool last_one = micro_batch == p->M - 1;
    fl_tensor grad_in;
    fl_flight_micro_batch(micro_batch);
    if (!p->is_last && p->trains) {
        FL_TRY(take_grad_out(p, micro_batch, slot));
    }
    int64_t begun = fl_now_us();
    if (p->is_last) {
        FL_TRY(fl_stage_loss(p->stage, slot, true, 1.0f / (float)p->now.n_targets, &p->sums));
    }
    FL_TRY(fl_stage_backward(p->stage, slot, p->trains_below, last_one ? layer_done : NULL, p,
                             &grad_in));
    int64_t computed = fl_now_us();
    p->times.compute_us += computed - begun;
    if (grad_in.data != NULL) {
        size_t bytes = p->in_bytes[micro_batch];
        fl_flight_enter(FL_FLIGHT_SEND_GRAD, p->below, -1, (int64_t)bytes);
        FL_TRY(fl_send_queue_put(&p->backward_out, p->o.device, NULL, grad_in.data, bytes,
                                 deadline(p)));
        fl_flight_leave();
        p->times.wait_us += fl_now_us() - computed;
    }
    return FL_OK;
}

static fl_status run_ops(fl_pipeline *p)
{
    FL_TRY(fl_recv_queue_begin(&p->forward_in, p->in_bytes, p->M));
    if (p->trains) {
        FL_TRY(fl_recv_queue_begin(&p->backward_in, p->out_bytes, p->M));
    }
    for (int i = 0; i < 2 * p->M; i++) {
        int m = p->ops[i].micro_batch;
        if (p->ops[i].kind == FL_OP_FORWARD) {
            FL_TRY(run_forward(p, m, m % p->n_slots, true));
        } else {
            FL_TRY(run_backward(p, m, m % p->n_slots));
        }
    }
    fl_flight_micro_batch(-1);
    return FL_OK;
}

/* ---- 5: the commit point ---- */

/* This worker's share of every block's squared gradient norm, and of the head's. */
static fl_status add_norms(fl_pipeline *p, double *head, double *blocks)
{
    int first = p->o.plan->first[p->place.stage], last = p->o.plan->first[p->place.stage + 1];
    FL_TRY(fl_reduce_norms(&p->reduce, NULL, p->layer_squares));
    for (int layer = first; layer < last; layer++) {
        int block = fl_model_block_of(p->o.model, layer);
        *(block == FL_BLOCK_HEAD ? head : &blocks[block - 1]) += p->layer_squares[layer - first];
    }
    return FL_OK;
}

static fl_status commit(fl_pipeline *p, double flag, fl_step_result *result)
{
    int L = fl_model_n_blocks(p->o.model);
    double *sums = p->commit_sums, *blocks = sums + N_SUMS;
    memset(sums, 0, (size_t)(N_SUMS + L) * sizeof *sums);
    sums[SUM_LOSS] = p->sums.loss;
    sums[SUM_CORRECT] = p->sums.n_correct;
    sums[SUM_TARGETS] = p->sums.n_targets;
    sums[SUM_FLAG] = flag;
    fl_flight_enter(FL_FLIGHT_NORMS, -1, -1, 0);
    FL_TRY(add_norms(p, &sums[SUM_HEAD], blocks));
    fl_flight_leave();
    int64_t begun = fl_now_us();
    FL_TRY(fl_group_all_reduce(p->o.group, sums, N_SUMS + L, deadline(p)));
    p->times.wait_us += fl_now_us() - begun;
    double norm = sums[SUM_HEAD];
    for (int i = 0; i < L; i++) {
        norm += blocks[i];
    }
    result->sums = (fl_loss_sums){
        .loss = sums[SUM_LOSS], .n_correct = sums[SUM_CORRECT], .n_targets = sums[SUM_TARGETS]};
    result->grad_norm = sqrt(norm);
    result->block_squares = blocks;
    result->flags = sums[SUM_FLAG];
    return FL_OK;
}

fl_status fl_pipeline_step(fl_pipeline *p, const fl_global_batch *batch, double lr, double flag,
                           fl_step_result *result)
{
    p->times = (fl_step_result){0};
    p->sums = (fl_loss_sums){0};
    FL_TRY(begin_batch(p, batch));
    FL_TRY(run_ops(p));
    int64_t begun = fl_now_us();
    FL_TRY(fl_reduce_wait(&p->reduce, deadline(p)));
    int64_t reduced = fl_now_us();
    p->times.reduce_wait_us = reduced - begun;
    FL_TRY(commit(p, flag, result));
    begun = fl_now_us();
    fl_flight_enter(FL_FLIGHT_OPTIMIZER, -1, -1, 0);
    FL_TRY(fl_params_step(fl_stage_params(p->stage), NULL, p->o.job, batch->step, lr,
                          fl_clip_scale(result->grad_norm, p->o.job->train.clip)));
    FL_TRY(p->o.device->ops->sync(p->o.device, NULL));
    fl_flight_leave();
    result->optimizer_us = fl_now_us() - begun;
    result->compute_us = p->times.compute_us;
    result->wait_us = p->times.wait_us;
    result->reduce_wait_us = p->times.reduce_wait_us;
    result->data_us = p->times.data_us;
    result->samples = batch->n;
    result->tokens = p->now.n_tokens;
    result->ids = fl_batch_split_mine(&p->now, &result->n_ids);
    return FL_OK;
}

/* ---- evaluation ---- */

fl_status fl_pipeline_evaluate(fl_pipeline *p, const fl_global_batch *batch, fl_loss_sums *sums)
{
    p->sums = (fl_loss_sums){0};
    FL_TRY(begin_batch(p, batch));
    FL_TRY(fl_recv_queue_begin(&p->forward_in, p->in_bytes, p->M));
    for (int m = 0; m < p->M; m++) {
        FL_TRY(run_forward(p, m, 0, false));
    }
    fl_flight_micro_batch(-1);
    sums->loss += p->sums.loss;
    sums->n_correct += p->sums.n_correct;
    sums->n_targets += p->sums.n_targets;
    return FL_OK;
}

fl_status fl_pipeline_total(fl_pipeline *p, fl_loss_sums *sums)
{
    double values[3] = {sums->loss, sums->n_correct, sums->n_targets};
    FL_TRY(fl_group_all_reduce(p->o.group, values, 3, deadline(p)));
    *sums = (fl_loss_sums){.loss = values[0], .n_correct = values[1], .n_targets = values[2]};
    return FL_OK;
}

bool fl_pipeline_cache(fl_pipeline *p, bool always, fl_cached_input_report *report)
{
    return p->stage_input.feed != NULL &&
           fl_cached_input_report_take(p->stage_input.feed, always, report);
}

fl_stage *fl_pipeline_stage(fl_pipeline *pipeline)
{
    return pipeline->stage;
}

/* ---- creation ---- */

static fl_status shares_create(fl_pipeline *p)
{
    const fl_pipeline_options *o = &p->o;
    int stores[FL_MAX_WORKERS];
    for (int r = 0; r < p->R; r++) {
        stores[r] = fl_activations_store_of(o->activations, o->plan->rank_of[r * p->K]);
    }
    FL_TRY(fl_affinity_init(&p->homes, stores, p->R));
    FL_TRY(fl_batch_split_init(&p->now, o->model, o->dataset, o->job->train.batch, &p->homes, p->M,
                               p->place.replica));
    FL_TRY(fl_batch_split_init(&p->coming, o->model, o->dataset, o->job->train.batch, &p->homes,
                               p->M, p->place.replica));
    FL_TRY(fl_alloc_array((size_t)p->M, sizeof(size_t), (void **)&p->in_bytes));
    return fl_alloc_array((size_t)p->M, sizeof(size_t), (void **)&p->out_bytes);
}

/* The channel across the cut below `upper` (between stages upper - 1 and upper), one direction. */
static fl_status channel_create(fl_pipeline *p, int upper, bool forward, fl_channel **out)
{
    const fl_plan *plan = p->o.plan;
    fl_shape raw, shape;
    int64_t n_targets;
    const fl_dataset *d = p->o.dataset;
    FL_TRY(d->ops->max_shape(d->self, &raw, &n_targets));
    FL_TRY(fl_model_shape(p->o.model, plan->first[upper] - 1, &raw, &shape));
    size_t bytes = (size_t)(shape.tokens * shape.width * fl_plan_max_samples(p->o.job, plan)) *
                   fl_dtype_size(shape.dtype);
    bool sending = forward == (p->place.stage < upper);
    int base = p->place.replica * p->K;
    int peer = base + (p->place.stage < upper ? upper : upper - 1);
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
    int owners[FL_MAX_WORKERS];
    for (int r = 0; r < p->R; r++) {
        owners[r] = r * p->K + p->place.stage;
    }
    return fl_reduce_init(&p->reduce, fl_stage_params(p->stage), p->o.group, owners, p->R,
                          p->place.replica, p->o.job->autodp.bucket_bytes,
                          (uint32_t)p->place.stage * FL_MAX_LAYERS);
}

static fl_status inlet_create(fl_pipeline *p, int64_t max_samples, int n_frozen)
{
    const fl_pipeline_options *o = &p->o;
    fl_stage_input_options stage_input = {.activations = o->activations,
                                          .homes = &p->homes,
                                          .model = o->model,
                                          .dataset = o->dataset,
                                          .job = o->job,
                                          .plan = o->plan,
                                          .rank = o->rank,
                                          .device = o->device,
                                          .stage = p->stage,
                                          .n_frozen = n_frozen,
                                          .max_samples = max_samples};
    return fl_stage_input_init(&p->stage_input, &stage_input);
}

static fl_status fill(fl_pipeline *p)
{
    const fl_plan *plan = p->o.plan;
    int64_t max_samples = fl_plan_max_samples(p->o.job, plan);
    int n_frozen = fl_frozen_layers(p->o.model, plan->F);
    bool is_fed = p->is_first && fl_stage_input_is_cached(p->o.activations, plan, n_frozen);
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
                              .first = plan->first[p->place.stage],
                              .last = plan->first[p->place.stage + 1],
                              .n_frozen = n_frozen,
                              .enter = is_fed ? n_frozen : 0,
                              .draw = p->o.draw,
                              .n_slots = p->n_slots,
                              .max_samples = max_samples,
                              .memory = *p->o.memory,
                              .handed = p->o.handed,
                              .reserve = p->o.reserve};
    FL_TRY(fl_stage_create(&stage, &p->stage));
    FL_TRY(channels_create(p));
    FL_TRY(reduce_create(p));
    return p->is_first ? inlet_create(p, max_samples, n_frozen) : FL_OK;
}

fl_status fl_pipeline_create(const fl_pipeline_options *options, fl_pipeline **out)
{
    fl_pipeline *p = NULL;
    FL_TRY(fl_alloc(sizeof *p, (void **)&p));
    p->o = *options;
    p->K = options->plan->K;
    p->R = options->plan->R;
    p->M = options->plan->M;
    p->place = fl_plan_place(options->plan, options->rank);
    p->is_first = p->place.stage == 0;
    p->is_last = p->place.stage == p->K - 1;
    const int *me = &options->plan->rank_of[p->place.replica * p->K + p->place.stage];
    p->below = p->is_first ? -1 : me[-1];
    p->above = p->is_last ? -1 : me[1];
    fl_status status = fill(p);
    p->o.handed = NULL; /* the caller's */
    if (status != FL_OK) {
        fl_pipeline_destroy(&p);
        return status;
    }
    *out = p;
    return FL_OK;
}

static void disconnect(fl_pipeline *p)
{
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
    fl_batch_split_fini(&p->now);
    fl_batch_split_fini(&p->coming);
    fl_affinity_fini(&p->homes);
    fl_free(p->in_bytes);
    fl_free(p->out_bytes);
    fl_free(p->ops);
    fl_free(p);
    *pipeline = NULL;
}
