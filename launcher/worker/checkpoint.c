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

static fl_checkpoint_state state_of(fl_worker_state *w)
{
    w->far = (fl_checkpoint_far){.n_head = w->c->n_head,
                                 .messages = w->messages,
                                 .deadline_ms = w->c->job->fault.deadline_ms};
    return (fl_checkpoint_state){.plan = &w->now->plan,
                                 .params = fl_generation_params(w->now),
                                 .parked = &w->parked,
                                 .far = w->c->apart ? &w->far : NULL};
}

/* Where files go to the head, all members write a checkpoint or none does. */
static fl_status agree(const fl_worker_state *w, bool mine, bool *all)
{
    uint8_t bytes[FL_MAX_WORKERS], one = mine;
    *all = mine;
    if (!w->c->apart) {
        return FL_OK;
    }
    FL_TRY(fl_message_all_gather(w->messages, w->now->plan.generation, &one, sizeof one, bytes,
                                 fl_deadline_us(w->c->job->fault.deadline_ms)));
    for (int i = 0; i < fl_plan_members(&w->now->plan); i++) {
        bool is_lost = fl_message_lost(w->messages, fl_message_rank(w->messages, i));
        *all = *all && (bytes[i] != 0 || is_lost);
    }
    return FL_OK;
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
    bool ready = w->writer != NULL, all;
    w->saved_step = step;
    if (w->c->apart) {
        ready = ready && !fl_checkpoint_writer_is_busy(w->writer) &&
                fl_head_keeper(&w->now->plan, w->c->n_head, 0) >= 0;
    }
    FL_TRY(agree(w, ready, &all));
    if (!all) {
        fl_checkpoint_part_report report = {
            .step = step, .generation = w->now->plan.generation, .status = FL_EINVAL};
        snprintf(report.text, sizeof report.text, "%s",
                 w->c->apart ? "a worker cannot write its part now"
                             : "this run has no folder for checkpoints");
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

/* This worker's place in an exchange between the head and the other hosts. own: memory for what it
 * sends or gets; fl_snapshot_close it, after a failure, too. */
static fl_status open_own(const fl_worker_state *w, const fl_plan *plan, const int *parked,
                          fl_snapshot *own, fl_snapshot_far *out)
{
    int n_moments = fl_optimizer_n_moments(w->c->job->train.optimizer);
    *own = (fl_snapshot){0};
    *out = (fl_snapshot_far){.snapshot = own,
                             .rank = w->rank,
                             .n_head = w->c->n_head,
                             .messages = w->messages,
                             .device = w->device,
                             .plan = plan,
                             .parked = parked};
    return fl_snapshot_open(w->c->model, n_moments, own);
}

/* The same with the run's snapshot on the head. */
static fl_status open_far(const fl_worker_state *w, const fl_plan *plan, const int *parked,
                          fl_snapshot *own, fl_snapshot_far *out)
{
    FL_TRY(open_own(w, plan, parked, own, out));
    if (w->rank < w->c->n_head) {
        fl_snapshot_close(own);
        out->snapshot = w->c->snapshot;
    }
    return FL_OK;
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

fl_status fl_worker_get_saved(fl_worker_state *w, const fl_state_source *saved, fl_snapshot *own)
{
    fl_snapshot_far far;
    FL_TRY(open_own(w, &w->birth->plan, w->birth->parked, own, &far));
    if (w->rank < w->c->n_head) {
        FL_TRY(fl_snapshot_fill(&far, saved));
    }
    return fl_snapshot_deliver(&far, 0, fl_deadline_us(w->c->job->fault.deadline_ms));
}

static fl_status write_kept(fl_worker_state *w, const fl_snapshot_far *far)
{
    for (int layer = 0; layer < w->now->plan.n_layers; layer++) {
        if (fl_snapshot_is_kept(far, layer)) {
            FL_TRY(
                fl_model_file_write_host(w->c->model_file, fl_snapshot_weights(far, layer), layer));
        }
    }
    return FL_OK;
}

fl_status fl_worker_collect_model(fl_worker_state *w)
{
    fl_checkpoint_state state = state_of(w);
    fl_snapshot own;
    fl_snapshot_far far;
    if (!w->c->apart || !w->c->job->run.save_model) {
        return FL_OK;
    }
    fl_status status = open_own(w, state.plan, state.parked->rank, &own, &far);
    if (status == FL_OK) {
        status =
            fl_snapshot_collect_weights(&far, &state, fl_deadline_us(w->c->job->fault.deadline_ms));
    }
    if (status == FL_OK) {
        status = write_kept(w, &far);
    }
    fl_snapshot_close(&own);
    return status;
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
    bool all;
    if (!w->c->checkpoints || w->saved_step == w->step || (!w->c->apart && w->writer == NULL)) {
        return FL_OK;
    }
    bool is_kept = w->c->store != NULL && atomic_load(w->c->store->kept_step) == w->step;
    if (!is_kept) {
        fl_worker_checkpoint_settle(w);
    }
    FL_TRY(agree(w, w->writer != NULL && !is_kept, &all));
    if (!all) {
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

void fl_worker_checkpoint_leave(fl_worker_state *w, bool give_up)
{
    if (w->writer != NULL) {
        fl_checkpoint_writer_leave_messages(w->writer, give_up);
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
