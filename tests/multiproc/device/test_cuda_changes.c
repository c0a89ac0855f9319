/* What changes in the middle of a run with `devices: {kind: cuda}`: plans, frozen blocks and the
 * cache; an interruption and its resume; a worker that is killed; a GPU that fails. Catches state
 * that a transition or a checkpoint loses, and a failure that does not end the run with its reason.
 */
#include "support/device/cuda_plugin.h"
#include "support/lines.h"
#include "support/runs/scenario.h"
#include "tests/shim/standin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 24, STEPS = 8, LOSS_STEP = 5 };

static const double TOLERANCE = 1e-5;

static const char *const common[] = {"train.batch",
                                     "12",
                                     "train.epochs",
                                     "4",
                                     "train.lr",
                                     "1e-3",
                                     "train.evaluate",
                                     "false",
                                     "train.on_nonfinite",
                                     "stop",
                                     "devices.count",
                                     "2",
                                     "autodp.r",
                                     "1",
                                     "pipe.m",
                                     "2",
                                     NULL};

/* One, two, four and two workers of one GPU; blocks freeze and thaw, frozen ones are cached. */
static const fl_script_entry script[] = {{.step = 2, .f = 1, .k = 2, .r = 1, .m = 2},
                                         {.step = 4, .f = 1, .k = 2, .r = 2, .m = 2},
                                         {.step = 6, .f = 0, .k = 1, .r = 2, .m = 2}};

static scenario run_of(const char *name, const char *device)
{
    return (scenario){.name = name,
                      .sets = common,
                      .device = device,
                      .n_samples = N_SAMPLES,
                      .blocks = 2,
                      .dropout = 0.1f};
}

static void compare(const scenario *a, const scenario *b, double tolerance)
{
    double *got = losses_of(a, STEPS), *want = losses_of(b, STEPS);
    double worst = worst_difference(got, want, 0, STEPS);
    if (!(worst <= tolerance)) {
        fail_msg("%s and %s: losses differ by %.3g", a->name, b->name, worst);
    }
    free(got);
    free(want);
}

/* Weights and moments go from device to device, here and on a GPU that several workers share. */
static void check_ways(const json_t *done)
{
    json_int_t moved = 0;
    for (size_t i = 0; i < json_array_size(done); i++) {
        const json_t *line = json_array_get(done, i);
        json_int_t bytes = json_integer_value(json_object_get(line, "moved_bytes"));
        assert_int_equal(json_integer_value(json_object_get(line, "device_bytes")), bytes);
        moved += bytes;
    }
    assert_true(moved > 0);
}

static void test_cuda_run__changes_its_plan_as_a_cpu_does(void **state)
{
    (void)state;
    use_cuda("devices=1");
    static const char *const more[] = {"devices.count", "4",    "pipe.k", "1", "cache.policy", "on",
                                       "cache.augment", "stop", NULL};
    scenario s[2] = {run_of("changes-cpu", "cpu"), run_of("changes-cuda", "cuda")};
    for (int i = 0; i < 2; i++) {
        s[i].more = more;
        s[i].script = script;
        s[i].n_script = sizeof script / sizeof *script;
        scenario_run(&s[i]);
    }
    compare(&s[1], &s[0], TOLERANCE);
    json_t *done = lines_with(s[1].dir, "events.jsonl", "\"transition.done\"");
    json_t *opened = lines_with(s[1].dir, "events.jsonl", "\"cache.opened\"");
    assert_int_equal(length(done), sizeof script / sizeof *script);
    check_ways(done);
    assert_int_equal(length(opened), 1);
    json_decref(done);
    json_decref(opened);
}

/* The run that was interrupted has the losses of the one that was not, to the last bit. */
static void test_cuda_run__continues_from_a_checkpoint(void **state)
{
    (void)state;
    use_cuda("devices=1");
    static const char *const more[] = {"pipe.k", "2", "checkpoint.every", "2 steps", NULL};
    scenario whole = run_of("whole", "cuda"), s = run_of("resumed", "cuda");
    whole.more = s.more = more;
    scenario_run(&whole);
    s.at[0] =
        (scenario_deed){.point = "step", .who = EVERYBODY, .step = 5, .act = interrupt_after_step};
    scenario_start(&s);
    expect_end(&s, FL_ESTOPPED);
    scenario_forget(&s);
    s.at[0].act = NULL;
    s.resumes = true;
    scenario_run(&s);
    compare(&s, &whole, 0.0);
}

/* ---- a loss ---- */

/* What was counted of graphs: by the worker that died up to its last report, at the end of an
 * epoch; by the other one up to the loss, and then anew on a plan of its own. */
static void check_counts_of_loss(const char *dir)
{
    json_t *lost = lines_with(dir, "events.jsonl", "\"worker.lost\"");
    json_t *told = lines_with(dir, "events.jsonl", "\"graphs\"");
    const json_t *last = json_object_get(json_array_get(lost, 0), "graphs"), *line;
    int n_at_loss = 0, n_captures = 0;
    assert_int_equal(number(last, "up_to_step"), LOSS_STEP - 2);
    assert_true(number(last, "launches") > 0);
    FOR_EACH(line, told)
    {
        const json_t *state = json_object_get(line, "state");
        if (state != NULL && number(line, "rank") == 0) {
            n_at_loss += number(line, "step") == LOSS_STEP - 1;
            n_captures = number(line, "captures");
            assert_string_equal(json_string_value(state), "on");
            assert_true(on_gpu() ||
                        number(line, "memory_bytes") == number(line, "nodes") * STANDIN_NODE_BYTES);
        }
    }
    assert_int_equal(n_at_loss, 1);
    assert_true(n_captures > 0);
    json_decref(lost);
    json_decref(told);
}

/* One of two workers whose steps are graphs is killed; the other one goes on with the whole batch.
 */
static void test_cuda_run__goes_on_after_a_loss(void **state)
{
    (void)state;
    use_cuda("devices=1");
    static const char *const more[] = {"pipe.k",        "1",        "autodp.r", "2",
                                       "fault.on_loss", "continue", NULL};
    scenario whole = run_of("nobody-lost", "cpu"), s = run_of("lost", "cuda");
    whole.more = s.more = more;
    scenario_run(&whole);
    s.at[0] =
        (scenario_deed){.point = "step", .who = 1, .step = LOSS_STEP, .act = kill_this_worker};
    scenario_run(&s);
    compare(&s, &whole, TOLERANCE);
    check_counts_of_loss(s.dir);
}

static void fail_a_call(fl_worker_state *w)
{
    (void)w;
    fail_standin(scenario_here()->context, 1, 700);
}

/* The GPU of one of two stages fails while both train. */
static void test_cuda_run__ends_when_a_gpu_fails(void **state)
{
    (void)state;
    use_standin("devices=2");
    static const char *const more[] = {"pipe.k", "2", NULL};
    /* What is not captured: a failure of a capture does not end the run. */
    static const char *const entries[] = {"cross_entropy", "sum_squares_many", "copy",
                                          "stream_wait", "event_record"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        char name[64], line[128];
        scenario s = run_of(name, "cuda");
        snprintf(name, sizeof name, "failing-%s", entries[i]);
        snprintf(line, sizeof line, "device cuda 1: %s: another error (CUDA error 700)",
                 entries[i]);
        s.more = more;
        s.context = entries[i];
        s.at[0] = (scenario_deed){.point = "step", .who = 1, .step = 2, .act = fail_a_call};
        scenario_start(&s);
        expect_end(&s, FL_EFAILED);
        if (strncmp(s.outcome->message, "worker 1 ", 9) != 0 ||
            strstr(s.outcome->message, line) == NULL) {
            fail_msg("%s: '%s'", name, s.outcome->message);
        }
        scenario_forget(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_run__changes_its_plan_as_a_cpu_does),
        cmocka_unit_test(test_cuda_run__continues_from_a_checkpoint),
        cmocka_unit_test(test_cuda_run__goes_on_after_a_loss),
        cmocka_unit_test(test_cuda_run__ends_when_a_gpu_fails),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
