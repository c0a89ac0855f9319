/* Whole runs on samples of different length, like the sentences of SST-2: whatever the plan, the
 * cache or the transition, they compute what one worker computes. Micro-batches then differ in
 * samples as well as in tokens. What memory they take: test_ragged_memory.c. */
#include "launcher/run/run.h"

#include "support/lines.h"
#include "support/runs/ragged_runs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const double TOLERANCE = 1e-5;

static double *train(scenario *s)
{
    scenario_run(s);
    check_exactly_once(s->dir, RAGGED_EPOCHS, RAGGED_SAMPLES);
    return losses_of(s, RAGGED_STEPS);
}

static void check_close(const char *name, double *losses, const double *expected, double tolerance)
{
    double worst = worst_difference(losses, expected, 0, RAGGED_STEPS);
    print_message("%s: losses differ by at most %.2e\n", name, worst);
    assert_true(worst <= tolerance);
    free(losses);
}

/* ---- lengths that are hard to share out ---- */

static const struct {
    const char *name;
    ragged_length *length;
} hard[] = {{"ones", ragged_all_ones}, {"giant", ragged_one_giant}, {"two", ragged_two_lengths}};

/* A sample longer than the even share leaves micro-batches without a sample; so does a batch that
 * has fewer samples than R x M. */
static void test_ragged__trains_on_any_lengths(void **state)
{
    (void)state;
    for (size_t h = 0; h < sizeof hard / sizeof *hard; h++) {
        scenario alone = ragged_scenario(hard[h].name, hard[h].length, NULL);
        double *expected = train(&alone);
        assert_true(expected[RAGGED_STEPS - 1] < expected[0]);
        for (size_t g = 0; g < RAGGED_GRIDS; g++) {
            char name[32];
            snprintf(name, sizeof name, "%s-%zu", hard[h].name, g);
            scenario s =
                ragged_scenario(name, hard[h].length,
                                JOB_SETS("pipe.k", ragged_grids[g][0], "autodp.r",
                                         ragged_grids[g][1], "pipe.m", ragged_grids[g][2]));
            check_close(name, train(&s), expected, TOLERANCE);
        }
        free(expected);
    }
}

/* ---- transitions ---- */

static const fl_script_entry changes[] = {
    {.step = 8, .f = 0, .k = 2, .r = 2, .m = 3},  {.step = 24, .f = 1, .k = 1, .r = 4, .m = 2},
    {.step = 40, .f = 2, .k = 3, .r = 1, .m = 5}, {.step = 56, .f = 0, .k = 4, .r = 1, .m = 4},
    {.step = 72, .f = 2, .k = 2, .r = 1, .m = 9}, {.step = 88, .f = 1, .k = 1, .r = 2, .m = 5},
    {.step = 104, .f = 0, .k = 1, .r = 1, .m = 1}};
enum { N_CHANGES = sizeof changes / sizeof *changes };

static void test_ragged__transitions_change_nothing(void **state)
{
    (void)state;
    fl_script_entry alone[N_CHANGES];
    for (int i = 0; i < N_CHANGES; i++) {
        alone[i] =
            (fl_script_entry){.step = changes[i].step, .f = changes[i].f, .k = 1, .r = 1, .m = 1};
    }
    scenario one = ragged_scenario("alone", ragged_like_sst2, NULL);
    scenario many = ragged_scenario("changing", ragged_like_sst2, NULL);
    one.script = alone;
    many.script = changes;
    one.n_script = many.n_script = N_CHANGES;
    double *expected = train(&one);
    check_close("transitions", train(&many), expected, TOLERANCE);
    assert_int_equal(count_events(many.dir, "transition.done", ""), N_CHANGES);
    free(expected);
}

/* ---- the cache ---- */

static fl_dataset inner;

static fl_status read_plain(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    fl_sample_key plain = *key;
    plain.augment = false;
    return inner.ops->read(self, split, &plain, input);
}

/* Data that is the same in every epoch. */
static fl_status make_plain(fl_job *job, fl_model **model, fl_dataset *data)
{
    static fl_dataset_ops plain;
    (void)job, (void)model;
    inner = *data;
    plain = *data->ops;
    plain.read = read_plain;
    data->ops = &plain;
    return FL_OK;
}

static const fl_script_entry freezing[] = {{.step = 5, .f = 1, .k = 1, .r = 2, .m = 2},
                                           {.step = 40, .f = 2, .k = 2, .r = 1, .m = 3},
                                           {.step = 60, .f = 2, .k = 1, .r = 4, .m = 1},
                                           {.step = 90, .f = 3, .k = 1, .r = 1, .m = 2}};

static int64_t sum_of(const scenario *s, const char *what)
{
    int64_t sum = 0;
    json_t *events = lines_with(s->dir, "events.jsonl", "");
    const json_t *event;
    FOR_EACH(event, events)
    {
        const char *name = json_string_value(json_object_get(event, "event"));
        bool counts = strcmp(name, "cache.used") == 0 || strcmp(name, "cache.decided") == 0;
        sum += counts ? number(event, what) : 0;
    }
    json_decref(events);
    return sum;
}

static scenario caching(const char *name, const char *const *more)
{
    scenario s = ragged_scenario(name, ragged_like_sst2, more);
    s.script = freezing;
    s.n_script = sizeof freezing / sizeof *freezing;
    s.adjust = make_plain;
    return s;
}

/* Values of different size: in memory, evicted, upgraded when more blocks freeze, on disk, and in
 * two stores to which samples are dealt. */
static void test_ragged__the_cache_changes_nothing(void **state)
{
    (void)state;
    const struct {
        const char *name;
        const char *const *sets;
        double tolerance;
    } ways[] = {
        {"memory", JOB_SETS("cache.policy", "on"), 1e-6},
        {"evicting", JOB_SETS("cache.policy", "on", "cache.memory", "64KiB"), 1e-6},
        {"disk",
         JOB_SETS("cache.policy", "on", "cache.memory", "64KiB", "cache.disk", "2MiB", "cache.path",
                  "/tmp"),
         1e-6},
        {"stores", JOB_SETS("cache.policy", "on", "cache.stores", "2"), TOLERANCE},
    };
    scenario off = caching("uncached", NULL);
    double *expected = train(&off);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        scenario s = caching(ways[i].name, ways[i].sets);
        double *losses = train(&s);
        print_message("%s: %lld hits, %lld upgrades, %lld misses\n", ways[i].name,
                      (long long)sum_of(&s, "hits"), (long long)sum_of(&s, "upgrades"),
                      (long long)sum_of(&s, "misses"));
        assert_true(sum_of(&s, "hits") > 0 && sum_of(&s, "upgrades") > 0);
        assert_true(sum_of(&s, "misses") > 0);
        check_close(ways[i].name, losses, expected, ways[i].tolerance);
    }
    free(expected);
}

/* ---- repeating ---- */

static const char *const by_norms[] = {"autodp.r",
                                       "2",
                                       "freeze.policy",
                                       "gradnorm",
                                       "freeze.start",
                                       "1",
                                       "freeze.every",
                                       "1",
                                       "freeze.keep",
                                       "1",
                                       "freeze.must_pay",
                                       "false",
                                       "pipe.tune",
                                       "false",
                                       NULL};

static void check_same_bits(const scenario *a, const scenario *b)
{
    double *x = losses_of(a, RAGGED_STEPS), *y = losses_of(b, RAGGED_STEPS);
    assert_memory_equal(x, y, RAGGED_STEPS * sizeof *x);
    free(x);
    free(y);
}

static fl_status run_again(const char *dir, const char *recorded)
{
    scenario s = ragged_scenario("", ragged_like_sst2, NULL);
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    for (int i = 0; ragged_common[i] != NULL; i += 2) {
        must(fl_job_set(&job, ragged_common[i], ragged_common[i + 1]));
    }
    for (int i = 0; by_norms[i] != NULL; i += 2) {
        must(fl_job_set(&job, by_norms[i], by_norms[i + 1]));
    }
    if (getenv("FL_TEST_DEVICE") != NULL) { /* as the run that is repeated */
        must(fl_job_set(&job, "devices.kind", getenv("FL_TEST_DEVICE")));
    }
    must(ragged_dataset(RAGGED_SAMPLES, s.length, false, &data));
    must(ragged_model(RAGGED_BLOCKS, s.dropout, false, &model));
    return fl_run_again(model, &data, &job, dir, recorded, NULL);
}

/* A run that freezes by its gradients, once more by its seed, and replayed from its record. */
static void test_ragged__repeats_to_the_last_bit(void **state)
{
    (void)state;
    scenario first = ragged_scenario("first", ragged_like_sst2, by_norms);
    scenario second = ragged_scenario("second", ragged_like_sst2, by_norms);
    scenario replay = {.name = "replay"};
    scenario_run(&first);
    scenario_run(&second);
    assert_true(count_events(first.dir, "transition.done", "") > 0);
    check_same_bits(&first, &second);
    snprintf(replay.dir, sizeof replay.dir, "%s/replay", root);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hush();
        must(run_again(replay.dir, first.dir));
        _exit(0);
    }
    check_ended_well(child);
    check_same_bits(&first, &replay);
}

/* ---- evaluation ---- */

static double last_test_loss(const scenario *s)
{
    double loss = NAN;
    json_t *events = lines_with(s->dir, "events.jsonl", "");
    const json_t *event;
    FOR_EACH(event, events)
    {
        const json_t *found = json_object_get(event, "test_loss");
        loss = json_is_number(found) ? json_number_value(found) : loss;
    }
    json_decref(events);
    return loss;
}

/* Validation samples, some of them each time, and all test samples at the end. */
static void test_ragged__evaluates_alike_under_every_plan(void **state)
{
    (void)state;
    double expected = NAN;
    for (size_t g = 0; g < 3; g++) {
        char name[32];
        snprintf(name, sizeof name, "evaluating-%zu", g);
        scenario s = ragged_scenario(
            name, ragged_like_sst2,
            JOB_SETS("pipe.k", ragged_grids[g][0], "autodp.r", ragged_grids[g][1], "pipe.m",
                     ragged_grids[g][2], "data.validation", "40", "train.evaluate_samples", "23"));
        scenario_run(&s);
        double loss = last_test_loss(&s);
        print_message("%s: test loss %.9f\n", name, loss);
        assert_true(isfinite(loss));
        expected = g == 0 ? loss : expected;
        assert_true(fabs(loss - expected) <= TOLERANCE * fabs(expected));
    }
}

/* ---- costs ---- */

/* The number behind `name` on the first line of the file that contains `line`. */
static double read_cost(const char *path, const char *line, const char *name)
{
    static char text[4096];
    double value = NAN;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (isnan(value) && fgets(text, sizeof text, file) != NULL) {
        const char *at = strstr(text, line) == NULL ? NULL : strstr(text, name);
        value = at == NULL ? value : strtod(at + strlen(name), NULL);
    }
    fclose(file);
    return value;
}

/* A run measures what a token costs. Attention and MLP work on tokens, so it is not nothing; and
 * the model, its lengths included, is what the file is for. */
static void test_ragged__measures_what_a_token_costs(void **state)
{
    (void)state;
    char path[160];
    snprintf(path, sizeof path, "%s/profile.yaml", root);
    scenario s = ragged_scenario("costs", ragged_like_sst2, JOB_SETS("pipe.profile", path));
    scenario_run(&s);
    assert_true(read_cost(path, "kind: attention,", "fwd_token_us: ") > 0.0);
    assert_true(read_cost(path, "kind: mlp,", "bwd_token_us: ") > 0.0);
    assert_true(read_cost(path, "kind: mlp,", "frozen_token_us: ") > 0.0);
    assert_true(read_cost(path, "tokens, ", "to ") == RAGGED_LONGEST);
}

/* ---- faults ---- */

static void test_ragged__reports_a_worker_that_dies(void **state)
{
    (void)state;
    scenario s = ragged_scenario("killed", ragged_like_sst2,
                                 JOB_SETS("pipe.k", "2", "autodp.r", "2", "pipe.m", "4"));
    s.at[0] = (scenario_deed){.point = "step", .who = 2, .step = 30, .act = kill_this_worker};
    scenario_start(&s);
    expect_lost(&s, 2, "was killed by signal 9");
    scenario_forget(&s);
}

static fl_status lying_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                             int64_t *n_targets)
{
    FL_TRY(inner.ops->shape(self, split, id, input, n_targets));
    input->tokens = split == FL_TRAIN && id == 100 ? RAGGED_LONGEST + 1 : input->tokens;
    return FL_OK;
}

static fl_status make_liar(fl_job *job, fl_model **model, fl_dataset *data)
{
    static fl_dataset_ops liar;
    (void)job, (void)model;
    inner = *data;
    liar = *data->ops;
    liar.shape = lying_shape;
    data->ops = &liar;
    return FL_OK;
}

static int64_t count_of_liar(const void *self, fl_split split)
{
    return split == FL_TRAIN ? INT64_C(5000000000) : inner.ops->count(self, split);
}

static fl_status make_huge(fl_job *job, fl_model **model, fl_dataset *data)
{
    static fl_dataset_ops huge;
    (void)job, (void)model;
    inner = *data;
    huge = *data->ops;
    huge.count = count_of_liar;
    data->ops = &huge;
    return FL_OK;
}

/* At once: to ask five billion samples for their size would take minutes. */
static void test_ragged__refuses_more_samples_than_a_run_can_count(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    scenario s = ragged_scenario("huge", ragged_like_sst2, none);
    s.adjust = make_huge;
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    assert_non_null(
        strstr(s.outcome->message, "has 5000000000 training samples, allowed: at most 2147483647"));
    scenario_forget(&s);
}

/* Before a process starts, and whatever the order in which samples would have come. */
static void test_ragged__refuses_a_data_set_that_breaks_its_promise(void **state)
{
    (void)state;
    /* with validation samples, the view that the run uses numbers them anew */
    const char *const sets[2][3] = {{"data.validation", "none", NULL},
                                    {"data.validation", "40", NULL}};
    for (int i = 0; i < 2; i++) {
        scenario s = ragged_scenario("liar", ragged_like_sst2, sets[i]);
        s.adjust = make_liar;
        scenario_start(&s);
        expect_end(&s, FL_EINVAL);
        assert_non_null(strstr(s.outcome->message, "training sample 100 has 61 tokens"));
        assert_int_equal(atomic_load(&s.outcome->pid[0]), 0);
        scenario_forget(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged__trains_on_any_lengths),
        cmocka_unit_test(test_ragged__transitions_change_nothing),
        cmocka_unit_test(test_ragged__the_cache_changes_nothing),
        cmocka_unit_test(test_ragged__repeats_to_the_last_bit),
        cmocka_unit_test(test_ragged__evaluates_alike_under_every_plan),
        cmocka_unit_test(test_ragged__measures_what_a_token_costs),
        cmocka_unit_test(test_ragged__reports_a_worker_that_dies),
        cmocka_unit_test(test_ragged__refuses_a_data_set_that_breaks_its_promise),
        cmocka_unit_test(test_ragged__refuses_more_samples_than_a_run_can_count),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
