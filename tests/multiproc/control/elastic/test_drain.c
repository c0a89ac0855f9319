/* Workers that leave a run while it continues. Would catch: a drained worker that stays, or that
 * leaves without sending state which only it had; a wait for a worker that has left; a run that
 * ends, hangs or becomes inconsistent because of the way in which a worker left. */
#include "device/system/clock.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS_MAX = 20000, PATIENCE_MS = 60000 };

static const double TOLERANCE = 1e-5;

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "train.epochs", "9000",    \
        "autodp.bucket", "16KiB", "fault.detect", "5s", "fault.on_loss", "stop"

/* The worker stays where it is, and never comes to its end. */
static void stay(fl_worker_state *w)
{
    (void)w;
    for (;;) {
        pause();
    }
}

static int64_t number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return (int64_t)json_integer_value(value);
}

/* One integer of the result. */
static int64_t ask(live_run *run, const char *cmd, const char *args, const char *key)
{
    json_t *result = live_ask(run, cmd, args);
    int64_t value = number_of(result, key);
    json_decref(result);
    return value;
}

/* The event worker.left of a worker: exit_code or signal; -1 if there is no such field. */
static int64_t how_it_left(const live_run *run, int rank, const char *key)
{
    json_t *events = lines_with(run->dir, "events.jsonl", "\"worker.left\"");
    const json_t *e;
    int64_t how = -1;
    int n = 0;
    FOR_EACH(e, events)
    {
        if (number(e, "rank") == rank) {
            const json_t *value = json_object_get(e, key);
            how = json_is_integer(value) ? (int)json_integer_value(value) : -1;
            n++;
        }
    }
    json_decref(events);
    assert_int_equal(n, 1);
    return how;
}

/* As Ctrl-C does. */
static void interrupt(live_run *run)
{
    assert_int_equal(kill(run->controller, SIGINT), 0);
    assert_int_equal(live_finish(run), FL_ESTOPPED);
    live_check_ledger(run);
}

static void ask_drain(live_run *run, int rank)
{
    char args[32];
    snprintf(args, sizeof args, "{\"worker\": %d}", rank);
    json_t *result = live_ask(run, "drain", args);
    assert_true(json_is_true(json_object_get(result, "changed")));
    json_decref(result);
}

static void drain(live_run *run, int rank)
{
    pid_t pid = live_process_of(run, rank);
    ask_drain(run, rank);
    live_await_state(run, rank, "drained");
    assert_true(kill(pid, 0) != 0 && errno == ESRCH);
}

/* The losses of one worker under a script that freezes and thaws at these steps. */
static int scripted_losses(int64_t freeze, int64_t thaw, int64_t n_steps, double *losses)
{
    char script[128];
    snprintf(script, sizeof script, "[{step: %lld, f: 2}, {step: %lld, f: 0}]", (long long)freeze,
             (long long)thaw);
    live_run run =
        live_start((const char *const[]){TRAINING, "devices.count", "1", "pipe.k", "1", "autodp.r",
                                         "1", "pipe.m", "2", "elastic.script", script, NULL});
    live_await_step(&run, n_steps);
    interrupt(&run);
    int n = fl_toy_losses(run.dir, losses, STEPS_MAX);
    live_clean(&run);
    return n;
}

/* The leader leaves, and so do the workers that keep the moments of frozen layers. The workers that
 * stay must get those moments. */
static void test_drain__no_state_is_lost_with_a_worker(void **state)
{
    (void)state;
    double *many = calloc(STEPS_MAX, sizeof *many), *one = calloc(STEPS_MAX, sizeof *one);
    live_run run = live_start((const char *const[]){TRAINING, "devices.count", "4", "pipe.k", "2",
                                                    "autodp.r", "2", "pipe.m", "2", NULL});
    live_await_step(&run, 10);
    int64_t freeze = ask(&run, "freeze", "{\"blocks\": 2}", "step");
    live_await_step(&run, freeze + 10);
    drain(&run, 0);
    live_await_step(&run, live_status(&run, "step") + 5);
    json_decref(live_ask(&run, "pause", "{}"));
    drain(&run, 3);
    json_decref(live_ask(&run, "resume", "{}"));
    drain(&run, 1);
    live_refused(&run, "drain", "{\"worker\": 2}", "refused"); /* the last one */
    live_refused(&run, "drain", "{\"worker\": 1}", "refused"); /* it has left */
    int64_t thaw = ask(&run, "thaw", "{\"blocks\": 0}", "step");
    live_await_step(&run, thaw + 60);
    interrupt(&run);
    assert_int_equal(how_it_left(&run, 0, "exit_code"), 0);
    assert_int_equal(how_it_left(&run, 1, "exit_code"), 0);
    assert_int_equal(how_it_left(&run, 3, "exit_code"), 0);
    assert_true(fl_toy_losses(run.dir, many, STEPS_MAX) >= thaw + 60);
    live_clean(&run);
    int64_t n = thaw + 60;
    assert_true(scripted_losses(freeze, thaw, n, one) >= n);
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(many[i] - one[i]) / fabs(one[i]));
    }
    print_message("frozen at %lld, thawed at %lld: losses differ by at most %.2e over %lld steps\n",
                  (long long)freeze, (long long)thaw, worst, (long long)n);
    assert_true(worst <= TOLERANCE);
    free(many);
    free(one);
}

/* With six workers, the messages of the group pass through its first member, which leaves. */
static void test_drain__a_standby_worker_and_the_first_of_many(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){
        TRAINING, "devices.count", "6", "pipe.k", "auto", "autodp.r", "auto", "pipe.m", "2", NULL});
    live_await_step(&run, 5);
    json_decref(live_ask(&run, "scale", "{\"k\": 2, \"r\": 1}"));
    drain(&run, 5);
    drain(&run, 0);
    assert_int_equal(ask(&run, "scale", "{\"k\": 1, \"r\": 4}", "r"), 4);
    live_refused(&run, "scale", "{\"k\": 1, \"r\": 7}", "refused");
    json_decref(live_ask(&run, "pause", "{}"));
    drain(&run, 2);
    json_decref(live_ask(&run, "resume", "{}"));
    assert_int_equal(ask(&run, "scale", "{\"k\": 1, \"r\": 2}", "r"), 2);
    live_await_step(&run, live_status(&run, "step") + 25); /* over the end of an epoch */
    interrupt(&run);
    live_clean(&run);
}

/* A worker that has handed over its state cannot harm the run: here it is killed, or stopped and
 * then killed by the controller. */
static void test_drain__how_it_leaves_harms_nobody(void **state)
{
    (void)state;
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (int i = 0; i < 2; i++) {
        scenario_deed never_ends = {.point = "end", .who = 1, .act = stay};
        live_run run =
            live_start_with((const char *const[]){TRAINING, "devices.count", "3", "pipe.k", "1",
                                                  "autodp.r", "3", "pipe.m", "2", NULL},
                            never_ends, NULL);
        live_await_step(&run, 5);
        ask_drain(&run, 1);
        live_await_state(&run, 1, "leaving");
        kill(live_process_of(&run, 1), signals[i]);
        live_await_state(&run, 1, "drained");
        assert_int_equal(ask(&run, "scale", "{\"devices\": 1}", "r"), 1);
        live_await_step(&run, live_status(&run, "step") + 10);
        interrupt(&run);
        assert_int_equal(how_it_left(&run, 1, "signal"), SIGKILL);
        assert_int_equal(how_it_left(&run, 1, "exit_code"), -1);
        live_clean(&run);
    }
}

/* Until all state has moved, the loss of a leaving worker ends the run, as that of any worker. */
static void test_drain__a_loss_on_the_way_ends_the_run(void **state)
{
    (void)state;
    static const char *const points[] = {"prepare", "vote", "migrate", "migrated"};
    for (int i = 0; i < 4; i++) {
        /* worker 0 leaves, worker 1 stays */
        scenario_deed loss = {.point = points[i], .who = i % 2, .act = kill_this_worker};
        live_run run =
            live_start_with((const char *const[]){TRAINING, "devices.count", "3", "pipe.k", "1",
                                                  "autodp.r", "3", "pipe.m", "2", NULL},
                            loss, NULL);
        live_await_step(&run, 5);
        live_refused(&run, "drain", "{\"worker\": 0}", "over");
        assert_int_equal(live_finish(&run), FL_EFAILED);
        live_clean(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drain__no_state_is_lost_with_a_worker),
        cmocka_unit_test(test_drain__a_standby_worker_and_the_first_of_many),
        cmocka_unit_test(test_drain__how_it_leaves_harms_nobody),
        cmocka_unit_test(test_drain__a_loss_on_the_way_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
