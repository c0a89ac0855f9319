/* Frames between head and workers: what goes in comes out, and nothing else comes in. */
#include "control/link/wire/wire.h"

#include "device/errors/log.h"
#include "device/random/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MUTATIONS = 200000, LARGEST = 8192 };

static const int64_t some_ids[] = {0, 1, -1, 59999, INT64_MAX, INT64_MIN};

/* Two replicas of three stages on seven workers. */
static fl_plan some_plan(void)
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

static fl_wire_message frame_of(fl_wire_type type)
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
        f.ledger = (fl_wire_ledger){.epoch = 2, .step = 37, .replica = 1, .n = 6, .ids = some_ids};
        break;
    case FL_WIRE_FAILED:
        f.failed.status = FL_EBUDGET;
        snprintf(f.failed.text, sizeof f.failed.text, "asked 3 GiB, allowed 2 GiB");
        break;
    case FL_WIRE_COMMAND:
        f.command = (fl_command){.kind = FL_COMMAND_PREPARE, .plan = some_plan()};
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
    case FL_WIRE_HASHES_FAILED:
        f.hashes_failed = (fl_hashes_failed_report){.step = 37, .error = 28};
        break;
    case FL_WIRE_CHECKPOINT_FILE:
        f.checkpoint_file = (fl_checkpoint_file_report){.step = 500,
                                                        .layer = 3,
                                                        .part = FL_CHECKPOINT_MOMENTS,
                                                        .bytes = INT64_C(5000000000),
                                                        .xxh64 = UINT64_C(0xfedcba9876543210)};
        break;
    case FL_WIRE_CHECKPOINT_PART:
        f.checkpoint_part = (fl_checkpoint_part_report){500, 7, 4, 1234, 5, 6, 99, FL_EIO, ""};
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
                                       .plan = some_plan()};
        break;
    case FL_WIRE_ALIVE:
        f.n_counted = 37;
        break;
    case FL_WIRE_DONE:
    case FL_WIRE_STOPPING:
    case FL_WIRE_WAKE:
        break;
    }
    return f;
}

static const fl_wire_type types[] = {
    FL_WIRE_HELLO,     FL_WIRE_HEARTBEAT,     FL_WIRE_READY,           FL_WIRE_STEP,
    FL_WIRE_TIME,      FL_WIRE_EVAL,          FL_WIRE_LEDGER,          FL_WIRE_FAILED,
    FL_WIRE_DONE,      FL_WIRE_PREPARED,      FL_WIRE_TRANSITION,      FL_WIRE_NORMS,
    FL_WIRE_ALIVE,     FL_WIRE_STOPPING,      FL_WIRE_COMMAND,         FL_WIRE_ABORT,
    FL_WIRE_WAKE,      FL_WIRE_SETTING_DONE,  FL_WIRE_CACHE,           FL_WIRE_CACHE_TIERS,
    FL_WIRE_NONFINITE, FL_WIRE_HASHES_FAILED, FL_WIRE_CHECKPOINT_FILE, FL_WIRE_CHECKPOINT_PART,
    FL_WIRE_COMM,      FL_WIRE_PASS,          FL_WIRE_BROKEN,          FL_WIRE_BREAK,
    FL_WIRE_REGROUP,   FL_WIRE_GRAPHS,        FL_WIRE_SNAPSHOT};

enum { N_TYPES = sizeof types / sizeof *types };

/* Exactly as long as the frame, so that a sanitizer sees every byte read beyond it. */
static unsigned char *encode(const fl_wire_message *frame, size_t *size_bytes)
{
    *size_bytes = fl_wire_size(frame);
    unsigned char *bytes = malloc(*size_bytes);
    fl_wire_put(frame, bytes);
    return bytes;
}

static fl_status decode(const unsigned char *bytes, size_t size_bytes, fl_wire_message *out)
{
    size_t left = size_bytes;
    return fl_wire_next(&bytes, &left, out);
}

/* Would catch: a field written and read in another order, width or sign. Frames that encode to the
 * same bytes again carry the same values. */
static void test_wire__brings_back_every_frame(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        fl_wire_message frame = frame_of(types[i]), back;
        size_t n, n_again;
        unsigned char *bytes = encode(&frame, &n);
        assert_int_equal(decode(bytes, n, &back), FL_OK);
        assert_int_equal(back.type, frame.type);
        assert_int_equal(back.rank, 3);
        assert_int_equal(back.generation, 7);
        assert_int_equal(back.at_us, 123456789012345);
        int64_t ids[6];
        if (back.type == FL_WIRE_LEDGER) {
            fl_wire_ids(&back, ids);
            assert_memory_equal(ids, some_ids, sizeof ids);
            back.ledger.ids = ids;
        }
        unsigned char *again = encode(&back, &n_again);
        assert_int_equal(n, n_again);
        assert_memory_equal(bytes, again, n);
        assert_string_not_equal(fl_wire_type_text(types[i]), "unknown");
        free(bytes);
        free(again);
    }
}

static void test_wire__reads_the_values_it_was_given(void **state)
{
    (void)state;
    fl_wire_message frame = frame_of(FL_WIRE_STEP), back;
    size_t n;
    unsigned char *bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    assert_int_equal(back.step.step, 37);
    assert_int_equal(back.step.epoch, 2);
    assert_true(back.step.loss == 0.1 && isnan(back.step.grad_norm) && back.step.lr == 1e-3);
    assert_int_equal(back.step.tokens, 2176);
    assert_int_equal(back.step.generation, 7);
    assert_int_equal(back.step.m, 4);
    assert_int_equal(back.step.metrics.n, 2);
    assert_true(back.step.metrics.mean[0] == 0.75 && back.step.metrics.mean[1] == 1e300);
    free(bytes);
    frame = frame_of(FL_WIRE_EVAL);
    bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    assert_int_equal(back.eval.metrics.n, 3);
    assert_true(back.eval.metrics.mean[0] == 0.9 && isnan(back.eval.metrics.mean[1]));
    assert_true(back.eval.has_test && back.eval.validation && back.eval.test_loss == 0.4);
    assert_int_equal(back.eval.test_metrics.n, FL_METRICS_MAX);
    assert_true(back.eval.test_metrics.mean[7] == 0.8);
    free(bytes);
    frame = frame_of(FL_WIRE_FAILED);
    bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    assert_int_equal(back.failed.status, FL_EBUDGET);
    assert_string_equal(back.failed.text, "asked 3 GiB, allowed 2 GiB");
    free(bytes);
    frame = frame_of(FL_WIRE_COMMAND);
    bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    fl_plan plan = some_plan();
    assert_int_equal(back.command.kind, FL_COMMAND_PREPARE);
    assert_memory_equal(&back.command.plan, &plan, sizeof plan);
    free(bytes);
    frame = frame_of(FL_WIRE_TRANSITION);
    bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    assert_memory_equal(&back.transition, &frame.transition, sizeof back.transition);
    free(bytes);
    frame = frame_of(FL_WIRE_CHECKPOINT_FILE);
    bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    const fl_checkpoint_file_report *file = &back.checkpoint_file;
    assert_true(file->generation == 7);
    assert_true(file->step == 500 && file->layer == 3 && file->part == FL_CHECKPOINT_MOMENTS);
    assert_true(file->bytes == 5000000000 && file->xxh64 == 0xfedcba9876543210 && !file->linked);
    free(bytes);
    frame = frame_of(FL_WIRE_SNAPSHOT);
    bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    assert_memory_equal(&back.snapshot, &frame.snapshot, sizeof back.snapshot);
    free(bytes);
    frame = frame_of(FL_WIRE_CHECKPOINT_PART);
    bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_OK);
    const fl_checkpoint_part_report *part = &back.checkpoint_part;
    assert_true(part->step == 500 && part->generation == 7 && part->n_files == 4);
    assert_true(part->bytes == 1234 && part->copy_us == 5 && part->write_us == 6);
    assert_int_equal(part->buffer_bytes, 99);
    assert_true(part->status == FL_EIO && strcmp(part->text, "No space left on device") == 0);
    free(bytes);
}

/* Would catch: a command without a plan that is read or written as if it had one. */
static void test_wire__brings_back_commands_without_a_plan(void **state)
{
    (void)state;
    static const fl_command_kind kinds[] = {
        FL_COMMAND_STOP, FL_COMMAND_PREPARE,    FL_COMMAND_COMMIT, FL_COMMAND_CANCEL,
        FL_COMMAND_PASS, FL_COMMAND_CHECKPOINT, FL_COMMAND_END,    FL_COMMAND_SNAPSHOT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fl_command_kind kind = kinds[i];
        fl_wire_message frame = {.type = FL_WIRE_COMMAND, .command.kind = kind}, back;
        size_t n;
        bool answers = kind == FL_COMMAND_COMMIT || kind == FL_COMMAND_CANCEL ||
                       kind == FL_COMMAND_PASS || kind == FL_COMMAND_END;
        frame.command.plan = some_plan();
        frame.command.due_step = 1234567890123;
        frame.command.due = FL_DUE_POLICY;
        frame.command.serial = kind == FL_COMMAND_SNAPSHOT ? 77 : 0;
        unsigned char *bytes = encode(&frame, &n);
        assert_int_equal(decode(bytes, n, &back), FL_OK);
        assert_int_equal(back.command.kind, kind);
        assert_int_equal(back.command.due_step, kind == FL_COMMAND_STOP ? 0 : 1234567890123);
        assert_int_equal(back.command.due, answers ? FL_DUE_POLICY : FL_DUE_NONE);
        assert_true(kind != FL_COMMAND_SNAPSHOT || back.command.serial == 77);
        assert_int_equal(n > FL_WIRE_HEADER_BYTES + 20, kind == FL_COMMAND_PREPARE);
        free(bytes);
    }
}

/* Would catch: a steering message that loses its kind, number or value, or has an unknown kind. */
static void test_wire__brings_back_settings(void **state)
{
    (void)state;
    for (int kind = FL_SETTING_NONE; kind <= FL_SETTING_LOG + 1; kind++) {
        fl_setting setting = {.kind = (fl_setting_kind)kind, .serial = 12, .value = 3e-4};
        fl_wire_message frame = {.type = FL_WIRE_COMMAND,
                                 .command = {.kind = FL_COMMAND_SETTING, .setting = setting}};
        fl_wire_message back;
        size_t n;
        bool known = kind > FL_SETTING_NONE && kind <= FL_SETTING_LOG;
        unsigned char *bytes = encode(&frame, &n);
        assert_int_equal(decode(bytes, n, &back), known ? FL_OK : FL_EFORMAT);
        assert_true(!known || (back.command.setting.kind == setting.kind &&
                               back.command.setting.serial == 12 &&
                               back.command.setting.value == setting.value));
        free(bytes);
    }
}

/* Would catch: a frame that is used before all of it has arrived. */
static void test_wire__refuses_every_cut(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        fl_wire_message frame = frame_of(types[i]), back;
        size_t n;
        unsigned char *bytes = encode(&frame, &n);
        for (size_t cut = 0; cut < n; cut++) {
            unsigned char *part = malloc(cut + 1);
            memcpy(part, bytes, cut);
            assert_int_equal(decode(part, cut, &back), FL_EFORMAT);
            free(part);
        }
        free(bytes);
    }
}

static void refuses_with(fl_wire_type type, size_t at, unsigned char value)
{
    fl_wire_message frame = frame_of(type), back;
    size_t n;
    unsigned char *bytes = encode(&frame, &n);
    assert_true(at < n && bytes[at] != value);
    bytes[at] = value;
    assert_int_equal(decode(bytes, n, &back), FL_EFORMAT);
    free(bytes);
}

static void test_wire__refuses_what_is_out_of_range(void **state)
{
    (void)state;
    enum { BODY = FL_WIRE_HEADER_BYTES };
    refuses_with(FL_WIRE_DONE, 0, 'X');                /* magic */
    refuses_with(FL_WIRE_DONE, 4, 2);                  /* version */
    refuses_with(FL_WIRE_DONE, 6, 99);                 /* type */
    refuses_with(FL_WIRE_DONE, 9, 0x04);               /* rank 1027 */
    refuses_with(FL_WIRE_DONE, 11, 0x80);              /* a negative rank */
    refuses_with(FL_WIRE_DONE, 24, 1);                 /* size: more than there is */
    refuses_with(FL_WIRE_STEP, 24, 79);                /* size: less than a step */
    refuses_with(FL_WIRE_STEP, BODY + 7, 0x80);        /* a negative step */
    refuses_with(FL_WIRE_STEP, BODY + 84, 9);          /* more metrics than a loss can have */
    refuses_with(FL_WIRE_STEP, BODY + 87, 0x80);       /* a negative number of them */
    refuses_with(FL_WIRE_STEP, BODY + 84, 1);          /* fewer than there are */
    refuses_with(FL_WIRE_EVAL, BODY + 60, 9);          /* more metrics than a loss can have */
    refuses_with(FL_WIRE_EVAL, BODY + 88, 9);          /* more on test samples */
    refuses_with(FL_WIRE_HELLO, BODY + 7, 0x80);       /* a negative process */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 15, 0x80);  /* negative memory */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 44, 0);     /* a zero byte in a text */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 40, 200);   /* a text longer than the frame */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 60, 2);     /* no boolean */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 64, 0x80);  /* a negative errno */
    refuses_with(FL_WIRE_HEARTBEAT, BODY + 72, 0x80);  /* a negative time */
    refuses_with(FL_WIRE_LEDGER, BODY + 20, 5);        /* fewer ids than there are */
    refuses_with(FL_WIRE_LEDGER, BODY + 23, 0xff);     /* more, so many that bytes overflow */
    refuses_with(FL_WIRE_FAILED, BODY, 1);             /* no status */
    refuses_with(FL_WIRE_COMMAND, BODY, 77);           /* no command */
    refuses_with(FL_WIRE_COMMAND, BODY + 20, 0);       /* a plan of no stage */
    refuses_with(FL_WIRE_COMMAND, BODY + 23, 0x80);    /* of a negative number of them */
    refuses_with(FL_WIRE_COMMAND, BODY + 32, 2);       /* an unknown schedule */
    refuses_with(FL_WIRE_COMMAND, BODY + 64, 6);       /* a stage without layers */
    refuses_with(FL_WIRE_COMMAND, BODY + 80, 0);       /* a worker with two places */
    refuses_with(FL_WIRE_PREPARED, BODY, 1);           /* no status */
    refuses_with(FL_WIRE_PREPARED, BODY + 11, 0x80);   /* a negative time */
    refuses_with(FL_WIRE_TRANSITION, BODY + 7, 0x80);  /* a negative step */
    refuses_with(FL_WIRE_NORMS, BODY + 8, 4);          /* more norms than there are */
    refuses_with(FL_WIRE_NORMS, BODY + 8, 0);          /* none */
    refuses_with(FL_WIRE_SETTING_DONE, BODY, 0);       /* no number */
    refuses_with(FL_WIRE_SETTING_DONE, BODY + 16, 40); /* an end that is past */
}

static void test_wire__refuses_a_recovery_that_cannot_be(void **state)
{
    (void)state;
    enum { BODY = FL_WIRE_HEADER_BYTES, POSITION = 28 };
    refuses_with(FL_WIRE_BROKEN, BODY + 19, 0x80);            /* a negative step */
    refuses_with(FL_WIRE_BROKEN, BODY + 27, 0x80);            /* a summed step below -1 */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 7, 0x80);  /* negative commands */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 28, 2);    /* neither paused nor not */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 44, 4);    /* no log level */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 55, 0x80); /* a negative answer */
    refuses_with(FL_WIRE_BROKEN, BODY + POSITION + 88, 1);    /* no status */
    refuses_with(FL_WIRE_BREAK, BODY, 0);                     /* no serial number */
    refuses_with(FL_WIRE_REGROUP, BODY + 4, 1);               /* leave, and yet a plan */
    refuses_with(FL_WIRE_REGROUP, BODY + 19, 0x80);           /* a negative step */
    refuses_with(FL_WIRE_REGROUP, BODY + 28, 2);              /* neither finite nor not */
    refuses_with(FL_WIRE_ALIVE, BODY + 7, 0x80);              /* negative steps */
}

static void test_wire__refuses_checkpoints_that_cannot_be(void **state)
{
    (void)state;
    enum { BODY = FL_WIRE_HEADER_BYTES };
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 7, 0x80);  /* a negative step */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 25, 2);    /* layer 515 */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 27, 0x80); /* a negative layer */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 28, 2);    /* neither weights nor moments */
    refuses_with(FL_WIRE_CHECKPOINT_FILE, BODY + 32, 1);    /* linked, with bytes of its own */
    refuses_with(FL_WIRE_CHECKPOINT_PART, BODY + 15, 0x80); /* negative bytes */
    refuses_with(FL_WIRE_CHECKPOINT_PART, BODY + 41, 5);    /* more files than layers have */
    refuses_with(FL_WIRE_CHECKPOINT_PART, BODY + 44, 1);    /* no status */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 15, 0x80);        /* negative bytes */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 31, 0x80);        /* a negative serial number */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 32, 2);           /* neither moves nor does not */
    refuses_with(FL_WIRE_SNAPSHOT, BODY + 33, 1);           /* no status */
    fl_wire_message frame = {.type = FL_WIRE_COMMAND,
                             .command = {.kind = FL_COMMAND_CHECKPOINT, .due_step = -1}};
    fl_wire_message back;
    size_t n;
    unsigned char *bytes = encode(&frame, &n);
    assert_int_equal(decode(bytes, n, &back), FL_EFORMAT);
    free(bytes);
}

/* Would catch: a reader that reads outside its message, trusts a length or never ends. The
 * sanitizers check this; an accepted message must encode to exactly the bytes that were read. */
static void test_wire__takes_nothing_amiss_from_mutations(void **state)
{
    (void)state;
    const uint32_t key[2] = {0x1234, 0x5678};
    printf("seed %u %u\n", key[0], key[1]);
    int n_accepted = 0;
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        uint32_t r[4];
        fl_philox((uint32_t[4]){i, 0, 0, 0}, key, r);
        fl_wire_message frame = frame_of(types[r[0] % N_TYPES]), back;
        size_t n, n_again;
        unsigned char *bytes = encode(&frame, &n);
        for (uint32_t m = 0; m < 1 + r[1] % 4; m++) {
            uint32_t q[4];
            fl_philox((uint32_t[4]){i, m, 1, 0}, key, q);
            unsigned char flipped = (unsigned char)(bytes[q[0] % n] ^ (1u << q[1] % 8));
            unsigned char fresh = (unsigned char)q[1];
            bytes[q[0] % n] = q[2] % 2 ? fresh : flipped;
        }
        size_t given = r[2] % 8 == 0 ? r[3] % (n + 1) : n;
        unsigned char *exact = malloc(given + 1);
        memcpy(exact, bytes, given);
        const unsigned char *at = exact;
        size_t left = given;
        if (fl_wire_next(&at, &left, &back) == FL_OK) {
            n_accepted++;
            int64_t *ids = NULL;
            if (back.type == FL_WIRE_LEDGER) {
                ids = calloc(back.ledger.n + 1, sizeof *ids);
                fl_wire_ids(&back, ids);
                back.ledger.ids = ids;
            }
            unsigned char *again = encode(&back, &n_again);
            assert_int_equal(n_again, given - left);
            assert_memory_equal(again, exact, n_again);
            free(again);
            free(ids);
        } else {
            assert_ptr_equal(at, exact);
            assert_int_equal(left, given);
        }
        free(exact);
        free(bytes);
    }
    assert_in_range(n_accepted, 1, MUTATIONS - 1);
}

/* Would catch: frames of one message that run into each other. */
static void test_wire__reads_frames_one_after_another(void **state)
{
    (void)state;
    unsigned char bytes[LARGEST];
    size_t n = 0;
    for (int i = 0; i < N_TYPES; i++) {
        fl_wire_message frame = frame_of(types[i]);
        fl_wire_put(&frame, bytes + n);
        n += fl_wire_size(&frame);
    }
    const unsigned char *at = bytes;
    for (int i = 0; i < N_TYPES; i++) {
        fl_wire_message back;
        assert_int_equal(fl_wire_next(&at, &n, &back), FL_OK);
        assert_int_equal(back.type, types[i]);
    }
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire__brings_back_every_frame),
        cmocka_unit_test(test_wire__reads_the_values_it_was_given),
        cmocka_unit_test(test_wire__brings_back_commands_without_a_plan),
        cmocka_unit_test(test_wire__brings_back_settings),
        cmocka_unit_test(test_wire__refuses_every_cut),
        cmocka_unit_test(test_wire__refuses_what_is_out_of_range),
        cmocka_unit_test(test_wire__refuses_a_recovery_that_cannot_be),
        cmocka_unit_test(test_wire__refuses_checkpoints_that_cannot_be),
        cmocka_unit_test(test_wire__takes_nothing_amiss_from_mutations),
        cmocka_unit_test(test_wire__reads_frames_one_after_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
