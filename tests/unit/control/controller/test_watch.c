/* Which worker was lost first, and how: tables over the controller's knowledge at one moment. */
#include "control/controller/judge/watch.h"
#include "control/link/link.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, NOW = 100000000, SECOND_US = 1000000 };

static const fl_watch_limits limits = {.silence_us = 3 * SECOND_US,
                                       .settle_us = 200000,
                                       .start_us = 60 * SECOND_US,
                                       .opening_us = 60 * SECOND_US,
                                       .grace_us = SECOND_US,
                                       .circle_us = 60 * SECOND_US};

/* All workers are ready and reported 10 ms ago, ten steps into the run. */
static void make_well(fl_worker *workers)
{
    for (int i = 0; i < N; i++) {
        workers[i] = (fl_worker){.rank = i,
                                 .place = {.active = true, .replica = 0, .stage = i},
                                 .spawned_us = NOW - 20 * SECOND_US,
                                 .heard_us = NOW - 10000,
                                 .linked = true,
                                 .ready = true,
                                 .steps = 10};
        snprintf(workers[i].operation, sizeof workers[i].operation, "forward");
    }
}

static void died(fl_worker *w, int64_t ago_us, int number)
{
    w->exited_us = NOW - ago_us;
    w->wait_status = number; /* as wait(2) has it: the low bits are the signal */
}

static void exited(fl_worker *w, int64_t ago_us, int code)
{
    w->exited_us = NOW - ago_us;
    w->wait_status = code << 8;
}

static void failed(fl_worker *w, int64_t ago_us, fl_status status)
{
    w->failed_us = NOW - ago_us;
    w->failure = status;
}

static void assert_judged(const fl_worker *workers, fl_loss_kind kind, int rank)
{
    int who = -1;
    assert_int_equal(fl_watch_judge(workers, N, &limits, NOW, &who), kind);
    assert_int_equal(who, rank);
}

static void test_watch__finds_nothing_when_all_is_well(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    assert_judged(w, FL_LOSS_NONE, -1);
    w[1].heard_us = NOW - limits.silence_us;
    assert_judged(w, FL_LOSS_NONE, -1);
    w[1].done = true; /* a worker that is done may be silent and exit */
    w[1].heard_us = 0;
    exited(&w[1], 0, 0);
    assert_judged(w, FL_LOSS_NONE, -1);
}

static void test_watch__names_each_kind(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    died(&w[2], 0, SIGKILL);
    assert_judged(w, FL_LOSS_KILLED, 2);
    snprintf(w[2].host_why, sizeof w[2].host_why, "with host b");
    assert_judged(w, FL_LOSS_HOST, 2);
    make_well(w);
    exited(&w[1], 300000, 1);
    assert_judged(w, FL_LOSS_EXITED, 1);
    make_well(w);
    exited(&w[1], limits.silence_us + 1, 0);
    assert_judged(w, FL_LOSS_EXITED, 1);
    make_well(w);
    failed(&w[0], 300000, FL_EIO);
    assert_judged(w, FL_LOSS_REPORTED, 0);
    make_well(w);
    w[2].unread_us = NOW - 300000;
    assert_judged(w, FL_LOSS_UNREADABLE, 2);
    make_well(w);
    w[1].heard_us = NOW - limits.silence_us - 1;
    assert_judged(w, FL_LOSS_SILENT, 1);
    make_well(w);
    w[1].ready = false;
    w[1].spawned_us = NOW - limits.start_us - limits.settle_us;
    assert_judged(w, FL_LOSS_NEVER_READY, 1);
}

/* Would catch: the limit between two heartbeats applied to a worker that has not sent the first. */
static void test_watch__lets_a_worker_start_without_a_heartbeat(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    w[1].linked = w[1].ready = false;
    w[1].heard_us = w[1].spawned_us = NOW - limits.start_us;
    assert_judged(w, FL_LOSS_NONE, -1);
    w[1].spawned_us -= limits.settle_us;
    assert_judged(w, FL_LOSS_NEVER_READY, 1);
}

/* Would catch: an exit that is judged before the report which explains it has been read. */
static void test_watch__lets_evidence_settle(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    exited(&w[1], 100000, 3);
    assert_judged(w, FL_LOSS_NONE, -1);
    failed(&w[1], 50000, FL_ENOMEM);
    assert_judged(w, FL_LOSS_NONE, -1);
    w[1].failed_us = NOW - 250000;
    assert_judged(w, FL_LOSS_REPORTED, 1);
}

/* Would catch: a worker that finished, taken for a loss because a busy machine delivers its last
 * reports later than the news of its exit. */
static void test_watch__lets_the_last_reports_of_a_good_exit_arrive(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    exited(&w[1], limits.silence_us, 0);
    w[1].heard_us = NOW - limits.silence_us - 1;
    assert_judged(w, FL_LOSS_NONE, -1);
    w[1].done = true;
    assert_judged(w, FL_LOSS_NONE, -1);
}

/* Would catch: a survivor's report of a lost peer taken for the cause. */
static void test_watch__tells_a_cause_from_its_consequences(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    failed(&w[0], SECOND_US, FL_EPEER);
    exited(&w[0], SECOND_US, 3);
    assert_judged(w, FL_LOSS_NONE, -1); /* the cause has not shown yet */
    died(&w[2], 0, SIGSEGV);
    assert_judged(w, FL_LOSS_KILLED, 2);

    make_well(w); /* a stopped worker: silent longer than the report is old */
    failed(&w[0], 2 * SECOND_US, FL_EDEADLINE);
    w[2].heard_us = NOW - 3 * SECOND_US - 1;
    assert_judged(w, FL_LOSS_SILENT, 2);

    make_well(w); /* a death beside a failure: the death came first, whatever was heard first */
    failed(&w[0], 300000, FL_EIO);
    died(&w[1], 100000, SIGKILL);
    assert_judged(w, FL_LOSS_KILLED, 1);
}

/* Would catch: waiting forever when all workers are alive but none of them can continue. */
static void test_watch__names_who_is_waited_for(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    failed(&w[0], 2 * SECOND_US, FL_EDEADLINE);
    failed(&w[2], SECOND_US, FL_EDEADLINE);
    assert_judged(w, FL_LOSS_NONE, -1);
    w[0].failed_us = NOW - 3 * SECOND_US - 1;
    assert_judged(w, FL_LOSS_STUCK, 1);
    failed(&w[1], SECOND_US, FL_EPEER);
    assert_judged(w, FL_LOSS_REPORTED, 0); /* all have: the first that spoke */
    make_well(w);
    failed(&w[1], 4 * SECOND_US, FL_EDEADLINE);
    w[2].steps = 9;
    assert_judged(w, FL_LOSS_STUCK, 2); /* the one furthest behind */
    w[0].place.active = false;
    w[0].steps = 0;
    assert_judged(w, FL_LOSS_STUCK, 2); /* nobody in a step waits for a standby worker */
    failed(&w[2], SECOND_US, FL_EDEADLINE);
    assert_judged(w, FL_LOSS_STUCK, 0);
    snprintf(w[0].operation, sizeof w[0].operation, FL_LINK_STANDBY);
    assert_judged(w, FL_LOSS_REPORTED, 1); /* nobody waits for a worker that waits to be woken */
}

/* Would catch: a worker that was stopped, called one whose link answers; and one that hangs, called
 * lost before the death that it waits for. */
static void test_watch__names_a_worker_that_hangs(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    w[1].hung = true;
    w[1].still_us = 3 * SECOND_US + 1;
    assert_judged(w, FL_LOSS_HUNG, 1);
    failed(&w[0], 2 * SECOND_US, FL_EPEER);
    assert_judged(w, FL_LOSS_HUNG, 1);
    died(&w[2], 0, SIGKILL);
    assert_judged(w, FL_LOSS_KILLED, 2);
    make_well(w);
    w[1].hung = true;
    w[1].heard_us = NOW - SECOND_US;
    assert_judged(w, FL_LOSS_NONE, -1);
    w[1].heard_us = NOW - limits.silence_us - 1;
    assert_judged(w, FL_LOSS_SILENT, 1);
}

/* Would catch: a slow worker lost because the others wait for it for longer than the deadline. */
static void test_watch__ends_a_circle_of_waits_alone(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    w[0].waits_us = w[1].waits_us = limits.circle_us + 1;
    assert_judged(w, FL_LOSS_NONE, -1);
    w[2].waits_us = limits.circle_us;
    assert_judged(w, FL_LOSS_NONE, -1);
    w[2].waits_us = limits.circle_us + 1;
    w[2].steps = 9;
    assert_judged(w, FL_LOSS_STUCK, 2);
    w[2].waits_us = 0; /* it stands by, and no worker that trains waits for it */
    w[2].place.active = false;
    snprintf(w[2].operation, sizeof w[2].operation, FL_LINK_STANDBY);
    assert_judged(w, FL_LOSS_STUCK, 0);
    w[0].done = w[1].done = true; /* at the end, it has to end as well */
    snprintf(w[2].operation, sizeof w[2].operation, "writing a checkpoint");
    assert_judged(w, FL_LOSS_NONE, -1);
    w[2].waits_us = limits.circle_us + 1;
    assert_judged(w, FL_LOSS_STUCK, 2);
}

/* Would catch: a detector that, including its waiting and grace times, takes longer than allowed.
 */
static void test_watch__keeps_within_what_it_is_given(void **state)
{
    (void)state;
    for (int64_t detect_ms = 100; detect_ms <= 3600000; detect_ms *= 3) {
        fl_watch_limits l = fl_watch_limits_of(detect_ms, 60000);
        assert_true(l.silence_us > 0 && l.settle_us > 0 && l.grace_us > 0);
        assert_true(l.silence_us + l.settle_us + l.grace_us <= detect_ms * 950);
        /* several heartbeats (detect / 10) fit into the silence */
        assert_true(l.silence_us >= 5 * detect_ms * 100);
    }
}

static void assert_text(const fl_worker *w, fl_loss_kind kind, const char *expected)
{
    char text[512];
    assert_string_equal(fl_watch_text(w, kind, NOW, text, sizeof text), expected);
}

static void test_watch__says_it_in_words(void **state)
{
    (void)state;
    fl_worker w[N];
    make_well(w);
    died(&w[1], 0, SIGKILL);
    assert_text(&w[1], FL_LOSS_KILLED,
                "worker 1 (stage 1 of replica 0) was killed by signal 9 (Killed) at step 10");
    snprintf(w[1].host_why, sizeof w[1].host_why,
             "with host b (10.0.0.2): it has not answered for 5.0 s");
    assert_text(&w[1], FL_LOSS_HOST,
                "worker 1 (stage 1 of replica 0) was lost at step 10, with host b (10.0.0.2): it "
                "has not answered for 5.0 s");
    exited(&w[1], 0, 3);
    w[1].place.active = false;
    assert_text(&w[1], FL_LOSS_EXITED, "worker 1 (standby) ended without finishing (exit code 3)");
    assert_text(&w[1], FL_LOSS_HOST, /* it never trained: it was not lost at step 0 */
                "worker 1 (standby) was lost, with host b (10.0.0.2): it has not answered for "
                "5.0 s");
    assert_text(&w[2], FL_LOSS_REPORTED, /* it left its generation */
                "worker 2 (stage 2 of replica 0) lost its connection to a living worker at "
                "step 10");
    snprintf(w[2].failure_text, sizeof w[2].failure_text, "no space");
    w[2].ready = false;
    assert_text(&w[2], FL_LOSS_REPORTED,
                "worker 2 (stage 2 of replica 0) reported: no space while it started");
    snprintf(w[0].unread_why, sizeof w[0].unread_why, "a frame of rank 3");
    assert_text(&w[0], FL_LOSS_UNREADABLE,
                "worker 0 (stage 0 of replica 0) sent a message that the controller cannot read (a "
                "frame of rank 3) at step 10");
    w[0].heard_us = NOW - 3500000;
    assert_text(&w[0], FL_LOSS_SILENT,
                "worker 0 (stage 0 of replica 0) did not answer for 3.5 s (it was in: forward) at "
                "step 10");
    w[0].still_us = 3300000;
    assert_text(&w[0], FL_LOSS_HUNG,
                "worker 0 (stage 0 of replica 0) has stood still for 3.3 s, although its link "
                "answers (it is in: forward) at step 10");
    /* Its last words came after that, and nothing stands still any more. */
    w[0].missed_us = 3400000;
    w[0].heard_us = NOW + 500000;
    w[0].still_us = 0;
    assert_text(&w[0], FL_LOSS_SILENT,
                "worker 0 (stage 0 of replica 0) did not answer for 3.4 s (it was in: forward) at "
                "step 10");
    assert_text(&w[0], FL_LOSS_HUNG,
                "worker 0 (stage 0 of replica 0) has stood still for 3.4 s, although its link "
                "answers (it is in: forward) at step 10");
    w[2].linked = false;
    assert_text(&w[2], FL_LOSS_NEVER_READY,
                "worker 2 (stage 2 of replica 0) was not ready 20 s after its start (it never "
                "opened its link) while it started");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watch__finds_nothing_when_all_is_well),
        cmocka_unit_test(test_watch__names_each_kind),
        cmocka_unit_test(test_watch__lets_a_worker_start_without_a_heartbeat),
        cmocka_unit_test(test_watch__lets_evidence_settle),
        cmocka_unit_test(test_watch__lets_the_last_reports_of_a_good_exit_arrive),
        cmocka_unit_test(test_watch__tells_a_cause_from_its_consequences),
        cmocka_unit_test(test_watch__names_who_is_waited_for),
        cmocka_unit_test(test_watch__names_a_worker_that_hangs),
        cmocka_unit_test(test_watch__ends_a_circle_of_waits_alone),
        cmocka_unit_test(test_watch__keeps_within_what_it_is_given),
        cmocka_unit_test(test_watch__says_it_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
