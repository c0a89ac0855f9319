/* Whole runs whose steps launch backward and the sums of its buckets as one graph, on stand-ins for
 * GPUs and for NCCL. In the stand-ins, as in NCCL, a communicator never ends while a graph has an
 * operation of it. Catches another loss than one CPU has, members that do not launch alike, a graph
 * that outlives its communicators in a transition, after a death or when a sum never ends. */
#include "autodp/nccl/nccl.h"
#include "device/cuda/cuda.h"
#include "device/system/clock.h"
#include "pipe/step/captured_step.h"
#include "support/lines.h"
#include "support/ranks/ranks.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 84, STEPS = 14, DEATH_STEP = 6 };

static const char nccl[] = FL_BINARY_DIR "/tests/nccl_standin.so";
static const char plugin[] = FL_BINARY_DIR "/tests/cuda_standin.so";

static const char *const common[] = {"train.batch",
                                     "12",
                                     "train.epochs",
                                     "2",
                                     "devices.count",
                                     "2",
                                     "autodp.bucket",
                                     "4KiB",
                                     "fault.detect",
                                     "3s",
                                     "elastic.enabled",
                                     "true",
                                     "pipe.profile",
                                     "none",
                                     "pipe.tune",
                                     "false",
                                     NULL};

static void use_gpus(const char *options)
{
    if (access(plugin, R_OK) != 0) {
        print_message("skipped: this build has no stand-in for a GPU\n");
        skip();
    }
    assert_int_equal(setenv("FROSTLINE_CUDA_PLUGIN", plugin, 1), 0);
    assert_int_equal(setenv("FROSTLINE_STANDIN", "devices=2,graphs=fast", 1), 0);
    assert_int_equal(setenv("FROSTLINE_NCCL", nccl, 1), 0);
    assert_int_equal(setenv("FROSTLINE_NCCL_STANDIN", options, 1), 0);
}

static fl_status ask_for_nccl(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)model;
    (void)data;
    return fl_job_set(job, "autodp.transport", "nccl");
}

static scenario scenario_of(const char *name, const char *const *more)
{
    return (scenario){.name = name,
                      .sets = common,
                      .more = more,
                      .device = "cuda",
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f,
                      .adjust = ask_for_nccl};
}

/* The most that a worker reported of a generation. */
static int64_t sum_launches(const scenario *s, int64_t generation)
{
    json_t *lines = lines_with(s->dir, "events.jsonl", "\"graphs\""), *line;
    int64_t most = 0;
    size_t i;
    json_array_foreach(lines, i, line)
    {
        int64_t n = json_integer_value(json_object_get(line, "sum_launches"));
        bool same = json_integer_value(json_object_get(line, "generation")) == generation;
        most = same && n > most ? n : most;
    }
    json_decref(lines);
    return most;
}

/* A thread of NCCL that was left behind, or a device that was lost for it. */
static void check_nothing_hung(const scenario *s)
{
    char path[FOLDER_SIZE + 64], line[2048];
    for (int worker = 0; worker < 2; worker++) {
        snprintf(path, sizeof path, "%s/worker-%d.log", s->dir, worker);
        FILE *log = fopen(path, "r");
        while (log != NULL && fgets(line, sizeof line, log) != NULL) {
            if (strstr(line, "left behind") != NULL || strstr(line, "ncclCommAbort") != NULL) {
                fail_msg("%s", line);
            }
        }
        if (log != NULL) {
            fclose(log);
        }
    }
}

static void check_losses(const scenario *s, int n)
{
    double *want = losses_of_one(common, s->n_samples, STEPS);
    double *got = losses_of(s, STEPS);
    double worst = worst_difference(got, want, 0, n);
    if (!(worst <= 1e-5)) {
        fail_msg("%s: losses differ by %g", s->name, worst);
    }
    free(want);
    free(got);
}

/* Two replicas launch graphs with their sums, before the evaluation and behind it; then a pipeline
 * takes their place, beside their communicators. */
static void test_nccl_graphs__launch_sums_until_the_plan_changes(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 12, .f = 0, .k = 2, .r = 1, .m = 2}};
    use_gpus("streams=none");
    scenario s = scenario_of("changes", JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "3",
                                                 "fault.deadline", "60s"));
    s.script = script;
    s.n_script = 1;
    scenario_run(&s);
    check_losses(&s, STEPS);
    check_exactly_once(s.dir, 2, s.n_samples);
    assert_true(sum_launches(&s, 1) >= 2);
    assert_int_equal(sum_launches(&s, 2), 0); /* one replica sums nothing */
    assert_int_equal(count_events(s.dir, "\"transition.done\"", "\"comm\": \"split\""), 1);
    check_nothing_hung(&s);
}

static void kill_in_launch(fl_flight_kind kind, int rank, int64_t step)
{
    if (kind == FL_FLIGHT_LAUNCH && rank == 1 && step == DEATH_STEP) {
        raise(SIGKILL);
    }
}

/* The survivor is in its graph, which waits for the sum of the other one. */
static void test_nccl_graphs__are_left_when_a_worker_dies(void **state)
{
    (void)state;
    use_gpus("streams=none");
    scenario s =
        scenario_of("death", JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "3",
                                      "fault.deadline", "60s", "fault.on_loss", "continue"));
    s.at_operation = kill_in_launch;
    scenario_run(&s);
    check_losses(&s, STEPS);
    check_exactly_once(s.dir, 2, s.n_samples);
    assert_int_equal(count_events(s.dir, "\"worker.lost\"", "signal 9"), 1);
    assert_true(sum_launches(&s, 1) >= 1);
    check_nothing_hung(&s);
}

/* On both workers: nobody dies, and nobody else could end it. */
static void test_nccl_graphs__are_left_when_a_sum_never_ends(void **state)
{
    (void)state;
    use_gpus("streams=none,stall=Launch:3");
    scenario s = scenario_of("stall", JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "3",
                                               "fault.deadline", "4s", "fault.on_loss", "stop"));
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    check_nothing_hung(&s);
    scenario_forget(&s);
}

/* ---- a group and a device alone ---- */

enum { N = 20000, WAIT_MS = 20000 };

typedef struct member {
    const fl_cuda_plugin *plugin;
    fl_device *d;
    fl_stream *stream;
    fl_group *group;
    fl_bucket *bucket;
    void *data;
    fl_captured *captured;
} member;

static void open_member(member *m, const rank_env *env)
{
    static const int all[2] = {0, 1};
    RANK_OK(fl_cuda_plugin_find(&m->plugin));
    RANK_OK(fl_device_cuda_create(&(fl_cuda_options){.plugin = m->plugin,
                                                     .number = env->rank,
                                                     .budget_bytes = (size_t)1 << 22},
                                  &m->d));
    RANK_OK(m->d->ops->stream_create(m->d, &m->stream));
    RANK_OK(m->d->ops->memory_take(m->d, N * sizeof(float), &m->data));
    const fl_group_options options = {.device = m->d,
                                      .generation = 1,
                                      .index = env->rank,
                                      .size = 2,
                                      .kv = env->kv,
                                      .open_timeout_ms = WAIT_MS,
                                      .wait_timeout_ms = WAIT_MS,
                                      .backend = &fl_nccl_group_ops,
                                      .every_pair = true};
    RANK_OK(fl_group_open(&options, &m->group));
    RANK_OK(fl_bucket_create(
        m->group,
        &(fl_bucket_options){
            .id = 1, .owners = all, .n_owners = 2, .data = m->data, .dtype = FL_F32, .n = N},
        &m->bucket));
    RANK_OK(fl_group_connect(m->group, fl_deadline_us(WAIT_MS)));
    RANK_CHECK(fl_bucket_can_capture(m->bucket));
}

static void capture_sum(member *m)
{
    fl_graph *graph = NULL;
    RANK_OK(m->d->ops->capture_begin(m->d, m->stream));
    RANK_OK(fl_bucket_capture(m->bucket, m->stream, fl_deadline_us(WAIT_MS)));
    RANK_OK(fl_bucket_capture_join(m->bucket, m->stream));
    RANK_OK(m->d->ops->capture_end(m->d, m->stream, &graph));
    RANK_OK(fl_captured_create(m->group, graph, &m->captured));
}

static fl_status launch_sum(member *m)
{
    FL_TRY(fl_captured_launch(m->captured, m->stream));
    FL_TRY(fl_bucket_launched(m->bucket, m->stream));
    FL_TRY(fl_bucket_wait(m->bucket, m->stream, fl_deadline_us(WAIT_MS)));
    return m->d->ops->sync(m->d, m->stream);
}

static void check_sum(member *m, const rank_env *env)
{
    float host[N];
    for (int i = 0; i < N; i++) {
        host[i] = (float)(env->rank + i);
    }
    RANK_OK(m->d->ops->copy_in(m->d, m->stream, m->data, host, sizeof host));
    RANK_OK(launch_sum(m));
    RANK_OK(m->d->ops->copy_out(m->d, m->stream, host, m->data, sizeof host));
    RANK_OK(m->d->ops->sync(m->d, m->stream));
    for (int i = 0; i < N; i++) {
        RANK_CHECK(host[i] == (float)(1 + 2 * i));
    }
}

/* Each launch is a sum of what lies in the bucket then. After the death of its peer, the owner of
 * the graph does not destroy it: it gives up the bucket, which is registered and so waits for the
 * communicator's end. */
static void launch_and_lose(const rank_env *env)
{
    static member m;
    open_member(&m, env);
    capture_sum(&m);
    check_sum(&m, env);
    check_sum(&m, env);
    if (env->rank == 1) {
        raise(SIGKILL);
    }
    RANK_CHECK(fl_status_is_regroup(launch_sum(&m)));
    fl_bucket_destroy(&m.bucket);
    RANK_CHECK(fl_status_is_regroup(fl_group_state(m.group))); /* FL_EIO: its abort hung */
    RANK_CHECK(fl_captured_launch(m.captured, m.stream) != FL_OK);
    fl_captured_destroy(&m.captured);
    fl_group_close(&m.group);
    m.d->ops->memory_give(m.d, m.data, N * sizeof(float));
    m.d->ops->stream_destroy(m.d, &m.stream);
    fl_device_destroy(&m.d);
}

static void test_captured__ends_with_its_group_whatever_its_owner_does(void **state)
{
    (void)state;
    static const rank_end ends[] = {RANK_ENDS, RANK_KILLED};
    use_gpus("streams=none");
    assert_int_equal(ranks_run_ending(2, launch_and_lose, NULL, ends, 60000), 0);
}

/* ---- which way ---- */

static void test_step_way__needs_all_members(void **state)
{
    (void)state;
    assert_int_equal(fl_step_way_next(3, 0, 4), FL_STEP_BY_PIECES);
    assert_int_equal(fl_step_way_next(4, 0, 4), FL_STEP_CAPTURES);
    assert_int_equal(fl_step_way_next(4, 3, 4), FL_STEP_CAPTURES); /* one has lost its graph */
    assert_int_equal(fl_step_way_next(4, 4, 4), FL_STEP_LAUNCHES);
    assert_int_equal(fl_step_way_next(0, 0, 1), FL_STEP_BY_PIECES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_way__needs_all_members),
        cmocka_unit_test(test_captured__ends_with_its_group_whatever_its_owner_does),
        cmocka_unit_test(test_nccl_graphs__launch_sums_until_the_plan_changes),
        cmocka_unit_test(test_nccl_graphs__are_left_when_a_worker_dies),
        cmocka_unit_test(test_nccl_graphs__are_left_when_a_sum_never_ends),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
