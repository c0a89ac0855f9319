/* Changes for which all workers wait at a step, with simulated answers of workers: which plan a
 * script's entry gets, and what follows an attempt that fails. */
#include "control/elastic/elastic_transition.h"
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/runs/elastic_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { STEP = 12, TRIES_MAX = 1000 };

/* An entry of the script that is near. */
static void script(rig *r, fl_script_entry entry)
{
    rig_know_the_model(r);
    r->job.train.batch = 10;
    r->job.elastic.n_script = 1;
    r->job.elastic.script[0] = entry;
    r->elastic.plan.n_layers = r->profile.n_layers;
    r->stats.steps = entry.step;
    fl_elastic_watch(&r->elastic, 0, fl_now_us());
}

/* The K, R and M of the first plan come from measured times. Would catch: an entry of the script
 * that one run carries out and another one does not, because the M that it leaves out stays and is
 * more than a replica has samples, or because the R that it leaves out stays and wants more workers
 * than there are. */
static void test_again__a_scripted_change_holds_whatever_was_measured(void **state)
{
    static const struct {
        int K, R, M;           /* running */
        int64_t job_m;         /* pipe.m */
        fl_script_entry entry; /* step, f, k, r, m */
        int k, r, m_most;      /* of the next plan; k 0: none */
    } cases[] = {
        {2, 1, 4, FL_JOB_AUTO, {STEP, -1, 1, 3, -1}, 1, 3, 4},
        {2, 1, 8, FL_JOB_AUTO, {STEP, -1, 1, 3, -1}, 1, 3, 4},
        {2, 1, 8, 8, {STEP, -1, 1, 3, -1}, 0, 0, 0},
        {1, 2, 2, FL_JOB_AUTO, {STEP, -1, 3, -1, -1}, 3, 1, 10},
        {1, 2, 2, FL_JOB_AUTO, {STEP, -1, 3, 2, -1}, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig *r = *state;
        const fl_transition *e = &r->elastic.transition;
        r->job.pipe.m = cases[i].job_m;
        r->elastic.plan.K = cases[i].K;
        r->elastic.plan.R = cases[i].R;
        r->elastic.plan.M = cases[i].M;
        script(r, cases[i].entry);
        assert_int_equal(e->state, cases[i].k == 0 ? FL_ELASTIC_IDLE : FL_ELASTIC_PREPARING);
        assert_int_equal(e->sums.n_cancelled, cases[i].k == 0);
        if (cases[i].k > 0) {
            assert_int_equal(e->next.K, cases[i].k);
            assert_int_equal(e->next.R, cases[i].r);
            assert_in_range(e->next.M, 1, cases[i].m_most);
        }
        assert_int_equal(rig_tear_down(state), 0);
        assert_int_equal(rig_set_up(state), 0);
    }
}

static fl_script_entry to_one_stage(void)
{
    return (fl_script_entry){.step = STEP, .f = -1, .k = 1, .r = 2, .m = 2};
}

/* Turns of the controller until the pause is over. */
static void await_attempt(rig *r)
{
    fl_transition *e = &r->elastic.transition;
    int64_t now_us = fl_now_us();
    fl_elastic_watch(&r->elastic, 0, now_us > e->again.at_us ? now_us : e->again.at_us);
    assert_int_equal(e->state, FL_ELASTIC_PREPARING);
}

static void fail_with(rig *r, fl_status status)
{
    for (int i = 0; i < RIG_WORKERS; i++) {
        rig_answer(r, i, status, "no connection");
    }
}

static int count_cancelled(rig *r, const char *what)
{
    fl_runfiles_flush(&r->log.files);
    return count_events(r->dir, "\"transition.cancelled\"", what);
}

/* Would catch: workers that are let go at the step of a change which did not come about; a
 * generation's number that is used twice, so that an answer to the first attempt counts for the
 * second; a change whose failure is told nowhere. */
static void test_again__a_failed_attempt_lets_nobody_go(void **state)
{
    static const fl_status passing[] = {FL_EPEER, FL_EDEADLINE, FL_ESTALE, FL_EIO};
    enum { N = sizeof passing / sizeof *passing };
    rig *r = *state;
    fl_transition *e = &r->elastic.transition;
    script(r, to_one_stage());
    for (int i = 0; i < N; i++) {
        uint32_t generation = e->next.generation;
        fail_with(r, passing[i]);
        assert_int_equal(r->router.answered[FL_DUE_SCRIPT], 0);
        assert_int_equal(e->sums.n_cancelled, 0);
        await_attempt(r);
        assert_int_equal(e->next.generation, generation + 1);
        fl_prepared_report late = {.generation = generation, .status = FL_EBUDGET};
        fl_elastic_prepared(&r->elastic, &r->workers[0], &late);
        assert_int_equal(e->n_refused, 0);
    }
    assert_int_equal(count_cancelled(r, "\"again\": true"), N);
    assert_int_equal(count_cancelled(r, "no connection"), N);
    rig_commit(r, STEP);
    assert_int_equal(r->router.answered[FL_DUE_SCRIPT], STEP);
    assert_int_equal(r->elastic.plan.K, 1);
    assert_int_equal(e->n_scripted, 1);
}

/* Would catch: a vote that failed and cost the run the change. */
static void test_again__a_lost_vote_lets_nobody_go(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    script(r, to_one_stage());
    for (int i = 0; i < RIG_WORKERS; i++) {
        rig_answer(r, i, FL_OK, "");
    }
    assert_int_equal(e->state, FL_ELASTIC_COMMITTING);
    rig_answer(r, 1, FL_ESTALE, "worker 1 was not ready when all voted");
    assert_int_equal(r->router.answered[FL_DUE_SCRIPT], 0);
    await_attempt(r);
    rig_commit(r, STEP);
    assert_int_equal(r->router.answered[FL_DUE_SCRIPT], STEP);
}

/* Would catch: a run that hangs at a change that can never come about, and one that goes on without
 * it and without a word. */
static void test_again__what_does_not_pass_is_final(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    script(r, to_one_stage());
    rig_answer(r, 1, FL_EBUDGET, "asked 3 GiB");
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_int_equal(r->router.answered[FL_DUE_SCRIPT], STEP);
    assert_int_equal(e->sums.n_cancelled, 1);
    assert_int_equal(count_cancelled(r, "asked 3 GiB"), 1);
    assert_int_equal(count_cancelled(r, "\"again\": false"), 1);
}

/* The same failure again and again ends after FL_AGAIN_DEADLINES times fault.deadline. */
static void test_again__a_failure_that_lasts_is_final(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    r->job.fault.deadline_ms = 1000;
    script(r, to_one_stage());
    int64_t begun_us = fl_now_us(), now_us = begun_us;
    int n = 0;
    while (e->sums.n_cancelled == 0 && n < TRIES_MAX) {
        now_us = e->state == FL_ELASTIC_PREPARING ? e->deadline_us + 1 : e->again.at_us;
        fl_elastic_watch(&r->elastic, 0, now_us);
        n++;
    }
    assert_int_equal(e->sums.n_cancelled, 1);
    assert_in_range(now_us - begun_us, 2900000, 4200000);
    assert_int_equal(r->router.answered[FL_DUE_SCRIPT], STEP);
    assert_true(count_cancelled(r, "\"again\": true") >= 2);
}

/* A connection breaks while the change is prepared, or while it is committed and nobody has
 * switched. Would catch: a change that the recovery swallows. */
static void test_again__a_recovery_keeps_the_change(void **state)
{
    for (int commits = 0; commits < 2; commits++) {
        rig *r = *state;
        fl_transition *e = &r->elastic.transition;
        script(r, to_one_stage());
        for (int i = 0; commits && i < RIG_WORKERS; i++) {
            rig_answer(r, i, FL_OK, "");
        }
        assert_int_equal(e->state, commits ? FL_ELASTIC_COMMITTING : FL_ELASTIC_PREPARING);
        fl_elastic_interrupt(&r->elastic, "connections between workers broke");
        fl_elastic_interrupt(&r->elastic, "connections between workers broke");
        fl_elastic_resolve(&r->elastic, r->elastic.plan.generation, STEP, "they broke");
        assert_int_equal(r->router.answered[FL_DUE_SCRIPT], 0);
        assert_int_equal(count_cancelled(r, "\"again\": true"), 1);
        fl_plan same = r->elastic.plan;
        same.generation = fl_elastic_next_generation(&r->elastic);
        fl_elastic_force(&r->elastic, &same, "they broke");
        rig_switch_all(r, STEP);
        await_attempt(r);
        rig_commit(r, STEP);
        assert_int_equal(r->router.answered[FL_DUE_SCRIPT], STEP);
        assert_int_equal(r->elastic.plan.K, 1);
        assert_int_equal(e->sums.n_cancelled, 0);
        assert_int_equal(rig_tear_down(state), 0);
        assert_int_equal(rig_set_up(state), 0);
    }
}

/* A standby worker is lost while the change is prepared. */
static void test_again__a_lost_standby_worker_costs_no_change(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    script(r, to_one_stage());
    fl_elastic_without(&r->elastic, RIG_WORKERS - 1, "worker 2 (standby) was killed");
    await_attempt(r);
    assert_true(e->next.departed[RIG_WORKERS - 1]);
    assert_int_equal(count_cancelled(r, "worker 2 (standby) was killed"), 1);
}

/* Would catch: a decision of the freeze policy that one failed connection loses, so that a run
 * freezes at another step than the next one. */
static void test_again__a_decision_of_the_policy_is_pending_again(void **state)
{
    rig *r = *state;
    fl_transition *e = &r->elastic.transition;
    rig_know_the_model(r);
    rig_ask(r, 1, 2);
    e->due = FL_DUE_POLICY;
    e->due_step = r->stats.steps = STEP;
    fail_with(r, FL_EPEER);
    assert_int_equal(count_cancelled(r, "\"again\": true"), 1);
    assert_int_equal(r->router.answered[FL_DUE_POLICY], 0);
    assert_int_equal(fl_decide_due(&r->elastic), STEP);
    fl_elastic_watch(&r->elastic, 0, fl_now_us());
    /* In the rig it asks for the F that there is: the workers are told that nothing changes. */
    assert_int_equal(r->router.answered[FL_DUE_POLICY], STEP);
    assert_int_equal(fl_decide_due(&r->elastic), 0);
    assert_int_equal(count_events(r->dir, "\"freeze.decided\"", ""), 0);
}

/* What a person asks for is over, and the person is told; so is a change that the end overtakes. */
static void test_again__a_request_is_not_repeated(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    rig_ask(r, 1, 2);
    fail_with(r, FL_EPEER);
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_string_equal(rig_outcome(r)->why, "worker 0 refuses: no connection");
    rig_ask(r, 1, 2);
    fl_elastic_leave(&r->elastic);
    assert_string_equal(rig_outcome(r)->why, "the run ended before the change could take effect");
    assert_int_equal(count_cancelled(r, "\"again\": true"), 0);
    assert_int_equal(e->sums.n_cancelled, 2);
}

/* Would catch: a run that is said to have ended, and goes back after a loss. */
static void test_again__a_return_is_no_end_of_the_run(void **state)
{
    rig *r = *state;
    rig_ask(r, 1, 2);
    r->phase.back = (fl_return_choice){.returns = true};
    fl_elastic_leave(&r->elastic);
    assert_string_equal(rig_outcome(r)->why,
                        "the run goes back before the change could take effect");
}

int main(void)
{
#define IN_A_RIG(test) cmocka_unit_test_setup_teardown(test, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        IN_A_RIG(test_again__a_scripted_change_holds_whatever_was_measured),
        IN_A_RIG(test_again__a_failed_attempt_lets_nobody_go),
        IN_A_RIG(test_again__a_lost_vote_lets_nobody_go),
        IN_A_RIG(test_again__what_does_not_pass_is_final),
        IN_A_RIG(test_again__a_failure_that_lasts_is_final),
        IN_A_RIG(test_again__a_recovery_keeps_the_change),
        IN_A_RIG(test_again__a_lost_standby_worker_costs_no_change),
        IN_A_RIG(test_again__a_decision_of_the_policy_is_pending_again),
        IN_A_RIG(test_again__a_request_is_not_repeated),
        IN_A_RIG(test_again__a_return_is_no_end_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
