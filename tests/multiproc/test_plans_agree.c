/* Elasticity never changes the mathematics: whatever K, R and M, a run computes the losses that one
 * worker computes, and uses every sample of an epoch once. Dropout and augmentation are on, R
 * divides neither the batch nor the data set, and the last batch of an epoch has fewer samples
 * than a replica has micro-batches. A dropout mask keyed by rank, a loss averaged per replica or a
 * sample lost in sharing out would each show here. */
#include "launcher/run/run.h"
#include "support/runs.h"
#include "support/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 103, BATCH = 10, EPOCHS = 2, STEPS = 22, COMPARED = 20, BLOCKS = 4 };

static const struct {
    const char *k, *r, *m;
} plans[] = {{"1", "1", "1"}, {"1", "1", "4"}, {"2", "1", "4"}, {"1", "2", "2"},
             {"2", "2", "4"}, {"3", "1", "6"}, {"4", "1", "8"}, {"1", "3", "2"}};

/* In a child: the controller of one run. */
static void run_plan(const char *dir, const char *schedule, int plan)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    char text[32];
    fl_job_defaults(&job);
    must(fl_job_set(&job, "pipe.k", plans[plan].k));
    must(fl_job_set(&job, "autodp.r", plans[plan].r));
    must(fl_job_set(&job, "pipe.m", plans[plan].m));
    must(fl_job_set(&job, "pipe.schedule", schedule));
    must(fl_job_set(&job, "devices.count", "4"));
    must(fl_job_set(&job, "autodp.bucket", "16KiB"));
    must(fl_job_set(&job, "train.warmup", "4"));
    snprintf(text, sizeof text, "%d", BATCH);
    must(fl_job_set(&job, "train.batch", text));
    snprintf(text, sizeof text, "%d", EPOCHS);
    must(fl_job_set(&job, "train.epochs", text));
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(BLOCKS, 0.1f, &model));
    must(fl_run_in(model, &data, &job, dir, NULL));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static void losses_of(const char *schedule, int plan, double *losses)
{
    char dir[96];
    snprintf(dir, sizeof dir, "%s/%s-%d", root, schedule, plan);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run_plan(dir, schedule, plan);
        _exit(0);
    }
    check_ended_well(child);
    assert_int_equal(fl_toy_losses(dir, losses, STEPS + 1), STEPS);
    check_exactly_once(dir, EPOCHS, N_SAMPLES);
}

static void compare_all(const char *schedule)
{
    double one[STEPS + 1], other[STEPS + 1];
    assert_int_equal(make_root(NULL), 0);
    losses_of(schedule, 0, one);
    assert_true(one[STEPS - 1] < one[0]); /* it learns: a constant loss would agree with anything */
    for (int plan = 1; plan < (int)(sizeof plans / sizeof *plans); plan++) {
        double worst = 0.0;
        losses_of(schedule, plan, other);
        for (int i = 0; i < COMPARED; i++) {
            worst = fmax(worst, fabs(other[i] - one[i]) / fabs(one[i]));
        }
        print_message("%s K=%s R=%s M=%s: losses differ by at most %.2e\n", schedule, plans[plan].k,
                      plans[plan].r, plans[plan].m, worst);
        assert_true(worst <= 1e-5);
    }
    assert_int_equal(remove_root(NULL), 0);
}

static void test_plans__agree_under_1f1b(void **state)
{
    (void)state;
    compare_all("1f1b");
}

static void test_plans__agree_under_gpipe(void **state)
{
    (void)state;
    compare_all("gpipe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans__agree_under_1f1b),
        cmocka_unit_test(test_plans__agree_under_gpipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
