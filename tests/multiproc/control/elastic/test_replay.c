/* A run that repeats another. Would catch: a decision that is not repeated, or is repeated at
 * another step; a replay that accepts another job, other data or damaged events; a comparison that
 * misses a different bit. */
#include "launcher/run/run.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/runs/live_run.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STATUS_BASE = 100, OUTPUT_BYTES = 4096 };

/* Freezes by its gradients while a person changes plan and learning rate. */
#define SETS                                                                                       \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "train.epochs", "9000",    \
        "devices.count", "3", "pipe.k", "1", "autodp.r", "3", "pipe.m", "1", "freeze.policy",      \
        "gradnorm", "freeze.start", "40 steps", "freeze.every", "40 steps", "freeze.keep", "2",    \
        "autodp.bucket", "16KiB", "train.hash_weights", "25"
static const char *const sets[] = {SETS, NULL};

/* In a child: what the replay of `recorded` in `dir` returns, with one more field set. */
static fl_status replay(const char *recorded, const char *dir, const char *path, const char *value)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fl_job job;
        fl_model *model = NULL;
        fl_dataset data;
        hush();
        fl_job_defaults(&job);
        set_test_device(&job);
        for (int i = 0; sets[i] != NULL; i += 2) {
            must(fl_job_set(&job, sets[i], sets[i + 1]));
        }
        if (path != NULL) {
            must(fl_job_set(&job, path, value));
        }
        must(fl_toy_dataset(LIVE_SAMPLES, &data));
        must(fl_toy_model(4, 0.1f, &model));
        fl_status status = fl_run_again(model, &data, &job, dir, recorded, NULL);
        fprintf(stderr, "%s\n", status == FL_OK ? "" : fl_errmsg());
        _exit(STATUS_BASE + (int)status);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    return (fl_status)(WEXITSTATUS(how) - STATUS_BASE);
}

/* frostline diff: its exit code, and what it prints. */
static int diff(const char *a, const char *b, char output[OUTPUT_BYTES])
{
    char command[1024];
    snprintf(command, sizeof command, FL_BINARY_DIR "/frostline diff %s %s 2>&1", a, b);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, OUTPUT_BYTES - 1, pipe);
    output[n] = 0;
    int how = pclose(pipe);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how);
}

static void ask(live_run *run, const char *cmd, const char *args)
{
    json_decref(live_ask(run, cmd, args));
}

static live_run record(void)
{
    live_run run = live_start(sets);
    live_await_step(&run, 60);
    ask(&run, "set", "{\"field\": \"train.lr\", \"value\": 3e-4}");
    ask(&run, "scale", "{\"k\": 2, \"r\": 1}");
    live_await_step(&run, 130);
    ask(&run, "scale", "{\"k\": 1, \"r\": 2, \"m\": 2}");
    ask(&run, "drain", "{\"worker\": 0}");
    ask(&run, "set", "{\"field\": \"train.lr\", \"value\": 2e-4}");
    live_await_step(&run, 220);
    ask(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_check_ledger(&run);
    assert_true(count_events(run.dir, "transition.done", "\"why\": \"ctl") >= 3);
    assert_int_equal(count_events(run.dir, "job.changed", "train.lr"), 2);
    return run;
}

static void test_replay__repeats_every_decision_to_the_last_bit(void **state)
{
    (void)state;
    char again[160], output[OUTPUT_BYTES];
    live_run run = record();
    snprintf(again, sizeof again, "%s-again", run.dir);
    assert_int_equal(replay(run.dir, again, NULL, NULL), FL_ESTOPPED);
    int code = diff(run.dir, again, output);
    if (code != 0) {
        print_message("%s", output);
    }
    assert_int_equal(code, 0);
    assert_non_null(strstr(output, "hashes of weights are equal"));
    assert_non_null(strstr(output, "equal to the last bit"));
    assert_int_equal(count_events(run.dir, "transition.done", ""),
                     count_events(again, "transition.done", ""));
    live_clean(&run);
}

/* ---- what is refused ---- */

/* Copies a file with the n-th line changed: `from` becomes `to`. n 0: any line. */
static void damage(const char *dir, const char *to_dir, const char *from, const char *to)
{
    static char text[1 << 20];
    char path[256];
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "job.yaml" : "events.jsonl";
        snprintf(path, sizeof path, "%s/%s", dir, name);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = 0;
        snprintf(path, sizeof path, "%s/%s", to_dir, name);
        file = fopen(path, "w");
        assert_non_null(file);
        const char *at = i == 0 ? NULL : strstr(text, from);
        assert_true(i == 0 || at != NULL);
        if (at == NULL) {
            fwrite(text, 1, n, file);
        } else {
            fwrite(text, 1, (size_t)(at - text), file);
            fputs(to, file);
            fputs(at + strlen(from), file);
        }
        fclose(file);
    }
}

static void test_replay__refuses_what_it_cannot_repeat(void **state)
{
    (void)state;
    static const char *const damages[][2] = {
        {"\"event\": \"transition.done\"", "\"event\": 7"},
        {"\"event\": \"transition.done\"", "\"event\""},
        {"\"ranks\": [", "\"ranks\": [9, "},
        {"\"ranks\": [", "\"places\": ["},
        {"\"first\": [0, ", "\"first\": [1, "},
        {"\"first\": [0, ", "\"first\": [0, 99999, "},
        {"\"departed\": []", "\"departed\": [-1]"},
        {"\"departed\": []", "\"departed\": {}"},
        {"\"field\": \"train.lr\", \"value\": ", "\"field\": \"train.lr\", \"value\": -"},
        {"\"event\": \"plan.chosen\"", "\"event\": \"plan.lost\""},
        {"\"event\": \"run.started\"", "\"event\": \"run.begun\""},
        {"\"devices\": 3", "\"devices\": 4"},
        {"\"samples\": 203", "\"samples\": 204"},
        {"\"fingerprint\": \"", "\"fingerprint\": \"0"},
        {"{", "{{{{"},
        {"\n", ""},
    };
    char other[160], none[160];
    live_run run = record();
    snprintf(other, sizeof other, "%s-other", run.dir);
    snprintf(none, sizeof none, "%s-none", run.dir);
    assert_int_equal(mkdir(other, 0700), 0);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        damage(run.dir, other, damages[i][0], damages[i][1]);
        fl_status status = replay(other, none, NULL, NULL);
        if (status != FL_EINVAL) {
            fail_msg("%s: %s", damages[i][1], fl_status_text(status));
        }
        assert_int_not_equal(access(none, F_OK), 0); /* nothing was begun */
    }
    assert_int_equal(replay(run.dir, none, "train.lr", "1e-3"), FL_EINVAL);
    assert_int_equal(replay(run.dir, none, "devices.count", "4"), FL_EINVAL);
    assert_int_equal(replay(run.dir, none, "data.samples", "200"), FL_EINVAL);
    assert_int_equal(replay(root, none, NULL, NULL), FL_EIO);
    assert_int_not_equal(access(none, F_OK), 0);
    live_clean(&run);
}

/* ---- diff ---- */

static void save(const char *dir, const char *name, const char *text)
{
    char path[256];
    mkdir(dir, 0700);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

#define STEP(step, loss)                                                                           \
    "{\"step\": " step ", \"loss\": " loss ", \"grad_norm\": 1, \"lr\": 0.1, \"f\": 0, \"k\": 1, " \
    "\"r\": 1, \"m\": 1}\n"
#define HASH(step, layer, hash)                                                                    \
    "{\"step\": " step ", \"layer\": " layer ", \"hash\": \"" hash "\"}\n"
#define ONES "1111111111111111"
#define TWOS "2222222222222222"

static void test_diff__names_the_first_difference(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;               /* steps.jsonl */
        const char *a_hashes, *b_hashes; /* weights.jsonl; NULL: none */
        int code;
        const char *says;
    } cases[] = {
        {STEP("0", "1"), STEP("0", "1"), NULL, NULL, 0, "equal to the last bit: 1 step"},
        {STEP("0", "0.1"), STEP("0", "0.10000000000000002"), NULL, NULL, 1, "step 0 differs"},
        {STEP("0", "0.1"), STEP("0", "0.10000000000000002"), NULL, NULL, 1, "0x3fb999999999999b"},
        {STEP("0", "0"), STEP("0", "-0.0"), NULL, NULL, 1, "step 0 differs"},
        {STEP("0", "null"), STEP("0", "null"), NULL, NULL, 0, "equal to the last bit"},
        {STEP("0", "1") STEP("1", "2"), STEP("0", "1"), NULL, NULL, 1, "has 1 more"},
        {STEP("0", "1") STEP("1", "2"), STEP("0", "1") STEP("2", "2"), NULL, NULL, 1, "line 2"},
        {STEP("0", "1"), STEP("0", "1"), HASH("5", "1", ONES) HASH("5", "0", ONES),
         HASH("5", "0", ONES) HASH("5", "1", TWOS), 1, "after step 5: layer 1 is the first"},
        {STEP("0", "1"), STEP("0", "1"), HASH("5", "1", ONES), HASH("10", "1", TWOS), 1,
         "b lacks 1 hash of weights that the other run has; the first: layer 1 after step 5"},
        {STEP("0", "1"), STEP("0", "1"), HASH("1", "0", ONES), NULL, 1, "b lacks 1 hash of"},
        {STEP("0", "1"), STEP("0", "1"), NULL, HASH("1", "0", ONES), 1, "a lacks 1 hash of"},
        {STEP("0", "1"), STEP("0", "1"), HASH("1", "1", ONES) HASH("1", "0", ONES),
         HASH("1", "1", ONES), 1,
         "b lacks 1 hash of weights that the other run has; the first: "
         "layer 0 after step 1"},
        {STEP("0", "1"), STEP("0", "1"), HASH("1", "0", ONES) HASH("1", "0", ONES),
         HASH("1", "0", ONES), 0, "1 hashes of weights are equal"},
        {STEP("0", "1"), STEP("0", "1") "{", NULL, NULL, 2, "b/steps.jsonl:2: cut"},
        {STEP("0", "1"), STEP("-1", "1"), NULL, NULL, 2, "b/steps.jsonl:1: no step"},
        {STEP("0", "1"), STEP("0", "1"), HASH("5", "0", "1"), NULL, 2, "a/weights.jsonl:1: no"},
    };
    assert_int_equal(make_root(NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char a[64], b[64], path[96], output[OUTPUT_BYTES];
        snprintf(a, sizeof a, "%s/a", root);
        snprintf(b, sizeof b, "%s/b", root);
        save(a, "steps.jsonl", cases[i].a);
        save(b, "steps.jsonl", cases[i].b);
        for (int side = 0; side < 2; side++) {
            const char *hashes = side == 0 ? cases[i].a_hashes : cases[i].b_hashes;
            snprintf(path, sizeof path, "%s/weights.jsonl", side == 0 ? a : b);
            unlink(path);
            if (hashes != NULL) {
                save(side == 0 ? a : b, "weights.jsonl", hashes);
            }
        }
        int code = diff(a, b, output);
        if (code != cases[i].code || strstr(output, cases[i].says) == NULL) {
            fail_msg("case %zu: %d and \"%s\", expected %d and \"%s\"", i, code, output,
                     cases[i].code, cases[i].says);
        }
    }
    assert_int_equal(remove_root(NULL), 0);
}

/* Both runs lack the hashes of the same layer: that of another host, say. */
static void test_diff__misses_hashes_that_the_job_asks_for(void **state)
{
    (void)state;
    char dir[2][64], output[OUTPUT_BYTES];
    assert_int_equal(make_root(NULL), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(dir[i], sizeof dir[i], "%s/%s", root, i == 0 ? "a" : "b");
        save(dir[i], "steps.jsonl", STEP("0", "1") STEP("1", "1") STEP("2", "1"));
        save(dir[i], "events.jsonl", "{\"event\": \"run.started\", \"model\": {\"layers\": 2}}\n");
        save(dir[i], "weights.jsonl", HASH("2", "0", ONES));
        save(dir[i], "job.yaml", "train: {hash_weights: 2}\n");
    }
    assert_int_equal(diff(dir[0], dir[1], output), 1);
    for (int i = 0; i < 2; i++) {
        char says[256];
        snprintf(says, sizeof says,
                 "%s lacks 1 hash of weights that its job asks for (train.hash_weights: 2); the "
                 "first: layer 1 after step 2\n",
                 dir[i]);
        assert_non_null(strstr(output, says));
        save(dir[i], "weights.jsonl", HASH("2", "0", ONES) HASH("2", "1", ONES));
    }
    assert_null(strstr(output, "equal to the last bit"));
    assert_int_equal(diff(dir[0], dir[1], output), 0);
    assert_non_null(
        strstr(output, "2 hashes of weights are equal\nequal to the last bit: 3 steps"));
    assert_int_equal(remove_root(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay__repeats_every_decision_to_the_last_bit),
        cmocka_unit_test(test_replay__refuses_what_it_cannot_repeat),
        cmocka_unit_test(test_diff__names_the_first_difference),
        cmocka_unit_test(test_diff__misses_hashes_that_the_job_asks_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
