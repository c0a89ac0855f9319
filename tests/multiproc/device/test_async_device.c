/* Whole runs on the asynchronous test device: to the last bit the losses and weights of the same
 * runs on CPUs, through pipelines, replicas, transitions, freezing, the cache and evaluations; and
 * every failure of a device ends the run with its reason. A host that touches device memory, a wait
 * that was forgotten, memory that is given back too early and a failure that is lost show here. */
#include "device/async/async.h"
#include "support/data/text.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { N_SAMPLES = 43, BATCH = 10, EPOCHS = 4, STEPS = 20 };

static const char *const common[] = {
    "train.batch", "10", "train.epochs", "4", "train.hash_weights", "1", "autodp.bucket",
    "16KiB",       NULL};

/* ---- the same bits ---- */

/* weights.jsonl as a set: the workers' lines come in any order. */
static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int lines_of(const scenario *s, char **text, char *line[], int n_max)
{
    char path[FOLDER_SIZE + 64];
    int n = 0;
    snprintf(path, sizeof path, "%s/weights.jsonl", s->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    *text = calloc(1, 1 << 20);
    assert_non_null(*text);
    size_t size = fread(*text, 1, (1 << 20) - 1, file);
    assert_true(feof(file) && size > 0);
    fclose(file);
    char *rest = *text, *one;
    while ((one = strsep(&rest, "\n")) != NULL && n < n_max) {
        line[n++] = one;
    }
    qsort(line, (size_t)n, sizeof *line, compare_lines);
    return n;
}

static void compare_weights(const scenario *a, const scenario *b)
{
    enum { LINES_MAX = 2000 };
    static char *line[2][LINES_MAX];
    char *text[2];
    int n = lines_of(a, &text[0], line[0], LINES_MAX);
    assert_in_range(n, STEPS, LINES_MAX - 1);
    assert_int_equal(lines_of(b, &text[1], line[1], LINES_MAX), n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(line[0][i], line[1][i]);
    }
    free(text[0]);
    free(text[1]);
}

static void compare_evaluations(const scenario *a, const scenario *b)
{
    json_t *mine = lines_with(a->dir, "events.jsonl", "\"evaluation\"");
    json_t *other = lines_with(b->dir, "events.jsonl", "\"evaluation\"");
    assert_true(length(mine) > 0);
    assert_int_equal(length(mine), length(other));
    for (size_t i = 0; i < json_array_size(mine); i++) {
        double want = json_number_value(json_object_get(json_array_get(mine, i), "test_loss"));
        double got = json_number_value(json_object_get(json_array_get(other, i), "test_loss"));
        if (!(want > 0.0) || memcmp(&want, &got, sizeof want) != 0) {
            fail_msg("%s: evaluation %zu gives %.17g and %.17g", b->name, i, want, got);
        }
    }
    json_decref(mine);
    json_decref(other);
}

/* Run `s` on a CPU and on the asynchronous device; *s is the latter. */
static void compare_devices(scenario *s)
{
    char name[2][48];
    scenario cpu = *s;
    snprintf(name[0], sizeof name[0], "%s-cpu", s->name);
    snprintf(name[1], sizeof name[1], "%s-async", s->name);
    cpu.name = name[0];
    cpu.device = "cpu";
    s->name = name[1];
    s->device = "async-test";
    scenario_run(&cpu);
    scenario_run(s);
    double *want = losses_of(&cpu, STEPS), *got = losses_of(s, STEPS);
    for (int i = 0; i < STEPS; i++) {
        if (memcmp(&want[i], &got[i], sizeof *want) != 0) {
            fail_msg("%s: the loss of step %d is %.17g, on a CPU %.17g", s->name, i, got[i],
                     want[i]);
        }
    }
    assert_true(want[STEPS - 1] < want[0]); /* it learns */
    compare_weights(&cpu, s);
    json_t *on_async = lines_with(s->dir, "events.jsonl", "\"async-test\"");
    assert_int_equal(length(on_async), 1);
    json_decref(on_async);
    compare_evaluations(&cpu, s);
    free(want);
    free(got);
}

static void compare_plan(const char *k, const char *r, const char *m)
{
    char name[32];
    snprintf(name, sizeof name, "plan-%s-%s-%s", k, r, m);
    scenario s = {.name = name,
                  .sets = common,
                  .more = JOB_SETS("pipe.k", k, "autodp.r", r, "pipe.m", m, "devices.count", "4"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f};
    compare_devices(&s);
}

static void test_async__plans_give_the_bits_of_cpus(void **state)
{
    (void)state;
    compare_plan("1", "1", "2");
    compare_plan("2", "1", "4");
    compare_plan("1", "2", "2");
    compare_plan("2", "2", "2");
}

/* Samples of different length, and ids that an embedding looks up. */
static fl_status use_text(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job;
    fl_model_destroy(model);
    fl_dataset_destroy(data);
    FL_TRY(text_dataset(N_SAMPLES, data));
    return text_model(4, 0.1f, TEXT_IDS, model);
}

static void test_async__text_gives_the_bits_of_cpus(void **state)
{
    (void)state;
    const char *const *plan =
        JOB_SETS("pipe.k", "2", "autodp.r", "2", "pipe.m", "2", "devices.count", "4");
    scenario sentences = {.name = "sentences",
                          .sets = common,
                          .more = plan,
                          .n_samples = N_SAMPLES,
                          .length = ragged_like_sst2,
                          .dropout = 0.1f};
    scenario text = {
        .name = "text", .sets = common, .more = plan, .n_samples = N_SAMPLES, .adjust = use_text};
    compare_devices(&sentences);
    compare_devices(&text);
}

/* Blocks freeze and thaw, stages and replicas come and go, frozen blocks are cached. */
static void test_async__transitions_give_the_bits_of_cpus(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {
        {.step = 3, .f = 1, .k = 2, .r = 1, .m = 2},  {.step = 6, .f = 2, .k = 1, .r = 2, .m = 2},
        {.step = 10, .f = 2, .k = 2, .r = 2, .m = 2}, {.step = 14, .f = 0, .k = 2, .r = 1, .m = 4},
        {.step = 17, .f = 3, .k = 1, .r = 1, .m = 1},
    };
    static const char *const caches[][3] = {{"cache.policy", "off", NULL},
                                            {"cache.policy", "on", NULL}};
    for (int i = 0; i < 2; i++) {
        scenario s = {.name = i == 0 ? "changes" : "cached-changes",
                      .sets = common,
                      .more =
                          JOB_SETS("pipe.k", "1", "autodp.r", "1", "pipe.m", "2", "devices.count",
                                   "4", caches[i][0], caches[i][1], "cache.augment", "stop"),
                      .script = script,
                      .n_script = sizeof script / sizeof *script,
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f};
        compare_devices(&s);
        json_t *done = lines_with(s.dir, "events.jsonl", "\"transition.done\"");
        assert_int_equal(length(done), sizeof script / sizeof *script);
        json_decref(done);
    }
}

/* ---- failures ---- */

enum { ENTRIES_MAX = 64, FAILING_CALL = 7 };

/* Two stages, or two replicas: between them they use what training uses. */
static const char *const two_workers[2][9] = {
    {"pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count", "2", NULL},
    {"pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count", "2", NULL}};

static scenario scenario_of(const char *name, int plan, const void *context)
{
    return (scenario){.name = name,
                      .sets = common,
                      .more = two_workers[plan],
                      .device = "async-test",
                      .n_samples = N_SAMPLES,
                      .context = context};
}

/* Calls of each entry by worker 1: those before its first step, and those until its last. */
typedef struct usage {
    uint64_t at_begin[ENTRIES_MAX], at_step[ENTRIES_MAX];
} usage;

static void count_calls(const char *point, fl_worker_state *w)
{
    bool queues;
    usage *u = *(usage *const *)scenario_here()->context;
    bool begins = strcmp(point, "begin") == 0;
    if (w->rank != 1 || (!begins && strcmp(point, "step") != 0)) {
        return;
    }
    for (int i = 0; fl_async_entry(i, &queues) != NULL; i++) {
        assert_true(i < ENTRIES_MAX);
        *(begins ? &u->at_begin[i] : &u->at_step[i]) = fl_device_async_calls(w->device, i);
    }
}

/* By plan, from a run without a failure: which entries training calls often enough. */
static const usage *of_plan[2];

static const usage *usage_of(int plan)
{
    usage *u = shared_memory(sizeof *u);
    scenario s = scenario_of(plan == 0 ? "replicas" : "stages", plan, &u);
    s.at_point = count_calls;
    scenario_run(&s);
    return u;
}

static void fail_the_device(fl_worker_state *w)
{
    const fl_async_fault *fault = scenario_here()->context;
    must(fl_device_async_fail(w->device, fault));
}

/* Worker 1's device fails in the middle of training, in this entry. */
static void check_failure(const fl_async_fault *fault, int plan)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%d", fault->entry, fault->later);
    scenario s = scenario_of(name, plan, fault);
    s.at[0] = (scenario_deed){.point = "begin", .who = 1, .act = fail_the_device};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    if (strstr(s.outcome->message, "worker 1 ") == NULL ||
        strstr(s.outcome->message, "on request") == NULL ||
        strstr(s.outcome->message, fault->entry) == NULL) {
        fail_msg("%s: '%s'", name, s.outcome->message);
    }
    scenario_forget(&s);
}

static int count_usage(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    for (int plan = 0; plan < 2; plan++) {
        of_plan[plan] = usage_of(plan);
    }
    return 0;
}

/* Would catch: a failure that a caller drops, in any entry that training uses. */
static void walk_over_entries(bool later)
{
    const char *entry;
    bool queues;
    int n_failed = 0;
    for (int i = 0; (entry = fl_async_entry(i, &queues)) != NULL; i++) {
        /* Replicas have all layers; which ones a stage has depends on measured times. */
        for (int plan = 0; plan < 2; plan++) {
            uint64_t calls = of_plan[plan]->at_step[i] - of_plan[plan]->at_begin[i];
            if (calls >= FAILING_CALL && (queues || !later)) {
                check_failure(&(fl_async_fault){entry, FAILING_CALL, later}, plan);
                n_failed++;
                break;
            }
        }
    }
    print_message("%d entries failed %s\n", n_failed, later ? "later" : "at once");
    assert_true(n_failed >= 10);
}

static void test_async__a_call_that_fails_ends_the_run(void **state)
{
    (void)state;
    walk_over_entries(false);
}

static void test_async__work_that_fails_ends_the_run(void **state)
{
    (void)state;
    walk_over_entries(true);
}

/* Memory that is there for one plan and not for the next. */
static void test_async__no_memory_refuses_the_run(void **state)
{
    (void)state;
    assert_int_equal(setenv("FROSTLINE_ASYNC_TEST", "memory=100000", 1), 0);
    scenario s = scenario_of("small", 1, NULL);
    scenario_start(&s);
    scenario_wait(&s);
    assert_int_equal(unsetenv("FROSTLINE_ASYNC_TEST"), 0);
    if (s.outcome->status == FL_OK || strstr(s.outcome->message, "out of memory") == NULL) {
        fail_msg("'%s'", s.outcome->message);
    }
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async__plans_give_the_bits_of_cpus),
        cmocka_unit_test(test_async__text_gives_the_bits_of_cpus),
        cmocka_unit_test(test_async__transitions_give_the_bits_of_cpus),
        cmocka_unit_test(test_async__a_call_that_fails_ends_the_run),
        cmocka_unit_test(test_async__work_that_fails_ends_the_run),
        cmocka_unit_test(test_async__no_memory_refuses_the_run),
    };
    return cmocka_run_group_tests(tests, count_usage, remove_root);
}
