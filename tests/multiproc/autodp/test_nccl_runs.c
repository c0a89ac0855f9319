/* Whole runs whose workers exchange activations and gradients over NCCL, for which a library stands
 * in, on the asynchronous test device: as on one CPU, step by step, through pipelines, replicas and
 * transitions; a library that is missing; a collective that never ends. */
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 120, STEPS = 20 };

static const char standin[] = FL_BINARY_DIR "/tests/nccl_standin.so";

static const char *const common[] = {"train.batch",
                                     "12",
                                     "train.epochs",
                                     "2",
                                     "devices.count",
                                     "4",
                                     "autodp.bucket",
                                     "16KiB",
                                     "fault.detect",
                                     "2s",
                                     "fault.deadline",
                                     "4s",
                                     "elastic.enabled",
                                     "true",
                                     NULL};

static void use_library(const char *file, const char *options)
{
    assert_int_equal(setenv("FROSTLINE_NCCL", file, 1), 0);
    assert_int_equal(setenv("FROSTLINE_NCCL_STANDIN", options, 1), 0);
}

/* It does what the job says without a word of its own, so it is asked for here. */
static fl_status ask_for_nccl(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)model;
    (void)data;
    return fl_job_set(job, "autodp.transport", "nccl");
}

static scenario scenario_of(const char *name, const char *const *plan)
{
    return (scenario){.name = name,
                      .sets = common,
                      .more = plan,
                      .device = "async-test",
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f,
                      .adjust = ask_for_nccl};
}

/* ---- where nothing fails ---- */

static int count_lines(const char *dir, int worker, const char *text)
{
    char path[FOLDER_SIZE + 64], line[2048];
    int n = 0;
    snprintf(path, sizeof path, "%s/worker-%d.log", dir, worker);
    FILE *log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        n += strstr(line, text) != NULL;
    }
    if (log != NULL) {
        fclose(log);
    }
    return n;
}

/* How many generations were opened over NCCL: one worker of each says so. */
static int count_generations(const scenario *s)
{
    int n = 0;
    for (int worker = 0; worker < 4; worker++) {
        n += count_lines(s->dir, worker, "pairs of workers exchange data over NCCL 2.28.9");
    }
    return n;
}

static void compare_steps(scenario *s, int n_steps, int n_generations)
{
    double *want = losses_of_one(common, s->n_samples, n_steps);
    scenario_run(s);
    double *got = losses_of(s, n_steps);
    double worst = worst_difference(got, want, 0, n_steps);
    if (!(worst <= 1e-5)) {
        fail_msg("%s: losses differ by %g", s->name, worst);
    }
    check_exactly_once(s->dir, 2, s->n_samples);
    assert_true(count_generations(s) >= n_generations);
    free(want);
    free(got);
}

static void compare_with_one_cpu(scenario *s, int n_generations)
{
    compare_steps(s, STEPS, n_generations);
}

static void test_nccl_run__trains_as_one_worker_does(void **state)
{
    (void)state;
    use_library(standin, "");
    scenario s = scenario_of("grid", JOB_SETS("pipe.k", "2", "autodp.r", "2", "pipe.m", "2"));
    compare_with_one_cpu(&s, 1);
}

static int count_ways(const scenario *s, const char *way)
{
    char text[64];
    snprintf(text, sizeof text, "\"comm\": \"%s\"", way);
    return count_events(s->dir, "\"transition.done\"", text);
}

/* Between workers that both train next, state goes over NCCL; what a worker has that leaves goes
 * over messages. */
static void check_moves(const scenario *s)
{
    json_t *done = lines_with(s->dir, "events.jsonl", "\"transition.done\"");
    const json_t *line;
    json_int_t by_way[2] = {0}, moved = 0;
    FOR_EACH(line, done)
    {
        const json_t *ways = json_object_get(line, "moved"), *way;
        json_int_t over_nccl = 0;
        FOR_EACH(way, ways)
        {
            bool is_nccl = strcmp(json_string_value(json_object_get(way, "way")), "nccl") == 0;
            json_int_t bytes = json_integer_value(json_object_get(way, "bytes"));
            assert_true(number(way, "pairs") > 0 && bytes > 0);
            over_nccl += is_nccl ? bytes : 0;
            by_way[!is_nccl] += bytes;
        }
        moved += json_integer_value(json_object_get(line, "moved_bytes"));
        assert_int_equal(json_integer_value(json_object_get(line, "device_bytes")), over_nccl);
    }
    assert_int_equal(by_way[0] + by_way[1], moved);
    assert_true(by_way[0] > 0 && by_way[1] > 0);
    json_decref(done);
}

/* Would catch: two events of one generation with different times for it. */
static void check_times(const scenario *s)
{
    json_t *done = lines_with(s->dir, "events.jsonl", "\"transition.done\"");
    json_t *chosen = lines_with(s->dir, "events.jsonl", "\"transport.chosen\"");
    const json_t *a, *b;
    int n = 0;
    FOR_EACH(a, done)
    {
        FOR_EACH(b, chosen)
        {
            if (number(b, "of_generation") == number(a, "generation")) {
                assert_true(json_number_value(json_object_get(a, "comm_ms")) ==
                            json_number_value(json_object_get(b, "comm_ms")));
                n++;
            }
        }
    }
    assert_int_equal(n, 3);
    json_decref(done);
    json_decref(chosen);
}

/* Communicators are opened beside those that are in use, and those are closed. Without known times
 * each way is tried: the same four workers split, and three of them shrink. */
static void test_nccl_run__changes_its_plan(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 4, .f = 0, .k = 1, .r = 4, .m = 1},
                                             {.step = 9, .f = 0, .k = 4, .r = 1, .m = 4},
                                             {.step = 14, .f = 0, .k = 1, .r = 3, .m = 2}};
    use_library(standin, "");
    scenario s = scenario_of(
        "changes", JOB_SETS("pipe.k", "2", "autodp.r", "2", "pipe.m", "2", "pipe.profile", "none"));
    s.script = script;
    s.n_script = sizeof script / sizeof *script;
    compare_with_one_cpu(&s, 4);
    assert_true(count_ways(&s, "split") >= 1);
    assert_int_equal(count_ways(&s, "shrink"), 1);
    assert_int_equal(count_ways(&s, "split") + count_ways(&s, "shrink") + count_ways(&s, "rebuild"),
                     3);
    assert_int_equal(count_events(s.dir, "\"transport.chosen\"", "\"comm\": \"rebuild\""),
                     1 + count_ways(&s, "rebuild"));
    assert_int_equal(count_events(s.dir, "\"transport.chosen\"", "\"host_pairs\": []"), 4);
    check_moves(&s);
    check_times(&s);
}

/* Would catch: a plan change that is given up for a call of NCCL which nothing names. */
static void test_nccl_run__names_the_calls_that_hold_up_a_change(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 4, .f = 0, .k = 1, .r = 2, .m = 2}};
    use_library(standin, "stall=CommSplit:3");
    scenario s = scenario_of("held", JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2",
                                              "devices.count", "2", "fault.deadline", "6s"));
    s.script = script;
    s.n_script = 1;
    scenario_run(&s);
    assert_int_equal(count_events(s.dir, "\"transition.cancelled\"",
                                  "within fault.deadline: workers 0 and 1 wait in ncclCommSplit"),
                     1);
    json_t *dump = lines_with(s.dir, "flight.json", "ncclCommSplit");
    assert_int_equal(json_array_size(dump), 1);
    json_decref(dump);
}

/* ---- on stand-ins for GPUs ---- */

/* Their kernels run on the host, slowly: few steps. */
enum { GPU_SAMPLES = 24, GPU_STEPS = 4 };

/* Each with NCCL that runs its operations in their memory. */
static void use_gpus(const char *devices)
{
    static const char plugin[] = FL_BINARY_DIR "/tests/cuda_standin.so";
    if (access(plugin, R_OK) != 0) {
        print_message("skipped: this build has no stand-in for a GPU\n");
        skip();
    }
    assert_int_equal(setenv("FROSTLINE_CUDA_PLUGIN", plugin, 1), 0);
    assert_int_equal(setenv("FROSTLINE_STANDIN", devices, 1), 0);
    use_library(standin, "streams=none");
}

/* Catches what only both together can break: operations of NCCL on streams and memory of the CUDA
 * device, beside graphs, and a device whose generation goes over to other communicators. */
static void test_nccl_run__trains_on_gpus_as_one_cpu_does(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 2, .f = 0, .k = 1, .r = 4, .m = 1}};
    use_gpus("devices=4");
    scenario s = scenario_of("gpus", JOB_SETS("pipe.k", "2", "autodp.r", "2", "pipe.m", "2",
                                              "pipe.profile", "none", "fault.deadline", "60s"));
    s.device = "cuda";
    s.n_samples = GPU_SAMPLES;
    s.script = script;
    s.n_script = 1;
    compare_steps(&s, GPU_STEPS, 2);
    assert_int_equal(count_ways(&s, "split"), 1);
}

/* The driver is asked before the library is: no call of it would succeed. */
static void test_nccl_run__does_without_nccl_on_a_driver_that_is_too_old(void **state)
{
    (void)state;
    use_gpus("devices=2,driver=12080");
    scenario s = scenario_of("driver", JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2",
                                                "devices.count", "2", "train.epochs", "1",
                                                "pipe.profile", "none", "fault.deadline", "60s"));
    s.device = "cuda";
    s.n_samples = GPU_SAMPLES;
    s.adjust = NULL;
    scenario_run(&s);
    assert_int_equal(count_generations(&s), 0);
    assert_int_equal(count_lines(s.dir, 0,
                                 "was built with CUDA 13.0, the driver runs CUDA up to "
                                 "12.8"),
                     1);
    assert_int_equal(count_events(s.dir, "\"transport.chosen\"", "\"nccl_pairs\": 0"), 1);
    assert_int_equal(count_events(s.dir, "\"transport.chosen\"", "0 and 1: worker 0 has none: "),
                     1);
}

/* ---- failures ---- */

/* A library that cannot be used, in whatever way, and what the run says of it. */
static const struct {
    const char *name, *file, *options, *reason;
} unusable[] = {
    {"nccl-missing", "/nowhere/libnccl.so.2", "", "NCCL cannot be loaded: /nowhere/libnccl.so.2"},
    {"nccl-crashes", standin, "crash=Load:1", "nccl_standin.so was killed by signal 4 ("},
    {"nccl-fails", standin, "fail=CommInitRankConfig:1:3",
     "NCCL failed when the link between two workers was measured: channel "},
    {"nccl-kills", standin, "crash=Send:4",
     "NCCL failed when the link between two workers was measured: its process was killed by"},
};
enum { N_UNUSABLE = sizeof unusable / sizeof *unusable };

static scenario without_library(int i)
{
    static const char *const plan[] = {
        "pipe.k",       "2", "autodp.r",     "1",    "pipe.m", "2", "devices.count", "2",
        "train.epochs", "1", "pipe.profile", "none", NULL};
    use_library(unusable[i].file, unusable[i].options);
    return scenario_of(unusable[i].name, plan);
}

/* Before any worker starts: nothing is there of the run. */
static void test_nccl_run__ends_with_the_reason_if_it_must_have_nccl(void **state)
{
    (void)state;
    for (int i = 0; i < N_UNUSABLE; i++) {
        scenario s = without_library(i);
        scenario_start(&s);
        expect_end(&s, FL_ENOTSUP);
        if (strstr(s.outcome->message, "autodp.transport: found nccl, but ") == NULL ||
            strstr(s.outcome->message, unusable[i].reason) == NULL || access(s.dir, F_OK) == 0) {
            fail_msg("%s: '%s'", s.name, s.outcome->message);
        }
        scenario_forget(&s);
    }
}

static void test_nccl_run__is_refused_where_workers_share_a_gpu(void **state)
{
    (void)state;
    use_gpus("devices=1");
    scenario s = scenario_of("shared", JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2",
                                                "devices.count", "2", "pipe.profile", "none"));
    s.device = "cuda";
    s.n_samples = GPU_SAMPLES;
    scenario_start(&s);
    expect_end(&s, FL_ENOTSUP);
    if (strstr(s.outcome->message, "found nccl, but workers 0 and 1 share GPU 0") == NULL) {
        fail_msg("'%s'", s.outcome->message);
    }
    scenario_forget(&s);
}

/* The first piece of state, after the byte that connects, fails: nothing has been handed over yet,
 * the run goes on with the plan that it had, and then makes the change all the same. */
static void test_nccl_run__goes_on_when_state_does_not_arrive(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 4, .f = 0, .k = 1, .r = 3, .m = 2}};
    for (int fails = 0; fails < 2; fails++) { /* the first one measures the link, too */
        use_library(standin, fails ? "fail=Send:2:6" : "");
        scenario s = scenario_of(fails ? "fails" : "arrives",
                                 JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2",
                                          "devices.count", "3", "fault.on_loss", "continue"));
        s.script = script;
        s.n_script = 1;
        compare_with_one_cpu(&s, 1);
        assert_int_equal(count_lines(s.dir, 0, "to 2: ncclSend: remote") +
                                 count_lines(s.dir, 1, "to 2: ncclSend: remote") >
                             0,
                         fails);
        assert_int_equal(count_events(s.dir, "\"transition.done\"", "\"way\": \"nccl\""), 1);
        assert_int_equal(count_events(s.dir, "\"transition.cancelled\"", "\"again\": true"), fails);
        assert_int_equal(count_events(s.dir, "\"run.recovered\"", "between workers broke"), fails);
        assert_int_equal(count_events(s.dir, "\"worker.lost\"", "worker.lost"), 0);
    }
}

/* Catches a wait for the device that nobody ends: all workers leave the collective, and the run is
 * over, within the deadline of the job and not of this test. */
static void test_nccl_run__leaves_a_collective_that_never_ends(void **state)
{
    (void)state;
    use_library(standin, "stall=AllReduce:12");
    scenario s = scenario_of("stall", JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2",
                                               "pipe.profile", "none", "fault.on_loss", "stop"));
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    scenario_forget(&s);
}

/* The same is no failure where the job leaves the choice: the library is tried before the workers
 * start, none of which loads it, and the event has the reason. */
static void test_nccl_run__goes_through_host_memory_without_a_library(void **state)
{
    (void)state;
    for (int i = 0; i < N_UNUSABLE; i++) {
        scenario s = without_library(i);
        s.adjust = NULL;
        scenario_run(&s);
        assert_int_equal(count_generations(&s), 0);
        assert_int_equal(count_events(s.dir, "\"transport.chosen\"", "\"nccl_pairs\": 0"), 1);
        if (count_events(s.dir, "\"transport.chosen\"", unusable[i].reason) != 1 ||
            count_lines(s.dir, 0, unusable[i].reason) != 1) {
            fail_msg("%s: no event has its reason", s.name);
        }
        check_exactly_once(s.dir, 1, s.n_samples);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_run__trains_as_one_worker_does),
        cmocka_unit_test(test_nccl_run__changes_its_plan),
        cmocka_unit_test(test_nccl_run__names_the_calls_that_hold_up_a_change),
        cmocka_unit_test(test_nccl_run__trains_on_gpus_as_one_cpu_does),
        cmocka_unit_test(test_nccl_run__does_without_nccl_on_a_driver_that_is_too_old),
        cmocka_unit_test(test_nccl_run__ends_with_the_reason_if_it_must_have_nccl),
        cmocka_unit_test(test_nccl_run__is_refused_where_workers_share_a_gpu),
        cmocka_unit_test(test_nccl_run__goes_on_when_state_does_not_arrive),
        cmocka_unit_test(test_nccl_run__leaves_a_collective_that_never_ends),
        cmocka_unit_test(test_nccl_run__goes_through_host_memory_without_a_library),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
