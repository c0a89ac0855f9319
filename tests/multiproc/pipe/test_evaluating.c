/* A run evaluates when the job says, on the samples that the job says, and gets the same losses
 * under every plan. Validation samples are in no epoch. */
#include "launcher/run/run.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/runs/runs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 130, N_VALIDATION = 26, N_TEST = N_SAMPLES / 4, BATCH = 13, EPOCHS = 2 };

static const struct {
    int k, r, m, devices;
} plans[] = {{1, 1, 1, 1}, {2, 1, 4, 2}, {1, 2, 2, 3}};
enum { N_PLANS = sizeof plans / sizeof *plans };

static fl_run_result *result; /* shared with the child */

static void run(const char *dir, int plan, const char *const *fields)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    set(&job, "pipe.k", plans[plan].k);
    set(&job, "autodp.r", plans[plan].r);
    set(&job, "pipe.m", plans[plan].m);
    set(&job, "devices.count", plans[plan].devices);
    set(&job, "train.batch", BATCH);
    set(&job, "train.epochs", EPOCHS);
    must(fl_job_set(&job, "pipe.profile", "none"));
    for (int i = 0; fields[i] != NULL; i += 2) {
        must(fl_job_set(&job, fields[i], fields[i + 1]));
    }
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(3, 0.1f, &model));
    must(fl_run_in(model, &data, &job, dir, result));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    _exit(0);
}

/* The run's evaluations, as its events tell them. */
static json_t *evaluations_of(const char *name, int plan, const char *const *fields, char dir[96])
{
    snprintf(dir, 96, "%s/%s-%d", root, name, plan);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hush();
        run(dir, plan, fields);
    }
    check_ended_well(child);
    return lines_with(dir, "events.jsonl", "\"event\": \"evaluation\"");
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void check_close(double a, double b)
{
    assert_true(isfinite(a) && fabs(a - b) <= 1e-4 * fabs(b)); /* 20 steps and more */
}

static void test_evaluating__every_few_steps_on_a_part(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.evaluate_every", "4 steps",
                                         "train.evaluate_samples", "7", NULL};
    enum { STEPS = 20 };
    double first[STEPS];
    for (int plan = 0; plan < N_PLANS; plan++) {
        char dir[96];
        json_t *events = evaluations_of("steps", plan, fields, dir);
        assert_int_equal((int)json_array_size(events), STEPS / 4);
        for (int i = 0; i < STEPS / 4; i++) {
            const json_t *event = json_array_get(events, (size_t)i);
            assert_int_equal(number(event, "step"), 4 * i + 3);
            assert_int_equal(number(event, "test_samples"), i < STEPS / 4 - 1 ? 7 : N_TEST);
            first[i] = plan == 0 ? real(event, "test_loss") : first[i];
            check_close(real(event, "test_loss"), first[i]);
        }
        check_close(result->test_loss, first[STEPS / 4 - 1]);
        assert_true(isnan(result->validation_loss));
        /* An epoch ends without an evaluation of its own if none is due. */
        json_t *epochs = lines_with(dir, "events.jsonl", "\"epoch.finished\"");
        assert_int_equal((int)json_array_size(epochs), EPOCHS);
        assert_null(json_object_get(json_array_get(epochs, (size_t)0), "test_loss"));
        assert_non_null(json_object_get(json_array_get(epochs, (size_t)1), "test_loss"));
        check_exactly_once(dir, EPOCHS, N_SAMPLES);
        json_decref(epochs);
        json_decref(events);
    }
}

static void test_evaluating__on_validation_samples_and_the_test_samples_at_the_end(void **state)
{
    (void)state;
    static const char *const fields[] = {"data.validation", "20%", NULL};
    double validation[EPOCHS], test = NAN;
    for (int plan = 0; plan < N_PLANS; plan++) {
        char dir[96];
        json_t *events = evaluations_of("validation", plan, fields, dir);
        assert_int_equal((int)json_array_size(events), EPOCHS);
        for (int i = 0; i < EPOCHS; i++) {
            const json_t *event = json_array_get(events, (size_t)i);
            bool last = i == EPOCHS - 1;
            assert_int_equal(number(event, "validation_samples"), N_VALIDATION);
            validation[i] = plan == 0 ? real(event, "validation_loss") : validation[i];
            check_close(real(event, "validation_loss"), validation[i]);
            assert_true((json_object_get(event, "test_loss") != NULL) == last);
            assert_true(!last || number(event, "test_samples") == N_TEST);
        }
        test = plan == 0 ? result->test_loss : test;
        check_close(result->test_loss, test);
        check_close(result->validation_loss, validation[EPOCHS - 1]);
        assert_true(result->test_loss != result->validation_loss);
        assert_int_equal(result->steps, EPOCHS * (N_SAMPLES - N_VALIDATION) / BATCH);
        check_exactly_once(dir, EPOCHS, N_SAMPLES - N_VALIDATION);
        json_decref(events);
    }
}

static void test_evaluating__only_at_the_end(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.evaluate_every", "none", NULL};
    char dir[96];
    json_t *events = evaluations_of("end", 1, fields, dir);
    assert_int_equal((int)json_array_size(events), 1);
    assert_int_equal(number(json_array_get(events, (size_t)0), "step"), 19);
    json_decref(events);
    static const char *const never[] = {"train.evaluate", "false", NULL};
    events = evaluations_of("never", 1, never, dir);
    assert_int_equal((int)json_array_size(events), 0);
    assert_int_equal(count_events(dir, "epoch.finished", ""), EPOCHS);
    json_decref(events);
}

static int set_up(void **state)
{
    (void)state;
    result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return result == MAP_FAILED || make_root(NULL) != 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluating__every_few_steps_on_a_part),
        cmocka_unit_test(test_evaluating__on_validation_samples_and_the_test_samples_at_the_end),
        cmocka_unit_test(test_evaluating__only_at_the_end),
    };
    return cmocka_run_group_tests(tests, set_up, remove_root);
}
