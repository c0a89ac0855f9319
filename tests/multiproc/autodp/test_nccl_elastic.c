/* The elastic job from its first step to its last on stand-ins for GPUs, over a stand-in for NCCL:
 * plans change, blocks freeze and thaw, and workers leave and come back to the plan. Catches
 * another loss than the same job has on processors, a sample that is used twice or never, state
 * that does not go over NCCL, and a transition that does not tell the time of each part. */
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 120, STEPS = 20, CHANGES = 4 };

/* In fp32, relative. Allowed are 1e-3. */
static const double TOLERANCE = 1e-5;

static const char nccl[] = FL_BINARY_DIR "/tests/nccl_standin.so";
static const char plugin[] = FL_BINARY_DIR "/tests/cuda_standin.so";

static const char *const fields[] = {"train.batch",
                                     "12",
                                     "train.epochs",
                                     "2",
                                     "devices.count",
                                     "4",
                                     "autodp.bucket",
                                     "4KiB",
                                     "fault.detect",
                                     "5s",
                                     "fault.deadline",
                                     "60s",
                                     "elastic.enabled",
                                     "true",
                                     "pipe.profile",
                                     "none",
                                     "pipe.tune",
                                     "false",
                                     "pipe.k",
                                     "2",
                                     "autodp.r",
                                     "2",
                                     "pipe.m",
                                     "2",
                                     "train.evaluate",
                                     "false",
                                     "freeze.policy",
                                     "none",
                                     "train.precision",
                                     "fp32",
                                     NULL};

/* More replicas, frozen blocks on fewer workers, a pipeline of four, and thawed again. */
static const fl_script_entry script[CHANGES] = {{.step = 4, .f = 0, .k = 1, .r = 4, .m = 1},
                                                {.step = 8, .f = 2, .k = 1, .r = 3, .m = 2},
                                                {.step = 12, .f = 2, .k = 4, .r = 1, .m = 4},
                                                {.step = 16, .f = 0, .k = 2, .r = 2, .m = 2}};

static fl_status ask_for_nccl(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)model;
    (void)data;
    return fl_job_set(job, "autodp.transport", "nccl");
}

static scenario scenario_on(const char *device)
{
    return (scenario){.name = device,
                      .sets = fields,
                      .device = device,
                      .script = script,
                      .n_script = CHANGES,
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f};
}

static double real_of(const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);
    if (!json_is_number(value)) {
        fail_msg("transition.done has no %s", name);
    }
    return json_number_value(value);
}

/* Each part of each transition, and that some state went over NCCL. */
static void check_parts(const scenario *s)
{
    static const char *const parts[] = {"prepare_ms", "comm_ms",   "wait_ms", "vote_ms",
                                        "migrate_ms", "switch_ms", "stall_ms"};
    json_t *done = lines_with(s->dir, "events.jsonl", "\"transition.done\""), *line;
    size_t i;
    assert_int_equal(json_array_size(done), CHANGES);
    json_array_foreach(done, i, line)
    {
        for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
            assert_true(real_of(line, parts[part]) >= 0.0);
        }
        assert_true(real_of(line, "prepare_ms") > 0.0 && real_of(line, "comm_ms") > 0.0);
        assert_true(real_of(line, "comm_ms") <= real_of(line, "prepare_ms"));
        const char *way = json_string_value(json_object_get(line, "comm"));
        assert_true(way != NULL && (strcmp(way, "rebuild") == 0 || strcmp(way, "split") == 0 ||
                                    strcmp(way, "shrink") == 0));
    }
    json_decref(done);
    assert_true(count_events(s->dir, "\"transition.done\"", "\"way\": \"nccl\"") >= 2);
}

static void test_nccl_elastic__job_is_as_on_processors(void **state)
{
    (void)state;
    if (access(plugin, R_OK) != 0) {
        print_message("skipped: this build has no stand-in for a GPU\n");
        skip();
    }
    assert_int_equal(setenv("FROSTLINE_CUDA_PLUGIN", plugin, 1), 0);
    assert_int_equal(setenv("FROSTLINE_STANDIN", "devices=4", 1), 0);
    assert_int_equal(setenv("FROSTLINE_NCCL", nccl, 1), 0);
    assert_int_equal(setenv("FROSTLINE_NCCL_STANDIN", "streams=none", 1), 0);
    scenario cpu = scenario_on("cpu"), gpu = scenario_on("cuda");
    gpu.adjust = ask_for_nccl;
    scenario_run(&cpu);
    scenario_run(&gpu);
    double *want = losses_of(&cpu, STEPS), *got = losses_of(&gpu, STEPS);
    double worst = worst_difference(got, want, 0, STEPS);
    if (!(worst <= TOLERANCE)) {
        fail_msg("losses differ by %g", worst);
    }
    free(want);
    free(got);
    check_exactly_once(gpu.dir, 2, N_SAMPLES);
    check_parts(&gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_elastic__job_is_as_on_processors),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
