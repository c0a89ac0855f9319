#include "support/control/frames.h"

#include "device/errors/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const int64_t frame_ids[] = {0, 1, -1, 59999, INT64_MAX, INT64_MIN};

fl_plan frame_plan(void)
{
    return (fl_plan){.generation = 8,
                     .F = 2,
                     .K = 3,
                     .R = 2,
                     .M = 4,
                     .schedule = FL_1F1B,
                     .n_layers = 9,
                     .n_workers = 7,
                     .first = {0, 4, 6, 9},
                     .rank_of = {0, 1, 2, 6, 5, 3},
                     .departed = {[4] = true},
                     .predicted_step_us = 1234.5,
                     .predicted_bubble = 0.25};
}

static fl_run_position some_position(void)
{
    return (fl_run_position){.n_commands = 5,
                             .lr_factor = 0.5,
                             .end_step = 80,
                             .n_skipped = 1,
                             .paused = true,
                             .stop = true,
                             .last_setting = 3,
                             .log_level = FL_LOG_DEBUG,
                             .answered = {0, 10, 20, 30, 36}};
}

fl_wire_message frame_of(fl_wire_type type)
{
    fl_wire_message f = {.type = type, .rank = 3, .generation = 7, .at_us = 123456789012345};
    switch (type) {
    case FL_WIRE_HELLO:
        f.pid = 4711;
        break;
    case FL_WIRE_HEARTBEAT:
        f.heartbeat.steps = 12;
        f.heartbeat.memory.used_bytes = 4096;
        f.heartbeat.memory.peak_bytes = INT64_C(5000000000);
        f.heartbeat.memory.parked_bytes = INT64_C(6000000000);
        f.heartbeat.memory.workspace_bytes = 655360;
        snprintf(f.heartbeat.operation, sizeof f.heartbeat.operation, "all-reduce");
        f.heartbeat.unanswered = (fl_net_unanswered){
            .address = 0x0a000002, .port = 20017, .connected = true, .error = 113, .for_ms = 2100};
        break;
    case FL_WIRE_READY:
        f.memory_peak_bytes = INT64_C(1) << 40;
        break;
    case FL_WIRE_STEP:
        f.step = (fl_step_report){37, 2, 0.1, (double)NAN,        1e-3, 41.5, 128, 2176, 7, 1,
                                  2,  3, 4,   {2, {0.75, 1e300}}, true};
        break;
    case FL_WIRE_TIME:
        f.time = (fl_time_report){37, 1, 2, 3, 4, 5};
        break;
    case FL_WIRE_EVAL:
        f.eval = (fl_eval_report){.epoch = 2,
                                  .step = 37,
                                  .loss = 0.3,
                                  .ms = 812.5,
                                  .metrics = {3, {0.9, (double)NAN, -1}},
                                  .samples = 10000,
                                  .validation = true,
                                  .has_test = true,
                                  .test_loss = 0.4,
                                  .test_metrics = {FL_METRICS_MAX, {[7] = 0.8}},
                                  .test_samples = 5000};
        break;
    case FL_WIRE_PASS:
        f.pass = (fl_pass_report){
            .batch = 7, .n_samples = 2, .lines_bytes = 5, .lines = (const unsigned char *)"lines"};
        break;
    case FL_WIRE_LEDGER:
        f.ledger = (fl_wire_ledger){.epoch = 2, .step = 37, .replica = 1, .n = 6, .ids = frame_ids};
        break;
    case FL_WIRE_FAILED:
        f.failed.status = FL_EBUDGET;
        snprintf(f.failed.text, sizeof f.failed.text, "asked 3 GiB, allowed 2 GiB");
        break;
    case FL_WIRE_COMMAND:
        f.command = (fl_command){.kind = FL_COMMAND_PREPARE, .plan = frame_plan()};
        break;
    case FL_WIRE_PREPARED:
        f.prepared = (fl_prepared_report){.generation = 7, .status = FL_EBUDGET, .took_us = 1234};
        snprintf(f.prepared.text, sizeof f.prepared.text, "asked 3 GiB, allowed 2 GiB");
        break;
    case FL_WIRE_TRANSITION:
        f.transition = (fl_transition_parts){
            7, 41, 1, 2, 3, 4, 5, 6, 7, {{1, 10, 11}, {2, 12, 13}, {3, 14, 15}}, FL_COMM_SHRINK, 8};
        break;
    case FL_WIRE_NORMS:
        f.norms = (fl_wire_norms){.step = 37, .n = 3, .squared = {0.0, 0.25, (double)NAN}};
        break;
    case FL_WIRE_SETTING_DONE:
        f.setting_done = (fl_setting_done_report){.serial = 3, .step = 41, .end_step = 80};
        break;
    case FL_WIRE_CACHE:
        f.cache =
            (fl_cache_report){37, 2, 4, true, true, 30, 2, 3, 12, 13, 0.5, 6.5, 7, 8, 9, 10, 11};
        break;
    case FL_WIRE_GRAPHS:
        f.graphs = (fl_graphs_report){
            .generation = 7,
            .step = 12,
            .graphs = {.captures = 3,
                       .launches = 40,
                       .sum_launches = 6,
                       .calls = 9,
                       .nodes = 77,
                       .bytes = 315392,
                       .shapes = 2,
                       .by_graph = 1,
                       .given_up = true,
                       .shape = {{true, FL_STAGE_BY_GRAPHS, 8, 96, 16, 20.5, 12.25},
                                 {false, FL_STAGE_MEASURED, 4, 30, 32, 0.0, 0.0}}}};
        snprintf(f.graphs.graphs.reason, sizeof f.graphs.graphs.reason, "out of memory");
        break;
    case FL_WIRE_COMM:
        f.comm = (fl_comm_report){7,
                                  {FL_COMM_SPLIT, 123456, 6, 5, "0 and 2: they share one device",
                                   FL_REGISTERED_TOO_DEAR, 3, INT64_C(5000000000), 42}};
        break;
    case FL_WIRE_CACHE_TIERS:
        f.cache_tiers = (fl_cache_tiers_report){.pinned_bytes = 1 << 20, .device_bytes = 3};
        snprintf(f.cache_tiers.why_not, sizeof f.cache_tiers.why_not, "no pinned memory");
        break;
    case FL_WIRE_HASHES:
    case FL_WIRE_SAVED:
        f.hashes = (fl_hashes_report){
            .step = 37, .first = 2, .n = 2, .hash = {UINT64_C(0xfedcba9876543210), 0}};
        break;
    case FL_WIRE_HASHES_FAILED:
        f.hashes_failed = (fl_hashes_failed_report){.step = 37, .error = 28};
        break;
    case FL_WIRE_CHECKPOINT_FILE:
        f.checkpoint_file = (fl_checkpoint_file_report){.step = 500,
                                                        .serial = 3,
                                                        .layer = 3,
                                                        .part = FL_CHECKPOINT_MOMENTS,
                                                        .bytes = INT64_C(5000000000),
                                                        .xxh64 = UINT64_C(0xfedcba9876543210)};
        break;
    case FL_WIRE_CHECKPOINT_PART:
        f.checkpoint_part = (fl_checkpoint_part_report){500, 3, 7, 4, 1234, 5, 6, 99, FL_EIO, ""};
        snprintf(f.checkpoint_part.text, sizeof f.checkpoint_part.text, "No space left on device");
        break;
    case FL_WIRE_SNAPSHOT:
        f.snapshot = (fl_snapshot_report){
            .step = 500, .generation = 7, .serial = 3, .bytes = 4096, .copy_us = 12, .moves = true};
        break;
    case FL_WIRE_NONFINITE:
        f.nonfinite = (fl_nonfinite_report){.step = 37,
                                            .epoch = 2,
                                            .loss = (double)NAN,
                                            .grad_norm = INFINITY,
                                            .found = {FL_NONFINITE_OUTPUT, 3, 1, 417},
                                            .action = FL_NONFINITE_ENDS,
                                            .n_samples = 128,
                                            .n_ids = 3,
                                            .ids = {417, 0, 31}};
        break;
    case FL_WIRE_ABORT:
        f.why = FL_EPEER;
        break;
    case FL_WIRE_BROKEN:
        f.broken = (fl_broken_report){.serial = 2,
                                      .generation = 7,
                                      .exchanged = 8,
                                      .step = 37,
                                      .summed_step = 37,
                                      .position = some_position(),
                                      .status = FL_EPEER};
        snprintf(f.broken.text, sizeof f.broken.text, "worker 1 is gone");
        break;
    case FL_WIRE_BREAK:
        f.break_order = (fl_break_order){.serial = 3, .until = 8};
        break;
    case FL_WIRE_REGROUP:
        f.regroup = (fl_regroup_order){.serial = 3,
                                       .generation = 7,
                                       .step = 38,
                                       .grad_norm = 0.1,
                                       .finite = true,
                                       .evaluates = true,
                                       .saved = true,
                                       .position = some_position(),
                                       .plan = frame_plan()};
        break;
    case FL_WIRE_ALIVE:
        f.n_counted = 37;
        break;
    case FL_WIRE_COUNTS:
        f.counts =
            (fl_wire_counts){.n_sent = 12, .n_taken = 9, .round = 2, .lacks = 3, .numbered = true};
        break;
    case FL_WIRE_DONE:
    case FL_WIRE_STOPPING:
    case FL_WIRE_TAKEN:
    case FL_WIRE_WAKE:
        break;
    }
    return f;
}

const fl_wire_type frame_types[] = {
    FL_WIRE_HELLO,     FL_WIRE_HEARTBEAT,     FL_WIRE_READY,           FL_WIRE_STEP,
    FL_WIRE_TIME,      FL_WIRE_EVAL,          FL_WIRE_LEDGER,          FL_WIRE_FAILED,
    FL_WIRE_DONE,      FL_WIRE_PREPARED,      FL_WIRE_TRANSITION,      FL_WIRE_NORMS,
    FL_WIRE_ALIVE,     FL_WIRE_STOPPING,      FL_WIRE_COMMAND,         FL_WIRE_ABORT,
    FL_WIRE_WAKE,      FL_WIRE_SETTING_DONE,  FL_WIRE_CACHE,           FL_WIRE_CACHE_TIERS,
    FL_WIRE_NONFINITE, FL_WIRE_HASHES_FAILED, FL_WIRE_CHECKPOINT_FILE, FL_WIRE_CHECKPOINT_PART,
    FL_WIRE_COMM,      FL_WIRE_PASS,          FL_WIRE_BROKEN,          FL_WIRE_BREAK,
    FL_WIRE_REGROUP,   FL_WIRE_GRAPHS,        FL_WIRE_SNAPSHOT,        FL_WIRE_TAKEN,
    FL_WIRE_HASHES,    FL_WIRE_SAVED,         FL_WIRE_COUNTS};

unsigned char *frame_encode(const fl_wire_message *frame, size_t *size_bytes)
{
    *size_bytes = fl_wire_size(frame);
    unsigned char *bytes = malloc(*size_bytes);
    fl_wire_put(frame, bytes);
    return bytes;
}

fl_status frame_decode(const unsigned char *bytes, size_t size_bytes, fl_wire_message *out)
{
    size_t left = size_bytes;
    return fl_wire_next(&bytes, &left, out);
}
