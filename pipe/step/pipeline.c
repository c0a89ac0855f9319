#include "pipe/step/pipeline.h"
#include "pipe/cost/plan.h"

#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/step/pipeline_state.h"

#include <math.h>
#include <string.h>

int64_t fl__pipeline_deadline_us(const fl_pipeline *p)
{
    return fl_deadline_us(p->o.job->fault.deadline_ms);
}

fl_status fl__pipeline_clear_sums(fl_pipeline *p)
{
    const fl_device_ops *ops = p->o.device->ops;
    return ops->fill_zero(p->o.device, p->stream, p->sums_mirror.on_device, sizeof p->sums);
}

fl_status fl__pipeline_read_sums(fl_pipeline *p)
{
    FL_TRY(fl_mirror_fetch(&p->sums_mirror, sizeof p->sums));
    FL_TRY(fl_device_clock_anchor(&p->clock));
    FL_TRY(fl_pipeline_wait(p));
    FL_TRY(fl_device_clock_waited(&p->clock));
    memcpy(&p->sums, p->sums_mirror.host, sizeof p->sums);
    return FL_OK;
}

/* Where kernels add the losses of a micro-batch. */
static fl_loss_sums *sums_on_device(const fl_pipeline *p)
{
    return (fl_loss_sums *)(void *)p->sums_mirror.on_device;
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
    fl_batch_split_run(&p->now, batch);
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
    fl_batch_split_run(&p->coming, batch);
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

/* Where the output is a message already. It must last until the backward of its micro-batch, so
 * there must be a buffer for each micro-batch in flight. A search for values that are not finite
 * looks at what lies in the stage. */
static void *place_output(fl_pipeline *p)
{
    bool lasts = p->n_slots <= FL_QUEUE_DEPTH + 1;
    return p->search == NULL && lasts ? fl_send_queue_place(&p->forward_out) : NULL;
}

static void *place_grad_in(fl_pipeline *p)
{
    return p->search == NULL ? fl_send_queue_place(&p->backward_out) : NULL;
}

/* What a language model makes of each sample of the slot's micro-batch is its loss. */
static fl_status measure_samples(fl_pipeline *p, int slot, const fl_loss_sums **losses)
{
    *losses = NULL;
    if (!p->predicts || !fl_loss_is_language(fl_model_loss(p->o.model))) {
        return FL_OK;
    }
    int64_t n = fl_stage_targets(p->stage, slot).n_samples;
    FL_TRY(fl_alloc_room(&p->sample_losses, 0, (size_t)n, sizeof **losses, &p->sample_losses_room));
    fl_loss_sums *all = p->sample_losses;
    for (int64_t s = 0; s < n; s++) {
        FL_TRY(fl__pipeline_clear_sums(p));
        FL_TRY(fl_stage_sample_loss(p->stage, slot, s, sums_on_device(p)));
        FL_TRY(fl__pipeline_read_sums(p));
        all[s] = p->sums;
    }
    *losses = all;
    return FL_OK;
}

/* The last stage, of a batch that has no backward. */
static fl_status end_evaluation(fl_pipeline *p, int slot)
{
    const fl_plan *plan = p->o.plan;
    const fl_loss_sums *losses = NULL;
    int n_layers = plan->first[p->K] - plan->first[p->K - 1];
    if (p->take_outputs != NULL) {
        p->outputs.device = p->o.device;
        FL_TRY(measure_samples(p, slot, &losses));
        FL_TRY(fl_outputs_take(&p->outputs, p->stage, p->stream, slot, n_layers, p->now.batch.split,
                               losses, p->take_outputs, p->taker));
    }
    if (p->predicts) {
        fl_stage_end(p->stage, slot);
        return FL_OK;
    }
    return fl_stage_loss(p->stage, slot, false, 0.0f, sums_on_device(p));
}

static fl_status begin_compute(fl_pipeline *p, int slot, fl_flight_kind kind, int layer)
{
    const fl_clock_work work = {.part = FL_CLOCK_COMPUTE,
                                .label = fl_stage_label(p->stage, slot),
                                .kind = kind,
                                .item = layer};
    return fl_device_clock_begin(&p->clock, &work);
}

static fl_status run_forward(fl_pipeline *p, int micro_batch, int slot, bool training)
{
    fl_micro_batch what = {.split = p->now.batch.split,
                           .seed = p->o.job->train.seed,
                           .epoch = p->now.batch.epoch,
                           .n_global = p->now.batch.n,
                           .training = training,
                           .plain = p->search != NULL};
    what.ids = fl_batch_split_micro(&p->now, micro_batch, &what.n);
    fl_tensor input, output;
    fl_flight_micro_batch(micro_batch);
    FL_TRY(fl_stage_begin(p->stage, slot, &what, &input));
    if (p->is_first && p->search != NULL) {
        FL_TRY(fl__nonfinite_read(p, slot, &what, &input));
    } else if (p->is_first) {
        FL_TRY(take_input(p, slot, &what, &input));
    } else {
        int64_t begun = fl_now_us();
        fl_flight_enter(FL_FLIGHT_RECEIVE, p->below, -1, (int64_t)p->in_bytes[micro_batch]);
        FL_TRY(
            fl_recv_queue_take(&p->forward_in, p->stream, input.data, fl__pipeline_deadline_us(p)));
        fl_flight_leave();
        p->times.wait_us += fl_now_us() - begun;
    }
    FL_TRY(begin_compute(p, slot, FL_FLIGHT_FORWARD, fl_stage_entry(p->stage)));
    FL_TRY(fl_stage_forward(p->stage, slot, place_output(p), &output));
    if (p->search != NULL) {
        FL_TRY(fl__nonfinite_forward(p, slot));
    }
    if (p->is_last && !training) {
        FL_TRY(end_evaluation(p, slot));
    }
    FL_TRY(fl_device_clock_end(&p->clock));
    if (!p->is_last) {
        size_t bytes = p->out_bytes[micro_batch];
        int64_t computed = fl_now_us();
        fl_flight_enter(FL_FLIGHT_SEND, p->above, -1, (int64_t)bytes);
        FL_TRY(fl_send_queue_put(&p->forward_out, p->stream, output.data, bytes,
                                 fl__pipeline_deadline_us(p)));
        fl_flight_leave();
        p->times.wait_us += fl_now_us() - computed;
    }
    return FL_OK;
}

/* With the last micro-batch the layer's gradients are complete on this replica. */
static fl_status layer_done(void *context, int slot, int layer)
{
    fl_pipeline *p = context;
    if (p->search != NULL) {
        return fl__nonfinite_backward(p, slot, layer);
    }
    return fl_reduce_layer_done(&p->reduce, layer);
}

static fl_status take_grad_out(fl_pipeline *p, int micro_batch, int slot)
{
    fl_tensor grad_out;
    int64_t begun = fl_now_us();
    fl_stage_grad_out(p->stage, slot, &grad_out);
    fl_flight_enter(FL_FLIGHT_RECEIVE_GRAD, p->above, -1, (int64_t)p->out_bytes[micro_batch]);
    FL_TRY(
        fl_recv_queue_take(&p->backward_in, p->stream, grad_out.data, fl__pipeline_deadline_us(p)));
    fl_flight_leave();
    p->times.wait_us += fl_now_us() - begun;
    return FL_OK;
}

static fl_status run_backward(fl_pipeline *p, int micro_batch, int slot)
{
    bool looks = micro_batch == p->M - 1 || p->search != NULL;
    fl_tensor grad_in;
    fl_flight_micro_batch(micro_batch);
    if (!p->is_last && p->trains) {
        FL_TRY(take_grad_out(p, micro_batch, slot));
    }
    FL_TRY(begin_compute(p, slot, FL_FLIGHT_BACKWARD, fl_stage_params(p->stage)->first_trainable));
    if (p->is_last) {
        FL_TRY(
            fl_stage_loss(p->stage, slot, true, 1.0f / (float)p->now.n_targets, sums_on_device(p)));
    }
    if (p->is_last && p->search != NULL) {
        FL_TRY(fl__nonfinite_loss(p, slot));
    }
    if (micro_batch == p->M - 1 && p->search == NULL) {
        FL_TRY(fl_captured_step_backward(&p->captured, slot, p->trains_below, place_grad_in(p),
                                         layer_done, p, &grad_in));
    } else {
        FL_TRY(fl_stage_backward(p->stage, slot, p->trains_below, place_grad_in(p),
                                 looks ? layer_done : NULL, p, &grad_in));
    }
    FL_TRY(fl_device_clock_end(&p->clock));
    if (grad_in.data != NULL) {
        size_t bytes = p->in_bytes[micro_batch];
        int64_t computed = fl_now_us();
        fl_flight_enter(FL_FLIGHT_SEND_GRAD, p->below, -1, (int64_t)bytes);
        FL_TRY(fl_send_queue_put(&p->backward_out, p->stream, grad_in.data, bytes,
                                 fl__pipeline_deadline_us(p)));
        fl_flight_leave();
        p->times.wait_us += fl_now_us() - computed;
    }
    return FL_OK;
}

fl_status fl__pipeline_run_ops(fl_pipeline *p)
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
    FL_TRY(fl_mirror_fetch(&p->sums_mirror, sizeof p->sums));
    FL_TRY(fl_device_clock_anchor(&p->clock));
    FL_TRY(fl_reduce_norms(&p->reduce, p->layer_squares)); /* waits for all three */
    FL_TRY(fl_device_clock_waited(&p->clock));
    fl_stage_settle(p->stage);
    memcpy(&p->sums, p->sums_mirror.host, sizeof p->sums);
    for (int layer = first; layer < last; layer++) {
        int block = fl_model_block_of(p->o.model, layer);
        *(block == FL_BLOCK_HEAD ? head : &blocks[block - 1]) += p->layer_squares[layer - first];
    }
    return FL_OK;
}

static fl_status commit(fl_pipeline *p, int64_t step, double flag, fl_step_result *result)
{
    int L = fl_model_n_blocks(p->o.model);
    double *sums = p->commit_sums, *blocks = sums + N_SUMS;
    memset(sums, 0, (size_t)(N_SUMS + L) * sizeof *sums);
    fl_flight_enter(FL_FLIGHT_NORMS, -1, -1, 0);
    FL_TRY(add_norms(p, &sums[SUM_HEAD], blocks));
    fl_flight_leave();
    memcpy(&sums[SUM_LOSS], &p->sums, sizeof p->sums);
    sums[SUM_FLAG] = flag;
    fl_captured_step_put(&p->captured, &sums[SUM_READY], &sums[SUM_CAPTURED]);
    int64_t begun = fl_now_us();
    p->summed_step = step;
    FL_TRY(fl_group_all_reduce(p->o.group, sums, N_SUMS + L, fl__pipeline_deadline_us(p)));
    p->times.wait_us += fl_now_us() - begun;
    fl_captured_step_agree(&p->captured, sums[SUM_READY], sums[SUM_CAPTURED], p->K * p->R);
    double norm = sums[SUM_HEAD];
    for (int i = 0; i < L; i++) {
        norm += blocks[i];
    }
    memcpy(&result->sums, &sums[SUM_LOSS], sizeof result->sums);
    result->grad_norm = sqrt(norm);
    result->finite = isfinite(result->sums.loss) && isfinite(norm);
    result->block_squares = blocks;
    result->flags = sums[SUM_FLAG];
    return FL_OK;
}

static fl_status optimize(fl_pipeline *p, int64_t step, double lr, double grad_norm)
{
    return fl_params_step(fl_stage_params(p->stage), p->o.job, step, lr,
                          fl_clip_scale(grad_norm, p->o.job->train.clip));
}

static void learn_time(void *context, int label, double us)
{
    fl_pipeline *p = context;
    fl_stage_learn(p->stage, label, us);
}

/* Take from the clock what the device has done by now. */
static fl_status read_clock(fl_pipeline *p)
{
    int64_t us[FL_CLOCK_PARTS];
    FL_TRY(fl_device_clock_read(&p->clock, us, learn_time, p));
    p->times.compute_us += us[FL_CLOCK_COMPUTE];
    p->times.optimizer_us += us[FL_CLOCK_OPTIMIZER];
    return FL_OK;
}

bool fl_pipeline_is_summed(const fl_pipeline *p, int64_t *step)
{
    *step = p->summed_step;
    return p->summed_step >= 0;
}

/* 6: the optimizer, or nothing but the end of a step that was not finite. */
fl_status fl_pipeline_apply(fl_pipeline *p, double grad_norm, bool finite)
{
    const fl_clock_work optimizer = {
        .part = FL_CLOCK_OPTIMIZER, .label = -1, .kind = FL_FLIGHT_OPTIMIZER, .item = -1};
    int64_t step = p->summed_step;
    if (step < 0) {
        return fl_fail(FL_EINTERNAL, "no step of this pipeline waits to be applied");
    }
    p->summed_step = -1;
    fl_flight_enter(FL_FLIGHT_OPTIMIZER, -1, -1, 0);
    FL_TRY(fl_device_clock_begin(&p->clock, &optimizer));
    FL_TRY(finite ? optimize(p, step, p->lr, grad_norm)
                  : fl_params_clear_grad(fl_stage_params(p->stage)));
    FL_TRY(fl_device_clock_end(&p->clock));
    fl_flight_leave();
    return p->o.device->ops->host_memory ? read_clock(p) : FL_OK;
}

fl_status fl_pipeline_step(fl_pipeline *p, const fl_global_batch *batch, double lr, double flag,
                           fl_step_result *result)
{
    p->times = (fl_step_result){0};
    p->lr = lr;
    FL_TRY(fl__pipeline_clear_sums(p));
    FL_TRY(begin_batch(p, batch));
    fl_captured_step_begin(&p->captured, batch->n);
    FL_TRY(fl__pipeline_run_ops(p));
    int64_t begun = fl_now_us();
    FL_TRY(fl_reduce_wait(&p->reduce, fl__pipeline_deadline_us(p)));
    int64_t reduced = fl_now_us();
    p->times.reduce_wait_us = reduced - begun;
    FL_TRY(commit(p, batch->step, flag, result));
    FL_TRY(read_clock(p));
    FL_TRY(fl_pipeline_apply(p, result->grad_norm, result->finite));
    result->optimizer_us = p->times.optimizer_us;
    result->compute_us = p->times.compute_us;
    result->wait_us = p->times.wait_us;
    result->reduce_wait_us = p->times.reduce_wait_us;
    result->data_us = p->times.data_us;
    result->samples = batch->n;
    result->tokens = p->now.n_tokens;
    return FL_OK;
}

/* ---- evaluation ---- */

static fl_status run_all_forward(fl_pipeline *p, const fl_global_batch *batch)
{
    fl_captured_step_interrupt(&p->captured);
    FL_TRY(begin_batch(p, batch));
    FL_TRY(fl_recv_queue_begin(&p->forward_in, p->in_bytes, p->M));
    for (int m = 0; m < p->M; m++) {
        FL_TRY(run_forward(p, m, m % p->n_slots, false));
    }
    fl_flight_micro_batch(-1);
    return FL_OK;
}

void fl_pipeline_watch_outputs(fl_pipeline *p, fl_outputs_taker *take, void *context)
{
    p->take_outputs = take;
    p->taker = context;
}

fl_status fl_pipeline_predict(fl_pipeline *p, const fl_global_batch *batch, fl_outputs_taker *take,
                              void *context)
{
    fl_pipeline_watch_outputs(p, take, context);
    p->predicts = true;
    fl_status status = run_all_forward(p, batch);
    p->predicts = false;
    fl_pipeline_watch_outputs(p, NULL, NULL);
    FL_TRY(status);
    FL_TRY(fl_pipeline_wait(p));
    return read_clock(p);
}

fl_status fl_pipeline_evaluate(fl_pipeline *p, const fl_global_batch *batch, fl_loss_sums *sums)
{
    FL_TRY(fl__pipeline_clear_sums(p));
    FL_TRY(run_all_forward(p, batch));
    FL_TRY(fl__pipeline_read_sums(p));
    FL_TRY(read_clock(p));
    fl_loss_sums_add(sums, &p->sums);
    return FL_OK;
}

const int64_t *fl_pipeline_samples(const fl_pipeline *p, int64_t *n)
{
    return fl_batch_split_mine(&p->now, n);
}

const int64_t *fl_pipeline_samples_of(const fl_pipeline *p, int replica, int64_t *n)
{
    return fl_batch_split_of(&p->now, replica, n);
}

fl_status fl_pipeline_add_up(fl_pipeline *p, double *values, int64_t n)
{
    for (int64_t at = 0; at < n; at += FL_GROUP_ALL_REDUCE_MAX) {
        int64_t left = n - at;
        int most = left < FL_GROUP_ALL_REDUCE_MAX ? (int)left : FL_GROUP_ALL_REDUCE_MAX;
        FL_TRY(fl_group_all_reduce(p->o.group, values + at, most, fl__pipeline_deadline_us(p)));
    }
    return FL_OK;
}

fl_status fl_pipeline_total(fl_pipeline *p, fl_loss_sums *sums)
{
    double values[FL_LOSS_SUMS_N];
    memcpy(values, sums, sizeof values);
    FL_TRY(fl_pipeline_add_up(p, values, FL_LOSS_SUMS_N));
    memcpy(sums, values, sizeof values);
    return FL_OK;
}

bool fl_pipeline_cache(fl_pipeline *p, bool always, fl_cached_input_report *report)
{
    return p->stage_input.feed != NULL &&
           fl_cached_input_report_take(p->stage_input.feed, always, report);
}

bool fl_pipeline_graphs(fl_pipeline *p, bool always, fl_stage_graph_report *report)
{
    fl_stage_graphs(p->stage, report);
    bool gave_up = report->given_up && !p->told.given_up;
    bool computed = report->launches > p->told.launches || report->calls > p->told.calls;
    bool tells = gave_up || (always && computed);
    p->told = tells ? *report : p->told;
    return tells;
}

fl_status fl_pipeline_wait(fl_pipeline *p)
{
    FL_TRY(p->o.device->ops->sync(p->o.device, p->stream));
    if (p->stage != NULL) {
        fl_stage_settle(p->stage);
    }
    return FL_OK;
}

fl_stage *fl_pipeline_stage(fl_pipeline *pipeline)
{
    return pipeline->stage;
}
