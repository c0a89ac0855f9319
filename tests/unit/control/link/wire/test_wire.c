/* Frames between head and workers: what goes in comes out. */
#include "control/link/wire/wire.h"

#include "support/control/frames.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGEST = 8192 };

/* Would catch: a field written and read in another order, width or sign. Frames that encode to the
 * same bytes again carry the same values. */
static void test_wire__brings_back_every_frame(void **state)
{
    (void)state;
    for (int i = 0; i < N_FRAME_TYPES; i++) {
        fl_wire_message frame = frame_of(frame_types[i]), back;
        size_t n, n_again;
        unsigned char *bytes = frame_encode(&frame, &n);
        assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
        assert_int_equal(back.type, frame.type);
        assert_int_equal(back.rank, 3);
        assert_int_equal(back.generation, 7);
        assert_int_equal(back.at_us, 123456789012345);
        int64_t ids[6];
        if (back.type == FL_WIRE_LEDGER) {
            fl_wire_ids(&back, ids);
            assert_memory_equal(ids, frame_ids, sizeof ids);
            back.ledger.ids = ids;
        }
        unsigned char *again = frame_encode(&back, &n_again);
        assert_int_equal(n, n_again);
        assert_memory_equal(bytes, again, n);
        assert_string_not_equal(fl_wire_type_text(frame_types[i]), "unknown");
        free(bytes);
        free(again);
    }
}

static void test_wire__reads_the_values_it_was_given(void **state)
{
    (void)state;
    fl_wire_message frame = frame_of(FL_WIRE_STEP), back;
    size_t n;
    unsigned char *bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
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
    bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
    assert_int_equal(back.eval.metrics.n, 3);
    assert_true(back.eval.metrics.mean[0] == 0.9 && isnan(back.eval.metrics.mean[1]));
    assert_true(back.eval.has_test && back.eval.validation && back.eval.test_loss == 0.4);
    assert_int_equal(back.eval.test_metrics.n, FL_METRICS_MAX);
    assert_true(back.eval.test_metrics.mean[7] == 0.8);
    free(bytes);
    frame = frame_of(FL_WIRE_FAILED);
    bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
    assert_int_equal(back.failed.status, FL_EBUDGET);
    assert_string_equal(back.failed.text, "asked 3 GiB, allowed 2 GiB");
    free(bytes);
    frame = frame_of(FL_WIRE_COMMAND);
    bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
    fl_plan plan = frame_plan();
    assert_int_equal(back.command.kind, FL_COMMAND_PREPARE);
    assert_memory_equal(&back.command.plan, &plan, sizeof plan);
    free(bytes);
    frame = frame_of(FL_WIRE_TRANSITION);
    bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
    assert_memory_equal(&back.transition, &frame.transition, sizeof back.transition);
    free(bytes);
    frame = frame_of(FL_WIRE_CHECKPOINT_FILE);
    bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
    const fl_checkpoint_file_report *file = &back.checkpoint_file;
    assert_true(file->generation == 7 && file->serial == 3);
    assert_true(file->step == 500 && file->layer == 3 && file->part == FL_CHECKPOINT_MOMENTS);
    assert_true(file->bytes == 5000000000 && file->xxh64 == 0xfedcba9876543210 && !file->linked);
    free(bytes);
    frame = frame_of(FL_WIRE_SNAPSHOT);
    bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
    assert_memory_equal(&back.snapshot, &frame.snapshot, sizeof back.snapshot);
    free(bytes);
    frame = frame_of(FL_WIRE_CHECKPOINT_PART);
    bytes = frame_encode(&frame, &n);
    assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
    const fl_checkpoint_part_report *part = &back.checkpoint_part;
    assert_true(part->step == 500 && part->generation == 7 && part->n_files == 4);
    assert_true(part->bytes == 1234 && part->copy_us == 5 && part->write_us == 6);
    assert_true(part->buffer_bytes == 99 && part->serial == 3);
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
        frame.command.plan = frame_plan();
        frame.command.due_step = 1234567890123;
        frame.command.due = FL_DUE_POLICY;
        bool saves = kind == FL_COMMAND_CHECKPOINT || kind == FL_COMMAND_SNAPSHOT;
        frame.command.serial = saves ? 77 : 0;
        unsigned char *bytes = frame_encode(&frame, &n);
        assert_int_equal(frame_decode(bytes, n, &back), FL_OK);
        assert_int_equal(back.command.kind, kind);
        assert_int_equal(back.command.due_step, kind == FL_COMMAND_STOP ? 0 : 1234567890123);
        assert_int_equal(back.command.due, answers ? FL_DUE_POLICY : FL_DUE_NONE);
        assert_true(!saves || back.command.serial == 77);
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
        unsigned char *bytes = frame_encode(&frame, &n);
        assert_int_equal(frame_decode(bytes, n, &back), known ? FL_OK : FL_EFORMAT);
        assert_true(!known || (back.command.setting.kind == setting.kind &&
                               back.command.setting.serial == 12 &&
                               back.command.setting.value == setting.value));
        free(bytes);
    }
}

/* Would catch: frames of one message that run into each other. */
static void test_wire__reads_frames_one_after_another(void **state)
{
    (void)state;
    unsigned char bytes[LARGEST];
    size_t n = 0;
    for (int i = 0; i < N_FRAME_TYPES; i++) {
        fl_wire_message frame = frame_of(frame_types[i]);
        fl_wire_put(&frame, bytes + n);
        n += fl_wire_size(&frame);
    }
    const unsigned char *at = bytes;
    for (int i = 0; i < N_FRAME_TYPES; i++) {
        fl_wire_message back;
        assert_int_equal(fl_wire_next(&at, &n, &back), FL_OK);
        assert_int_equal(back.type, frame_types[i]);
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
        cmocka_unit_test(test_wire__reads_frames_one_after_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
