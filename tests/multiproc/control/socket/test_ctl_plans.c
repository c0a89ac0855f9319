/* Requests that change the plan of a run while it trains. Would catch: a requested transition that
 * loses a sample or changes the mathematics, a reply before the plan has taken effect, work for a
 * drained worker, a pinned block that freezes. */
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS_MAX = 20000, BLOCKS = 4 };

static const double TOLERANCE = 1e-5;

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "autodp.bucket", "16KiB",  \
        "pipe.m", "2"
#define ENDLESS TRAINING, "train.epochs", "9000"

typedef struct changed {
    int64_t step, generation, f, k, r, m;
    bool changed;
} changed;

static int64_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return (int64_t)json_integer_value(value);
}

static changed ask(live_run *run, const char *cmd, const char *args)
{
    json_t *result = live_ask(run, cmd, args);
    changed c = {.step = integer_of(result, "step"),
                 .generation = integer_of(result, "generation"),
                 .f = integer_of(result, "f"),
                 .k = integer_of(result, "k"),
                 .r = integer_of(result, "r"),
                 .m = integer_of(result, "m"),
                 .changed = json_is_true(json_object_get(result, "changed"))};
    json_decref(result);
    return c;
}

static int64_t plan_now(live_run *run, const char *key)
{
    json_t *status = live_ask(run, "status", "{}");
    int64_t value = integer_of(json_object_get(status, "plan"), key);
    json_decref(status);
    return value;
}

static void stop(live_run *run)
{
    json_decref(live_ask(run, "stop", "{}"));
    assert_int_equal(live_finish(run), FL_ESTOPPED);
}

/* The plan of a step, as steps.jsonl tells it. */
static int64_t field_of_step(const live_run *run, int64_t step, const char *key)
{
    json_t *line = live_step(run, step);
    int64_t value = integer_of(line, key);
    json_decref(line);
    return value;
}

/* Runs that scale, and one worker; lengths: of the samples, NULL: images. */
static live_run start_on(ragged_length *lengths, const char *const *sets)
{
    return lengths == NULL ? live_start(sets) : live_start_ragged(sets, lengths);
}

/* Both last until they are stopped: each request comes in the middle of the training, however fast
 * its steps are. Compared are the steps up to some on the last plan. */
static void compare_scaling(ragged_length *lengths)
{
    enum { MORE = 60 };
    static const struct {
        const char *args;
        int k, r;
    } scales[] = {{"{\"devices\": 1}", 1, 1},     {"{\"k\": 2, \"r\": 1, \"m\": 2}", 2, 1},
                  {"{\"k\": 2, \"r\": 2}", 2, 2}, {"{\"k\": 1, \"r\": 3}", 1, 3},
                  {"{\"devices\": 1}", 1, 1},     {"{\"k\": 4, \"r\": 1}", 4, 1}};
    live_run run = start_on(lengths, (const char *const[]){ENDLESS, "devices.count", "4", "pipe.k",
                                                           "2", "autodp.r", "1", NULL});
    live_await_step(&run, 5);
    int64_t before = 0, steps[6];
    for (int i = 0; i < 6; i++) {
        changed c = ask(&run, "scale", scales[i].args);
        assert_true(c.k == scales[i].k && c.r == scales[i].r && c.changed);
        assert_true(c.step > before && c.generation == i + 2);
        assert_int_equal(plan_now(&run, "generation"), i + 2);
        steps[i] = before = c.step;
        live_await_step(&run, c.step + 1 + 7 * i); /* at different places of an epoch */
    }
    live_refused(&run, "scale", "{\"devices\": 5}", "refused");
    live_refused(&run, "scale", "{\"k\": 3, \"r\": 2}", "refused");
    live_refused(&run, "scale", "{\"k\": 3}", "bad_argument");
    live_refused(&run, "scale", "{\"devices\": 2, \"k\": 3, \"r\": 1}", "bad_argument");
    int n_steps = (int)steps[5] + MORE;
    assert_true(n_steps < STEPS_MAX);
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    for (int i = 0; i < 6; i++) { /* it held from the very step that the answer named */
        assert_int_equal(field_of_step(&run, steps[i], "generation"), i + 2);
        assert_int_equal(field_of_step(&run, steps[i] - 1, "generation"), i + 1);
    }
    double *many = live_take_losses(&run, n_steps);

    run = start_on(lengths, (const char *const[]){ENDLESS, "devices.count", "1", NULL});
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    double *one = live_take_losses(&run, n_steps);
    double worst = 0.0;
    for (int i = 0; i < n_steps; i++) {
        worst = fmax(worst, fabs(many[i] - one[i]) / fabs(one[i]));
    }
    print_message("losses differ by at most %.2e over %d steps\n", worst, n_steps);
    assert_true(worst <= TOLERANCE);
    assert_true(one[n_steps - 1] < one[0]);
    free(many);
    free(one);
}

/* What a person asks for is carried out whatever it costs, and the event has the price: a step with
 * it and a step without it. */
static void check_price(const live_run *run)
{
    json_t *all = lines_with(run->dir, "events.jsonl", "\"plan.considered\"");
    const json_t *e = json_array_get(all, 0),
                 *o = json_array_get(json_object_get(e, "candidates"), 0);
    assert_non_null(o);
    assert_string_not_equal(json_string_value(json_object_get(e, "choice")), "stay");
    assert_true(json_number_value(json_object_get(e, "stay_step_ms")) > 0.0);
    assert_true(json_number_value(json_object_get(o, "step_ms")) > 0.0);
    assert_true(json_number_value(json_object_get(o, "cost_ms")) > 0.0);
    json_decref(all);
}

static void test_plans__scaling_follows_one_worker(void **state)
{
    (void)state;
    compare_scaling(NULL);
}

/* Every plan that a request leads to finds its own largest micro-batches while the run goes on. */
static void test_plans__scaling_on_samples_of_different_length(void **state)
{
    (void)state;
    compare_scaling(ragged_like_sst2);
}

static void test_plans__freeze_thaw_and_pins(void **state)
{
    (void)state;
    live_run run = live_start(
        (const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "2", "autodp.r", "1", NULL});
    live_await_step(&run, 20);
    changed c = ask(&run, "freeze", "{\"blocks\": 2}");
    assert_true(c.changed && c.f == 2);
    assert_int_equal(plan_now(&run, "f"), 2);
    check_price(&run);
    live_await_step(&run, c.step + 5);
    assert_false(ask(&run, "freeze", "{\"blocks\": 2}").changed);
    live_refused(&run, "freeze", "{\"blocks\": 1}", "refused");
    live_refused(&run, "freeze", "{\"blocks\": 99}", "bad_argument");
    json_decref(live_ask(&run, "pin", "{\"block\": 2}")); /* it is frozen, and thaws */
    assert_int_equal(plan_now(&run, "f"), 1);
    live_refused(&run, "freeze", "{\"blocks\": 2}", "refused");
    json_decref(live_ask(&run, "unpin", "{\"block\": 2}"));
    assert_int_equal(ask(&run, "freeze", "{\"blocks\": 2}").f, 2);
    json_t *pinned = live_ask(&run, "pin", "{\"block\": 3}");
    assert_int_equal(json_array_size(json_object_get(pinned, "pinned")), 1);
    json_decref(pinned);
    live_refused(&run, "freeze", "{\"blocks\": 3}", "refused");
    json_decref(live_ask(&run, "unpin", "{\"block\": 3}"));
    c = ask(&run, "freeze", "{\"blocks\": 3}");
    assert_int_equal(c.f, 3);
    c = ask(&run, "thaw", "{\"blocks\": 0}");
    assert_true(c.changed && c.f == 0);
    live_refused(&run, "thaw", "{\"blocks\": 1}", "refused");
    live_await_step(&run, c.step + 5);
    stop(&run);
    assert_int_equal(field_of_step(&run, c.step, "f"), 0);
    live_check_ledger(&run);
    live_clean(&run);
}

/* Would catch: a policy that ignores a pin. */
static void test_plans__the_policy_respects_a_pin(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS,
                                                    "devices.count",
                                                    "2",
                                                    "pipe.k",
                                                    "2",
                                                    "autodp.r",
                                                    "1",
                                                    "freeze.policy",
                                                    "schedule",
                                                    "freeze.list",
                                                    "[0, 1, 2, 3]",
                                                    "freeze.start",
                                                    "60 steps",
                                                    "freeze.every",
                                                    "60 steps",
                                                    "freeze.keep",
                                                    "1",
                                                    "freeze.must_pay",
                                                    "false",
                                                    NULL});
    json_decref(live_ask(&run, "pin", "{\"block\": 2}"));
    live_await_step(&run, 400); /* by now three were to be frozen */
    assert_int_equal(plan_now(&run, "f"), 1);
    json_decref(live_ask(&run, "unpin", "{\"block\": 2}"));
    int64_t step = live_status(&run, "step");
    live_await_step(&run, step + 130);
    assert_int_equal(plan_now(&run, "f"), 3);
    stop(&run);
    live_clean(&run);
}

static void test_plans__a_drained_worker_gets_no_work(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, "devices.count", "3", "pipe.k", "auto",
                                                    "autodp.r", "auto", NULL});
    live_await_step(&run, 10);
    json_decref(live_ask(&run, "scale", "{\"k\": 2, \"r\": 1}"));
    assert_true(ask(&run, "drain", "{\"worker\": 0}").changed); /* it had work, and spoke */
    live_refused(&run, "scale", "{\"k\": 4, \"r\": 1}", "refused");
    changed c = ask(&run, "scale", "{\"k\": 1, \"r\": 2}");
    live_await_step(&run, c.step + 10);
    assert_int_equal(ask(&run, "drain", "{\"worker\": 2}").r, 1);
    live_refused(&run, "drain", "{\"worker\": 1}", "refused"); /* the last one */
    live_refused(&run, "drain", "{\"worker\": 3}", "bad_argument");
    stop(&run);
    live_check_ledger(&run);
    live_clean(&run);
}

static void test_plans__micro_batches_can_be_set(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "2",
                                                    "autodp.r", "1", "pipe.m", "2", NULL});
    live_await_step(&run, 10);
    changed c = ask(&run, "set", "{\"field\": \"pipe.m\", \"value\": 5}");
    assert_true(c.changed && c.m == 5 && c.k == 2 && c.r == 1);
    live_refused(&run, "set", "{\"field\": \"pipe.m\", \"value\": 11}", "refused");
    live_refused(&run, "set", "{\"field\": \"pipe.m\", \"value\": 0}", "bad_argument");
    live_await_step(&run, c.step + 5);
    stop(&run);
    assert_int_equal(field_of_step(&run, c.step, "m"), 5);
    live_clean(&run);
}

/* Would catch: an M set by hand that the next change of the plan, or the comparison of several M,
 * takes back. */
static void test_plans__micro_batches_stay_as_set(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, "pipe.m", "auto", "devices.count", "3",
                                                    "pipe.k", "1", "autodp.r", "1", NULL});
    live_await_step(&run, 10);
    assert_int_equal(ask(&run, "set", "{\"field\": \"pipe.m\", \"value\": 5}").m, 5);
    changed c = ask(&run, "drain", "{\"worker\": 2}"); /* it had no work */
    live_await_step(&run, c.step + 60);
    assert_int_equal(plan_now(&run, "m"), 5);
    c = ask(&run, "freeze", "{\"blocks\": 1}");
    live_await_step(&run, c.step + 60);
    assert_int_equal(plan_now(&run, "m"), 5);
    assert_int_equal(ask(&run, "scale", "{\"k\": 1, \"r\": 2, \"m\": 4}").m, 4);
    c = ask(&run, "scale", "{\"k\": 2, \"r\": 1}");
    live_await_step(&run, c.step + 60);
    assert_int_equal(plan_now(&run, "m"), 4);
    stop(&run);
    live_check_ledger(&run);
    live_clean(&run);
}

/* Would catch: two that trample on each other; a paused run that cannot be scaled. */
static void test_plans__while_paused(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "auto",
                                                    "autodp.r", "auto", NULL});
    live_await_step(&run, 10);
    json_decref(live_ask(&run, "scale", "{\"k\": 2, \"r\": 1}"));
    json_t *paused = live_ask(&run, "pause", "{}");
    int64_t step = integer_of(paused, "step");
    json_decref(paused);
    changed c = ask(&run, "scale", "{\"k\": 1, \"r\": 1}");
    assert_true(c.changed && c.step == step);
    c = ask(&run, "scale", "{\"k\": 1, \"r\": 2}");
    assert_true(c.changed && c.step == step);
    json_decref(live_ask(&run, "resume", "{}"));
    live_await_step(&run, step + 20);
    stop(&run);
    assert_int_equal(field_of_step(&run, step, "r"), 2);
    live_check_ledger(&run);
    live_clean(&run);
}

static atomic_bool *may_start; /* shared with the workers */

static void hold_the_start(const char *point, fl_worker_state *w)
{
    (void)w;
    while (strcmp(point, "begin") == 0 && !atomic_load(may_start)) {
        nap(1000);
    }
}

/* Would catch: an operator's script that waits until the run answers, and whose change is then
 * refused because the workers are still starting. */
static void test_plans__a_change_waits_for_the_start_of_the_run(void **state)
{
    (void)state;
    const char *reply = NULL;
    may_start = shared_memory(sizeof *may_start);
    live_run run = live_start_with(
        (const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "1", "autodp.r", "2", NULL},
        (scenario_deed){.point = NULL}, hold_the_start);
    assert_int_equal(fl_ctl_client_send(run.ctl, "{\"v\": 1, \"id\": \"drain\", \"cmd\": \"drain\","
                                                 " \"args\": {\"worker\": 1}}"),
                     FL_OK);
    json_t *status = live_ask(&run, "status", "{}"); /* requests are read in order */
    assert_string_equal(json_string_value(json_object_get(status, "state")), "starting");
    json_decref(status);
    atomic_store(may_start, true);
    assert_int_equal(fl_ctl_client_receive(run.ctl, LIVE_WAIT_MS, &reply), FL_OK);
    assert_non_null(strstr(reply, "\"id\": \"drain\""));
    assert_non_null(strstr(reply, "\"ok\": true"));
    assert_int_equal(plan_now(&run, "r"), 1);
    stop(&run);
    live_check_ledger(&run);
    live_clean(&run);
}

static atomic_int *n_votes; /* of worker 1, shared with it */

/* The connections that the first change has opened break as its workers vote. */
static void break_first_change(fl_worker_state *w)
{
    if (atomic_fetch_add(n_votes, 1) == 0) {
        fl_group_abort(w->next->group, FL_EPEER);
    }
}

/* Would catch: an operator who is told why the change failed, but not what has become of the plan,
 * and whether it is worth trying again. */
static void test_plans__a_change_that_breaks_may_be_repeated(void **state)
{
    (void)state;
    n_votes = shared_memory(sizeof *n_votes);
    live_run run = live_start_with(
        (const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "2", "autodp.r", "1", NULL},
        (scenario_deed){.point = "vote", .who = 1, .act = break_first_change}, NULL);
    live_await_step(&run, 5);
    json_t *reply = live_send(&run, "{\"v\": 1, \"id\": \"first\", \"cmd\": \"scale\", "
                                    "\"args\": {\"k\": 1, \"r\": 2}}");
    const char *message =
        json_string_value(json_object_get(json_object_get(reply, "error"), "message"));
    assert_non_null(message);
    assert_non_null(strstr(message, "; the plan is unchanged, and the request may be repeated"));
    json_decref(reply);
    assert_int_equal(plan_now(&run, "k"), 2);
    changed c = ask(&run, "scale", "{\"k\": 1, \"r\": 2}");
    assert_true(c.changed && c.r == 2);
    stop(&run);
    live_check_ledger(&run);
    live_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans__scaling_follows_one_worker),
        cmocka_unit_test(test_plans__scaling_on_samples_of_different_length),
        cmocka_unit_test(test_plans__freeze_thaw_and_pins),
        cmocka_unit_test(test_plans__the_policy_respects_a_pin),
        cmocka_unit_test(test_plans__a_drained_worker_gets_no_work),
        cmocka_unit_test(test_plans__micro_batches_can_be_set),
        cmocka_unit_test(test_plans__micro_batches_stay_as_set),
        cmocka_unit_test(test_plans__while_paused),
        cmocka_unit_test(test_plans__a_change_waits_for_the_start_of_the_run),
        cmocka_unit_test(test_plans__a_change_that_breaks_may_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
