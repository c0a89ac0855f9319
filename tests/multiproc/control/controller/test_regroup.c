/* Losses while a worker joins or gets its first stage, and what is said where the workers cannot
 * regroup. Would catch: a worker that joins and dies of another one's loss, a run that ends
 * although every layer has an owner, a run that waits for ever, a message that names the wrong
 * worker. */
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STANDBY = 2, N_SAMPLES = 80, STEPS = 32, FIRST = 12 };

static const double TOLERANCE = 1e-5;

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "autodp.bucket", "16KiB",  \
        "fault.detect", "4s", "fault.on_loss", "continue", "pipe.k", "1", "autodp.r", "2",         \
        "pipe.m", "2"

static void check_losses(const double *losses, int n_steps, const char *epochs)
{
    live_run run = live_start((const char *const[]){TRAINING, "train.epochs", epochs,
                                                    "devices.count", "1", "autodp.r", "1", NULL});
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    double *one = live_take_losses(&run, n_steps);
    assert_true(worst_difference(losses, one, 0, n_steps) <= TOLERANCE);
    free(one);
}

/* ---- a member is lost while worker 2 joins ---- */

/* In shared memory. */
typedef struct join_fate {
    atomic_bool slow; /* steps are, so that few of them come before the workers */
    atomic_int left;  /* strikes that are still to come */
} join_fate;

static join_fate *fate;
static const char *fate_point;

/* Worker 1 dies in the first transition with which worker 2 joins. */
static void strike_in_join(const char *point, fl_worker_state *w)
{
    const fl_plan *next = w->next != NULL ? &w->next->plan : &w->now->plan;
    bool is_join = next->generation > 2 && !next->departed[STANDBY];
    if (w->rank == 0 && strcmp(point, "step") == 0 && atomic_load(&fate->slow)) {
        nap(20000);
    }
    if (w->rank == 1 && is_join && strcmp(point, fate_point) == 0 &&
        atomic_fetch_sub(&fate->left, 1) > 0) {
        kill(getpid(), SIGKILL);
    }
}

static int replicas_now(live_run *run)
{
    json_t *status = live_ask(run, "status", "{}");
    int r = number(json_object_get(status, "plan"), "r");
    json_decref(status);
    return r;
}

static live_run lose_member_in_join(const char *point)
{
    fate = shared_memory(sizeof *fate);
    atomic_store(&fate->slow, true);
    atomic_store(&fate->left, 1);
    fate_point = point;
    live_run run = live_start_with(
        (const char *const[]){TRAINING, "train.epochs", "9000", "devices.count", "3", NULL},
        (scenario_deed){.point = NULL}, strike_in_join);
    live_await_step(&run, 5);
    assert_int_equal(kill(live_process_of(&run, STANDBY), SIGKILL), 0);
    while (count_events(run.dir, "worker.joined", "\"rank\": 1") == 0 ||
           count_events(run.dir, "worker.joined", "\"rank\": 2") == 0 || replicas_now(&run) < 2) {
        live_await_step(&run, live_status(&run, "step") + 1);
    }
    return run;
}

static void check_run(live_run *run)
{
    int n_steps = (int)live_status(run, "step") + 20;
    atomic_store(&fate->slow, false);
    live_await_step(run, n_steps);
    live_interrupt(run);
    json_t *last = live_step(run, n_steps - 1);
    assert_int_equal(number(last, "r"), 2);
    json_decref(last);
    assert_int_equal(count_events(run->dir, "run.recovered", "worker 1 ("), 1);
    double *losses = live_take_losses(run, n_steps);
    check_losses(losses, n_steps, "9000");
    free(losses);
}

/* While nothing was committed, the worker that joins needs not end. Would catch: a process that is
 * killed because another one was lost, and joins a second later or, after fault.restarts, never. */
static void test_regroup__a_loss_before_the_commit_spares_the_one_that_joins(void **state)
{
    (void)state;
    static const char *const points[] = {"vote", "migrate"};
    for (int i = 0; i < 2; i++) {
        live_run run = lose_member_in_join(points[i]);
        assert_int_equal(count_events(run.dir, "worker.restarted", "\"rank\": 2"), 1);
        assert_int_equal(count_events(run.dir, "worker.joined", "\"rank\": 2"), 1);
        assert_int_equal(count_events(run.dir, "worker.lost", "\"rank\": 2"), 1);
        check_run(&run);
    }
}

/* The members have gone over, but nobody can tell the one that joins where the run stands: it is
 * started again. */
static void test_regroup__a_loss_after_the_commit_does_not_end_the_run(void **state)
{
    (void)state;
    live_run run = lose_member_in_join("switch");
    assert_int_equal(count_events(run.dir, "worker.lost", "it was joining"), 1);
    assert_int_equal(count_events(run.dir, "worker.restarted", "\"rank\": 2"), 2);
    check_run(&run);
}

/* ---- a worker is lost that is about to get its first stage ---- */

/* It may have voted or not, and the others may have gone over or not: in each case they go on. A
 * worker that is stopped is found before the others fail, one that is killed often after them. */
static void test_regroup__a_worker_may_be_lost_as_it_gets_its_first_stage(void **state)
{
    (void)state;
    static const struct {
        const char *name, *point;
        void (*act)(fl_worker_state *w);
    } cases[] = {
        {"vote-killed", "vote", kill_this_worker},
        {"migrate-killed", "migrate", kill_this_worker},
        {"exchanged-killed", "exchanged", kill_this_worker},
        {"migrated-killed", "migrated", kill_this_worker},
        {"switch-killed", "switch", kill_this_worker},
        {"vote-stopped", "vote", stop_this_worker},
        {"migrate-stopped", "migrate", stop_this_worker},
        {"exchanged-stopped", "exchanged", stop_this_worker},
    };
    enum { N = sizeof cases / sizeof *cases };
    static const fl_script_entry script = {.step = FIRST, .f = -1, .k = 1, .r = 3, .m = 2};
    scenario runs[N];
    assert_int_equal(make_root(NULL), 0);
    double *one = losses_of_one(JOB_SETS(TRAINING, "train.epochs", "4"), N_SAMPLES, STEPS);
    for (int i = 0; i < N; i++) {
        runs[i] =
            (scenario){.name = cases[i].name,
                       .sets = JOB_SETS(TRAINING, "train.epochs", "4", "devices.count", "3",
                                        "fault.restarts", "0"),
                       .script = &script,
                       .n_script = 1,
                       .n_samples = N_SAMPLES,
                       .dropout = 0.1f,
                       .at = {{.point = cases[i].point, .who = STANDBY, .act = cases[i].act}}};
        scenario_start(&runs[i]);
        expect_end(&runs[i], FL_OK);
        assert_int_equal(count_events(runs[i].dir, "worker.lost", "\"goes_on\": true"), 1);
        assert_int_equal(count_events(runs[i].dir, "worker.lost", ""), 1);
        double *losses = losses_of(&runs[i], STEPS);
        assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
        free(losses);
        scenario_forget(&runs[i]);
    }
    free(one);
    assert_int_equal(remove_root(NULL), 0);
}

/* ---- a worker answers nonsense ---- */

/* No worker does this: it stands for a defect. */
static void answer_nonsense(fl_worker_state *w)
{
    fl_link_prepared(w->link, &(fl_prepared_report){.generation = w->next->plan.generation,
                                                    .took_us = INT64_MAX});
}

/* Would catch: an answer that is dropped, for which training and the request wait until
 * fault.deadline. */
static void test_regroup__an_answer_that_cannot_be_read_costs_its_worker_alone(void **state)
{
    (void)state;
    live_run run = live_start_with(
        (const char *const[]){TRAINING, "train.epochs", "9000", "devices.count", "3",
                              "fault.restarts", "0", NULL},
        (scenario_deed){.point = "prepare", .who = 1, .act = answer_nonsense}, NULL);
    live_await_step(&run, 5);
    live_do(&run, "scale", "{\"k\": 1, \"r\": 3}");
    live_await_event(&run, "run.recovered", 1);
    live_await_step(&run, live_status(&run, "step") + STEPS);
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.lost", "\"how\": \"unreadable\""), 1);
    assert_int_equal(count_events(run.dir, "worker.lost", "a frame of type 10 (prepared)"), 1);
    assert_int_equal(count_events(run.dir, "worker.lost", ""), 1);
    assert_int_equal(count_events(run.dir, "run.recovered", "worker 1 ("), 1);
    double *losses = live_take_losses(&run, STEPS);
    check_losses(losses, STEPS, "9000");
    free(losses);
}

/* ---- the workers cannot regroup ---- */

static void break_connections(fl_worker_state *w)
{
    fl_abort_set_abort(&w->abort_set, w->now->plan.generation, FL_EPEER);
}

/* No worker does this: it stands for a defect. */
static void forget_steps(fl_worker_state *w)
{
    w->step -= 3;
    break_connections(w);
}

static void test_regroup__names_the_worker_that_cannot_be_brought_along(void **state)
{
    (void)state;
    assert_int_equal(make_root(NULL), 0);
    scenario s = {.name = "forgets",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "4", "devices.count", "2"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 9, .act = forget_steps}}};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    const char *message = s.outcome->message;
    assert_memory_equal(message, "worker 1 (stage 0 of replica 1)", 31);
    assert_non_null(strstr(message, "the run cannot go on: worker 1 stands at step 6"));
    scenario_forget(&s);
    assert_int_equal(remove_root(NULL), 0);
}

/* A run that repeats another one has that one's plans. Would catch: workers that report a broken
 * generation and wait for an order that never comes. */
static void test_regroup__a_repeated_run_ends_with_its_reason(void **state)
{
    (void)state;
    assert_int_equal(make_root(NULL), 0);
    scenario first = {.name = "first",
                      .sets = JOB_SETS(TRAINING, "train.epochs", "4", "devices.count", "2"),
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f};
    scenario_run(&first);
    scenario again = {.name = "again",
                      .sets = JOB_SETS(TRAINING, "train.epochs", "4", "devices.count", "2"),
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f,
                      .repeats = first.dir,
                      .at = {{.point = "step", .who = 1, .step = 9, .act = break_connections}}};
    scenario_start(&again);
    expect_end(&again, FL_EFAILED);
    assert_non_null(
        strstr(again.outcome->message, "the run repeats another one, which has its plans"));
    assert_int_equal(count_events(again.dir, "run.recovered", ""), 0);
    scenario_forget(&again);
    assert_int_equal(remove_root(NULL), 0);
}

/* Before it has reported where it stands. Its exit code leaves open for a moment whether another
 * one's loss explains it, and meanwhile nobody is left whose report the controller waits for. */
static void end_without_a_report(fl_flight_kind kind, int rank, int64_t step)
{
    (void)step;
    if (kind == FL_FLIGHT_COMMAND && rank == 0) {
        _exit(1);
    }
}

/* Would catch: a controller that regroups the workers that are left, of which there are none. */
static void test_regroup__nobody_is_left_to_report(void **state)
{
    assert_int_equal(make_root(state), 0);
    scenario s = {.name = "nobody",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "4", "devices.count", "2",
                                   "fault.restarts", "0"),
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "step", .who = 1, .step = 1, .act = kill_this_worker}},
                  .at_operation = end_without_a_report};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 0 of replica 1) was killed"));
    assert_non_null(strstr(s.outcome->message, "no other worker is left"));
    scenario_forget(&s);
    assert_int_equal(remove_root(NULL), 0);
}

/* ---- a member is lost in the last evaluation ---- */

static atomic_bool *standby_knows; /* in shared memory: that it was the last step */

static void strike_in_last_evaluation(const char *point, fl_worker_state *w)
{
    if (w->rank == STANDBY && strcmp(point, "end") == 0) {
        atomic_store(standby_knows, true);
    }
    if (w->rank == 1 && strcmp(point, "evaluate") == 0 && w->step == w->end_step) {
        while (!atomic_load(standby_knows)) {
            nap(1000);
        }
        kill(getpid(), SIGKILL);
    }
}

/* The others evaluate then, with the standby worker in the lost one's place. Would catch: the end
 * that the standby worker heard of taken for a request to stop, a run without its last evaluation
 * that ends as if nothing were missing. */
static void test_regroup__the_last_evaluation_follows_a_loss_during_it(void **state)
{
    assert_int_equal(make_root(state), 0);
    standby_knows = shared_memory(sizeof *standby_knows);
    scenario s = {.name = "last",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "2", "devices.count", "3",
                                   "train.evaluate", "true"),
                  .n_samples = N_SAMPLES,
                  .at_point = strike_in_last_evaluation};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(count_events(s.dir, "run.recovered", "worker 1 ("), 1);
    assert_int_equal(count_events(s.dir, "evaluation", "\"step\": 15"), 1);
    assert_int_equal(count_events(s.dir, "run.finished", "\"test_loss\": null"), 0);
    scenario_forget(&s);
    assert_int_equal(remove_root(NULL), 0);
}

/* ---- only standby workers are left at the end ---- */

/* As one waits for a message of a worker that has ended, which its network lost: nothing ends the
 * wait but the controller. */
static void wait_for_one_that_has_ended(fl_worker_state *w)
{
    fl_flight_enter(FL_FLIGHT_GATHER, -1, -1, 0);
    while (fl_abort_set_check(&w->abort_set, w->now->plan.generation) == FL_OK) {
        nap(1000);
    }
    fl_flight_leave();
}

/* Would catch: a run that never ends, because only workers that train count as standing still. */
static void test_regroup__a_standby_worker_leaves_when_those_that_train_are_done(void **state)
{
    assert_int_equal(make_root(state), 0);
    scenario s = {.name = "left",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "2", "devices.count", "3"),
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "met", .who = STANDBY, .act = wait_for_one_that_has_ended}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(s.outcome->n_deeds, 1);
    assert_int_equal(count_events(s.dir, "worker.lost", "rank"), 0);
    assert_int_equal(count_events(s.dir, "run.recovered", ""), 0);
    assert_int_equal(count_events(s.dir, "model.saved", ""), 1);
    assert_int_equal(count_events(s.dir, "run.finished", "\"success\""), 1);
    scenario_forget(&s);
    assert_int_equal(remove_root(NULL), 0);
}

static double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

/* Would catch: a run whose time in training and whose time without it are more than all its time;
 * and an event with another time than the sum of its parts. */
static void test_regroup__time_without_training_is_no_time_in_training(void **state)
{
    assert_int_equal(make_root(state), 0);
    scenario s = {.name = "times",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "4", "devices.count", "2"),
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "step", .who = 1, .step = 9, .act = stop_this_worker}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    json_t *recovered = lines_with(s.dir, "events.jsonl", "\"run.recovered\"");
    json_t *finished = lines_with(s.dir, "events.jsonl", "\"run.finished\"");
    assert_int_equal(length(recovered), 1);
    assert_int_equal(length(finished), 1);
    const json_t *loss = json_array_get(recovered, 0), *end = json_array_get(finished, 0);
    double ms = number_of(loss, "without_training_ms"), all_ms = 1e3 * number_of(end, "time");
    double parts_ms =
        number_of(loss, "detect_ms") + number_of(loss, "collect_ms") + number_of(loss, "move_ms");
    assert_true(ms > 0.0 && parts_ms - ms < 0.01 && ms - parts_ms < 0.01);
    assert_true(number_of(end, "all_without_training_ms") == ms);
    assert_true(1e3 * number_of(end, "seconds") + ms < all_ms);
    json_decref(recovered);
    json_decref(finished);
    scenario_forget(&s);
    assert_int_equal(remove_root(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regroup__a_loss_before_the_commit_spares_the_one_that_joins),
        cmocka_unit_test(test_regroup__a_loss_after_the_commit_does_not_end_the_run),
        cmocka_unit_test(test_regroup__a_worker_may_be_lost_as_it_gets_its_first_stage),
        cmocka_unit_test(test_regroup__an_answer_that_cannot_be_read_costs_its_worker_alone),
        cmocka_unit_test(test_regroup__names_the_worker_that_cannot_be_brought_along),
        cmocka_unit_test(test_regroup__a_repeated_run_ends_with_its_reason),
        cmocka_unit_test(test_regroup__nobody_is_left_to_report),
        cmocka_unit_test(test_regroup__the_last_evaluation_follows_a_loss_during_it),
        cmocka_unit_test(test_regroup__a_standby_worker_leaves_when_those_that_train_are_done),
        cmocka_unit_test(test_regroup__time_without_training_is_no_time_in_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
