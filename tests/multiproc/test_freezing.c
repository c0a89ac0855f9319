/* Runs that freeze by themselves: a model too large for one device starts as a pipeline of two and
 * is packed into one device when enough of it is frozen. Would catch: a frost line other than the
 * policy's, a plan that does not follow it, a step or a sample lost on the way, a decision that
 * nobody can read afterwards. */
#include "launcher/run/run.h"
#include "nn/model.h"
#include "pipe/plan/memory.h"
#include "support/lines.h"
#include "support/runs.h"
#include "support/toy.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 640, BATCH = 32, M = 16, EPOCHS = 8, STEPS = 160, BLOCKS = 10 };

typedef struct step {
    int f, k, r, m;
} step;

/* What one of two replicas needs for the whole model, with nothing frozen. */
static int64_t whole_bytes(const fl_model *model, const fl_dataset *data, const fl_job *job)
{
    fl_layer_memory layers[64];
    fl_stage_memory memory;
    fl_shape input;
    int64_t n_targets;
    int n = fl_model_n_layers(model);
    must(data->ops->max_shape(data->self, &input, &n_targets));
    must(fl_memory_measure(model, &input, BATCH / M / 2, layers));
    fl_memory_stage(model, job, layers, 0, &(fl_stage_place){FL_1F1B, 1, M, 0, 0, n}, &memory);
    return memory.total_bytes;
}

/* In a child. sets: path, value, ..., NULL. A small device has not quite room for the whole. */
static void run(const char *dir, bool small, const char *const *sets)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    char text[32];
    fl_job_defaults(&job);
    must(fl_job_set(&job, "devices.count", "2"));
    must(fl_job_set(&job, "train.batch", "32"));
    must(fl_job_set(&job, "pipe.m", "16"));
    must(fl_job_set(&job, "train.epochs", "8"));
    must(fl_job_set(&job, "train.evaluate", "false"));
    must(fl_job_set(&job, "freeze.must_pay", "false")); /* so small a model saves next to nothing */
    for (; *sets != NULL; sets += 2) {
        must(fl_job_set(&job, sets[0], sets[1]));
    }
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(BLOCKS, 0.1f, &model));
    if (small) {
        snprintf(text, sizeof text, "%lld", (long long)(whole_bytes(model, &data, &job) - 1));
        must(fl_job_set(&job, "devices.memory", text));
    }
    must(fl_run_in(model, &data, &job, dir, NULL));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static bool is_event(const cJSON *line, const char *name)
{
    return strcmp(cJSON_GetObjectItem(line, "event")->valuestring, name) == 0;
}

static int count(const cJSON *events, const char *name)
{
    int n = 0;
    const cJSON *e;
    cJSON_ArrayForEach(e, events)
    {
        n += is_event(e, name);
    }
    return n;
}

static void read_steps(const char *dir, step *steps)
{
    cJSON *lines = lines_with(dir, "steps.jsonl", "");
    assert_int_equal(cJSON_GetArraySize(lines), STEPS);
    int i = 0;
    const cJSON *line;
    cJSON_ArrayForEach(line, lines)
    {
        assert_int_equal(number(line, "step"), i);
        steps[i++] =
            (step){number(line, "f"), number(line, "k"), number(line, "r"), number(line, "m")};
    }
    cJSON_Delete(lines);
}

/* Run it and bring back its steps and its events, whose caller frees them. */
static cJSON *run_apart(bool small, const char *const *sets, step *steps)
{
    char dir[64];
    assert_int_equal(make_root(NULL), 0);
    snprintf(dir, sizeof dir, "%s/run", root);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hush();
        run(dir, small, sets);
        _exit(0);
    }
    check_ended_well(child);
    read_steps(dir, steps);
    check_exactly_once(dir, EPOCHS, N_SAMPLES);
    cJSON *events = lines_with(dir, "events.jsonl", "");
    assert_int_equal(remove_root(NULL), 0);
    return events;
}

/* F never falls, every change of plan has its transition, and whatever was decided says from what
 * and why. */
static void check_story(const cJSON *events, const step *steps)
{
    int n_changes = 0, n_done = count(events, "transition.done");
    const cJSON *e;
    for (int i = 1; i < STEPS; i++) {
        const step *a = &steps[i - 1], *b = &steps[i];
        n_changes += a->f != b->f || a->k != b->k || a->r != b->r || a->m != b->m;
        assert_true(b->f >= a->f);
    }
    assert_true(n_changes <= n_done); /* cuts alone may have changed */
    assert_true(n_changes > 0);
    cJSON_ArrayForEach(e, events)
    {
        if (is_event(e, "transition.done")) {
            int first = number(e, "step");
            if (first == STEPS) {
                continue; /* decided in the last step */
            }
            assert_int_equal(steps[first].f, number(e, "f"));
            assert_int_equal(steps[first].k, number(e, "k"));
            assert_int_equal(steps[first].r, number(e, "r"));
            assert_true(cJSON_GetObjectItem(e, "predicted_step_ms")->valuedouble > 0);
        } else if (is_event(e, "freeze.decided")) {
            assert_int_equal(number(e, "blocks"), BLOCKS);
            assert_true(strlen(cJSON_GetObjectItem(e, "why")->valuestring) > 0);
        } else if (is_event(e, "plan.considered")) {
            assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(e, "candidates")) > 0);
            assert_true(strlen(cJSON_GetObjectItem(e, "why")->valuestring) > 0);
        } else if (is_event(e, "transition.measured")) {
            assert_true(cJSON_GetObjectItem(e, "measured_step_ms")->valuedouble > 0);
        }
    }
    assert_true(count(events, "transition.measured") > 0);
    assert_int_equal(count(events, "transition.cancelled"), 0);
}

static void test_freezing__begins_in_two_stages_where_one_does_not_fit(void **state)
{
    (void)state;
    static const char *const sets[] = {"freeze.policy", "schedule",    "freeze.start",
                                       "2 epochs",      "freeze.list", "[9]",
                                       "freeze.keep",   "1",           NULL};
    step *steps = calloc(STEPS, sizeof *steps);
    cJSON *events = run_apart(true, sets, steps);
    assert_int_equal(steps[0].k, 2);
    assert_int_equal(steps[0].r, 1);
    assert_int_equal(steps[39].f, 0); /* never early */
    assert_int_equal(steps[STEPS - 1].f, 9);
    /* How it is run then is the clock's to say: in so small a model neither one stage nor a second
     * replica need pay. check_story holds the run to what was chosen. */
    assert_in_range(steps[STEPS - 1].k, 1, 2);
    assert_in_range(steps[STEPS - 1].r, 1, 2);
    check_story(events, steps);
    cJSON_Delete(events);
    free(steps);
}

static void test_freezing__schedule_holds_to_its_list(void **state)
{
    (void)state;
    static const char *const sets[] = {"freeze.policy",
                                       "schedule",
                                       "freeze.start",
                                       "2 epochs",
                                       "freeze.every",
                                       "2 epochs",
                                       "freeze.list",
                                       "[2, 4, 6]",
                                       "pipe.k",
                                       "2",
                                       NULL};
    static const int due[] = {40, 80, 120}, wanted[] = {2, 4, 6};
    step *steps = calloc(STEPS, sizeof *steps);
    cJSON *events = run_apart(false, sets, steps);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(steps[due[i] - 1].f, i == 0 ? 0 : wanted[i - 1]);
    }
    assert_int_equal(steps[STEPS - 1].f, 6);
    check_story(events, steps);
    cJSON_Delete(events);
    free(steps);
}

static void test_freezing__gradnorm_goes_by_norms_that_workers_told(void **state)
{
    (void)state;
    static const char *const sets[] = {
        "freeze.policy", "gradnorm", "freeze.start", "40 steps", "freeze.every", "40 steps", NULL};
    step *steps = calloc(STEPS, sizeof *steps);
    cJSON *events = run_apart(false, sets, steps);
    const cJSON *e;
    int n = 0;
    cJSON_ArrayForEach(e, events)
    {
        if (is_event(e, "freeze.decided")) {
            const cJSON *norms = cJSON_GetObjectItem(e, "norms");
            assert_int_equal(number(e, "step"), 40 * ++n);
            assert_int_equal(cJSON_GetArraySize(norms), BLOCKS);
            for (int i = number(e, "f"); i < BLOCKS; i++) {
                assert_true(cJSON_GetArrayItem(norms, i)->valuedouble > 0);
            }
        }
    }
    assert_int_equal(n, STEPS / 40 - 1);
    assert_true(steps[STEPS - 1].f > 0 && steps[STEPS - 1].f <= BLOCKS - 2);
    check_story(events, steps);
    cJSON_Delete(events);
    free(steps);
}

/* The first decision has two intervals to compare, and what it freezes is what its words say. */
static void test_freezing__stability_compares_two_intervals(void **state)
{
    (void)state;
    static const char *const sets[] = {"freeze.policy",     "stability",    "freeze.start",
                                       "40 steps",          "freeze.every", "20 steps",
                                       "freeze.percentile", "80",           NULL};
    step *steps = calloc(STEPS, sizeof *steps);
    cJSON *events = run_apart(false, sets, steps);
    const cJSON *e;
    int n = 0;
    cJSON_ArrayForEach(e, events)
    {
        if (!is_event(e, "freeze.decided")) {
            continue;
        }
        const cJSON *norms = cJSON_GetObjectItem(e, "norms");
        const cJSON *before = cJSON_GetObjectItem(e, "norms_before");
        int f = number(e, "f"), next = number(e, "f_next");
        assert_int_equal(number(e, "step"), 40 + 20 * n++);
        assert_int_equal(cJSON_GetArraySize(norms), BLOCKS);
        assert_int_equal(cJSON_GetArraySize(before), BLOCKS);
        /* No block that freezes changed more than every block that stays. */
        double largest = 0, stays = 0;
        for (int i = f; i < BLOCKS; i++) {
            double was = cJSON_GetArrayItem(before, i)->valuedouble;
            double change = fabs(was - cJSON_GetArrayItem(norms, i)->valuedouble) / was;
            largest = i < next ? fmax(largest, change) : largest;
            stays = i < next ? stays : fmax(stays, change);
        }
        assert_true(next >= f && (next == f || largest < stays));
    }
    assert_int_equal(n, (STEPS - 40) / 20);
    assert_true(steps[STEPS - 1].f > 0 && steps[STEPS - 1].f <= BLOCKS - 2);
    check_story(events, steps);
    cJSON_Delete(events);
    free(steps);
}

static void test_freezing__without_a_policy_nothing_changes(void **state)
{
    (void)state;
    static const char *const sets[] = {NULL};
    step *steps = calloc(STEPS, sizeof *steps);
    cJSON *events = run_apart(true, sets, steps);
    for (int i = 0; i < STEPS; i++) {
        assert_memory_equal(&steps[i], &steps[0], sizeof *steps);
    }
    assert_int_equal(steps[0].f, 0);
    assert_int_equal(count(events, "freeze.decided"), 0);
    assert_int_equal(count(events, "transition.prepare"), 0);
    cJSON_Delete(events);
    free(steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freezing__begins_in_two_stages_where_one_does_not_fit),
        cmocka_unit_test(test_freezing__schedule_holds_to_its_list),
        cmocka_unit_test(test_freezing__gradnorm_goes_by_norms_that_workers_told),
        cmocka_unit_test(test_freezing__stability_compares_two_intervals),
        cmocka_unit_test(test_freezing__without_a_policy_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
