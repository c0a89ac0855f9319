/* A run's curves for other programs: TensorBoard's format byte by byte, and what of a run directory
 * comes out, whole, cut or broken. */
#include "launcher/report/export/export.h"

#include "launcher/report/export/tfevents.h"
#include "support/runs/runs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { REFERENCE_SCALARS = 16, FILE_BYTES = 1 << 16 };

static void test_crc32c__known_answers(void **state)
{
    (void)state;
    uint8_t bytes[32];
    assert_int_equal(fl_crc32c("123456789", 9), 0xE3069283);
    assert_int_equal(fl_crc32c("", 0), 0);
    memset(bytes, 0, sizeof bytes); /* RFC 3720, B.4 */
    assert_int_equal(fl_crc32c(bytes, sizeof bytes), 0x8A9136AA);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(fl_crc32c(bytes, sizeof bytes), 0x62A8AB43);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    assert_int_equal(fl_crc32c(bytes, sizeof bytes), 0x46DD794E);
}

/* The events of tests/reference/make_tensorboard_reference.py. */
static void write_reference(FILE *file)
{
    char tag[FL_TF_TAG_MAX + 1] = "";
    fl_tf_scalar many[REFERENCE_SCALARS];
    memset(tag, 't', FL_TF_TAG_MAX);
    for (int i = 0; i < REFERENCE_SCALARS; i++) {
        many[i] = (fl_tf_scalar){tag, 3.4028234663852886e38f};
    }
    const fl_tf_scalar first[] = {{"train/loss", 2.5f}, {"plan/K", 2.0f}};
    const fl_tf_scalar second[] = {{"train/loss", -0.0f}, {"train/learning_rate", 1e-3f}};
    const fl_tf_scalar third[] = {{"train/loss", INFINITY}}, fourth[] = {{"train/loss", NAN}};
    assert_int_equal(fl_tfevents_begin(file, 1769851800.0), FL_OK);
    assert_int_equal(fl_tfevents_put(file, 1769851800.25, 0, first, 2), FL_OK);
    assert_int_equal(fl_tfevents_put(file, 1769851801.5, 1, second, 2), FL_OK);
    assert_int_equal(fl_tfevents_put(file, 1769851802.0, 127, third, 1), FL_OK);
    assert_int_equal(fl_tfevents_put(file, 1769851802.0, 128, fourth, 1), FL_OK);
    assert_int_equal(fl_tfevents_put(file, 1769851803.0, INT64_C(1) << 40, many, REFERENCE_SCALARS),
                     FL_OK);
    assert_int_equal(fl_tfevents_put(file, 1769851804.0, 1, many, 0), FL_OK); /* nothing */
}

static void test_tfevents__are_those_of_tensorboard(void **state)
{
    (void)state;
    static char expected[FILE_BYTES];
    FILE *reference = fopen(FL_SOURCE_DIR "/tests/reference/tensorboard_reference.bin", "rb");
    assert_non_null(reference);
    size_t n_expected = fread(expected, 1, sizeof expected, reference), n = 0;
    fclose(reference);
    char *text = NULL;
    FILE *file = open_memstream(&text, &n);
    assert_non_null(file);
    write_reference(file);
    assert_int_equal(fclose(file), 0);
    assert_true(n_expected > 1000);
    assert_int_equal(n, n_expected);
    assert_memory_equal(text, expected, n);
    free(text);
}

static void test_tfevents__a_full_disk_is_told(void **state)
{
    (void)state;
    FILE *file = fopen("/dev/full", "wb");
    if (file == NULL) {
        skip();
    }
    setvbuf(file, NULL, _IONBF, 0);
    assert_int_equal(fl_tfevents_begin(file, 0.0), FL_EIO);
    fclose(file);
}

/* ---- of a run ---- */

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static const char *const events =
    "{\"time\":0.1,\"wall\":\"2026-01-31T09:30:00.000Z\",\"event\":\"run.started\",\"job\":\"toy\","
    "\"steps\":4,\"epochs\":2}\n"
    "{\"time\":1,\"event\":\"epoch.finished\",\"epoch\":0,\"steps\":2,\"train_loss\":1.5,"
    "\"test_loss\":1.25,\"test_accuracy\":0.5,\"mfu\":null,\"seconds\":0.03,"
    "\"samples_per_s\":533.5}\n"
    "{\"time\":2,\"event\":\"epoch.finished\",\"epoch\":1,\"steps\":2,\"train_loss\":0.5,"
    "\"test_loss\":null,\"test_accuracy\":null,\"mfu\":0.25,\"samples_per_s\":800}\n"
    "{\"time\":9,\"event\":\"run.finished\",\"steps\":4,\"train_loss\":0.5,\"test_accuracy\":0.75}"
    "\n";

static const char *const steps =
    "{\"step\":0,\"epoch\":0,\"loss\":2.5,\"grad_norm\":1,\"lr\":0.001,\"f\":0,\"k\":2,\"r\":1,"
    "\"m\":4,\"ms\":20,\"samples\":8}\n"
    "{\"step\":1,\"epoch\":0,\"loss\":null,\"grad_norm\":1e-30,\"lr\":0.0005,\"f\":0,\"k\":2,"
    "\"r\":1,\"m\":4,\"ms\":10,\"samples\":8}\n"
    "rubbish\n"
    "{\"step\":2,\"epoch\":1,\"loss\":0.75,\"grad_norm\":null,\"lr\":0.00025,\"f\":1,\"k\":1,"
    "\"r\":2,\"m\":2,\"ms\":5,\"samples\":4}\n"
    "{\"step\":3,\"epoch\":1,\"loss\":0.5,\"ms\":0,\"samples\":4}\n{\"step\":4,\"epo";

typedef fl_status export_fn(const fl_report *report, FILE *file);

static char *exported(export_fn *export, size_t *n)
{
    fl_run_entry run;
    fl_report report;
    char *text = NULL;
    assert_int_equal(fl_run_look(root, &run), FL_OK);
    assert_int_equal(fl_report_read(&run, &report), FL_OK);
    FILE *file = open_memstream(&text, n);
    assert_non_null(file);
    assert_int_equal(export(&report, file), FL_OK);
    assert_int_equal(fclose(file), 0);
    fl_report_fini(&report);
    return text;
}

static void test_export__tables_of_a_run(void **state)
{
    (void)state;
    size_t n = 0;
    put("events.jsonl", events);
    put("steps.jsonl", steps);
    char *text = exported(fl_export_steps, &n);
    assert_string_equal(text,
                        "step,epoch,seconds,ms,samples,samples_per_s,loss,grad_norm,lr,f,k,r,m\r\n"
                        "0,0,0.02,20,8,400,2.5,1,0.001,0,2,1,4\r\n"
                        "1,0,0.03,10,8,800,,1e-30,0.0005,0,2,1,4\r\n"
                        "2,1,0.035,5,4,800,0.75,,0.00025,1,1,2,2\r\n"
                        "3,1,0.035,0,4,,0.5,,,0,0,0,0\r\n");
    free(text);
    text = exported(fl_export_evaluations, &n);
    assert_string_equal(text, "step,epoch,seconds,test_accuracy,test_loss,validation_accuracy,"
                              "validation_loss,train_loss,samples_per_s,mfu\r\n"
                              "1,0,0.03,0.5,1.25,,,1.5,533.5,\r\n"
                              "3,1,0.035,,,,,0.5,800,0.25\r\n");
    free(text);
}

/* An evaluation within an epoch belongs to the step that it names. */
static void test_export__an_evaluation_between_epochs(void **state)
{
    (void)state;
    size_t n = 0;
    put("events.jsonl",
        "{\"event\":\"run.started\",\"job\":\"toy\",\"wall\":\"2026-01-31T09:30:00.000Z\"}\n"
        "{\"event\":\"evaluation.finished\",\"step\":2,\"validation_loss\":0.5}\n"
        "{\"event\":\"evaluation.finished\",\"step\":77,\"validation_loss\":0.25}\n");
    put("steps.jsonl", steps);
    char *text = exported(fl_export_evaluations, &n);
    assert_non_null(strstr(text, "\r\n2,1,0.035,,,,0.5,,,\r\n77,,,,,,0.25,,,\r\n"));
    free(text);
}

/* An evaluation is an event of its own, and the end of an epoch repeats the newest one: each
 * evaluation came out twice, and under evaluate_every once more at a step that was not evaluated.
 */
static void test_export__each_evaluation_once(void **state)
{
    (void)state;
    fl_run_entry run;
    fl_report report;
    size_t n = 0;
    put("events.jsonl",
        "{\"event\":\"run.started\",\"job\":\"toy\",\"wall\":\"2026-01-31T09:30:00.000Z\"}\n"
        "{\"event\":\"evaluation\",\"step\":0,\"epoch\":0,\"test_loss\":2}\n"
        "{\"event\":\"epoch.finished\",\"epoch\":0,\"train_loss\":1.5,\"test_loss\":2}\n"
        "{\"event\":\"evaluation\",\"step\":3,\"epoch\":1,\"test_loss\":1}\n"
        "{\"event\":\"plan.kept\",\"step\":3}\n"
        "{\"event\":\"epoch.finished\",\"epoch\":1,\"train_loss\":0.5,\"test_loss\":1}\n");
    put("steps.jsonl", steps);
    char *text = exported(fl_export_evaluations, &n);
    assert_string_equal(strchr(text, '\n') + 1, "0,0,0.02,,2,,,,,\r\n"
                                                "1,0,0.03,,,,,1.5,,\r\n"
                                                "3,1,0.035,,1,,,0.5,,\r\n");
    free(text);
    text = exported(fl_export_tensorboard, &n);
    int n_losses = 0;
    for (char *at = text; (at = memmem(at, n - (size_t)(at - text), "test/loss", 9)) != NULL;
         at++) {
        n_losses++;
    }
    assert_int_equal(n_losses, 2);
    free(text);
    assert_int_equal(fl_run_look(root, &run), FL_OK);
    assert_int_equal(fl_report_read(&run, &report), FL_OK);
    assert_int_equal(fl_export_n_evaluations(&report), 2);
    fl_report_fini(&report);
}

/* A run whose loss names its metrics: they follow the columns that every run has. */
static void test_export__metrics_of_the_loss(void **state)
{
    (void)state;
    size_t n = 0;
    put("events.jsonl",
        "{\"event\":\"run.started\",\"wall\":\"2026-01-31T09:30:00.000Z\",\"model\":{\"loss\":"
        "\"mse\","
        "\"metrics\":[{\"name\":\"mae\",\"share\":false},{\"name\":\"Bad,name\"}]}}\n"
        "{\"event\":\"evaluation\",\"step\":1,\"epoch\":0,\"test_loss\":2,\"test_mae\":1.5,"
        "\"test_accuracy\":null}\n"
        "{\"event\":\"epoch.finished\",\"epoch\":0,\"train_loss\":1.5,\"train_mae\":0.75,"
        "\"test_loss\":2,\"test_mae\":1.5}\n");
    put("steps.jsonl",
        "{\"step\":0,\"epoch\":0,\"loss\":2.5,\"ms\":20,\"samples\":8,\"train_mae\":1e-3}\n"
        "{\"step\":1,\"epoch\":0,\"loss\":1.5,\"ms\":20,\"samples\":8,\"train_mae\":null}\n");
    char *text = exported(fl_export_steps, &n);
    assert_string_equal(text, "step,epoch,seconds,ms,samples,samples_per_s,loss,grad_norm,lr,f,k,r,"
                              "m,train_mae\r\n"
                              "0,0,0.02,20,8,400,2.5,,,0,0,0,0,0.001\r\n"
                              "1,0,0.04,20,8,400,1.5,,,0,0,0,0,\r\n");
    free(text);
    text = exported(fl_export_evaluations, &n);
    assert_string_equal(text, "step,epoch,seconds,test_accuracy,test_loss,validation_accuracy,"
                              "validation_loss,train_loss,samples_per_s,mfu,test_mae,"
                              "validation_mae,train_mae\r\n"
                              "1,0,0.04,,2,,,1.5,,,1.5,,0.75\r\n");
    free(text);
    text = exported(fl_export_tensorboard, &n);
    assert_non_null(memmem(text, n, "train/mae", 9));
    assert_non_null(memmem(text, n, "test/mae", 8));
    assert_non_null(memmem(text, n, "epoch/train_mae", 15));
    free(text);
}

/* The records of an event file follow one another, each with its checksums; returns how many. */
static int count_records(const char *text, size_t n)
{
    int n_records = 0;
    for (size_t at = 0; at < n; n_records++) {
        uint64_t length = 0;
        assert_true(n - at > 16);
        memcpy(&length, text + at, sizeof length); /* both sides count from the lowest byte */
        assert_true(length > 0 && length <= n - at - 16);
        at += 16 + length;
    }
    return n_records;
}

static void test_export__an_event_for_each_step_and_evaluation(void **state)
{
    (void)state;
    size_t n = 0;
    put("events.jsonl", events);
    put("steps.jsonl", steps);
    char *text = exported(fl_export_tensorboard, &n);
    assert_int_equal(count_records(text, n), 1 + 4 + 2);
    assert_non_null(memmem(text, n, "train/learning_rate", 19));
    assert_non_null(memmem(text, n, "test/accuracy", 13));
    free(text);
    put("steps.jsonl", ""); /* a run that has only just begun */
    put("events.jsonl", "{\"event\":\"run.started\",\"job\":\"toy\"}\n");
    text = exported(fl_export_tensorboard, &n);
    assert_int_equal(count_records(text, n), 1);
    free(text);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c__known_answers),
        cmocka_unit_test(test_tfevents__are_those_of_tensorboard),
        cmocka_unit_test(test_tfevents__a_full_disk_is_told),
        TEST(test_export__tables_of_a_run),
        TEST(test_export__an_evaluation_between_epochs),
        TEST(test_export__each_evaluation_once),
        TEST(test_export__metrics_of_the_loss),
        TEST(test_export__an_event_for_each_step_and_evaluation),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
