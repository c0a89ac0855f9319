/* Whole runs on samples of different length, like the sentences of SST-2: whatever the plan, the
 * cache or the transition, they compute what one worker computes; they take the memory that was
 * predicted, and hardly more than their tokens need. Micro-batches then differ in samples as well
 * as in tokens: a buffer that is sized by one of them alone would be too small here, or far too
 * large. */
#include "device/system/alloc.h"
#include "launcher/run/run.h"
#include "pipe/plan/capacity.h"
#include "pipe/plan/planner.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 203, EPOCHS = 6, STEPS = EPOCHS * 21, BLOCKS = 4, WORKERS = 4 };

static const double TOLERANCE = 1e-5;

/* What every job has; `more` changes it. */
static const char *const common[] = {
    "devices.count", "4",   "pipe.k",   "1",    "autodp.r",     "1", "pipe.m",        "2",
    "train.batch",   "10",  "train.lr", "1e-3", "train.epochs", "6", "autodp.bucket", "16KiB",
    "cache.policy",  "off", NULL};

static scenario scenario_of(const char *name, ragged_length *lengths, const char *const *more)
{
    return (scenario){.name = name,
                      .sets = common,
                      .more = more,
                      .n_samples = N_SAMPLES,
                      .blocks = BLOCKS,
                      .dropout = 0.1f,
                      .length = lengths};
}

static double *train(scenario *s)
{
    scenario_run(s);
    check_exactly_once(s->dir, EPOCHS, N_SAMPLES);
    return losses_of(s, STEPS);
}

static void check_close(const char *name, double *losses, const double *expected, double tolerance)
{
    double worst = worst_difference(losses, expected, 0, STEPS);
    print_message("%s: losses differ by at most %.2e\n", name, worst);
    assert_true(worst <= tolerance);
    free(losses);
}

/* ---- lengths that are hard to share out ---- */

static const struct {
    const char *name;
    ragged_length *length;
} hard[] = {{"ones", ragged_all_ones}, {"giant", ragged_one_giant}, {"two", ragged_two_lengths}};

static const char *const grids[][3] = {
    {"1", "1", "10"}, {"2", "2", "5"}, {"2", "1", "7"}, {"1", "4", "2"}, {"4", "1", "10"}};

/* A sample longer than the even share leaves micro-batches without a sample; so does a batch that
 * has fewer samples than R x M. */
static void test_ragged__trains_on_any_lengths(void **state)
{
    (void)state;
    for (size_t h = 0; h < sizeof hard / sizeof *hard; h++) {
        scenario alone = scenario_of(hard[h].name, hard[h].length, NULL);
        double *expected = train(&alone);
        assert_true(expected[STEPS - 1] < expected[0]);
        for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
            char name[32];
            snprintf(name, sizeof name, "%s-%zu", hard[h].name, g);
            scenario s = scenario_of(
                name, hard[h].length,
                JOB_SETS("pipe.k", grids[g][0], "autodp.r", grids[g][1], "pipe.m", grids[g][2]));
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
    scenario one = scenario_of("alone", ragged_like_sst2, NULL);
    scenario many = scenario_of("changing", ragged_like_sst2, NULL);
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
    scenario s = scenario_of(name, ragged_like_sst2, more);
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
    double *x = losses_of(a, STEPS), *y = losses_of(b, STEPS);
    assert_memory_equal(x, y, STEPS * sizeof *x);
    free(x);
    free(y);
}

static fl_status run_again(const char *dir, const char *recorded)
{
    scenario s = scenario_of("", ragged_like_sst2, NULL);
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    for (int i = 0; common[i] != NULL; i += 2) {
        must(fl_job_set(&job, common[i], common[i + 1]));
    }
    for (int i = 0; by_norms[i] != NULL; i += 2) {
        must(fl_job_set(&job, by_norms[i], by_norms[i + 1]));
    }
    if (getenv("FL_TEST_DEVICE") != NULL) { /* as the run that is repeated */
        must(fl_job_set(&job, "devices.kind", getenv("FL_TEST_DEVICE")));
    }
    must(ragged_dataset(N_SAMPLES, s.length, false, &data));
    must(ragged_model(BLOCKS, s.dropout, false, &model));
    return fl_run_again(model, &data, &job, dir, recorded, NULL);
}

/* A run that freezes by its gradients, once more by its seed, and replayed from its record. */
static void test_ragged__repeats_to_the_last_bit(void **state)
{
    (void)state;
    scenario first = scenario_of("first", ragged_like_sst2, by_norms);
    scenario second = scenario_of("second", ragged_like_sst2, by_norms);
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
        scenario s = scenario_of(name, ragged_like_sst2,
                                 JOB_SETS("pipe.k", grids[g][0], "autodp.r", grids[g][1], "pipe.m",
                                          grids[g][2], "data.validation", "40",
                                          "train.evaluate_samples", "23"));
        scenario_run(&s);
        double loss = last_test_loss(&s);
        print_message("%s: test loss %.9f\n", name, loss);
        assert_true(isfinite(loss));
        expected = g == 0 ? loss : expected;
        assert_true(fabs(loss - expected) <= TOLERANCE * fabs(expected));
    }
}

/* ---- memory ---- */

/* Of each rank, at the end of its run. */
typedef struct taken {
    fl_stage_memory promised;
    int64_t slot_bytes, scratch_bytes; /* the most that was in use */
    int64_t device_bytes;
    int n_slots;
} taken;

static taken *taken_by; /* [WORKERS] shared with the runs */

static void note_memory(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "end") == 0 && w->now->pipeline != NULL) {
        taken *t = &taken_by[w->rank];
        size_t slot = 0, scratch = 0;
        fl_stage_peaks(fl_pipeline_stage(w->now->pipeline), &t->n_slots, &slot, &scratch);
        t->promised = w->now->memory;
        t->slot_bytes = (int64_t)slot;
        t->scratch_bytes = (int64_t)scratch;
        t->device_bytes = (int64_t)w->device->peak_bytes;
    }
}

/* What the planner says of each stage of this plan. */
static void predict(const scenario *s, const fl_plan *plan, fl_stage_memory *stages)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_sample_sizes *sizes = NULL;
    fl_memory_model *ragged = NULL;
    int64_t n_test = N_SAMPLES / 4;
    fl_job_defaults(&job);
    for (int i = 0; common[i] != NULL; i += 2) {
        must(fl_job_set(&job, common[i], common[i + 1]));
    }
    must(ragged_dataset(N_SAMPLES, s->length, s->per_token, &data));
    must(ragged_model(BLOCKS, s->dropout, s->per_token, &model));
    must(fl_sample_sizes_create(model, &data, N_SAMPLES, n_test, &sizes));
    must(fl_memory_model_create(model, sizes, &ragged));
    fl_run_batches batches = {.job = &job,
                              .sizes = sizes,
                              .n_samples = N_SAMPLES,
                              .n_steps = STEPS,
                              .stores = {.n_stores = 1, .n_workers = WORKERS}};
    fl_plan_input input = {.model = model, .job = &job, .ragged = ragged, .batches = &batches};
    for (int stage = 0; stage < plan->K; stage++) {
        must(fl_plan_memory(&input, plan, stage, &stages[stage]));
    }
    fl_memory_model_destroy(&ragged);
    fl_sample_sizes_destroy(&sizes);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

/* The context of these runs is where the plan goes. */
static void note_plan_and_memory(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "begin") == 0 && w->rank == 0) {
        *(fl_plan *)(uintptr_t)scenario_here()->context = w->now->plan;
    }
    note_memory(point, w);
}

/* The planner allows for what arenas round up, whatever the sizes: of a stage that has little more
 * than a classifier, that is a good part. */
enum { ROUNDING_BYTES = 4 * FL_MEMORY_PIECES * 64 };

static void check_within(const char *what, int64_t promised, int64_t used, double most)
{
    print_message("    %s: %lld of %lld bytes\n", what, (long long)used, (long long)promised);
    assert_true(used <= promised);
    assert_true((double)promised <= most * (double)used + (most > 1.0 ? ROUNDING_BYTES : 0));
}

/* A device with memory of its own also holds messages and what kernels know of a micro-batch. */
static void check_device(const fl_stage_memory *m, int64_t used)
{
    if (getenv("FL_TEST_DEVICE") == NULL) {
        check_within("device", m->params_bytes + m->n_slots * m->slot_bytes + m->scratch_bytes,
                     used, 1.0);
    }
}

static void check_memory(const scenario *s, const fl_plan *plan)
{
    fl_stage_memory stages[FL_MAX_STAGES];
    predict(s, plan, stages);
    for (int rank = 0; rank < plan->K * plan->R; rank++) {
        const taken *t = &taken_by[rank];
        const fl_stage_memory *m = &t->promised;
        fl_place place = fl_plan_place(plan, rank);
        const fl_stage_memory *predicted = &stages[place.stage];
        print_message("  stage %d of replica %d\n", place.stage, place.replica);
        assert_int_equal(t->n_slots, m->n_slots);
        check_device(m, t->device_bytes);
        check_within("predicted", predicted->total_bytes, m->total_bytes, 1.1);
    }
}

/* The replicas share a batch: of a stage, it is the most that any of them has used that counts. */
static void check_peaks(const fl_plan *plan)
{
    for (int stage = 0; stage < plan->K; stage++) {
        int64_t slot = 0, scratch = 0;
        const fl_stage_memory *m = &taken_by[fl_plan_rank(plan, 0, stage)].promised;
        for (int r = 0; r < plan->R; r++) {
            const taken *t = &taken_by[fl_plan_rank(plan, r, stage)];
            slot = t->slot_bytes > slot ? t->slot_bytes : slot;
            scratch = t->scratch_bytes > scratch ? t->scratch_bytes : scratch;
        }
        check_within("slot", m->slot_bytes, slot, 1.1);
        check_within("scratch", m->scratch_bytes, scratch, 1.1);
    }
}

/* In the last stage alone, an evaluation may take more temporaries than a training step; with four
 * stages, the longest sample must therefore be in both splits. */
static ragged_length *lengths_for(size_t grid)
{
    return grid == 4 ? ragged_two_lengths : ragged_like_sst2;
}

static void test_ragged__takes_the_memory_that_is_predicted(void **state)
{
    (void)state;
    fl_plan *plan = shared_memory(sizeof *plan);
    taken_by = shared_memory(WORKERS * sizeof *taken_by);
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        char name[32];
        snprintf(name, sizeof name, "memory-%zu", g);
        scenario s = scenario_of(
            name, lengths_for(g),
            JOB_SETS("pipe.k", grids[g][0], "autodp.r", grids[g][1], "pipe.m", grids[g][2]));
        s.per_token = g % 2 == 1;
        s.at_point = note_plan_and_memory;
        s.context = plan;
        memset(taken_by, 0, WORKERS * sizeof *taken_by);
        scenario_run(&s);
        print_message("K=%d R=%d M=%d\n", plan->K, plan->R, plan->M);
        check_memory(&s, plan);
        check_peaks(plan);
    }
}

/* A device with just the memory that is predicted trains; with a tenth less, the job is refused. */
static void test_ragged__fits_where_it_is_predicted_to(void **state)
{
    (void)state;
    char memory[2][32];
    fl_stage_memory stage;
    scenario s =
        scenario_of("fits", ragged_like_sst2, JOB_SETS("pipe.m", "1", "devices.memory", memory[0]));
    scenario tight = scenario_of("tight", ragged_like_sst2,
                                 JOB_SETS("pipe.m", "1", "devices.memory", memory[1]));
    fl_plan plan = {.K = 1, .R = 1, .M = 1, .schedule = FL_1F1B, .first = {0, 2 * BLOCKS + 2}};
    predict(&s, &plan, &stage);
    snprintf(memory[0], sizeof memory[0], "%lld", (long long)stage.total_bytes);
    snprintf(memory[1], sizeof memory[1], "%lld", (long long)stage.total_bytes * 9 / 10);
    scenario_run(&s);
    scenario_start(&tight);
    expect_end(&tight, FL_EBUDGET);
    assert_non_null(strstr(tight.outcome->message, "devices.memory"));
    scenario_forget(&tight);
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
    scenario s = scenario_of("costs", ragged_like_sst2, JOB_SETS("pipe.profile", path));
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
    scenario s = scenario_of("killed", ragged_like_sst2,
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
    scenario s = scenario_of("huge", ragged_like_sst2, none);
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
        scenario s = scenario_of("liar", ragged_like_sst2, sets[i]);
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
        cmocka_unit_test(test_ragged__takes_the_memory_that_is_predicted),
        cmocka_unit_test(test_ragged__fits_where_it_is_predicted_to),
        cmocka_unit_test(test_ragged__measures_what_a_token_costs),
        cmocka_unit_test(test_ragged__reports_a_worker_that_dies),
        cmocka_unit_test(test_ragged__refuses_a_data_set_that_breaks_its_promise),
        cmocka_unit_test(test_ragged__refuses_more_samples_than_a_run_can_count),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
