/* Transitions on devices that can hold one plan but not two: the running generation frees memory
 * for the next one. Would catch: two copies of anything but the state that must move, a refusal of
 * a plan that fits by itself, state that is lost when its memory is handed over, memory use that is
 * within the budget only by the accounting. */
#include "nn/model.h"
#include "pipe/plan/planner.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLES = 256, BATCH = 16, BLOCKS = 8, M = 2, STEPS = 40, INTERVAL = 6, LONG = 160 };

static const double TOLERANCE = 1e-5;
static const int64_t SLACK_BYTES = 8 << 20; /* of what a process holds beside its device */

/* Between the test and the workers of a run. */
typedef struct shared {
    _Atomic int n_reserved; /* openings that found no room beside the running generation */
    _Atomic int64_t
        over; /* the most bytes that any worker held beyond its budget, as counted ... */
    _Atomic int64_t resident_over; /* ... and as the system sees it */
} shared;

static shared *across;

/* ---- in the workers ---- */

/* Bytes behind a name of /proc/self/status. */
static int64_t resident(const char *name)
{
    char line[256];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtoll(line + strlen(name), NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib * 1024;
}

static void raise_to(_Atomic int64_t *most, int64_t value)
{
    int64_t seen = atomic_load(most);
    while (value > seen && !atomic_compare_exchange_weak(most, &seen, value)) {
    }
}

static int64_t parked_bytes(const fl_parked *parked)
{
    int64_t n = 0;
    for (int i = 0; i < parked->n_layers; i++) {
        n += parked->moments[i] == NULL ? 0 : parked->n[i];
    }
    return n * (int64_t)sizeof(float);
}

static void measure_memory(const char *point, fl_worker_state *w)
{
    static int64_t own, parked; /* bytes of the process outside its device; of these, parked */
    if (strcmp(point, "begin") == 0) {
        own = resident("VmRSS:") - (int64_t)w->device->used_bytes;
    } else if (strcmp(point, "vote") == 0) {
        atomic_fetch_add(&across->n_reserved, w->next != NULL && w->next->reserved);
    } else if (strcmp(point, "switch") == 0) {
        int64_t now = parked_bytes(&w->parked);
        parked = now > parked ? now : parked;
    } else if (strcmp(point, "end") == 0) {
        int64_t budget = (int64_t)w->device->budget_bytes;
        raise_to(&across->over, (int64_t)w->device->peak_bytes - budget);
        raise_to(&across->resident_over, resident("VmHWM:") - own - parked - budget);
    }
}

/* ---- runs ---- */

static fl_model *model_of(int64_t dim, int64_t patch)
{
    fl_model *model = NULL;
    fl_vit_config config = {.channels = 1,
                            .height = 14,
                            .width = 14,
                            .patch = patch,
                            .dim = dim,
                            .heads = 4,
                            .blocks = BLOCKS,
                            .n_classes = 4,
                            .dropout = 0.1f};
    must(fl_model_vit(&config, &model));
    return model;
}

static int64_t stage_bytes(const fl_plan_input *input, fl_plan *plan)
{
    int64_t most = 0;
    for (int s = 0; s < plan->K; s++) {
        fl_stage_memory m;
        must(fl_plan_memory(input, plan, s, &m));
        most = m.total_bytes > most ? m.total_bytes : most;
    }
    return most;
}

/* What the largest of K stages needs at least. */
static int64_t least_bytes(const fl_model *model, const fl_dataset *data, const fl_job *job, int F,
                           int K, int R)
{
    fl_layer_memory one[64];
    fl_shape input;
    int64_t n_targets, least = INT64_MAX;
    int n = fl_model_n_layers(model);
    must(data->ops->max_shape(data->self, &input, &n_targets));
    must(fl_memory_measure(model, &(fl_sample_shape){input, 1, FL_I32}, 1, one));
    fl_plan_input in = {.model = model, .job = job, .memory_one = one};
    fl_plan plan = {.F = F, .K = K, .R = R, .M = M, .schedule = FL_1F1B, .n_layers = n};
    plan.first[K] = n;
    for (int cut = 1; cut < n; cut++) {
        plan.first[1] = K == 1 ? n : cut;
        int64_t bytes = stage_bytes(&in, &plan);
        least = bytes < least ? bytes : least;
    }
    return least;
}

typedef struct setting {
    const char *name; /* of the run */
    int workers, steps;
    int64_t dim, patch;
    int64_t memory; /* bytes of a device */
    const fl_script_entry *script;
    int n_script;
    const char *const *sets; /* path, value, ..., NULL */
} setting;

static void fill_job(const setting *s, fl_job *job)
{
    char text[64];
    fl_job_defaults(job);
    snprintf(text, sizeof text, "%d", s->workers);
    must(fl_job_set(job, "devices.count", text));
    snprintf(text, sizeof text, "%lld", (long long)s->memory);
    must(fl_job_set(job, "devices.memory", text));
    snprintf(text, sizeof text, "%d", s->steps);
    must(fl_job_set(job, "train.max_steps", text));
    snprintf(text, sizeof text, "%d", s->workers == 1 ? 1 : M);
    must(fl_job_set(job, "pipe.m", text));
    must(fl_job_set(job, "train.batch", "16"));
    must(fl_job_set(job, "train.epochs", "20"));
    must(fl_job_set(job, "train.lr", "1e-4"));
    must(fl_job_set(job, "train.evaluate", "false"));
    must(fl_job_set(job, "checkpoint.every", "none")); /* their copy is outside devices.memory */
    for (const char *const *set = s->sets; set != NULL && *set != NULL; set += 2) {
        must(fl_job_set(job, set[0], set[1]));
    }
    job->elastic.n_script = s->n_script;
    for (int i = 0; i < s->n_script; i++) {
        job->elastic.script[i] = s->script[i];
    }
}

static fl_status make_setting(fl_job *job, fl_model **model, fl_dataset *data)
{
    const setting *s = scenario_here()->context;
    (void)data;
    fill_job(s, job);
    fl_model_destroy(model);
    *model = model_of(s->dim, s->patch);
    return FL_OK;
}

static scenario run_of(const setting *s)
{
    scenario run = {.name = s->name,
                    .n_samples = SAMPLES,
                    .adjust = make_setting,
                    .at_point = measure_memory,
                    .context = s};
    scenario_run(&run);
    return run;
}

/* A field of every line of a file that has it and `text`, into out [capacity]; how many. */
static int fields(const char *dir, const char *name, const char *text, const char *key, double *out,
                  int capacity)
{
    json_t *lines = lines_with(dir, name, text);
    const json_t *line;
    int n = 0;
    FOR_EACH(line, lines)
    {
        const json_t *item = json_object_get(line, key);
        if (item != NULL && n < capacity) {
            out[n++] = json_number_value(item);
        }
    }
    json_decref(lines);
    return n;
}

/* ---- the cases ---- */

/* Two stages with all of the model, one stage in two replicas with what is left of it, and back:
 * each time the next plan fits, but not together with the previous one. */
static void test_tight__plans_give_way_to_each_other(void **state)
{
    (void)state;
    enum { DIM = 192, PATCH = 7, N = 4 };
    static const int frozen[N] = {7, 0, 7, 6}, stages[N] = {1, 2, 1, 1};
    fl_script_entry script[N], alone[N];
    double done[N + 1];
    fl_job job;
    fl_dataset data;
    for (int i = 0; i < N; i++) {
        script[i] = (fl_script_entry){
            .step = INTERVAL * (i + 1), .f = frozen[i], .k = stages[i], .r = 3 - stages[i], .m = M};
        alone[i] =
            (fl_script_entry){.step = INTERVAL * (i + 1), .f = frozen[i], .k = 1, .r = 1, .m = 1};
    }
    /* A snapshot is memory of the host beside the budgets. */
    static const char *const fixed[] = {"pipe.k",         "2",    "autodp.r", "1",
                                        "fault.snapshot", "none", NULL};
    setting s = {.name = "alone",
                 .workers = 1,
                 .steps = STEPS,
                 .dim = DIM,
                 .patch = PATCH,
                 .memory = 4LL << 30};
    s.script = alone;
    s.n_script = N;
    scenario by_one = run_of(&s);
    fill_job(&s, &job);
    must(fl_toy_dataset(SAMPLES, &data));
    fl_model *model = model_of(DIM, PATCH);
    s = (setting){
        .name = "tight", .workers = 2, .steps = STEPS, .dim = DIM, .patch = PATCH, .sets = fixed};
    s.memory = least_bytes(model, &data, &job, 0, 2, 1) * 51 / 50;
    assert_true(least_bytes(model, &data, &job, 0, 1, 2) > s.memory);
    s.script = script;
    s.n_script = N;
    memset(across, 0, sizeof *across);
    across->over = across->resident_over = INT64_MIN;
    scenario by_two = run_of(&s);
    double *one = losses_of(&by_one, STEPS), *tight = losses_of(&by_two, STEPS);
    for (int i = 0; i < STEPS; i++) {
        if (fabs(tight[i] - one[i]) > TOLERANCE * fabs(one[i])) {
            fail_msg("step %d has loss %.9g, one worker %.9g", i, tight[i], one[i]);
        }
    }
    assert_int_equal(fields(by_two.dir, "events.jsonl", "\"transition.done\"", "k", done, N + 1),
                     N);
    assert_true(across->n_reserved >= 4); /* both workers, there and back at least */
    assert_true(across->over <= 0);
    print_message(
        "%lld bytes a device; %d openings without room; the most resident beyond it %lld\n",
        (long long)s.memory, across->n_reserved, (long long)across->resident_over);
    assert_true(across->resident_over < SLACK_BYTES);
    assert_true(s.memory > 3 * SLACK_BYTES); /* else that would say nothing */
    free(one);
    free(tight);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

/* One device cannot hold the model, so it begins as a pipeline of two; when most of it is frozen it
 * goes over to two replicas by itself, also where both plans do not fit side by side. */
static void test_tight__freezing_frees_a_device(void **state)
{
    (void)state;
    enum { DIM = 64, PATCH = 2 }; /* much to compute for each parameter: replicas pay */
    static const char *const sets[] = {"fault.snapshot",
                                       "none",
                                       "freeze.policy",
                                       "schedule",
                                       "freeze.start",
                                       "16 steps",
                                       "freeze.list",
                                       "[7]",
                                       "freeze.keep",
                                       "1",
                                       "freeze.must_pay",
                                       "false",
                                       NULL};
    double k[LONG + 1] = {0}, r[LONG + 1] = {0}, f[LONG + 1] = {0}, ignored[4];
    fl_job job;
    fl_dataset data;
    setting s = {.name = "auto",
                 .workers = 2,
                 .steps = LONG,
                 .dim = DIM,
                 .patch = PATCH,
                 .memory = 1 << 20,
                 .sets = sets};
    fl_model *model = model_of(DIM, PATCH);
    must(fl_toy_dataset(SAMPLES, &data));
    fill_job(&s, &job);
    s.memory = least_bytes(model, &data, &job, 0, 2, 1) * 51 / 50;
    assert_true(least_bytes(model, &data, &job, 0, 1, 2) > s.memory);
    assert_true(least_bytes(model, &data, &job, 7, 1, 2) < s.memory);
    memset(across, 0, sizeof *across);
    across->over = across->resident_over = INT64_MIN;
    scenario run = run_of(&s);
    assert_int_equal(fields(run.dir, "steps.jsonl", "", "k", k, LONG + 1), LONG);
    assert_int_equal(fields(run.dir, "steps.jsonl", "", "r", r, LONG + 1), LONG);
    assert_int_equal(fields(run.dir, "steps.jsonl", "", "f", f, LONG + 1), LONG);
    assert_true((int)k[0] == 2 && (int)r[0] == 1 && (int)f[0] == 0);
    assert_true((int)k[LONG - 1] == 1 && (int)r[LONG - 1] == 2 && (int)f[LONG - 1] == 7);
    assert_int_equal(fields(run.dir, "events.jsonl", "transition.cancelled", "time", ignored, 4),
                     0);
    assert_int_equal(across->n_reserved, 2);
    assert_true(across->over <= 0);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static int set_up(void **state)
{
    across = shared_memory(sizeof *across);
    return make_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tight__plans_give_way_to_each_other),
        cmocka_unit_test(test_tight__freezing_frees_a_device),
    };
    return cmocka_run_group_tests(tests, set_up, remove_root);
}
