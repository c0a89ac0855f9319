/* Whole runs with train.precision bf16: plans agree as far as docs/precision.md says, the cache and
 * a resume change no bit, and a model of another type is refused. Catches messages or cached values
 * that are taken for fp32, a rounding that depends on the plan, and weights that lose bits on their
 * way through a checkpoint. */
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

enum { N_SAMPLES = 103, EPOCHS = 3, PER_EPOCH = 11, STEPS = EPOCHS * PER_EPOCH, COMPARED = 20 };

#define JOB_FIELDS                                                                                 \
    "train.precision", "bf16", "train.batch", "10", "train.epochs", "3", "train.lr", "1e-3",       \
        "autodp.bucket", "16KiB", "devices.count", "4", "pipe.tune", "false"

/* The scenario's own model, but of the job's type. */
static fl_status make_model(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)data;
    fl_model_destroy(model);
    return fl_toy_model_of(2, 0.1f, fl_job_dtype(job), model);
}

static double *losses_under(const char *name, const char *k, const char *r, const char *m)
{
    scenario s = {.name = name,
                  .sets = JOB_SETS(JOB_FIELDS, "pipe.k", k, "autodp.r", r, "pipe.m", m),
                  .n_samples = N_SAMPLES,
                  .adjust = make_model};
    scenario_run(&s);
    check_exactly_once(s.dir, EPOCHS, N_SAMPLES);
    return losses_of(&s, STEPS);
}

static void test_precision__plans_agree_in_bf16(void **state)
{
    (void)state;
    double *one = losses_under("one", "1", "1", "1");
    double *deep = losses_under("deep", "2", "1", "4"), *wide = losses_under("wide", "2", "2", "2");
    assert_true(one[STEPS - 1] < 0.9 * one[0]);
    print_message("first step: %.2e and %.2e apart; 20 steps: %.2e and %.2e\n",
                  worst_difference(deep, one, 0, 1), worst_difference(wide, one, 0, 1),
                  worst_difference(deep, one, 0, COMPARED),
                  worst_difference(wide, one, 0, COMPARED));
    assert_true(worst_difference(deep, one, 0, 1) <= 1e-12); /* sums of doubles in another order */
    assert_true(worst_difference(wide, one, 0, 1) <= 1e-12);
    assert_true(worst_difference(deep, one, 0, COMPARED) <= 2e-3);
    assert_true(worst_difference(wide, one, 0, COMPARED) <= 2e-3);
    free(one);
    free(deep);
    free(wide);
}

static fl_status make_plain(fl_job *job, fl_model **model, fl_dataset *data)
{
    fl_toy_make_plain(data);
    return make_model(job, model, data);
}

/* A transition, a frozen block whose outputs are cached, and hashes of all weights. */
static const fl_script_entry script[] = {{.step = 4, .f = 0, .k = 2, .r = 1, .m = 2},
                                         {.step = 8, .f = 1, .k = 1, .r = 2, .m = 2}};

static scenario frozen(const char *name, const char *const *more)
{
    static const char *const sets[] = {
        JOB_FIELDS, "pipe.k",           "1",       "autodp.r",
        "1",        "pipe.m",           "2",       "train.hash_weights",
        "5",        "checkpoint.every", "6 steps", NULL};
    return (scenario){.name = name,
                      .sets = sets,
                      .more = more,
                      .script = script,
                      .n_script = 2,
                      .n_samples = N_SAMPLES,
                      .adjust = make_plain};
}

/* Workers report their layers in any order. */
static void check_same_weights(const json_t *weights, const json_t *others)
{
    const json_t *one, *other;
    assert_true(length(weights) > 2);
    assert_int_equal(length(weights), length(others));
    FOR_EACH(one, weights)
    {
        bool found = false;
        size_t i;
        json_array_foreach(others, i, other)
        {
            found = found || json_equal(one, other);
        }
        assert_true(found);
    }
}

static void check_same(const scenario *a, const scenario *b)
{
    double *x = losses_of(a, STEPS), *y = losses_of(b, STEPS);
    json_t *weights = lines_with(a->dir, "weights.jsonl", "");
    json_t *others = lines_with(b->dir, "weights.jsonl", "");
    assert_memory_equal(x, y, STEPS * sizeof *x);
    check_same_weights(weights, others);
    json_decref(weights);
    json_decref(others);
    free(x);
    free(y);
}

static void test_precision__cache_and_resume_change_no_bit(void **state)
{
    (void)state;
    scenario computed = frozen("computed", JOB_SETS("cache.policy", "off"));
    scenario cached = frozen("cached", JOB_SETS("cache.policy", "on"));
    scenario resumed = frozen("resumed", JOB_SETS("cache.policy", "on"));
    scenario_run(&computed);
    scenario_run(&cached);
    json_t *used = lines_with(cached.dir, "events.jsonl", "\"cache.used\"");
    int64_t hits = 0;
    json_t *event;
    FOR_EACH(event, used)
    {
        hits += number(event, "hits");
    }
    assert_true(hits >= N_SAMPLES / 2);
    json_decref(used);
    check_same(&cached, &computed);
    resumed.at[0] =
        (scenario_deed){.point = "step", .who = EVERYBODY, .step = 15, .act = interrupt_after_step};
    scenario_start(&resumed);
    expect_end(&resumed, FL_ESTOPPED);
    scenario_forget(&resumed);
    resumed.at[0] = (scenario_deed){0};
    resumed.resumes = true;
    scenario_run(&resumed);
    check_exactly_once(resumed.dir, EPOCHS, N_SAMPLES);
    check_same(&resumed, &cached);
}

static void test_precision__a_model_of_another_type_is_refused(void **state)
{
    (void)state;
    scenario s = {.name = "refused",
                  .sets = JOB_SETS("train.precision", "bf16", "train.batch", "10"),
                  .n_samples = N_SAMPLES};
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    assert_non_null(strstr(s.outcome->message,
                           "train.precision: found bf16, but the activations of model 'vit' are "
                           "fp32; allowed: fp32, or a model whose first layer is made with "
                           "fl_job_dtype"));
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precision__plans_agree_in_bf16),
        cmocka_unit_test(test_precision__cache_and_resume_change_no_bit),
        cmocka_unit_test(test_precision__a_model_of_another_type_is_refused),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
