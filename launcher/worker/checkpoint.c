/* A worker's part of checkpoints: at a control point, at the end of the run, and what it waits for
 * before it leaves. And its part of snapshots in memory. */
#include "launcher/worker/worker_state.h"

#include "device/clock.h"
#include "device/flight.h"
#include "device/log.h"
#include "nn/optimizer.h"
#include "pipe/state/snapshot_far.h"

#include <stdio.h>

static void report_file(void *context, const fl_checkpoint_file_report *report)
{
    const fl_worker_state *w = context;
    fl_link_checkpoint_file(w->link, report);
}

static void report_part(void *context, const fl_checkpoint_part_report *report)
{
    const fl_worker_state *w = context;
    if (report->status != FL_OK) {
        fl_log(FL_LOG_WARN, "no checkpoint after step %lld: %s", (long long)report->step,
               report->text);
    }
    fl_link_checkpoint_part(w->link, report);
}

static fl_checkpoint_state state_of(const fl_worker_state *w)
{
    return (fl_checkpoint_state){
        .plan = &w->now->plan, .params = fl_generation_params(w->now), .parked = &w->parked};
}

fl_status fl_worker_checkpoint_open(fl_worker_state *w)
{
    const fl_checkpoint_writer_options options = {
        .model = w->c->model,
        .device = w->device,
        .store = w->c->store,
        .rank = w->rank,
        .n_moments = fl_optimizer_n_moments(w->c->job->train.optimizer),
        .on_file = report_file,
        .on_part = report_part,
        .context = w};
    w->saved_step = -1;
    if (w->c->store == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_checkpoint_writer_create(&options, &w->writer));
    fl_worker_checkpoint_follow(w, w->step);
    return FL_OK;
}

/* Where the run keeps checkpoints, memory for the next one is taken while training continues. */
void fl_worker_checkpoint_follow(fl_worker_state *w, int64_t step)
{
    if (w->writer != NULL) {
        fl_checkpoint_state state = state_of(w);
        fl_checkpoint_writer_follow(w->writer, state.plan, step);
        if (w->c->checkpoints) {
            fl_checkpoint_writer_prepare(w->writer, &state);
        }
    }
}

fl_status fl_worker_checkpoint(fl_worker_state *w, int64_t step)
{
    w->saved_step = step;
    if (w->writer == NULL) {
        fl_checkpoint_part_report report = {
            .step = step, .generation = w->now->plan.generation, .status = FL_EINVAL};
        snprintf(report.text, sizeof report.text, "this run has no folder for checkpoints");
        fl_link_checkpoint_part(w->link, &report);
        return FL_OK;
    }
    fl_link_doing(w->link, "copying a checkpoint");
    fl_checkpoint_state state = state_of(w);
    fl_flight_enter(FL_FLIGHT_CHECKPOINT, -1, -1, 0);
    fl_status status = fl_checkpoint_writer_begin(w->writer, &state, step);
    if (status != FL_OK) {
        return fl_within(status, "the checkpoint after step %lld", (long long)step);
    }
    fl_flight_leave();
    return FL_OK;
}

/* This worker's place in the exchange between the head and the other hosts. own: memory for what
 * a worker of another host sends or gets; fl_snapshot_close it. */
static fl_status open_far(const fl_worker_state *w, const fl_plan *plan, const int *parked,
                          fl_snapshot *own, fl_snapshot_far *out)
{
    int n_moments = fl_optimizer_n_moments(w->c->job->train.optimizer);
    bool on_head = w->rank < w->c->n_head;
    *own = (fl_snapshot){0};
    *out = (fl_snapshot_far){.snapshot = on_head ? w->c->snapshot : own,
                             .rank = w->rank,
                             .n_head = w->c->n_head,
                             .messages = w->messages,
                             .device = w->device,
                             .plan = plan,
                             .parked = parked};
    return on_head ? FL_OK : fl_snapshot_open(w->c->model, n_moments, own);
}

static fl_status put_snapshot(fl_worker_state *w, int64_t serial, int64_t *bytes)
{
    fl_checkpoint_state state = state_of(w);
    fl_snapshot own;
    fl_snapshot_far far;
    if (w->c->n_head == 0) {
        return fl_snapshot_put(w->c->snapshot, serial, &state, w->rank, bytes);
    }
    FL_TRY(open_far(w, state.plan, state.parked->rank, &own, &far));
    fl_status status = fl_snapshot_collect(&far, serial, &state,
                                           fl_deadline_us(w->c->job->fault.deadline_ms), bytes);
    fl_snapshot_close(&own);
    return status;
}

fl_status fl_worker_get_snapshot(fl_worker_state *w, fl_snapshot *own)
{
    fl_snapshot_far far;
    int slot = w->c->from == NULL ? 0 : w->c->from->slot;
    FL_TRY(open_far(w, &w->birth->plan, w->birth->parked, own, &far));
    return fl_snapshot_deliver(&far, slot, fl_deadline_us(w->c->job->fault.deadline_ms));
}

fl_status fl_worker_snapshot(fl_worker_state *w, int64_t step, int64_t serial)
{
    fl_snapshot_report report = {
        .step = step, .generation = w->now->plan.generation, .serial = serial, .status = FL_ESTALE};
    int64_t begun_us = fl_now_us();
    bool sends = w->c->n_head > 0 && w->rank >= w->c->n_head;
    if (w->c->snapshot != NULL || sends) {
        fl_link_doing(w->link, "copying a snapshot");
        fl_flight_enter(FL_FLIGHT_CHECKPOINT, -1, -1, 0);
        fl__reach("snapshot", w);
        report.status = put_snapshot(w, serial, &report.bytes);
        fl_flight_leave();
    }
    report.copy_us = fl_now_us() - begun_us;
    fl_link_snapshot(w->link, &report);
    return report.status == FL_OK || report.status == FL_ESTALE
               ? FL_OK
               : fl_within(report.status, "the snapshot after step %lld", (long long)step);
}

/* The newest durable checkpoint may be the one that the run began with. */
fl_status fl_worker_checkpoint_last(fl_worker_state *w)
{
    if (w->writer == NULL || !w->c->checkpoints || w->saved_step == w->step ||
        atomic_load(w->c->store->kept_step) == w->step) {
        return FL_OK;
    }
    fl_worker_checkpoint_settle(w);
    if (w->writer == NULL) {
        return FL_OK;
    }
    fl_checkpoint_state state = state_of(w);
    fl_checkpoint_writer_check_links(w->writer, &state);
    return fl_worker_checkpoint(w, w->step);
}

void fl_worker_checkpoint_regroup(fl_worker_state *w, int64_t step, bool saved)
{
    w->saved_step = saved ? step : -1;
    if (w->writer != NULL && !saved) {
        fl_checkpoint_writer_replace(w->writer, step);
    }
}

void fl_worker_checkpoint_settle(fl_worker_state *w)
{
    fl_checkpoint_part_report report = {.step = w->saved_step,
                                        .generation = w->now->plan.generation};
    if (w->writer == NULL) {
        return;
    }
    fl_link_doing(w->link, "writing a checkpoint");
    report.status =
        fl_checkpoint_writer_wait(w->writer, fl_deadline_us(w->c->job->fault.deadline_ms));
    if (report.status != FL_OK) {
        snprintf(report.text, sizeof report.text, "worker %d: %s within fault.deadline", w->rank,
                 fl_errmsg());
        fl_checkpoint_writer_destroy(&w->writer); /* it does not report any more */
        report_part(w, &report);
    }
}
