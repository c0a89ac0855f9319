/* A seed repeats a run: runs of one job that freezes by the norms of its gradients are equal to the
 * last bit, however long a worker takes to prepare a plan. Would catch: a decision that takes
 * effect when all workers happen to be ready, and one that depends on measured times. */
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RUNS = 4, N_SAMPLES = 203, EPOCHS = 8, STEPS = EPOCHS * 21, LINE_BYTES = 1024 };

static int run_number; /* set before the fork */

/* The second worker takes from nothing to some hundred milliseconds to open the next generation. */
void fl__test_point(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "prepare") == 0 && w->rank == 1) {
        nap(run_number * 70000);
    }
}

static void run(const char *dir)
{
    static const char *const sets[] = {
        "devices.count", "2",     "pipe.k",          "1",     "autodp.r",      "2",
        "pipe.m",        "2",     "train.batch",     "10",    "train.epochs",  "8",
        "train.lr",      "1e-3",  "train.evaluate",  "true",  "freeze.policy", "gradnorm",
        "freeze.start",  "1",     "freeze.every",    "1",     "freeze.keep",   "1",
        "pipe.tune",     "false", "freeze.must_pay", "false",
    };
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i += 2) {
        must(fl_job_set(&job, sets[i], sets[i + 1]));
    }
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(6, 0.1f, &model));
    must(fl_run_in(model, &data, &job, dir, NULL));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

/* All that a step computed and under which plan; the time that it took is cut away. */
static void read_line(FILE *file, char line[LINE_BYTES])
{
    assert_non_null(fgets(line, LINE_BYTES, file));
    char *ms = strstr(line, ", \"ms\"");
    assert_non_null(ms);
    *ms = 0;
}

static void check_equal(const char *a, const char *b)
{
    char path[300], x[LINE_BYTES], y[LINE_BYTES];
    snprintf(path, sizeof path, "%s/steps.jsonl", a);
    FILE *first = fopen(path, "r");
    snprintf(path, sizeof path, "%s/steps.jsonl", b);
    FILE *second = fopen(path, "r");
    assert_true(first != NULL && second != NULL);
    for (int step = 0; step < STEPS; step++) {
        read_line(first, x);
        read_line(second, y);
        assert_string_equal(x, y);
    }
    fclose(first);
    fclose(second);
}

static void test_repeat__runs_of_one_seed_are_equal(void **state)
{
    (void)state;
    char dir[RUNS][64];
    assert_int_equal(make_root(NULL), 0);
    for (run_number = 0; run_number < RUNS; run_number++) {
        snprintf(dir[run_number], sizeof dir[0], "%s/%d", root, run_number);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            hush();
            run(dir[run_number]);
            _exit(0);
        }
        check_ended_well(child);
        check_exactly_once(dir[run_number], EPOCHS, N_SAMPLES);
        check_equal(dir[0], dir[run_number]);
    }
    assert_true(count_events(dir[0], "transition.done", "") > 1); /* it froze, more than once */
    assert_int_equal(remove_root(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeat__runs_of_one_seed_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
