/* When a run evaluates, on which samples, and which training samples are kept for that. */
#include "autodp/validation.h"
#include "data/loader.h"
#include "data/view.h"
#include "pipe/plan/batch/evaluation.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- when ---- */

static void test_evaluation__comes_every_period_and_at_the_end(void **state)
{
    (void)state;
    enum { PER_EPOCH = 12, STEPS = 30 };
    static const struct {
        const char *every, *due; /* the numbers of steps that are done then */
    } cases[] = {{"1 epoch", "12 24 30"},
                 {"2 epochs", "24 30"},
                 {"0.5 epochs", "6 12 18 24 30"},
                 {"7 steps", "7 14 21 28 30"},
                 {"15 steps", "15 30"},
                 {"none", "30"},
                 {"50%", "15 30"},
                 {"0.01 epochs", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_job job;
        char due[256] = "";
        fl_job_defaults(&job);
        assert_int_equal(fl_job_set(&job, "train.evaluate_every", cases[i].every), FL_OK);
        int64_t period = fl_evaluation_period(&job, PER_EPOCH, STEPS);
        for (int64_t done = 0; done <= STEPS; done++) {
            if (fl_evaluation_is_due(done, period, STEPS)) {
                size_t n = strlen(due);
                snprintf(due + n, sizeof due - n, n == 0 ? "%lld" : " %lld", (long long)done);
            }
        }
        if (cases[i].due == NULL) {
            assert_int_equal(period, 1); /* a part of an epoch that is less than a step */
        } else {
            assert_string_equal(due, cases[i].due);
        }
    }
}

/* The steps at which all workers wait for a decision. Would catch: a wait after an evaluation that
 * cannot end the run, and none after one that can. */
static void test_evaluation__may_end_a_run_from_its_patience_on(void **state)
{
    (void)state;
    enum { PER_EPOCH = 12, STEPS = 60 };
    static const struct {
        const char *every, *after, *ends;
    } cases[] = {
        {"1 epoch", "2", "36 48"}, {"1 epoch", "none", ""}, {"1 epoch", "1 steps", "24 36 48"},
        {"2 epochs", "1", "48"},   {"20 steps", "1", "40"}, {"0.5 epochs", "2", "30 36 42 48 54"},
        {"1 epoch", "4", ""}}; /* only at the end */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_job job;
        char ends[256] = "";
        fl_job_defaults(&job);
        assert_int_equal(fl_job_set(&job, "train.evaluate_every", cases[i].every), FL_OK);
        assert_int_equal(fl_job_set(&job, "train.stop_after", cases[i].after), FL_OK);
        for (int64_t done = 0; done <= STEPS; done++) {
            if (fl_evaluation_is_judged(&job, done, PER_EPOCH, STEPS)) {
                size_t n = strlen(ends);
                snprintf(ends + n, sizeof ends - n, n == 0 ? "%lld" : " %lld", (long long)done);
            }
        }
        assert_string_equal(ends, cases[i].ends);
    }
}

/* A run that keeps its best checkpoint waits after each evaluation but the last one. */
static void test_evaluation__each_may_be_the_best(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    assert_int_equal(fl_job_set(&job, "train.metric", "accuracy"), FL_OK);
    assert_int_equal(fl_job_set(&job, "train.evaluate_every", "20 steps"), FL_OK);
    for (int64_t done = 0; done <= 60; done++) {
        assert_int_equal(fl_evaluation_is_judged(&job, done, 12, 60), done == 20 || done == 40);
    }
    assert_int_equal(fl_job_set(&job, "checkpoint.every", "none"), FL_OK);
    assert_false(fl_evaluation_is_judged(&job, 20, 12, 60)); /* nothing is written */
}

/* ---- on which ---- */

static void test_evaluation__draws_the_same_samples_once(void **state)
{
    (void)state;
    enum { FIRST = 5, OF = 40, N = 15 };
    bool taken[FIRST + OF] = {false}, differs = false;
    fl_evaluation_set set = fl_evaluation_set_of(FIRST, OF, N, 3);
    fl_evaluation_set other = fl_evaluation_set_of(FIRST, OF, N, 4);
    assert_int_equal(set.n, N);
    for (int64_t i = 0; i < N; i++) {
        int64_t id = fl_evaluation_sample(&set, i);
        assert_true(id >= FIRST && id < FIRST + OF && !taken[id]);
        taken[id] = true;
        differs = differs || id != fl_evaluation_sample(&other, i);
    }
    assert_true(differs); /* another seed, other samples */
    set = fl_evaluation_set_of(FIRST, OF, 0, 3);
    assert_int_equal(set.n, OF);
    for (int64_t i = 0; i < OF; i++) {
        assert_int_equal(fl_evaluation_sample(&set, i), FIRST + i);
    }
    assert_int_equal(fl_evaluation_set_of(FIRST, OF, OF + 1, 3).n, OF);
}

/* ---- validation samples ---- */

enum { TOTAL = 90, USED = 80, VALIDATION = 17, TEST = TOTAL / 4, WIDTH = 14 * 14 };

/* The training sample of the data set that has these pixels; TOTAL + i: its i-th test sample. */
static int64_t recognize(const fl_dataset *d, const float *pixels)
{
    float mine[WIDTH];
    for (int64_t i = 0; i < TOTAL + TEST; i++) {
        fl_split split = i < TOTAL ? FL_TRAIN : FL_TEST;
        fl_sample_key key = {.id = i < TOTAL ? i : i - TOTAL};
        assert_int_equal(d->ops->read(d->self, split, &key, mine), FL_OK);
        if (memcmp(mine, pixels, sizeof mine) == 0) {
            return i;
        }
    }
    fail_msg("no such sample");
    return -1;
}

/* What the view reads, and its target, are those of one sample of the data set; returns which. */
static int64_t look(const fl_dataset *inner, const fl_dataset *view, fl_split split, int64_t id)
{
    float pixels[WIDTH];
    int32_t target, expected;
    fl_sample_key key = {.id = id};
    assert_int_equal(view->ops->read(view->self, split, &key, pixels), FL_OK);
    int64_t which = recognize(inner, pixels);
    assert_int_equal(view->ops->targets(view->self, split, id, &target), FL_OK);
    assert_int_equal(inner->ops->targets(inner->self, which < TOTAL ? FL_TRAIN : FL_TEST,
                                         which < TOTAL ? which : which - TOTAL, &expected),
                     FL_OK);
    assert_int_equal(target, expected);
    return which;
}

static void test_validation__is_a_part_that_is_never_trained_on(void **state)
{
    (void)state;
    fl_dataset inner, view, again;
    bool seen[TOTAL] = {false};
    assert_int_equal(fl_toy_dataset(TOTAL, &inner), FL_OK);
    assert_int_equal(fl_validation_create(&inner, USED, VALIDATION, 7, &view), FL_OK);
    assert_int_equal(view.ops->count(view.self, FL_TRAIN), USED - VALIDATION);
    assert_int_equal(view.ops->count(view.self, FL_TEST), VALIDATION + TEST);
    assert_string_equal(view.ops->kind, inner.ops->kind);
    for (int64_t i = 0; i < USED; i++) {
        bool train = i < USED - VALIDATION;
        int64_t which =
            look(&inner, &view, train ? FL_TRAIN : FL_TEST, train ? i : i - (USED - VALIDATION));
        assert_true(which < USED && !seen[which]); /* each once, in one of the two */
        seen[which] = true;
        assert_true(!train || which == fl_view_own(&view, FL_TRAIN, i).id);
    }
    for (int64_t i = 0; i < TEST; i++) {
        assert_int_equal(look(&inner, &view, FL_TEST, VALIDATION + i), TOTAL + i);
    }
    assert_int_equal(fl_view_own(&inner, FL_TRAIN, 3).id, 3);
    /* Another seed takes others, and the cache must see that the data differ. */
    assert_int_equal(fl_validation_create(&inner, USED, VALIDATION, 8, &again), FL_OK);
    assert_true(view.ops->fingerprint(view.self) != again.ops->fingerprint(again.self));
    assert_true(view.ops->fingerprint(view.self) != inner.ops->fingerprint(inner.self));
    bool differs = false;
    for (int64_t i = 0; i < VALIDATION; i++) {
        int64_t at = USED - VALIDATION + i;
        differs =
            differs || fl_view_own(&view, FL_TRAIN, at).id != fl_view_own(&again, FL_TRAIN, at).id;
    }
    assert_true(differs);
    fl_dataset_destroy(&again);
    fl_dataset_destroy(&view);
    assert_int_equal(fl_validation_create(&inner, USED, USED, 7, &view), FL_EINVAL);
    fl_dataset_destroy(&inner);
}

/* Would catch: a message with the number of the view, under which the data set of the user has
 * another sample. */
static void test_validation__messages_name_the_data_sets_own_sample(void **state)
{
    (void)state;
    static const struct {
        fl_split split;
        int64_t id;
    } some[] = {{FL_TRAIN, 3}, {FL_TEST, 2}, {FL_TEST, VALIDATION + 1}};
    fl_dataset inner, view;
    assert_int_equal(fl_toy_dataset(TOTAL, &inner), FL_OK);
    assert_int_equal(fl_validation_create(&inner, USED, VALIDATION, 7, &view), FL_OK);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char expected[128];
        int32_t target, offsets[2];
        fl_tensor t;
        int64_t which = look(&inner, &view, some[i].split, some[i].id);
        snprintf(expected, sizeof expected,
                 "the 1 targets of %s sample %d do not fit: 0 of 0 in use",
                 which < TOTAL ? "training" : "test", (int)(which < TOTAL ? which : which - TOTAL));
        assert_int_equal(
            fl_load_targets(&view, some[i].split, &some[i].id, 1, &target, 0, offsets, &t),
            FL_EINVAL);
        assert_string_equal(fl_errmsg(), expected);
    }
    fl_dataset_destroy(&view);
    fl_dataset_destroy(&inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluation__each_may_be_the_best),
        cmocka_unit_test(test_evaluation__may_end_a_run_from_its_patience_on),
        cmocka_unit_test(test_evaluation__comes_every_period_and_at_the_end),
        cmocka_unit_test(test_evaluation__draws_the_same_samples_once),
        cmocka_unit_test(test_validation__is_a_part_that_is_never_trained_on),
        cmocka_unit_test(test_validation__messages_name_the_data_sets_own_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
