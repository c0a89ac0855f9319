/* What a worker reports over its control link. */
#include "control/link/link.h"

#include "control/link/link_thread.h"
#include "device/errors/log.h"

#include <stdio.h>
#include <string.h>

/* ---- what heartbeats and later reports carry ---- */

void fl_link_generation(fl_link *link, uint32_t generation)
{
    atomic_store(&link->generation, generation);
}

void fl_link_doing(fl_link *link, const char *operation)
{
    atomic_store_explicit(&link->operation, operation, memory_order_relaxed);
}

void fl_link_memory(fl_link *link, const fl_memory_report *r)
{
    atomic_store_explicit(&link->memory_used_bytes, r->used_bytes, memory_order_relaxed);
    atomic_store_explicit(&link->memory_peak_bytes, r->peak_bytes, memory_order_relaxed);
    atomic_store_explicit(&link->memory_parked_bytes, r->parked_bytes, memory_order_relaxed);
    atomic_store_explicit(&link->memory_workspace_bytes, r->workspace_bytes, memory_order_relaxed);
}

/* ---- reports ---- */

static void send_report(fl_link *link, const fl_wire_message *frame)
{
    if (fl_queue_put(&link->queue, frame) != FL_OK) {
        fl_log(FL_LOG_ERROR, "lost a report (%s): %s", fl_wire_type_text(frame->type), fl_errmsg());
    }
}

/* The link closes only once the controller has it. */
static void send_last(fl_link *link, const fl_wire_message *frame)
{
    atomic_store(&link->owes_last, true);
    send_report(link, frame);
    fl_link_wake(link);
}

static void finished_step(fl_link *link, int64_t step)
{
    if (step + 1 > atomic_load_explicit(&link->steps, memory_order_relaxed)) {
        atomic_store_explicit(&link->steps, step + 1, memory_order_relaxed);
    }
}

void fl_link_ready(fl_link *link, int64_t memory_peak_bytes)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_READY);
    frame.memory_peak_bytes = memory_peak_bytes;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_step(fl_link *link, const fl_step_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_STEP);
    frame.generation = report->generation;
    frame.step = *report;
    finished_step(link, report->step);
    send_report(link, &frame);
}

void fl_link_time(fl_link *link, const fl_time_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_TIME);
    frame.time = *report;
    finished_step(link, report->step);
    send_report(link, &frame);
}

void fl_link_nonfinite(fl_link *link, const fl_nonfinite_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_NONFINITE);
    frame.nonfinite = *report;
    send_report(link, &frame);
}

void fl_link_hashes(fl_link *link, const fl_hashes_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_HASHES);
    frame.hashes = *report;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_saved(fl_link *link, const fl_hashes_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_SAVED);
    frame.hashes = *report;
    send_report(link, &frame);
}

void fl_link_hashes_failed(fl_link *link, const fl_hashes_failed_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_HASHES_FAILED);
    frame.hashes_failed = *report;
    send_report(link, &frame);
}

void fl_link_eval(fl_link *link, const fl_eval_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_EVAL);
    frame.eval = *report;
    send_report(link, &frame);
}

void fl_link_pass(fl_link *link, const fl_pass_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_PASS);
    frame.pass = *report;
    finished_step(link, report->batch);
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_ledger(fl_link *link, int64_t epoch, int64_t step, uint32_t generation, int replica,
                    const int64_t *ids, int64_t n)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_LEDGER);
    frame.generation = generation;
    frame.ledger = (fl_wire_ledger){
        .epoch = epoch, .step = step, .replica = replica, .n = (uint32_t)n, .ids = ids};
    send_report(link, &frame);
}

void fl_link_norms(fl_link *link, int64_t step, uint32_t generation, const double *squared, int n)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_NORMS);
    frame.generation = generation;
    frame.norms.step = step;
    frame.norms.n = n;
    memcpy(frame.norms.squared, squared, (size_t)n * sizeof *squared);
    send_report(link, &frame);
}

void fl_link_graphs(fl_link *link, const fl_graphs_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_GRAPHS);
    frame.generation = report->generation;
    frame.graphs = *report;
    send_report(link, &frame);
}

void fl_link_comm(fl_link *link, const fl_comm_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_COMM);
    frame.generation = report->generation;
    frame.comm = *report;
    send_report(link, &frame);
}

void fl_link_cache(fl_link *link, const fl_cache_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_CACHE);
    frame.cache = *report;
    send_report(link, &frame);
}

void fl_link_cache_tiers(fl_link *link, const fl_cache_tiers_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_CACHE_TIERS);
    frame.cache_tiers = *report;
    send_report(link, &frame);
}

void fl_link_prepared(fl_link *link, const fl_prepared_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_PREPARED);
    frame.generation = report->generation;
    frame.prepared = *report;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_transition(fl_link *link, const fl_transition_parts *parts)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_TRANSITION);
    frame.generation = parts->generation;
    frame.transition = *parts;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_broken(fl_link *link, const fl_broken_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_BROKEN);
    frame.broken = *report;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_setting_done(fl_link *link, const fl_setting_done_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_SETTING_DONE);
    frame.setting_done = *report;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_checkpoint_file(fl_link *link, const fl_checkpoint_file_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_CHECKPOINT_FILE);
    frame.generation = report->generation;
    frame.checkpoint_file = *report;
    send_report(link, &frame);
}

void fl_link_checkpoint_part(fl_link *link, const fl_checkpoint_part_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_CHECKPOINT_PART);
    frame.generation = report->generation;
    frame.checkpoint_part = *report;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_snapshot(fl_link *link, const fl_snapshot_report *report)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_SNAPSHOT);
    frame.generation = report->generation;
    frame.snapshot = *report;
    send_report(link, &frame);
    fl_link_wake(link);
}

void fl_link_failed(fl_link *link, fl_status status, const char *message)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_FAILED);
    frame.failed.status = status;
    snprintf(frame.failed.text, sizeof frame.failed.text, "%s", message);
    send_last(link, &frame);
}

void fl_link_done(fl_link *link)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_DONE);
    send_last(link, &frame);
}
