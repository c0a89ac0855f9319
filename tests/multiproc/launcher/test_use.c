/* A model that a run left, or a checkpoint of it, is used by other processes: frostline evaluate,
 * predict and export. Would catch: a checkpoint that is no model without the run around it; a
 * result that differs from what the run itself found, or that depends on the plan; pixels that are
 * normalized by the new data; a sample that is missing, twice or out of order; a run directory that
 * nobody asked for; input that is not refused, or half of a file that stays. */
#include "control/checkpoint/manifest.h"
#include "device/alloc.h"
#include "support/data/idx_files.h"
#include "support/folder.h"
#include "support/lines.h"
#include "support/shell.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline "

enum { N_TRAINING = 120, N_TESTS = 46, COMMAND = 1024 };

static char root[FOLDER_SIZE];
static output result;

static void write_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Run frostline in the folder; the exit code must be this. */
static void run_program(int code, const char *format, ...)
{
    char command[COMMAND] = PROGRAM;
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

static const char job_text[] = "name: small\n"
                               "model: {kind: vit, blocks: 2, dim: 16, heads: 2, patch: 4}\n"
                               "data: {kind: idx, path: data, validation: 12}\n"
                               "train: {epochs: 2, batch: 20, lr: 3e-3, metric: accuracy}\n"
                               "devices: {count: 2, cores: 1, memory: 64MiB}\n"
                               "pipe: {k: 2, m: 2}\n";

/* data: what the run is trained on; other: other images, and none to train on. */
static int set_up(void **state)
{
    (void)state;
    char folder[128];
    make_folder(root);
    snprintf(folder, sizeof folder, "mkdir %s/data %s/other", root, root);
    assert_int_equal(system(folder), 0);
    snprintf(folder, sizeof folder, "%s/data", root);
    write_split(folder, "train", N_TRAINING, 8, 8, 4);
    write_split(folder, "t10k", N_TESTS, 8, 8, 4);
    snprintf(folder, sizeof folder, "%s/other", root);
    write_split(folder, "t10k", 30, 8, 8, 3);
    write_text("job.yaml", job_text);
    run_program(0, "run job.yaml --run-dir run");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

/* ---- evaluate ---- */

static json_t *parse_output(void)
{
    json_error_t error;
    json_t *object = json_loads(result.out, 0, &error);
    if (object == NULL) {
        fail_msg("%s in %s", error.text, result.out);
    }
    return object;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* The better of the run's two evaluations is that of its best checkpoint; of two equal ones, the
 * first. */
static void test_use__takes_the_best_checkpoint(void **state)
{
    (void)state;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/run", root);
    json_t *all = lines_with(dir, "events.jsonl", "\"evaluation\""), *event;
    double best = -1.0, step = 0.0;
    FOR_EACH(event, all)
    {
        double accuracy = number_of(event, "validation_accuracy");
        step = accuracy > best ? number_of(event, "step") + 1 : step;
        best = accuracy > best ? accuracy : best;
    }
    json_decref(all);
    run_program(0, "evaluate run --checkpoint best --split validation --json");
    json_t *found = parse_output();
    assert_true(number_of(found, "step") == step);
    assert_true(number_of(json_object_get(found, "metrics"), "accuracy") == best);
    json_decref(found);
    run_program(0, "evaluate run --checkpoint %d --split validation --json", (int)step);
    found = parse_output();
    assert_true(number_of(json_object_get(found, "metrics"), "accuracy") == best);
    json_decref(found);
    run_program(0, "evaluate run/checkpoints/best --split validation --json");
    run_program(0, "predict run --checkpoint best --out best.jsonl");
    run_program(0, "export run --checkpoint best --to best");
    run_program(0, "evaluate best --split test --data data");
    run_program(0, "list --json run");
    found = parse_output();
    const json_t *newest = json_object_get(json_array_get(found, 0), "checkpoint");
    assert_true(number_of(newest, "best_step") == step);
    json_decref(found);
    run_program(2, "evaluate run --checkpoint 3");
    assert_non_null(strstr(result.err, "--checkpoint: found '3', run has: "));
    assert_non_null(strstr(result.err, ", best"));
    run_program(2, "evaluate run --checkpoint worst");
    run_program(2, "evaluate run/model --checkpoint best");
    assert_non_null(strstr(result.err, "--checkpoint: run/model is no run; allowed: "));
    run_program(2, "export run --checkpoint best");
}

/* The last evaluation of the run, which has both splits. */
static json_t *last_evaluation(void)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/run", root);
    json_t *all = lines_with(dir, "events.jsonl", "\"evaluation\"");
    json_t *last = json_incref(json_array_get(all, json_array_size(all) - 1));
    json_decref(all);
    return last;
}

static void check_evaluation(const char *split, const char *options)
{
    char key[64];
    json_t *run = last_evaluation();
    run_program(0, "evaluate run --split %s --json %s", split, options);
    json_t *found = parse_output();
    snprintf(key, sizeof key, "%s_loss", split);
    double loss = number_of(run, key);
    assert_true(fabs(number_of(found, "loss") - loss) < 1e-13 * loss);
    snprintf(key, sizeof key, "%s_accuracy", split);
    assert_true(number_of(json_object_get(found, "metrics"), "accuracy") == number_of(run, key));
    snprintf(key, sizeof key, "%s_samples", split);
    assert_true(number_of(found, "samples") == number_of(run, key));
    json_decref(found);
    json_decref(run);
}

static void test_use__evaluates_as_the_run_did(void **state)
{
    (void)state;
    static const char *const plans[] = {
        "", "--set devices.count=1 --set pipe.k=auto", "--set pipe.k=1 --set autodp.r=2",
        "--set train.batch=7 --set pipe.m=3", "--set devices.memory=2MiB"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        check_evaluation("test", plans[i]);
        check_evaluation("validation", plans[i]);
    }
}

/* A person sees the digits that the run printed. */
static void test_use__prints_what_the_run_printed(void **state)
{
    (void)state;
    static const char *const names[] = {"accuracy", "loss"};
    char *summary;
    run_command(root, "grep '^  test' run/summary.txt", &result);
    summary = strdup(result.out);
    run_program(0, "evaluate run");
    for (int i = 0; i < 2; i++) {
        char pattern[32], value[32];
        snprintf(pattern, sizeof pattern, "  test %-9s ", names[i]);
        const char *at = strstr(summary, pattern);
        assert_non_null(at);
        assert_int_equal(sscanf(at + strlen(pattern), "%31[^\n]", value), 1);
        snprintf(pattern, sizeof pattern, "  %-14s ", names[i]);
        at = strstr(result.out, pattern);
        assert_non_null(at);
        assert_memory_equal(at + strlen(pattern), value, strlen(value));
    }
    free(summary);
}

/* The folder alone is enough, wherever it lies; and pixels enter as in training. */
static void test_use__needs_only_the_folder_of_the_model(void **state)
{
    (void)state;
    run_command(root, "cp -r run/model moved && mkdir twice && cp data/t10k* twice", &result);
    assert_int_equal(result.exit_code, 0);
    run_program(0, "evaluate run --json");
    json_t *first = parse_output();
    run_program(0, "evaluate moved --data twice --set devices.count=1 --json");
    json_t *second = parse_output();
    double loss = number_of(first, "loss"); /* of another plan: only the order of sums differs */
    assert_true(fabs(number_of(second, "loss") - loss) < 1e-13 * loss);
    json_decref(first);
    json_decref(second);
    run_program(0, "evaluate moved --data other --json");
    second = parse_output();
    assert_true(number_of(second, "samples") == 30);
    json_decref(second);
    run_program(0, "evaluate moved/model.safetensors job.yaml");
}

/* ---- predict ---- */

/* The accuracy of lines whose ids are 0, 1, ... n - 1. */
static double check_lines(const char *file, int n)
{
    char path[256], line[1024];
    int correct = 0;
    snprintf(path, sizeof path, "%s/%s", root, file);
    FILE *lines = fopen(path, "r");
    assert_non_null(lines);
    for (int i = 0; i < n; i++) {
        assert_non_null(fgets(line, sizeof line, lines));
        json_t *object = json_loads(line, 0, NULL);
        const json_t *scores = json_object_get(object, "scores");
        double sum = 0, best = 0;
        int prediction = number(object, "prediction");
        assert_int_equal(number(object, "id"), i);
        assert_int_equal(json_array_size(scores), 4);
        for (size_t c = 0; c < 4; c++) {
            double score = json_number_value(json_array_get(scores, c));
            sum += score;
            best = score > best ? score : best;
        }
        assert_true(fabs(sum - 1) < 1e-5);
        assert_true(json_number_value(json_array_get(scores, (size_t)prediction)) == best);
        correct += prediction == number(object, "label");
        json_decref(object);
    }
    assert_null(fgets(line, sizeof line, lines));
    fclose(lines);
    return (double)correct / n;
}

/* Every plan writes the same bytes, and they agree with the run's accuracy. */
static void test_use__predicts_each_sample_once_in_order(void **state)
{
    (void)state;
    static const char *const plans[] = {
        "--set devices.count=1 --set pipe.k=auto",
        "",
        "--set pipe.k=1 --set autodp.r=2",
        "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 --set train.batch=3",
        "--set train.batch=1 --set pipe.m=1",
        "--set pipe.m=5 --set train.batch=11"};
    json_t *run = last_evaluation();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        run_program(0, "predict run %s --out plan-%zu.jsonl", plans[i], i);
        run_program(0, "predict run %s >streamed.jsonl", plans[i]);
        char compare[128];
        snprintf(compare, sizeof compare,
                 "cmp plan-0.jsonl plan-%zu.jsonl && cmp plan-0.jsonl "
                 "streamed.jsonl && rm streamed.jsonl",
                 i);
        run_command(root, compare, &result);
        assert_string_equal(result.out, "");
        assert_int_equal(result.exit_code, 0);
    }
    assert_true(check_lines("plan-0.jsonl", N_TESTS) == number_of(run, "test_accuracy"));
    json_decref(run);
    run_command(root, "rm plan-*.jsonl", &result);
}

/* Ids are those of the training samples, ascending; validation and training samples make the whole.
 */
static void test_use__predicts_the_samples_of_a_split(void **state)
{
    (void)state;
    run_program(0, "predict run --split validation >a.jsonl");
    run_program(0, "predict run --split train >b.jsonl");
    run_command(root,
                "wc -l <a.jsonl; sort -t: -k2 -n -c a.jsonl; sort -t: -k2 -n -c b.jsonl; cat "
                "a.jsonl b.jsonl | sed 's/,.*//; s/.*: //' | sort -n | uniq | wc -l; rm ?.jsonl",
                &result);
    assert_string_equal(result.out, "12\n120\n");
    assert_string_equal(result.err, "");
}

static void test_use__predicts_without_labels(void **state)
{
    (void)state;
    run_command(root, "mkdir bare && cp data/t10k-images-idx3-ubyte bare", &result);
    run_program(0,
                "predict run/model --data bare --set devices.count=1 --set pipe.k=auto >a.jsonl");
    run_program(0, "predict run >b.jsonl");
    run_command(root,
                "grep -c label a.jsonl; sed 's/\"label\": [0-9]*, //' b.jsonl | cmp - a.jsonl; rm "
                "-r bare ?.jsonl",
                &result);
    assert_string_equal(result.out, "0\n");
}

/* A reader that leaves ends the command, and a file appears only when it is complete. */
static void test_use__output_is_whole_or_not_at_all(void **state)
{
    (void)state;
    run_program(3, "predict run >/dev/full");
    assert_non_null(strstr(result.err, "standard output could not be written: No space left"));
    run_command(root,
                "{ " PROGRAM "predict run 2>err; echo $? >code; } | head -n 1 | wc -l; cat code; "
                "grep -v \"processors .* another run's\" err >&2; rm code err",
                &result);
    assert_string_equal(result.err, ""); /* the reader has what it wanted */
    assert_true(strcmp(result.out, "1\n130\n") == 0 || strcmp(result.out, "1\n0\n") == 0);
    write_text("old.jsonl", "old\n");
    run_command(root,
                "(ulimit -f 1; trap '' XFSZ; " PROGRAM "predict run --split train --out old.jsonl)",
                &result);
    assert_int_equal(result.exit_code, 3);
    assert_non_null(strstr(result.err, "old.jsonl could not be written"));
    run_command(root, "cat old.jsonl; ls old.jsonl*; rm old.jsonl", &result);
    assert_string_equal(result.out, "old\nold.jsonl\n");
}

/* ---- ends ---- */

/* `frostline predict` with a standard output that takes 4 KiB and that nobody reads: its workers
 * wait at the gate. Returns the process; *out: the other end. */
static pid_t start_stuck(int *out)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        if (chdir(root) == 0 && freopen("stuck.txt", "w", stderr) != NULL) {
            execl(FL_BINARY_DIR "/frostline", "frostline", "predict", "run", "--split", "train",
                  "--set", "train.batch=2", "--set", "pipe.m=1", "--set", "fault.detect=2s", NULL);
        }
        _exit(99);
    }
    close(ends[1]);
    struct pollfd first = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&first, 1, 60000), 1);
    *out = ends[0];
    return pid;
}

static int exit_code_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Ctrl-C ends it although the reader does not read; all lines that were written are whole. */
static void test_use__ends_at_a_signal_while_nobody_reads(void **state)
{
    (void)state;
    int out;
    static char lines[1 << 16];
    pid_t pid = start_stuck(&out);
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(exit_code_of(pid), 130);
    ssize_t n = read(out, lines, sizeof lines);
    assert_true(n > 0 && strncmp(lines, "{\"id\": ", 7) == 0);
    close(out);
    run_command(root, "rm stuck.txt", &result);
}

static pid_t last_child(pid_t parent)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fscanf(file, "%d", &child) == 1) {
    }
    fclose(file);
    assert_true(child > 0);
    return child;
}

/* The worker is named, and its log can be read. */
static void test_use__a_lost_worker_ends_it(void **state)
{
    (void)state;
    int out;
    pid_t pid = start_stuck(&out);
    assert_int_equal(kill(last_child(last_child(pid)), SIGKILL), 0); /* of the agent */
    assert_int_equal(exit_code_of(pid), 3);
    close(out);
    run_command(
        root,
        "grep -o 'worker 1 .*was killed by signal 9' stuck.txt | sort -u | wc -l; f=$(grep -o "
        "'/[^ :]*worker-1.log' stuck.txt | head -n 1); ls $f >/dev/null && rm -r $(dirname $f) "
        "stuck.txt",
        &result);
    assert_string_equal(result.err, "");
    assert_string_equal(result.out, "1\n");
}

/* ---- export ---- */

/* The exported folder is the model, and rounding it to bf16 changes little. */
static void test_use__an_exported_model_predicts_the_same(void **state)
{
    (void)state;
    run_program(0, "export run --to exported");
    run_program(0, "export run/model --to half --dtype bf16");
    run_program(0, "predict run >a.jsonl");
    run_program(0, "predict exported job.yaml >b.jsonl");
    run_command(root, "cmp a.jsonl b.jsonl && cmp exported/config.json run/model/config.json",
                &result);
    assert_int_equal(result.exit_code, 0);
    run_program(0, "evaluate exported job.yaml --json");
    json_t *whole = parse_output();
    run_program(0, "evaluate half job.yaml --json");
    json_t *half = parse_output();
    double difference = fabs(number_of(half, "loss") - number_of(whole, "loss"));
    assert_true(difference > 0 && difference < 1e-2);
    json_decref(whole);
    json_decref(half);
    run_program(2, "export run --to exported");
    run_command(root, "rm -r exported half ?.jsonl", &result);
}

/* ---- checkpoints ---- */

static fl_checkpoint *read_manifest(const char *folder)
{
    fl_checkpoint *c = NULL;
    assert_int_equal(fl_alloc(sizeof *c, (void **)&c), FL_OK);
    if (fl_checkpoint_read(folder, c) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return c;
}

/* The folder of a checkpoint is a model wherever it lies: no file of the run is needed. */
static void test_use__a_checkpoint_is_a_model(void **state)
{
    (void)state;
    char folder[128];
    run_command(root, "cp -r run/checkpoints/step-000000012 alone", &result);
    assert_int_equal(result.exit_code, 0);
    snprintf(folder, sizeof folder, "%s/alone", root);
    fl_checkpoint *c = read_manifest(folder);
    assert_non_null(fl_checkpoint_find(c, "config.json"));
    assert_int_equal(fl_checkpoint_verify(c, folder, 1), FL_OK);
    fl_checkpoint_fini(c);
    fl_free(c);
    run_program(0, "predict run >a.jsonl");
    run_program(0, "predict alone --data data >b.jsonl");
    run_program(0, "evaluate alone --data data --set devices.count=1");
    run_program(0, "export alone --to exported");
    run_command(root,
                "cmp a.jsonl b.jsonl && cmp exported/config.json run/model/config.json && cmp "
                "alone/config.json run/model/config.json",
                &result);
    assert_int_equal(result.exit_code, 0);
    run_program(0, "predict exported --data data >b.jsonl");
    run_program(0, "run job.yaml --run-dir again --set model.init=alone --set train.max_steps=1 "
                   "--set train.lr=1e-30");
    run_program(0, "predict again >c.jsonl");
    run_command(root, "cmp a.jsonl b.jsonl && cmp a.jsonl c.jsonl", &result);
    assert_int_equal(result.exit_code, 0);
    run_command(root, "rm -r alone again exported ?.jsonl", &result);
}

/* frostline list and report name the newest one that is whole, and how many there are. */
static void test_use__a_run_shows_its_checkpoints(void **state)
{
    (void)state;
    run_program(
        0, "run job.yaml --run-dir shown/a --set train.metric=none --set train.max_steps=4 --set "
           "checkpoint.every='50 steps' --set checkpoint.keep=5");
    run_program(0, "run --resume shown/a --set train.max_steps=8");
    run_program(0, "run --resume shown/a --set train.max_steps=12");
    run_program(0, "run job.yaml --run-dir shown/b --set checkpoint.every=none");
    run_command(root, "echo x >>shown/a/checkpoints/step-000000012/manifest.json", &result);
    const int n_whole = 2, newest_step = 8;
    run_program(0, "list shown");
    const char *a = strstr(result.out, "  a\n"), *b = strstr(result.out, "  b\n");
    assert_true(a != NULL && b != NULL);
    assert_non_null(strstr(result.out, "loss accuracy checkpoint    age kept  started"));
    int step = 0, age = -1, kept = 0;
    char unit[4];
    while (a > result.out && a[-1] != '\n') {
        a--;
    }
    assert_int_equal(sscanf(a, "finished 12/12 %*f %*f %d %d %3s %d", &step, &age, unit, &kept), 4);
    assert_int_equal(step, newest_step);
    assert_int_equal(kept, n_whole);
    assert_in_range(age, 0, 600);
    run_command(root, PROGRAM "list shown | grep -c ' -      -    -  .*  b$'", &result);
    assert_string_equal(result.out, "1\n");

    run_program(0, "list shown/a --json 2>/dev/null");
    json_t *runs = parse_output(), *run = json_array_get(runs, 0);
    const json_t *newest = json_object_get(run, "checkpoint");
    assert_true(number_of(run, "checkpoints") == n_whole);
    assert_true(number_of(newest, "step") == newest_step);
    const char *path = json_string_value(json_object_get(newest, "path"));
    assert_non_null(path);
    assert_non_null(strstr(path, "/shown/a/checkpoints/step-00000"));
    assert_true(number_of(newest, "age_s") >= 0 && number_of(newest, "age_s") < 600);
    assert_int_equal(json_string_length(json_object_get(newest, "written")), 24);
    json_decref(runs);
    run_program(0, "report shown/a");
    run_command(root,
                "grep -c 'The run directory holds 2. The newest one, after <b>8 steps' "
                "shown/a/report.html; rm -r shown",
                &result);
    assert_string_equal(result.out, "1\n");
}

/* Make a checkpoint what versions without config.json wrote. */
static void forget_config(const char *folder)
{
    fl_checkpoint *c = read_manifest(folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    int i = (int)(fl_checkpoint_find(c, "config.json") - c->file);
    c->file[i] = c->file[--c->n_files];
    assert_int_equal(unlinkat(fd, "config.json", 0), 0);
    assert_int_equal(fl_checkpoint_write(c, fd), FL_OK);
    close(fd);
    fl_checkpoint_fini(c);
    fl_free(c);
}

static void test_use__a_checkpoint_without_config_json_still_counts(void **state)
{
    (void)state;
    char folder[128];
    run_command(root, "cp -r run old && rm -r old/model", &result);
    assert_int_equal(result.exit_code, 0);
    snprintf(folder, sizeof folder, "%s/old/checkpoints/step-000000012", root);
    forget_config(folder);
    run_program(0, "evaluate old/checkpoints/step-000000012");
    run_program(0, "run --resume old --set train.epochs=3");
    run_program(0, "ledger old");
    run_command(root, "rm -r old", &result);
}

#define NEWEST "$(ls -d open/checkpoints/*/manifest.json | tail -n 1 | xargs dirname)"

/* The last output of the program must name the checkpoint, on standard error, and the same in JSON.
 */
static void check_choice(const char *command, const char *why)
{
    run_program(0, "%s", command);
    if (strstr(result.err, why) == NULL ||
        strstr(result.err, "; using open/checkpoints/step-") == NULL) {
        fail_msg("%s: %s", command, result.err);
    }
}

/* The run deletes the checkpoint after it was chosen, before the job is read. */
static void check_deleted_in_use(void)
{
    run_command(root,
                "mkfifo fifo; kill -STOP $(cat pid); mkdir aside; " PROGRAM
                "evaluate open fifo >using.txt 2>&1 & exec 9>fifo; mv open/checkpoints/step-* "
                "aside; cat job.yaml >&9; exec 9>&-; wait $!; code=$?; cat using.txt; " PROGRAM
                "evaluate open; mv aside/* open/checkpoints/; rm -r aside fifo using.txt; kill "
                "-CONT $(cat pid); exit $code",
                &result);
    if (result.exit_code != 0) {
        fail_msg("%s%s", result.out, result.err);
    }
    assert_non_null(strstr(result.err, "open: this run still trains and has no checkpoint yet"));
}

/* A run that still trains, then one that was killed, is used from its newest checkpoint whose
 * weights are whole; damaged moments do not matter, and a damaged checkpoint is named. */
static void test_use__a_run_without_a_model_is_used_from_its_checkpoints(void **state)
{
    (void)state;
    run_command(root,
                "{ " PROGRAM "run job.yaml --run-dir open --set train.epochs=100000 --set "
                "train.evaluate=false --set train.metric=none --set checkpoint.every='20 steps' "
                ">open.txt 2>&1 & } ; echo "
                "$! >pid; while [ $(ls open/checkpoints/*/manifest.json 2>/dev/null | wc -l) -lt 2 "
                "]; do kill -0 $(cat pid) || exit 1; sleep 0.05; done",
                &result);
    assert_int_equal(result.exit_code, 0);
    check_choice("evaluate open", "the run still trains; using ");
    check_choice("predict open --out a.jsonl", "the run still trains; using ");
    check_choice("export open --to exported", "the run still trains; using ");
    check_deleted_in_use();
    run_command(root,
                "kill -9 $(cat pid); for i in $(seq 400); do " PROGRAM
                "list open 2>&1 | grep -q ^lost && break; sleep 0.05; done; rm " NEWEST
                "/moments-001*",
                &result);
    assert_int_equal(result.exit_code, 0);
    check_choice("evaluate open", "the run was lost; using ");
    check_choice("run job.yaml --run-dir next --set train.max_steps=1 --set model.init=open",
                 "model.init: the run was lost; using ");
    run_program(0, "evaluate open --json");
    json_t *object = parse_output();
    const char *weights = json_string_value(json_object_get(object, "weights"));
    assert_non_null(weights);
    assert_non_null(strstr(result.err, weights));
    json_decref(object);

    run_command(root,
                "printf x | dd of=" NEWEST "/weights-002.safetensors bs=1 seek=700 "
                "conv=notrunc",
                &result);
    check_choice("evaluate open", "weights-002.safetensors: damaged: its hash is ");
    run_command(root, "echo evaluate " NEWEST, &result);
    result.out[strcspn(result.out, "\n")] = '\0';
    char command[COMMAND];
    snprintf(command, sizeof command, "%.900s", result.out);
    run_program(2, "%s", command);
    assert_non_null(strstr(result.err, "weights-002.safetensors: damaged: its hash is "));
    run_command(root, "truncate -s 30 open/checkpoints/*/config.json", &result);
    run_program(2, "validate job.yaml --set model.init=open");
    assert_non_null(strstr(result.err, "model.init: the checkpoint after "));
    run_program(2, "export open --to half");
    assert_non_null(strstr(result.err, "config.json: damaged: 30 bytes, the manifest has "));
    assert_non_null(strstr(result.err, "this run has left no model and no checkpoint"));
    run_command(root, "rm -r open open.txt pid exported a.jsonl next; ls half", &result);
    assert_string_equal(result.out, "");
}

/* A run that was made longer and interrupted is used as far as it got, not as it was before. */
static void test_use__a_checkpoint_is_newer_than_the_model_before_it(void **state)
{
    (void)state;
    run_command(root,
                "cp -r run open && cp -r run/model old && " PROGRAM
                "run --resume open --set train.epochs=3 >open.txt && sed -i '$d' "
                "open/events.jsonl && rm -r open/model && mv old open/model",
                &result);
    assert_int_equal(result.exit_code, 0);
    check_choice("evaluate open", "the run was lost; using open/checkpoints/step-000000018");
    run_command(root, "rm -r open/checkpoints", &result);
    run_program(0, "evaluate open");
    assert_non_null(strstr(result.err, "the run was lost; using open/model"));
    run_command(root, "rm -r open open.txt", &result);
}

/* ---- what is refused ---- */

/* Each: a command that makes the input, a command of frostline, and what its message has. Nothing
 * is started or left. */
static void test_use__refuses_bad_input(void **state)
{
    (void)state;
    static const struct {
        const char *make, *command, *message;
    } cases[] = {
        {"", "evaluate nowhere", "nowhere: not found; allowed: a folder or file of weights"},
        {"", "evaluate data", "data: found neither model.safetensors nor"},
        {"", "predict ''", ": not found; allowed"},
        {"", "evaluate", "MODEL [JOB.yaml] is missing"},
        {"", "evaluate run job.yaml more", "unexpected more"},
        {"", "evaluate run nowhere.yaml", "nowhere.yaml: "},
        {"truncate -s -5 m/model.safetensors", "evaluate m --data data", "m/model.safetensors"},
        {"truncate -s 4 m/model.safetensors", "predict m --data data", "m/model.safetensors"},
        {"echo '{' >m/config.json", "evaluate m --data data", "m/config.json:2:"},
        {"sed -i 's/\"version\": 1/\"version\": 9/' m/config.json", "evaluate m --data data",
         "m/config.json: version 9 of this format"},
        {"sed -i 's/\"dim\": 16/\"dim\": 32/' m/config.json", "evaluate m --data data",
         "m/config.json: layers[0]: patch.weight: found"},
        {"sed -i 's/\"heads\": 2/\"heads\": 3/' m/config.json", "evaluate m --data data",
         "m/config.json: model"},
        {"sed -i 's/\"blocks\": 2/\"blocks\": 1/' m/config.json", "evaluate m --data data",
         "layers: found 6, allowed: 4"},
        {"sed -i 's/vit/program/' m/config.json", "evaluate m --data data",
         "only that program can build it"},
        {"sed -i 's/\"kind\": \"vit\"/\"kind\": \"plugin\", \"plugin\": \"no.so\"/' "
         "m/config.json",
         "evaluate m --data data", "no.so"},
        {"rm m/config.json", "evaluate m --data data",
         "m: found no config.json beside the weights"},
        {"rm m/config.json", "export m --to new", "found no config.json"},
        {"cp -r data small && head -c 80 data/t10k-images-idx3-ubyte >small/t10k-images-idx3-ubyte",
         "evaluate m --data small", "t10k-images-idx3-ubyte"},
        {"", "evaluate m --data large", "found images of 12 x 12 pixels"},
        {"", "predict m --data classes",
         "found label 5, allowed: 0 to 3, the classes of the model"},
        {"", "evaluate m", "m: the data to use it on is missing"},
        {"", "evaluate m --data nowhere", "nowhere: neither t10k-images-idx3-ubyte nor"},
        {"", "evaluate m --data other --split train", "train-images-idx3-ubyte"},
        {"", "evaluate m --data data --split validation", "no validation samples"},
        {"", "evaluate run --split dev",
         "--split: found 'dev', allowed: test, train or validation"},
        {"", "evaluate run --set model.dim=32",
         "--set 'model.dim': has no effect on a saved model"},
        {"", "predict run --set train.lr=1", "--set 'train.lr': has no effect on a saved model"},
        {"", "evaluate run --set devices.count=1", "pipe.k: found K = 2"},
        {"", "predict run --out nowhere/x", "--out: nowhere/x: No such file"},
        {"", "predict run --out data", "--out: data is not a file"},
        {"", "export run --to job.yaml", "--to: job.yaml"},
        {"", "export run --to run/model", "already holds model.safetensors"},
        {"", "export run --to run", "already holds job.yaml"},
        {"", "export run --to new --dtype int8",
         "--dtype: found 'int8', allowed: fp32, bf16 or fp16"},
        {"", "export run --to new --format csv", "--to exports the model, --format the curves"},
        {"", "export run --dtype bf16", "--dtype: allowed only with --to"},
        {"mkdir -p lost && cp run/job.yaml lost", "evaluate lost",
         "lost: this run has left no model and no checkpoint"},
    };
    char large[128], classes[128];
    snprintf(large, sizeof large, "%s/large", root);
    snprintf(classes, sizeof classes, "%s/classes", root);
    run_command(root, "mkdir large classes; ls -a >before", &result);
    write_split(large, "t10k", 3, 12, 12, 4);
    write_split(classes, "t10k", 30, 8, 8, 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char make[COMMAND];
        snprintf(make, sizeof make, "rm -rf m small lost; cp -r run/model m; %s", cases[i].make);
        run_command(root, make, &result);
        assert_int_equal(result.exit_code, 0);
        run_program(2, "%s", cases[i].command);
        if (strstr(result.err, cases[i].message) == NULL || result.out[0] != '\0') {
            fail_msg("%s: %s%s", cases[i].command, result.out, result.err);
        }
    }
    run_command(root, "rm -rf m small lost; ls -a | diff before -; rm -r before large classes",
                &result);
    assert_string_equal(result.out, "");
}

/* Nor does a command that was killed, once another one runs; logs that a message names stay. */
static void test_use__leaves_nothing_behind(void **state)
{
    (void)state;
    run_command(root,
                "mkdir -p tmp/frostline-pass-kept && touch tmp/frostline-pass-kept/kept &&"
                " touch -d '1 hour ago' tmp/frostline-pass-kept",
                &result);
    run_command(root, "find . | sort | grep -v -e before -e moved -e twice >before", &result);
    run_command(root,
                "mkdir tmp/frostline-pass-killed && touch tmp/frostline-pass-killed/worker-0.log &&"
                " touch -d '1 hour ago' tmp/frostline-pass-killed",
                &result);
    for (int i = 0; i < 2; i++) {
        static const char *const signals[] = {"", "timeout --foreground -s INT 0.3 "};
        char command[COMMAND];
        snprintf(command, sizeof command, "TMPDIR=$PWD/tmp %s" PROGRAM "evaluate run >/dev/null",
                 signals[i]);
        run_command(root, command, &result);
    }
    run_command(root, "find . | sort | grep -v -e before -e moved -e twice | diff before - ",
                &result);
    assert_string_equal(result.out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_use__evaluates_as_the_run_did),
        cmocka_unit_test(test_use__takes_the_best_checkpoint),
        cmocka_unit_test(test_use__prints_what_the_run_printed),
        cmocka_unit_test(test_use__needs_only_the_folder_of_the_model),
        cmocka_unit_test(test_use__predicts_each_sample_once_in_order),
        cmocka_unit_test(test_use__predicts_the_samples_of_a_split),
        cmocka_unit_test(test_use__predicts_without_labels),
        cmocka_unit_test(test_use__output_is_whole_or_not_at_all),
        cmocka_unit_test(test_use__ends_at_a_signal_while_nobody_reads),
        cmocka_unit_test(test_use__a_lost_worker_ends_it),
        cmocka_unit_test(test_use__an_exported_model_predicts_the_same),
        cmocka_unit_test(test_use__a_checkpoint_is_a_model),
        cmocka_unit_test(test_use__a_run_shows_its_checkpoints),
        cmocka_unit_test(test_use__a_checkpoint_without_config_json_still_counts),
        cmocka_unit_test(test_use__a_run_without_a_model_is_used_from_its_checkpoints),
        cmocka_unit_test(test_use__a_checkpoint_is_newer_than_the_model_before_it),
        cmocka_unit_test(test_use__refuses_bad_input),
        cmocka_unit_test(test_use__leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
