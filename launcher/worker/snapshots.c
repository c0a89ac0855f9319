/* A worker's part of snapshots in memory, and what it exchanges with other hosts while all wait:
 * what it begins with when a run goes back or continues, and the trained model. */
#include "launcher/worker/worker_state.h"

#include "device/flight/flight.h"
#include "device/system/clock.h"
#include "nn/optimizer.h"
#include "pipe/state/snapshot/snapshot_far.h"

/* ---- snapshots ---- */

static void report_snapshot(void *context, const fl_snapshot_report *report)
{
    const fl_worker_state *w = context;
    fl_link_snapshot(w->link, report);
}

fl_status fl_worker_snapshots_open(fl_worker_state *w)
{
    bool sends = w->c->n_head > 0 && w->rank >= w->c->n_head;
    const fl_snapshot_writer_options options = {
        .snapshot = sends ? NULL : w->c->snapshot,
        .model = w->c->model,
        .n_moments = fl_optimizer_n_moments(w->c->job->train.optimizer),
        .rank = w->rank,
        .n_head = w->c->n_head,
        .on_report = report_snapshot,
        .context = w};
    return fl_snapshot_writer_create(&options, &w->snapshots);
}

/* On several hosts, all members take their part or none does: they wait for each other's. */
static fl_status take_part(fl_worker_state *w, fl_snapshot_report *report, int64_t begun_us)
{
    fl_checkpoint_state state = fl_worker_saved_state(w);
    bool all = fl_snapshot_writer_is_ready(w->snapshots, state.plan, report->serial);
    if (w->c->n_head > 0) {
        FL_TRY(fl_worker_agree(w, all, &all));
    }
    if (!all) {
        report->copy_us = fl_now_us() - begun_us;
        fl_link_snapshot(w->link, report);
        return FL_OK;
    }
    const fl_snapshot_request request = {.step = report->step,
                                         .serial = report->serial,
                                         .begun_us = begun_us,
                                         .state = &state,
                                         .messages = w->messages,
                                         .deadline_ms = w->c->job->fault.deadline_ms};
    return fl_snapshot_writer_begin(w->snapshots, &request);
}

fl_status fl_worker_snapshot(fl_worker_state *w, int64_t step, int64_t serial)
{
    fl_snapshot_report report = {
        .step = step, .generation = w->now->plan.generation, .serial = serial, .status = FL_ESTALE};
    int64_t begun_us = fl_now_us();
    fl_link_doing(w->link, "copying a snapshot");
    fl_flight_enter(FL_FLIGHT_CHECKPOINT, -1, -1, 0);
    fl__reach("snapshot", w);
    fl_status status = take_part(w, &report, begun_us);
    if (status != FL_OK) {
        return fl_within(status, "the snapshot after step %lld", (long long)step);
    }
    fl_flight_leave();
    return FL_OK;
}

void fl_worker_snapshots_end(fl_worker_state *w)
{
    fl_link_doing(w->link, "giving up a snapshot");
    fl_snapshot_writer_leave_messages(w->snapshots, false);
}

/* ---- what all wait for ---- */

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
    fl_checkpoint_state state = fl_worker_saved_state(w);
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
