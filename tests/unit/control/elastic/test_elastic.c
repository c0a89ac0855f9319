/* The controller's side of a transition, with simulated answers of workers: which requests are
 * accepted and when, which refusal is reported, and the contents of the outcome. */
#include "control/elastic/elastic.h"
#include "control/elastic/elastic_events.h"
#include "control/elastic/elastic_transition.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "support/data/toy.h"
#include "support/runs/elastic_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Would catch: a second transition that tramples on the first, one without a number of its own, an
 * outcome that nobody can tell from the one before. */
static void test_elastic__one_that_was_asked_for_is_committed(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    rig_ask(r, 1, 2);
    assert_int_equal(e->next.generation, 2);
    assert_null(fl_elastic_outcome_of(&r->elastic, 2));
    fl_plan other = rig_plan(3, 1);
    assert_int_equal(fl_elastic_ask(&r->elastic, &other, 0, "too early"), FL_EBUSY);
    assert_non_null(strstr(fl_errmsg(), "by hand"));
    for (int i = 0; i < RIG_WORKERS; i++) {
        assert_int_equal(e->state, FL_ELASTIC_PREPARING);
        rig_answer(r, i, FL_OK, "");
    }
    assert_int_equal(e->state, FL_ELASTIC_COMMITTING);
    fl_transition_parts parts = {.generation = 2, .step = 12, .vote_us = 5};
    for (int i = 0; i < RIG_WORKERS; i++) {
        fl_elastic_moved(&r->elastic, &r->workers[i], &parts);
    }
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_true(rig_outcome(r)->committed);
    assert_int_equal(rig_outcome(r)->generation, 2);
    assert_int_equal(rig_outcome(r)->step, 12);
    assert_string_equal(rig_outcome(r)->why, "by hand");
    assert_int_equal(r->elastic.plan.R, 2);
    rig_ask(r, 3, 1);
    assert_int_equal(e->next.generation, 3);
}

/* Would catch: a commit before the requested step. */
static void test_elastic__is_not_committed_before_its_step(void **state)
{
    rig *r = *state;
    fl_plan next = rig_plan(1, 2);
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 30, "later"), FL_OK);
    for (int i = 0; i < RIG_WORKERS; i++) {
        rig_answer(r, i, FL_OK, "");
    }
    assert_int_equal(r->elastic.transition.state, FL_ELASTIC_PREPARING);
    r->stats.steps = 28;
    fl_elastic_watch(&r->elastic, 0, fl_now_us());
    assert_int_equal(r->elastic.transition.state, FL_ELASTIC_PREPARING);
    r->stats.steps = 29; /* the command is heard one step later */
    fl_elastic_watch(&r->elastic, 0, fl_now_us());
    assert_int_equal(r->elastic.transition.state, FL_ELASTIC_COMMITTING);
}

/* Workers that were asked to save a later step save that of the commit instead. Would catch: a
 * commit that is sent before the controller has counted the steps until then, so that the worker
 * that switches first changes the controller's plan before its state is captured. */
static void test_elastic__a_commit_waits_until_the_step_that_is_saved_is_counted(void **state)
{
    static const struct {
        int64_t save_step, committed_at;
    } cases[] = {{0, 29}, {29, 29}, {30, 30}, {31, 30}, {500, 30}};
    rig *r = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_plan next = rig_plan(1 + (int)i % 2, 2 - (int)i % 2);
        r->stats.steps = 10;
        assert_int_equal(fl_elastic_ask(&r->elastic, &next, 30, "later"), FL_OK);
        for (int rank = 0; rank < RIG_WORKERS; rank++) {
            rig_answer(r, rank, FL_OK, "");
        }
        while (r->elastic.transition.state == FL_ELASTIC_PREPARING) {
            r->stats.steps++;
            fl_elastic_watch(&r->elastic, cases[i].save_step, fl_now_us());
        }
        assert_int_equal(r->stats.steps, cases[i].committed_at);
        rig_switch_all(r, 30);
    }
}

static void test_elastic__refuses_what_cannot_be(void **state)
{
    rig *r = *state;
    fl_plan next = rig_plan(1, 2);
    next.rank_of[1] = 0;
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 0, "twice"), FL_EINVAL);
    next = rig_plan(1, 2);
    next.n_workers = RIG_WORKERS + 1;
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 0, "more"), FL_EINVAL);
    next = rig_plan(1, 2);
    r->phase.n_stops = 1;
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 0, "stopping"), FL_EBUSY);
    r->phase.n_stops = 0;
    /* All workers would wait at step 25 for the script while the controller waits for step 30. */
    r->job.elastic.n_script = 1;
    r->job.elastic.script[0] = (fl_script_entry){.step = 25, .f = -1, .k = -1, .r = -1, .m = -1};
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 30, "across"), FL_EBUSY);
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 24, "before"), FL_OK);
    r->elastic.transition.state = FL_ELASTIC_IDLE;
    r->job.elastic.n_script = 0;
    /* So they would at step 26 for the freeze policy, whose decision after step 20 is due there. */
    r->job.freeze.policy = FL_FREEZE_GRADNORM;
    r->job.freeze.start = r->job.freeze.every = (fl_period){.steps = 20};
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 26, "across"), FL_EBUSY);
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 25, "before"), FL_OK);
}

/* Would catch: a drain, a limit or a pin that holds although its transition was cancelled, or that
 * a later transition undoes. */
static void test_elastic__terms_hold_once_the_plan_runs(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    fl_elastic_terms terms = fl_elastic_terms_now(&r->elastic);
    terms.usable.limit = 2;
    terms.pinned[3] = true;
    terms.m = 7;
    for (int committed = 0; committed < 2; committed++) {
        fl_plan next = rig_plan(1, 2);
        assert_int_equal(fl_elastic_ask_with(&r->elastic, &next, 0, &terms, "by hand"), FL_OK);
        assert_int_equal(r->elastic.usable.limit, 0);
        assert_int_equal(r->job.pipe.m, FL_JOB_AUTO);
        assert_false(r->elastic.pinned[3]);
        for (int i = 0; i < RIG_WORKERS && (committed || i == 0); i++) {
            rig_answer(r, i, committed ? FL_OK : FL_EBUDGET, "no room");
        }
        if (!committed) {
            assert_int_equal(e->state, FL_ELASTIC_IDLE);
            assert_int_equal(r->elastic.usable.limit, 0);
            assert_false(r->elastic.pinned[3]);
        }
    }
    fl_transition_parts parts = {.generation = e->next.generation, .step = 12};
    for (int i = 0; i < RIG_WORKERS; i++) {
        fl_elastic_moved(&r->elastic, &r->workers[i], &parts);
    }
    assert_true(rig_outcome(r)->committed);
    assert_int_equal(r->elastic.usable.limit, 2);
    assert_int_equal(r->job.pipe.m, 7);
    assert_true(r->elastic.pinned[3]);
}

/* Would catch: a worker that departs slowly, while the others train, counted as a pause of
 * training. */
static void test_elastic__a_departing_worker_pauses_nobody(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    fl_plan next = rig_plan(1, 2);
    fl_elastic_terms terms = fl_elastic_terms_now(&r->elastic);
    terms.usable.drained[RIG_WORKERS - 1] = true;
    assert_int_equal(fl_elastic_ask_with(&r->elastic, &next, 0, &terms, "by hand"), FL_OK);
    for (int i = 0; i < RIG_WORKERS; i++) {
        rig_answer(r, i, FL_OK, "");
    }
    fl_transition_parts parts = {
        .generation = e->next.generation, .step = 12, .switch_us = 3, .received_bytes = 8};
    for (int i = 0; i < RIG_WORKERS; i++) {
        parts.switch_us = i == RIG_WORKERS - 1 ? 5000000 : 3;
        fl_elastic_moved(&r->elastic, &r->workers[i], &parts);
    }
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_int_equal(e->switch_us, 3);
    assert_int_equal(e->stall_us, 3);
    assert_int_equal(e->moved_bytes, 8 * RIG_WORKERS);
}

/* Would catch: a request that took effect and is answered with what became of another transition,
 * which ended before the request's outcome was read. */
static void test_elastic__a_request_has_its_own_outcome(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    fl_plan_input input = {.job = &r->job, .n_workers = RIG_WORKERS};
    fl_profile profile = {.n_layers = 0};
    fl_layer_memory memory[RIG_LAYERS_MAX] = {0};
    assert_int_equal(fl_toy_model(2, 0.0f, &r->model), FL_OK);
    input.model = r->model;
    input.profile = &profile;
    input.memory_one = memory;
    profile.n_layers = fl_model_n_layers(r->model);
    assert_true(profile.n_layers <= RIG_LAYERS_MAX);
    rig_ask(r, 1, 2);
    rig_commit(r, 12);

    r->options.plan_input = &input;
    r->job.elastic.n_script = 1;
    r->job.elastic.script[0] = (fl_script_entry){.step = 5, .f = -1, .k = 3, .r = 2, .m = -1};
    fl_elastic_watch(&r->elastic, 0, fl_now_us()); /* 6 stages on 3 workers */
    assert_int_equal(e->sums.n_cancelled, 1);
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_true(fl_elastic_outcome_of(&r->elastic, 2)->committed);

    r->options.plan_input = NULL;
    r->job.elastic.n_script = 0;
    rig_ask(r, 3, 1);
    rig_answer(r, 1, FL_EBUDGET, "asked 3 GiB");
    const fl_elastic_outcome *first = fl_elastic_outcome_of(&r->elastic, 2);
    assert_true(first->committed && first->step == 12 && first->grid.R == 2);
    assert_string_equal(first->why, "by hand");
    assert_false(fl_elastic_outcome_of(&r->elastic, 3)->committed);
    assert_null(fl_elastic_outcome_of(&r->elastic, 4));

    for (int i = 0; i < FL_ELASTIC_OUTCOMES; i++) { /* the ring goes round */
        rig_ask(r, 3, 1);
        rig_answer(r, 1, FL_EBUDGET, "asked 3 GiB");
        assert_int_equal(rig_outcome(r)->generation, 4 + i);
    }
    assert_null(fl_elastic_outcome_of(&r->elastic, 2));
}

/* Would catch: a worker named for having lost the one that really refused. */
static void test_elastic__names_who_has_a_reason_of_its_own(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    rig_ask(r, 1, 2);
    rig_answer(r, 0, FL_EPEER, "worker 1 closed its connection");
    assert_int_equal(e->state, FL_ELASTIC_PREPARING); /* others may know more */
    rig_answer(r, 1, FL_EBUDGET, "asked 3 GiB");
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_false(rig_outcome(r)->committed);
    assert_int_equal(rig_outcome(r)->generation, 2);
    assert_string_equal(rig_outcome(r)->why, "worker 1 refuses: asked 3 GiB");
    rig_answer(r, 2, FL_ENOMEM, "too late"); /* nobody waits for it any more */
    assert_string_equal(rig_outcome(r)->why, "worker 1 refuses: asked 3 GiB");

    rig_ask(r, 1, 2);
    rig_answer(r, 2, FL_ENOMEM, "no memory");
    assert_string_equal(rig_outcome(r)->why, "worker 2 refuses: no memory");
}

/* Would catch: "worker 1 refuses: ", and nothing behind it. */
static void test_elastic__a_refusal_without_a_text_has_its_kind(void **state)
{
    rig *r = *state;
    rig_ask(r, 1, 2);
    rig_answer(r, 1, FL_ENOMEM, "");
    assert_string_equal(rig_outcome(r)->why, "worker 1 refuses: out of memory");

    rig_ask(r, 1, 2);
    for (int rank = 0; rank < RIG_WORKERS; rank++) {
        rig_answer(r, rank, FL_OK, "");
    }
    assert_int_equal(r->elastic.transition.state, FL_ELASTIC_COMMITTING);
    rig_answer(r, 2, FL_EIO, ""); /* in the vote */
    assert_string_equal(rig_outcome(r)->why, "input or output failed");
}

/* Would catch: a run that waits for an explanation although no worker has one. */
static void test_elastic__a_lost_peer_counts_when_nobody_knows_more(void **state)
{
    rig *r = *state;
    const fl_transition *e = &r->elastic.transition;
    rig_ask(r, 1, 2);
    rig_answer(r, 1, FL_EPEER, "worker 0 closed its connection");
    rig_answer(r, 2, FL_OK, "");
    assert_int_equal(e->state, FL_ELASTIC_PREPARING);
    rig_answer(r, 0, FL_EDEADLINE, "nobody came");
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_string_equal(rig_outcome(r)->why, "worker 1 refuses: worker 0 closed its connection");

    rig_ask(r, 1, 2);
    rig_answer(r, 1, FL_EPEER, "alone");
    assert_int_equal(e->state, FL_ELASTIC_PREPARING);
    fl_elastic_watch(&r->elastic, 0, e->opinion_us + 1);
    assert_int_equal(e->state, FL_ELASTIC_IDLE);
    assert_string_equal(rig_outcome(r)->why, "worker 1 refuses: alone");

    r->job.fault.deadline_ms = 0; /* the wait for an explanation is no longer than any other */
    rig_ask(r, 1, 2);
    rig_answer(r, 1, FL_EPEER, "late");
    fl_elastic_watch(&r->elastic, 0, e->deadline_us + 1);
    assert_string_equal(rig_outcome(r)->why, "worker 1 refuses: late");
}

/* The lines that a transition prints. */
static char *printed_lines(rig *r, char *text, size_t size)
{
    memset(text, 0, size);
    FILE *file = fmemopen(text, size, "w");
    r->log.progress.out = file;
    fl_event_log_transition(&r->elastic);
    fclose(file);
    r->log.progress.out = r->out;
    return text;
}

/* Would catch: "a step measured 13.5 ms (7.57e+03 predicted, 4.68e+03 before step 3830)". */
static void test_elastic__prints_a_measured_step_without_exponents(void **state)
{
    rig *r = *state;
    char text[256] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    r->elastic.transition.first_step = 3830;
    r->elastic.transition.old_step_ms = 4681.2;
    r->elastic.transition.predicted_ms = 7571.3;
    r->log.progress.out = file;
    fl_event_log_measured(&r->elastic, 13.54, 100);
    fclose(file);
    r->log.progress.out = r->out;
    assert_non_null(strstr(text, ": a step measured 13.5 ms (7571 predicted, 4681 before step "
                                 "3830)\n"));
}

/* A comparison of M that a loss ends. Would catch: a line that says that the plan stays, just
 * before the loss changes it. */
static void test_elastic__a_cancelled_comparison_says_so(void **state)
{
    rig *r = *state;
    for (int compares = 0; compares < 2; compares++) {
        char text[512] = "", expected[128];
        rig_ask(r, 1, 2);
        if (compares) {
            fl_tune_asked(&r->elastic, r->elastic.transition.next.generation);
        }
        FILE *file = fmemopen(text, sizeof text, "w");
        r->log.progress.out = file;
        fl_elastic_cancel(&r->elastic, "worker 1 was killed");
        fclose(file);
        r->log.progress.out = r->out;
        snprintf(expected, sizeof expected,
                 "the comparison with M = %d was dropped: worker 1 was killed",
                 r->elastic.transition.next.M);
        assert_int_equal(strstr(text, expected) != NULL, compares);
        assert_int_equal(strstr(text, "plan stays") != NULL, !compares);
    }
}

/* Would catch: a line so long that it wraps on the terminal, because it holds the full reason; a
 * change that is not shown. */
static void test_elastic__prints_a_transition_in_two_lines(void **state)
{
    rig *r = *state;
    fl_transition *e = &r->elastic.transition;
    char text[1024];
    e->before = rig_plan(2, 1);
    r->elastic.plan = rig_plan(1, 2);
    r->elastic.plan.generation = 7;
    r->elastic.plan.F = 2;
    r->elastic.decide.norms.L = 8;
    r->job.freeze.policy = FL_FREEZE_GRADNORM;
    e->before.M = 24;
    e->first_step = 6382;
    e->old_step_ms = 66.2;
    e->predicted_ms = 51.4;
    e->stall_us = 7360;
    e->policy_asked = 7;
    snprintf(e->why, sizeof e->why,
             "block 7 has the smallest norm 0.146 of blocks 1..8; alpha "
             "0.333 of 8 active blocks allows 2 more");
    char change[96];
    snprintf(change, sizeof change, "K=2 x R=1 x M=24 -> K=1 x R=2 x M=%d\n", r->elastic.plan.M);
    printed_lines(r, text, sizeof text);
    assert_int_equal(strncmp(text, "step 6382: 2 of 8 blocks frozen, ", 33), 0);
    assert_int_equal(strncmp(text + 33, change, strlen(change)), 0);
    assert_string_equal(text + 33 + strlen(change),
                        "  freeze.policy gradnorm; 66.2 -> 51.4 ms a step "
                        "predicted, training paused 7.36 ms\n");
    e->policy_asked = 0; /* another requester, with a long reason; a plan that was not measured */
    e->old_step_ms = 0;
    e->before = r->elastic.plan;
    e->before.F = 3;
    printed_lines(r, text, sizeof text);
    assert_non_null(strstr(text, "step 6382: 2 of 8 blocks frozen, K=1 x R=2 x M="));
    assert_null(strstr(text, "repartitioned"));
    assert_non_null(strstr(text, "\n  block 7 has the smallest ...; 51.4 ms a step predicted, "
                                 "training paused 7.36 ms\n"));
    e->old_step_ms = 4681; /* a slow model, or a slow network */
    e->predicted_ms = 7571;
    e->stall_us = 12345678;
    printed_lines(r, text, sizeof text);
    assert_non_null(strstr(text, "; 4681 -> 7571 ms a step predicted, training paused 12346 ms\n"));
    e->old_step_ms = 0;
    e->before = r->elastic.plan = rig_plan(2, 1);
    e->before.first[1]--;
    printed_lines(r, text, sizeof text);
    assert_non_null(strstr(text, "step 6382: K=2 x R=1 x M="));
    assert_non_null(strstr(text, " repartitioned\n"));
    /* The largest that there is. */
    e->before.K = r->elastic.plan.K = FL_MAX_STAGES;
    e->before.R = 1, r->elastic.plan.R = 2;
    e->before.M = r->elastic.plan.M = 4096;
    r->elastic.plan.F = 200;
    r->elastic.decide.norms.L = 255;
    e->first_step = 10000000;
    e->old_step_ms = e->predicted_ms = 12345;
    printed_lines(r, text, sizeof text);
    for (const char *line = text; *line != 0; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 100);
    }
    e->forced = true; /* after a loss: the recovery prints the plan */
    printed_lines(r, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
#define IN_A_RIG(test) cmocka_unit_test_setup_teardown(test, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        IN_A_RIG(test_elastic__one_that_was_asked_for_is_committed),
        IN_A_RIG(test_elastic__is_not_committed_before_its_step),
        IN_A_RIG(test_elastic__a_commit_waits_until_the_step_that_is_saved_is_counted),
        IN_A_RIG(test_elastic__refuses_what_cannot_be),
        IN_A_RIG(test_elastic__terms_hold_once_the_plan_runs),
        IN_A_RIG(test_elastic__a_departing_worker_pauses_nobody),
        IN_A_RIG(test_elastic__a_request_has_its_own_outcome),
        IN_A_RIG(test_elastic__names_who_has_a_reason_of_its_own),
        IN_A_RIG(test_elastic__a_refusal_without_a_text_has_its_kind),
        IN_A_RIG(test_elastic__a_lost_peer_counts_when_nobody_knows_more),
        IN_A_RIG(test_elastic__prints_a_transition_in_two_lines),
        IN_A_RIG(test_elastic__prints_a_measured_step_without_exponents),
        IN_A_RIG(test_elastic__a_cancelled_comparison_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
