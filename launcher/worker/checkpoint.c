/* A worker's part of checkpoints: at a control point, at the end of the run, and what it waits for
 * before it leaves. */
#include "launcher/worker/worker_state.h"

#include "device/errors/log.h"
#include "device/flight/flight.h"
#include "device/system/clock.h"
#include "nn/optimizer.h"
#include "pipe/state/head_keeper.h"

#include <stdio.h>

static void report_file(void *context, const fl_checkpoint_file_report *report)
{
    const fl_worker_state *w = context;
    fl_link_checkpoint_file(w->link, report);
}

static void report_part(void *context, const fl_checkpoint_part_report *report)
{
    fl_worker_state *w = context;
    fl__reach("part", w);
    if (report->status != FL_OK) {
        fl_log(FL_LOG_WARN, "no checkpoint after step %lld: %s", (long long)report->step,
               report->text);
    }
    fl_link_checkpoint_part(w->link, report);
}

fl_checkpoint_state fl_worker_saved_state(fl_worker_state *w)
{
    w->far = (fl_checkpoint_far){.n_head = w->c->n_head,
                                 .messages = w->messages,
                                 .deadline_ms = w->c->job->fault.deadline_ms};
    return (fl_checkpoint_state){.plan = &w->now->plan,
                                 .params = fl_generation_params(w->now),
                                 .parked = &w->parked,
                                 .far = w->c->apart ? &w->far : NULL};
}

fl_status fl_worker_agree(const fl_worker_state *w, bool mine, bool *all)
{
    uint8_t bytes[FL_MAX_WORKERS], one = mine;
    *all = mine;
    FL_TRY(fl_message_all_gather(w->messages, w->now->plan.generation, &one, sizeof one, bytes,
                                 fl_deadline_us(w->c->job->fault.deadline_ms)));
    for (int i = 0; i < fl_plan_members(&w->now->plan); i++) {
        bool is_lost = fl_message_lost(w->messages, fl_message_rank(w->messages, i));
        *all = *all && (bytes[i] != 0 || is_lost);
    }
    return FL_OK;
}

/* Where files go to the head, all members write a checkpoint or none does. */
static fl_status agree(const fl_worker_state *w, bool mine, bool *all)
{
    *all = mine;
    return w->c->apart ? fl_worker_agree(w, mine, all) : FL_OK;
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
        fl_checkpoint_state state = fl_worker_saved_state(w);
        fl_checkpoint_writer_follow(w->writer, state.plan, step);
        if (w->c->checkpoints) {
            fl_checkpoint_writer_prepare(w->writer, &state);
        }
    }
}

fl_status fl_worker_checkpoint(fl_worker_state *w, int64_t step, int64_t serial)
{
    bool ready = w->writer != NULL, all;
    w->saved_step = step;
    w->saved_serial = serial;
    if (w->c->apart) {
        ready = ready && !fl_checkpoint_writer_is_busy(w->writer) &&
                fl_head_keeper(&w->now->plan, w->c->n_head, 0) >= 0;
    }
    FL_TRY(agree(w, ready, &all));
    if (!all) {
        fl_checkpoint_part_report report = {.step = step,
                                            .serial = serial,
                                            .generation = w->now->plan.generation,
                                            .status = FL_EINVAL};
        snprintf(report.text, sizeof report.text, "%s",
                 w->c->apart ? "a worker cannot write its part now"
                             : "this run has no folder for checkpoints");
        fl_link_checkpoint_part(w->link, &report);
        return FL_OK;
    }
    fl_link_doing(w->link, "copying a checkpoint");
    fl_checkpoint_state state = fl_worker_saved_state(w);
    fl_flight_enter(FL_FLIGHT_CHECKPOINT, -1, -1, 0);
    fl_status status = fl_checkpoint_writer_begin(w->writer, &state, step, serial);
    if (status != FL_OK) {
        return fl_within(status, "the checkpoint after step %lld", (long long)step);
    }
    fl_flight_leave();
    return FL_OK;
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
    fl_checkpoint_state state = fl_worker_saved_state(w);
    fl_checkpoint_writer_check_links(w->writer, &state);
    return fl_worker_checkpoint(w, w->step, 0);
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
    if (w->snapshots != NULL) {
        fl_snapshot_writer_leave_messages(w->snapshots, give_up);
    }
}

void fl_worker_checkpoint_settle(fl_worker_state *w)
{
    fl_checkpoint_part_report report = {
        .step = w->saved_step, .serial = w->saved_serial, .generation = w->now->plan.generation};
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
