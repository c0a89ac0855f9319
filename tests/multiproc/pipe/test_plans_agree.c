/* Elasticity never changes the mathematics: whatever K, R and M, a run computes the losses that one
 * worker computes, and uses every sample of an epoch once. Dropout and augmentation are on, R
 * divides neither the batch nor the data set, and the last batch of an epoch has fewer samples
 * than a replica has micro-batches. A dropout mask keyed by rank, a loss averaged per replica or a
 * sample lost in sharing out would each show here. */

#include "launcher/run/run.h"
#include "support/data/text.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 103, EPOCHS = 2, STEPS = 22, COMPARED = 20 };

static const struct {
    const char *k, *r, *m;
} plans[] = {{"1", "1", "1"}, {"1", "1", "4"}, {"2", "1", "4"}, {"1", "2", "2"},
             {"2", "2", "4"}, {"3", "1", "6"}, {"4", "1", "8"}, {"1", "3", "2"}};

/* What the runs train on. */
typedef struct material {
    const char *name;
    ragged_length *length;
    bool per_token;
    fl_status (*adjust)(fl_job *job, fl_model **model, fl_dataset *data);
} material;

/* Ids instead of features, and what text models have beside a vision transformer's layers. */
static fl_status use_text(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job;
    fl_model_destroy(model);
    fl_dataset_destroy(data);
    FL_TRY(text_dataset(N_SAMPLES, data));
    return text_model(4, 0.1f, TEXT_IDS, model);
}

static const material images = {.name = "images"};
static const material sentences = {.name = "sentences", .length = ragged_like_sst2};
static const material tokens = {.name = "tokens", .length = ragged_two_lengths, .per_token = true};

static const material text = {.name = "text", .adjust = use_text};

static double *losses_under(const material *data, const char *schedule, int plan)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%s-%d", data->name, schedule, plan);
    scenario s = {.name = name,
                  .sets = JOB_SETS("pipe.k", plans[plan].k, "autodp.r", plans[plan].r, "pipe.m",
                                   plans[plan].m, "pipe.schedule", schedule, "devices.count", "4",
                                   "autodp.bucket", "16KiB", "train.warmup", "4", "train.batch",
                                   "10", "train.epochs", "2"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .length = data->length,
                  .per_token = data->per_token,
                  .adjust = data->adjust};
    scenario_run(&s);
    check_exactly_once(s.dir, EPOCHS, N_SAMPLES);
    return losses_of(&s, STEPS);
}

static void compare_all(const material *data, const char *schedule)
{
    double *one = losses_under(data, schedule, 0);
    assert_true(one[STEPS - 1] < one[0]); /* it learns: a constant loss would agree with anything */
    for (int plan = 1; plan < (int)(sizeof plans / sizeof *plans); plan++) {
        double *other = losses_under(data, schedule, plan);
        double worst = worst_difference(other, one, 0, COMPARED);
        print_message("%s, %s K=%s R=%s M=%s: losses differ by at most %.2e\n", data->name,
                      schedule, plans[plan].k, plans[plan].r, plans[plan].m, worst);
        assert_true(worst <= 1e-5);
        free(other);
    }
    free(one);
}

static void test_plans__agree_under_1f1b(void **state)
{
    (void)state;
    compare_all(&images, "1f1b");
}

static void test_plans__agree_under_gpipe(void **state)
{
    (void)state;
    compare_all(&images, "gpipe");
}

/* Batches that a step accumulates are one batch to the run: with the same M to the last bit, with
 * others as every plan, also while blocks freeze. 5 x 2 samples leave an epoch's last step with a
 * part of its batches. */
static void test_plans__agree_on_accumulated_batches(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 7, .f = 2, .k = 1, .r = 2, .m = 5},
                                             {.step = 15, .f = 1, .k = 2, .r = 1, .m = 5}};
    static const struct {
        const char *name, *batch, *accumulate, *k, *r, *m;
    } runs[] = {{"at-once", "10", "1", "2", "1", "5"},
                {"five", "2", "5", "2", "1", "5"},
                {"two", "5", "2", "1", "3", "auto"},
                {"ten", "1", "10", "1", "1", "10"}};
    double *losses[4];
    for (int i = 0; i < 4; i++) {
        const fl_script_entry alone[] = {{.step = 7, .f = 2, .k = 1, .r = 1, .m = 10},
                                         {.step = 15, .f = 1, .k = 1, .r = 1, .m = 10}};
        scenario s = {.name = runs[i].name,
                      .sets = JOB_SETS("pipe.k", runs[i].k, "autodp.r", runs[i].r, "pipe.m",
                                       runs[i].m, "devices.count", "3", "autodp.bucket", "16KiB",
                                       "train.batch", runs[i].batch, "train.accumulate",
                                       runs[i].accumulate, "train.epochs", "2", "train.evaluate",
                                       "true", "pipe.tune", "false"),
                      .script = i == 3 ? alone : script,
                      .n_script = 2,
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f};
        scenario_run(&s);
        check_exactly_once(s.dir, EPOCHS, N_SAMPLES);
        losses[i] = losses_of(&s, STEPS);
    }
    assert_memory_equal(losses[0], losses[1], STEPS * sizeof *losses[0]);
    for (int i = 2; i < 4; i++) {
        assert_true(worst_difference(losses[i], losses[0], 0, COMPARED) <= 1e-5);
    }
    for (int i = 0; i < 4; i++) {
        free(losses[i]);
    }
}

/* Micro-batches then differ in samples and in tokens, and some have no sample. */
static void test_plans__agree_on_samples_of_different_length(void **state)
{
    (void)state;
    compare_all(&sentences, "1f1b");
    compare_all(&sentences, "gpipe");
}

static void test_plans__agree_on_targets_for_each_token(void **state)
{
    (void)state;
    compare_all(&tokens, "1f1b");
}

/* Would catch: an embedding's gradient that loses rows where a micro-batch ends, a position that
 * does not begin again with each sample, and a mask of attention's probabilities that depends on
 * the plan. */
static void test_plans__agree_on_text(void **state)
{
    (void)state;
    compare_all(&text, "1f1b");
}

/* Would catch: ids beyond the table that are found by a worker in the middle of an epoch. */
static void test_plans__ids_beyond_the_table_end_no_run(void **state)
{
    (void)state;
    fl_model *model = NULL;
    fl_dataset data = {0};
    fl_job job;
    fl_job_defaults(&job);
    assert_int_equal(fl_job_set(&job, "train.batch", "10"), FL_OK);
    assert_int_equal(text_dataset(N_SAMPLES, &data), FL_OK);
    assert_int_equal(text_model(2, 0.0f, TEXT_IDS - 1, &model), FL_OK);
    assert_int_equal(fl_check(model, &data, &job), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "the data set has ids 0 to 22, the table has 0 to 21"));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans__agree_under_1f1b),
        cmocka_unit_test(test_plans__agree_under_gpipe),
        cmocka_unit_test(test_plans__agree_on_accumulated_batches),
        cmocka_unit_test(test_plans__agree_on_samples_of_different_length),
        cmocka_unit_test(test_plans__agree_on_targets_for_each_token),
        cmocka_unit_test(test_plans__agree_on_text),
        cmocka_unit_test(test_plans__ids_beyond_the_table_end_no_run),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
