/* A model that a run left is used by other processes: frostline evaluate, predict and export. Would
 * catch: a result that differs from what the run itself found, or that depends on the plan; pixels
 * that are normalized by the new data; a sample that is missing, twice or out of order; a run
 * directory that nobody asked for; half of a file that stays. */
#include "support/lines.h"
#include "support/runs/used.h"

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

/* ---- evaluate ---- */

/* The better of the run's two evaluations is that of its best checkpoint; of two equal ones, the
 * first. */
static void test_use__takes_the_best_checkpoint(void **state)
{
    (void)state;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/run", used_root);
    json_t *all = lines_with(dir, "events.jsonl", "\"evaluation\""), *event;
    double best = -1.0, step = 0.0;
    FOR_EACH(event, all)
    {
        double accuracy = used_number(event, "validation_accuracy");
        step = accuracy > best ? used_number(event, "step") + 1 : step;
        best = accuracy > best ? accuracy : best;
    }
    json_decref(all);
    program_run(used_root, 0, "evaluate run --checkpoint best --split validation --json");
    json_t *found = used_output();
    assert_true(used_number(found, "step") == step);
    assert_true(used_number(json_object_get(found, "metrics"), "accuracy") == best);
    json_decref(found);
    program_run(used_root, 0, "evaluate run --checkpoint %d --split validation --json", (int)step);
    found = used_output();
    assert_true(used_number(json_object_get(found, "metrics"), "accuracy") == best);
    json_decref(found);
    program_run(used_root, 0, "evaluate run/checkpoints/best --split validation --json");
    program_run(used_root, 0, "predict run --checkpoint best --out best.jsonl");
    program_run(used_root, 0, "export run --checkpoint best --to best");
    program_run(used_root, 0, "evaluate best --split test --data data");
    program_run(used_root, 0, "list --json run");
    found = used_output();
    const json_t *newest = json_object_get(json_array_get(found, 0), "checkpoint");
    assert_true(used_number(newest, "best_step") == step);
    json_decref(found);
    program_run(used_root, 2, "evaluate run --checkpoint 3");
    assert_non_null(strstr(program_result.err, "--checkpoint: found '3', run has: "));
    assert_non_null(strstr(program_result.err, ", best"));
    program_run(used_root, 2, "evaluate run --checkpoint worst");
    program_run(used_root, 2, "evaluate run/model --checkpoint best");
    assert_non_null(strstr(program_result.err, "--checkpoint: run/model is no run; allowed: "));
    program_run(used_root, 2, "export run --checkpoint best");
}

/* The last evaluation of the run, which has both splits. */
static json_t *last_evaluation(void)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/run", used_root);
    json_t *all = lines_with(dir, "events.jsonl", "\"evaluation\"");
    json_t *last = json_incref(json_array_get(all, json_array_size(all) - 1));
    json_decref(all);
    return last;
}

static void check_evaluation(const char *split, const char *options)
{
    char key[64];
    json_t *run = last_evaluation();
    program_run(used_root, 0, "evaluate run --split %s --json %s", split, options);
    json_t *found = used_output();
    snprintf(key, sizeof key, "%s_loss", split);
    double loss = used_number(run, key);
    assert_true(fabs(used_number(found, "loss") - loss) < 1e-13 * loss);
    snprintf(key, sizeof key, "%s_accuracy", split);
    assert_true(used_number(json_object_get(found, "metrics"), "accuracy") ==
                used_number(run, key));
    snprintf(key, sizeof key, "%s_samples", split);
    assert_true(used_number(found, "samples") == used_number(run, key));
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
    run_command(used_root, "grep '^  test' run/summary.txt", &program_result);
    summary = strdup(program_result.out);
    program_run(used_root, 0, "evaluate run");
    for (int i = 0; i < 2; i++) {
        char pattern[32], value[32];
        snprintf(pattern, sizeof pattern, "  test %-9s ", names[i]);
        const char *at = strstr(summary, pattern);
        assert_non_null(at);
        assert_int_equal(sscanf(at + strlen(pattern), "%31[^\n]", value), 1);
        snprintf(pattern, sizeof pattern, "  %-14s ", names[i]);
        at = strstr(program_result.out, pattern);
        assert_non_null(at);
        assert_memory_equal(at + strlen(pattern), value, strlen(value));
    }
    free(summary);
}

/* The folder alone is enough, wherever it lies; and pixels enter as in training. */
static void test_use__needs_only_the_folder_of_the_model(void **state)
{
    (void)state;
    run_command(used_root, "cp -r run/model moved && mkdir twice && cp data/t10k* twice",
                &program_result);
    assert_int_equal(program_result.exit_code, 0);
    program_run(used_root, 0, "evaluate run --json");
    json_t *first = used_output();
    program_run(used_root, 0, "evaluate moved --data twice --set devices.count=1 --json");
    json_t *second = used_output();
    double loss = used_number(first, "loss"); /* of another plan: only the order of sums differs */
    assert_true(fabs(used_number(second, "loss") - loss) < 1e-13 * loss);
    json_decref(first);
    json_decref(second);
    program_run(used_root, 0, "evaluate moved --data other --json");
    second = used_output();
    assert_true(used_number(second, "samples") == 30);
    json_decref(second);
    program_run(used_root, 0, "evaluate moved/model.safetensors job.yaml");
}

/* ---- predict ---- */

/* The accuracy of lines whose ids are 0, 1, ... n - 1. */
static double check_lines(const char *file, int n)
{
    char path[256], line[1024];
    int correct = 0;
    snprintf(path, sizeof path, "%s/%s", used_root, file);
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
        program_run(used_root, 0, "predict run %s --out plan-%zu.jsonl", plans[i], i);
        program_run(used_root, 0, "predict run %s >streamed.jsonl", plans[i]);
        char compare[128];
        snprintf(compare, sizeof compare,
                 "cmp plan-0.jsonl plan-%zu.jsonl && cmp plan-0.jsonl "
                 "streamed.jsonl && rm streamed.jsonl",
                 i);
        run_command(used_root, compare, &program_result);
        assert_string_equal(program_result.out, "");
        assert_int_equal(program_result.exit_code, 0);
    }
    assert_true(check_lines("plan-0.jsonl", USED_TESTS) == used_number(run, "test_accuracy"));
    json_decref(run);
    run_command(used_root, "rm plan-*.jsonl", &program_result);
}

/* Ids are those of the training samples, ascending; validation and training samples make the whole.
 */
static void test_use__predicts_the_samples_of_a_split(void **state)
{
    (void)state;
    program_run(used_root, 0, "predict run --split validation >a.jsonl");
    program_run(used_root, 0, "predict run --split train >b.jsonl");
    run_command(used_root,
                "wc -l <a.jsonl; sort -t: -k2 -n -c a.jsonl; sort -t: -k2 -n -c b.jsonl; cat "
                "a.jsonl b.jsonl | sed 's/,.*//; s/.*: //' | sort -n | uniq | wc -l; rm ?.jsonl",
                &program_result);
    assert_string_equal(program_result.out, "12\n120\n");
    assert_string_equal(program_result.err, "");
}

static void test_use__predicts_without_labels(void **state)
{
    (void)state;
    run_command(used_root, "mkdir bare && cp data/t10k-images-idx3-ubyte bare", &program_result);
    program_run(used_root, 0,
                "predict run/model --data bare --set devices.count=1 --set pipe.k=auto >a.jsonl");
    program_run(used_root, 0, "predict run >b.jsonl");
    run_command(used_root,
                "grep -c label a.jsonl; sed 's/\"label\": [0-9]*, //' b.jsonl | cmp - a.jsonl; rm "
                "-r bare ?.jsonl",
                &program_result);
    assert_string_equal(program_result.out, "0\n");
}

/* A reader that leaves ends the command, and a file appears only when it is complete. */
static void test_use__output_is_whole_or_not_at_all(void **state)
{
    (void)state;
    program_run(used_root, 3, "predict run >/dev/full");
    assert_non_null(
        strstr(program_result.err, "standard output could not be written: No space left"));
    run_command(used_root,
                "{ " USED_PROGRAM
                "predict run 2>err; echo $? >code; } | head -n 1 | wc -l; cat code; "
                "grep -v \"processors .* another run's\" err >&2; rm code err",
                &program_result);
    assert_string_equal(program_result.err, ""); /* the reader has what it wanted */
    assert_true(strcmp(program_result.out, "1\n130\n") == 0 ||
                strcmp(program_result.out, "1\n0\n") == 0);
    used_write("old.jsonl", "old\n");
    run_command(used_root,
                "(ulimit -f 1; trap '' XFSZ; " USED_PROGRAM
                "predict run --split train --out old.jsonl)",
                &program_result);
    assert_int_equal(program_result.exit_code, 3);
    assert_non_null(strstr(program_result.err, "old.jsonl could not be written"));
    run_command(used_root, "cat old.jsonl; ls old.jsonl*; rm old.jsonl", &program_result);
    assert_string_equal(program_result.out, "old\nold.jsonl\n");
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
        if (chdir(used_root) == 0 && freopen("stuck.txt", "w", stderr) != NULL) {
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
    run_command(used_root, "rm stuck.txt", &program_result);
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
        used_root,
        "grep -o 'worker 1 .*was killed by signal 9' stuck.txt | sort -u | wc -l; f=$(grep -o "
        "'/[^ :]*worker-1.log' stuck.txt | head -n 1); ls $f >/dev/null && rm -r $(dirname $f) "
        "stuck.txt",
        &program_result);
    assert_string_equal(program_result.err, "");
    assert_string_equal(program_result.out, "1\n");
}

/* ---- export ---- */

/* The exported folder is the model, and rounding it to bf16 changes little. */
static void test_use__an_exported_model_predicts_the_same(void **state)
{
    (void)state;
    program_run(used_root, 0, "export run --to exported");
    program_run(used_root, 0, "export run/model --to half --dtype bf16");
    program_run(used_root, 0, "predict run >a.jsonl");
    program_run(used_root, 0, "predict exported job.yaml >b.jsonl");
    run_command(used_root, "cmp a.jsonl b.jsonl && cmp exported/config.json run/model/config.json",
                &program_result);
    assert_int_equal(program_result.exit_code, 0);
    program_run(used_root, 0, "evaluate exported job.yaml --json");
    json_t *whole = used_output();
    program_run(used_root, 0, "evaluate half job.yaml --json");
    json_t *half = used_output();
    double difference = fabs(used_number(half, "loss") - used_number(whole, "loss"));
    assert_true(difference > 0 && difference < 1e-2);
    json_decref(whole);
    json_decref(half);
    program_run(used_root, 2, "export run --to exported");
    run_command(used_root, "rm -r exported half ?.jsonl", &program_result);
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
    };
    return cmocka_run_group_tests(tests, used_set_up, used_tear_down);
}
