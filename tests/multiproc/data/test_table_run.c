/* Runs on a table of text, with a plugin's model. Would catch: a field of the job that does not
 * reach the data set, samples that another plan reads differently, F1 and Matthews' correlation
 * that are means over micro-batches or workers, tokens from the cache that differ, a bad table that
 * does not end the run with exit code 2 and the place in the job. */
#include "support/folder.h"
#include "support/lines.h"
#include "support/shell.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline "

enum { N_TRAIN = 120, N_TEST = 50, N_VALIDATION = 20, COMMAND = 1024 };

static char root[FOLDER_SIZE];
static output result;

static void write_file(const char *name, const char *format, ...)
{
    char path[256];
    va_list args;
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    va_start(args, format);
    assert_true(vfprintf(file, format, args) >= 0);
    va_end(args);
    assert_int_equal(fclose(file), 0);
}

/* Texts of 1 to 12 words; the label depends on the words. */
static void write_rows(const char *name, int n, int seed)
{
    static const char *const words[] = {"a", "good", "film", "bad", "it", "is", "one", "no"};
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("id\tsentence\tlabel\n", file);
    for (int i = 0; i < n; i++) {
        int score = 0;
        fprintf(file, "%d\t", i);
        for (int k = 0; k < 1 + (i * 7 + seed) % 12; k++) {
            int word = (i * i + 3 * k * (i + seed) + k) % 8;
            score += word == 1 ? 1 : word == 3 ? -1 : 0;
            fprintf(file, "%s%s", k == 0 ? "" : " ", words[word]);
        }
        fprintf(file, "\t%s\n", score > 0 || i % 3 == 0 ? "yes" : "no");
    }
    assert_int_equal(fclose(file), 0);
}

/* Run frostline in the folder, with a cache of its own; the exit code must be this. */
static void run_program(int code, const char *format, ...)
{
    char command[COMMAND] = "XDG_CACHE_HOME=$PWD/cache " PROGRAM;
    size_t n = strlen(command);
    va_list args;
    va_start(args, format);
    vsnprintf(command + n, sizeof command - n, format, args);
    va_end(args);
    run_command(root, command, &result);
    if (result.exit_code != code) {
        fail_msg("%s: exit code %d: %s", command, result.exit_code, result.err);
    }
}

static int set_up(void **state)
{
    (void)state;
    make_folder(root);
    write_rows("train.tsv", N_TRAIN, 1);
    write_rows("dev.tsv", N_TEST, 5);
    write_file("job.yaml", "name: text\n"
                           "model: {kind: plugin, plugin: " FL_BINARY_DIR "/tests/plugin_text.so}\n"
                           "data: {kind: table, path: {train: train.tsv, test: dev.tsv},\n"
                           "       text: sentence, validation: 20, max_tokens: 10,\n"
                           "       tokenizer: " FL_SOURCE_DIR "/tests/reference/tokenizer/bert}\n"
                           "train: {epochs: 2, batch: 25, lr: 3e-3, stop_after: 9 epochs,\n"
                           "        metric: matthews}\n"
                           "checkpoint: {every: none}\n"
                           "devices: {count: 2, memory: 64MiB}\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static json_t *last_evaluation(const char *run)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/%s", root, run);
    json_t *all = lines_with(dir, "events.jsonl", "\"evaluation\"");
    json_t *last = json_incref(json_array_get(all, json_array_size(all) - 1));
    json_decref(all);
    return last;
}

/* Both metrics from predictions, by their definitions. */
static void measure_predictions(double *f1, double *matthews)
{
    double n[2][2] = {{0}}; /* [label][prediction] */
    int n_lines = 0;
    for (char *line = strtok(result.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        int label = (int)number_of(object, "label"), found = (int)number_of(object, "prediction");
        assert_in_range(label, 0, 1);
        assert_in_range(found, 0, 1);
        static const char *const names[] = {"no", "yes"};
        assert_string_equal(json_string_value(json_object_get(object, "label_name")), names[label]);
        assert_string_equal(json_string_value(json_object_get(object, "prediction_name")),
                            names[found]);
        n[label][found]++;
        n_lines++;
        json_decref(object);
    }
    assert_int_equal(n_lines, N_TEST);
    double tp = n[1][1], fp = n[0][1], fn = n[1][0], tn = n[0][0];
    double square = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn);
    *f1 = tp > 0 ? 2 * tp / (2 * tp + fp + fn) : 0;
    *matthews = square > 0 ? (tp * tn - fp * fn) / sqrt(square) : 0;
    assert_true(tp > 0 && fp + fn > 0); /* otherwise a mean would give the same */
}

static void test_table_run__plans_agree_and_metrics_are_of_all_samples(void **state)
{
    (void)state;
    static const char *const plans[] = {"--set pipe.k=2 --set pipe.m=3",
                                        "--set autodp.r=2 --set pipe.k=1 --set pipe.m=2"};
    double f1, matthews, loss[2];
    for (int i = 0; i < 2; i++) {
        run_program(0, "run job.yaml --run-dir run-%d %s", i, plans[i]);
        char expected[64];
        snprintf(expected, sizeof expected, "170 rows (");
        assert_non_null(strstr(result.err, expected));
        assert_non_null(
            strstr(result.err, i == 0 ? ") tokenized in" : ") from the cache of tokens"));
        char run[16];
        snprintf(run, sizeof run, "run-%d", i);
        json_t *last = last_evaluation(run);
        assert_true(number_of(last, "test_samples") == N_TEST);
        assert_true(number_of(last, "validation_samples") == N_VALIDATION);
        loss[i] = number_of(last, "test_loss");
        run_program(0, "predict run-%d", i);
        measure_predictions(&f1, &matthews);
        assert_true(fabs(number_of(last, "test_f1") - f1) < 1e-12);
        assert_true(fabs(number_of(last, "test_matthews") - matthews) < 1e-12);
        json_decref(last);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-4 * loss[0]);
    assert_true(loss[0] < 0.9);
    run_program(0, "evaluate run-1 --set autodp.r=1 --set pipe.m=1 --set train.batch=7");
    char line[64];
    snprintf(line, sizeof line, "  %-14s %.2f %%\n", "f1", 100 * f1);
    assert_non_null(strstr(result.out, line));
    snprintf(line, sizeof line, "  %-14s %.4g\n", "matthews", matthews);
    assert_non_null(strstr(result.out, line));
    assert_null(strstr(result.err, "train.stop_after"));
}

/* Without a test file only the validation samples are evaluated, and fewer samples are read. */
static void test_table_run__needs_no_test_file(void **state)
{
    (void)state;
    run_program(0, "run job.yaml --run-dir one --set data.path=train.tsv --set data.samples=60");
    json_t *last = last_evaluation("one");
    assert_true(number_of(last, "validation_samples") == N_VALIDATION);
    assert_null(json_object_get(last, "test_samples"));
    json_decref(last);
    char dir[128];
    snprintf(dir, sizeof dir, "%s/one", root);
    json_t *started = lines_with(dir, "events.jsonl", "\"run.started\"");
    assert_int_equal(number(json_array_get(started, 0), "samples"), 60 - N_VALIDATION);
    json_decref(started);
    run_program(2, "evaluate one");
    assert_non_null(strstr(result.err, "one: the run has no test data"));
    run_program(2, "predict one");
    assert_non_null(strstr(result.err, "one: the run has no test data"));
    run_program(0, "evaluate one --split validation");
    run_program(0, "evaluate one --data dev.tsv");
}

static void test_table_run__a_bad_table_ends_it_before_a_worker_starts(void **state)
{
    (void)state;
    run_program(2, "run job.yaml --run-dir bad --set data.text=sentance");
    assert_non_null(strstr(result.err, "data.text: train.tsv: line 1: no column 'sentance' found, "
                                       "allowed: 'id', 'sentence', 'label'"));
    write_file("short.tsv", "id\tsentence\tlabel\n1\ta\tyes\n2\tb\n");
    run_program(2, "validate job.yaml --set data.path=short.tsv");
    assert_non_null(strstr(result.err, "data.path: short.tsv: line 3: 2 columns found, 3 allowed"));
    run_program(2, "run job.yaml --run-dir bad --set data.tokenizer=nowhere");
    assert_non_null(strstr(result.err, "data.tokenizer: nowhere"));
    run_program(2, "run job.yaml --run-dir bad --set data.tokenizer=auto");
    assert_non_null(strstr(result.err, "data.tokenizer: found auto, allowed: a folder"));
    run_program(2, "run job.yaml --run-dir bad --set data.max_tokens=1");
    assert_non_null(strstr(result.err, "data.max_tokens: found 1, allowed: at least 3"));
    run_command(root, "ls -d bad", &result);
    assert_true(result.exit_code != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_run__plans_agree_and_metrics_are_of_all_samples),
        cmocka_unit_test(test_table_run__needs_no_test_file),
        cmocka_unit_test(test_table_run__a_bad_table_ends_it_before_a_worker_starts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
