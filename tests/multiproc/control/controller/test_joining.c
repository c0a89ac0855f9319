/* Workers that were lost are started again and join the run. Would catch: a worker that joins with
 * another step, learning rate, log level or set of kept moments than the members; a run that waits
 * for it, or ends with it; a stall or a lost step when it comes; a process that stays behind. */
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STANDBY = 2 };

static const double TOLERANCE = 1e-5;

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "train.epochs", "9000",    \
        "autodp.bucket", "16KiB", "fault.detect", "5s"

/* Two workers that train, and worker 2, which stands by. */
#define THREE_WORKERS TRAINING, "devices.count", "3", "pipe.k", "1", "autodp.r", "2", "pipe.m", "2"

/* ---- a worker that comes back is used ---- */

/* In shared memory: the worker that came back has work. Until then steps are slow, so that few of
 * them come before it. */
static atomic_bool *is_used;

/* In shared memory: the log level of worker 2 as it has joined. */
static atomic_int *joined_level;

static void go_slowly(const char *point, fl_worker_state *w)
{
    if (joined_level != NULL && strcmp(point, "joined") == 0) {
        atomic_store(joined_level, (int)fl_log_level_get());
    }
    if (w->rank == 0 && strcmp(point, "step") == 0 && !atomic_load(is_used)) {
        nap(20000);
    }
}

static const scenario_deed nothing = {.act = NULL};

/* The first step with twice the learning rate. */
static int64_t lr_step;

static void change_lr(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "step") == 0 && w->step >= lr_step) {
        w->lr_factor = 2.0;
    }
}

static void check_losses(const double *losses, int n_steps)
{
    live_run run = live_start_with((const char *const[]){TRAINING, "devices.count", "1", "pipe.k",
                                                         "1", "autodp.r", "1", "pipe.m", "2", NULL},
                                   nothing, change_lr);
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    double *one = live_take_losses(&run, n_steps);
    assert_true(worst_difference(losses, one, 0, n_steps) <= TOLERANCE);
    free(one);
}

static void test_joining__a_lost_worker_comes_back_and_gets_work(void **state)
{
    (void)state;
    is_used = shared_memory(sizeof *is_used);
    joined_level = shared_memory(sizeof *joined_level);
    live_run run = live_start_with((const char *const[]){THREE_WORKERS, NULL}, nothing, go_slowly);
    pid_t first = live_process_of(&run, STANDBY);
    live_await_step(&run, 5);
    assert_int_equal(kill(first, SIGKILL), 0);
    live_await_state(&run, STANDBY, "restarting");
    json_t *status = live_ask(&run, "status", "{}");
    assert_int_equal(number(json_object_get(status, "recovery"), "losses"), 1);
    json_decref(status);
    json_t *set = live_ask(&run, "set", "{\"field\": \"train.lr\", \"value\": 0.0002}");
    lr_step = number(set, "step"); /* the members alone hear of it */
    json_decref(set);
    live_do(&run, "set", "{\"field\": \"log.level\", \"value\": \"debug\"}"); /* and of this */
    live_await_state(&run, STANDBY, "standby");
    pid_t second = live_process_of(&run, STANDBY);
    assert_int_not_equal(second, first);
    live_do(&run, "scale", "{\"k\": 1, \"r\": 3}");
    live_await_state(&run, STANDBY, "active");
    int n_steps = (int)live_status(&run, "step") + 30;
    atomic_store(is_used, true);
    live_await_step(&run, n_steps);
    live_do(&run, "pause", "{}"); /* the worker that came back holds and goes on with the others */
    live_do(&run, "resume", "{}");
    live_await_step(&run, live_status(&run, "step") + 5);
    live_interrupt(&run);
    assert_true(kill(second, 0) != 0 && errno == ESRCH);
    assert_int_equal(count_events(run.dir, "worker.lost", "\"goes_on\": true"), 1);
    assert_int_equal(count_events(run.dir, "worker.restarted", "\"rank\": 2"), 1);
    assert_int_equal(count_events(run.dir, "worker.joined", "\"rank\": 2"), 1);
    assert_int_equal(atomic_load(joined_level), FL_LOG_DEBUG);
    joined_level = NULL;
    double *losses = live_take_losses(&run, n_steps);
    check_losses(losses, n_steps);
    free(losses);
}

/* Would catch: a restart that comes before the others have recovered, a worker that joins with
 * another position than they agreed on. */
static void test_joining__a_worker_that_trained_comes_back(void **state)
{
    (void)state;
    is_used = shared_memory(sizeof *is_used);
    live_run run = live_start_with((const char *const[]){TRAINING, "devices.count", "2", "pipe.k",
                                                         "1", "autodp.r", "2", "pipe.m", "2",
                                                         "fault.on_loss", "continue", NULL},
                                   nothing, go_slowly);
    live_await_step(&run, 5);
    assert_int_equal(kill(live_process_of(&run, 1), SIGKILL), 0);
    live_await_state(&run, 1, "restarting");
    live_await_state(&run, 1, "active");
    int n_steps = (int)live_status(&run, "step") + 20;
    atomic_store(is_used, true);
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "run.recovered", ""), 1);
    assert_int_equal(count_events(run.dir, "worker.joined", "\"rank\": 1"), 1);
    double *losses = live_take_losses(&run, n_steps);
    lr_step = INT64_MAX;
    check_losses(losses, n_steps);
    free(losses);
}

/* ---- a worker that has left comes back on request ---- */

static void drain(live_run *run, int rank)
{
    char args[32];
    snprintf(args, sizeof args, "{\"worker\": %d}", rank);
    live_do(run, "drain", args);
    live_await_state(run, rank, "drained");
}

/* The leader leaves and comes back, and another worker after it. Would catch: a reply that comes
 * before the workers do, a worker that is started although nobody wants it, a start that counts as
 * one after a loss. */
static void test_joining__scale_brings_workers_back(void **state)
{
    (void)state;
    is_used = shared_memory(sizeof *is_used);
    live_run run = live_start_with((const char *const[]){TRAINING, "devices.count", "3", "pipe.k",
                                                         "1", "autodp.r", "3", "pipe.m", "2",
                                                         "fault.restarts", "0", NULL},
                                   nothing, go_slowly);
    pid_t leader = live_process_of(&run, 0);
    drain(&run, 0);
    drain(&run, 2);
    live_refused(&run, "scale", "{\"k\": 1, \"r\": 4}", "refused");
    json_t *result = live_ask(&run, "scale", "{\"k\": 1, \"r\": 2}");
    assert_int_equal(number(result, "r"), 2);
    json_decref(result);
    live_await_state(&run, 0, "active");
    live_await_state(&run, 2, "drained");
    assert_int_not_equal(live_process_of(&run, 0), leader);
    live_do(&run, "scale", "{\"k\": 1, \"r\": 3}");
    live_await_state(&run, 2, "active");
    int n_steps = (int)live_status(&run, "step") + 20;
    atomic_store(is_used, true);
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.restarted", "\"requested\""), 2);
    assert_int_equal(count_events(run.dir, "worker.joined", ""), 2);
    double *losses = live_take_losses(&run, n_steps);
    lr_step = INT64_MAX;
    check_losses(losses, n_steps);
    free(losses);
}

/* Would catch: a request that waits for the delay of a restart, seconds after a third loss. */
static void test_joining__scale_does_not_wait_for_a_restart(void **state)
{
    (void)state;
    enum { LOSSES = 3 };
    is_used = shared_memory(sizeof *is_used);
    live_run run = live_start_with((const char *const[]){THREE_WORKERS, NULL}, nothing, go_slowly);
    live_await_step(&run, 5);
    for (int i = 1; i <= LOSSES; i++) {
        assert_int_equal(kill(live_process_of(&run, STANDBY), SIGKILL), 0);
        live_await_state(&run, STANDBY, "restarting");
        if (i < LOSSES) {
            live_await_state(&run, STANDBY, "standby");
        }
    }
    live_do(&run, "scale", "{\"k\": 1, \"r\": 3}");
    live_await_state(&run, STANDBY, "active");
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.restarted", "\"lost\""), LOSSES - 1);
    assert_int_equal(count_events(run.dir, "worker.restarted", "\"requested\""), 1);
    live_clean(&run);
}

/* ---- it may be lost again at any moment ---- */

typedef struct join_case {
    const char *name, *point;
    int number; /* the signal that its first successor gets there; no point: it hangs in standby */
    int n_lost; /* times that the worker is lost, as a member or while it joins */
    scenario run;
    struct {
        atomic_bool joined;
    } * shared;
} join_case;

static const join_case *current_case(void)
{
    return scenario_here()->context;
}

/* In this process. */
static bool is_first_successor;

/* Its link answers, but its training thread heeds no order: nobody may ask it again and again. */
static void hang_in_standby(fl_flight_kind kind, int rank, int64_t step)
{
    (void)rank, (void)step;
    while (kind == FL_FLIGHT_STANDBY && is_first_successor && current_case()->point == NULL) {
        pause();
    }
}

static void strike(const char *point, fl_worker_state *w)
{
    const join_case *c = current_case();
    const scenario_outcome *outcome = scenario_here()->outcome;
    bool comes_back = w->rank == STANDBY && w->birth->incarnation > 1;
    is_first_successor = w->rank == STANDBY && w->birth->incarnation == 2;
    if (w->rank == 0 && strcmp(point, "step") == 0) {
        nap(1000);
        if (w->step == 5) {
            kill(atomic_load(&outcome->pid[STANDBY]), SIGKILL);
        } else if (atomic_load(&c->shared->joined)) {
            kill(controller_here(), SIGINT);
        }
    } else if (is_first_successor && c->point != NULL && strcmp(point, c->point) == 0) {
        kill(getpid(), c->number);
    } else if (comes_back && strcmp(point, "joined") == 0 && w->birth->incarnation == 3) {
        atomic_store(&c->shared->joined, true);
    }
}

/* Each run goes on until the third process of worker 2 has joined. */
static void test_joining__may_fail_at_any_moment(void **state)
{
    (void)state;
    join_case cases[] = {
        {.name = "begin-killed", .point = "begin", .number = SIGKILL, .n_lost = 2},
        {.name = "prepare-killed", .point = "prepare", .number = SIGKILL, .n_lost = 2},
        {.name = "prepare-stopped", .point = "prepare", .number = SIGSTOP, .n_lost = 2},
        {.name = "enter-killed", .point = "enter", .number = SIGKILL, .n_lost = 2},
        {.name = "joined-stopped", .point = "joined", .number = SIGSTOP, .n_lost = 2},
        {.name = "standby-hung", .n_lost = 2},
    };
    enum { N = sizeof cases / sizeof *cases };
    for (int i = 0; i < N; i++) {
        join_case *c = &cases[i];
        c->shared = shared_memory(sizeof *c->shared);
        c->run = (scenario){.name = c->name,
                            .sets = JOB_SETS(THREE_WORKERS, "fault.deadline", "5s"),
                            .n_samples = LIVE_SAMPLES,
                            .blocks = 1,
                            .at_point = strike,
                            .at_operation = hang_in_standby,
                            .context = c};
        scenario_start(&c->run);
    }
    for (int i = 0; i < N; i++) {
        join_case *c = &cases[i];
        expect_end(&c->run, FL_ESTOPPED);
        assert_true(atomic_load(&c->shared->joined));
        assert_int_equal(count_events(c->run.dir, "worker.lost", "\"goes_on\": true"), c->n_lost);
        assert_int_equal(count_events(c->run.dir, "worker.lost", "\"signal\": 9"),
                         c->number == SIGKILL ? 2 : 1);
        assert_int_equal(count_events(c->run.dir, "worker.lost", "\"how\": \"silent\""),
                         c->number == SIGSTOP);
        assert_int_equal(count_events(c->run.dir, "worker.lost", "\"how\": \"hung\""),
                         c->point == NULL);
        assert_int_equal(count_events(c->run.dir, "worker.restarted", "\"rank\": 2"), 2);
        assert_int_equal(count_events(c->run.dir, "run.failed", ""), 0);
        scenario_forget(&c->run);
    }
}

/* ---- after the loss of a worker in standby ---- */

/* In shared memory: the next worker 1 to reach a step loses its connections. */
static atomic_bool *breaks;

static void break_connections(const char *point, fl_worker_state *w)
{
    if (w->rank == 1 && strcmp(point, "step") == 0 && atomic_exchange(breaks, false)) {
        fl_abort_set_abort(&w->abort_set, w->now->plan.generation, FL_EPEER);
    }
}

/* What happens to the workers that train right after that loss is no consequence of it: they
 * regroup. Would catch: a run that ends in the name of the lost one although it goes on without it,
 * as when a worker that trains is killed, and its peers report before its end is known. */
static void test_joining__a_loss_in_standby_does_not_explain_the_next_trouble(void **state)
{
    (void)state;
    breaks = shared_memory(sizeof *breaks);
    live_run run = live_start_with((const char *const[]){THREE_WORKERS, "fault.on_loss", "continue",
                                                         "fault.restarts", "0", NULL},
                                   nothing, break_connections);
    live_await_step(&run, 5);
    assert_int_equal(kill(live_process_of(&run, STANDBY), SIGKILL), 0);
    live_await_state(&run, STANDBY, "lost");
    atomic_store(breaks, true);
    while (count_events(run.dir, "run.recovered", "") == 0) {
        live_await_step(&run, live_status(&run, "step") + 1);
    }
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.lost", "\"rank\": 2"), 1);
    assert_int_equal(count_events(run.dir, "worker.lost", ""), 1);
    live_clean(&run);
}

static int64_t n_losses(live_run *run)
{
    json_t *status = live_ask(run, "status", "{}");
    int64_t n = number(json_object_get(status, "recovery"), "losses");
    json_decref(status);
    return n;
}

/* Would catch: of two standby workers that are lost at once, one that is forgotten, or of which no
 * event tells. On two hosts: test_hosts_connections. */
static void test_joining__two_that_are_lost_together_come_back(void **state)
{
    (void)state;
    live_run run = live_start_with((const char *const[]){TRAINING, "devices.count", "4", "pipe.k",
                                                         "1", "autodp.r", "2", "pipe.m", "2", NULL},
                                   nothing, NULL);
    pid_t first[] = {live_process_of(&run, 2), live_process_of(&run, 3)};
    live_await_step(&run, 5);
    assert_int_equal(kill(first[0], SIGKILL), 0);
    assert_int_equal(kill(first[1], SIGKILL), 0);
    live_await_state(&run, 2, "restarting");
    live_await_state(&run, 3, "restarting");
    live_await_state(&run, 2, "standby");
    live_await_state(&run, 3, "standby");
    assert_int_equal(n_losses(&run), 2);
    assert_int_not_equal(live_process_of(&run, 2), first[0]);
    assert_int_not_equal(live_process_of(&run, 3), first[1]);
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.lost", "\"rank\": 2"), 1);
    assert_int_equal(count_events(run.dir, "worker.lost", "\"rank\": 3"), 1);
    assert_int_equal(count_events(run.dir, "worker.lost", "\"goes_on\": true"), 2);
    assert_int_equal(count_events(run.dir, "worker.joined", ""), 2);
    live_clean(&run);
}

/* Would catch: restarts without an end. */
static void test_joining__is_tried_as_often_as_the_job_says(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){THREE_WORKERS, "fault.restarts", "0", NULL});
    live_await_step(&run, 5);
    assert_int_equal(kill(live_process_of(&run, STANDBY), SIGKILL), 0);
    live_await_state(&run, STANDBY, "lost");
    live_await_step(&run, live_status(&run, "step") + 200);
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.restarted", ""), 0);
    live_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joining__a_lost_worker_comes_back_and_gets_work),
        cmocka_unit_test(test_joining__a_worker_that_trained_comes_back),
        cmocka_unit_test(test_joining__scale_brings_workers_back),
        cmocka_unit_test(test_joining__scale_does_not_wait_for_a_restart),
        cmocka_unit_test_setup_teardown(test_joining__may_fail_at_any_moment, make_root,
                                        remove_root),
        cmocka_unit_test(test_joining__a_loss_in_standby_does_not_explain_the_next_trouble),
        cmocka_unit_test(test_joining__two_that_are_lost_together_come_back),
        cmocka_unit_test(test_joining__is_tried_as_often_as_the_job_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
