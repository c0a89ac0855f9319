/* A trace with the workers of another host. Would catch: times of that host's clock in the trace, a
 * clock that drifts, an answer that is taken twice, and a host that does not answer, that answers
 * with nonsense or without end, and spoils or delays the trace of the others. */
#include "control/observe/trace/trace_far.h"

#include "device/system/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS = 3, FIRST = 10, STEPS = 5 }; /* worker 0 on host a, 1 on b, 2 on c */

static const int64_t S = INT64_C(1000000000), MS = 1000000;

typedef struct rig {
    fl_run_facts run;
    fl_hosts hosts;
    fl_host_record records[WORKERS];
    fl_worker workers[WORKERS];
    fl_trace_data trace;
    fl_trace_far *far;
    fl_records_request asked[WORKERS];
    int n_asked[WORKERS];
    fl_flight_records answer[WORKERS];
    bool has_answer[WORKERS];
    int64_t now_us;
} rig;

static bool ask(void *context, int rank, const fl_records_request *request)
{
    rig *r = context;
    r->asked[rank] = *request;
    r->n_asked[rank]++;
    return true;
}

static const fl_flight_records *take(void *context, int rank)
{
    rig *r = context;
    bool has = r->has_answer[rank];
    r->has_answer[rank] = false;
    return has ? &r->answer[rank] : NULL;
}

static void set_clock(rig *r, int host, int64_t offset_ns, int64_t at_ns, int64_t error_ns)
{
    r->records[host].clock = (fl_clock_estimate){
        .known = true, .offset_ns = offset_ns, .at_ns = at_ns, .error_ns = error_ns};
}

static int make(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    strcpy(r->hosts.host[0].name, "a");
    r->hosts.host[0].n = r->hosts.n = 1;
    (void)fl_hosts_add(&r->hosts, "b", "10.0.0.2", 1);
    (void)fl_hosts_add(&r->hosts, "c", "10.0.0.3", 1);
    for (int i = 0; i < WORKERS; i++) {
        r->workers[i] = (fl_worker){.rank = i, .incarnation = 1};
        r->records[i] = (fl_host_record){.state = FL_HOST_STATE_JOINED, .joined_us = 1};
    }
    r->run = (fl_run_facts){.hosts = &r->hosts,
                            .host_records = r->records,
                            .workers = r->workers,
                            .n_workers = WORKERS,
                            .n_started = WORKERS};
    r->trace.about = (fl_trace_about){.n_workers = WORKERS, .first_step = FIRST, .n_steps = STEPS};
    r->now_us = fl_now_us();
    set_clock(r, 1, 0, fl_now_ns(), MS);
    set_clock(r, 2, 0, fl_now_ns(), MS);
    assert_int_equal(fl_trace_far_create(&r->run, &r->far), FL_OK);
    fl_trace_far_begin(r->far);
    *state = r;
    return 0;
}

static int drop(void **state)
{
    rig *r = *state;
    fl_trace_far_destroy(&r->far);
    fl_trace_fini(&r->trace);
    free(r);
    return 0;
}

static void turn(rig *r, bool over)
{
    const fl_trace_source source = {.ask = ask, .take = take, .context = r};
    r->now_us += 30000; /* the next question is due */
    assert_int_equal(fl_trace_far_turn(r->far, &source, &r->trace, over, r->now_us), FL_OK);
}

/* The answer to the last question: n operations of a millisecond from entered_ns on. */
static void answer(rig *r, int rank, int n, bool all, int64_t entered_ns)
{
    fl_flight_records *a = &r->answer[rank];
    *a = (fl_flight_records){.number = r->asked[rank].number, .step = FIRST, .all = all};
    a->role[0] = FL_FLIGHT_MAIN;
    a->n[0] = n;
    a->cursor[0] = (r->asked[rank].cursor[0] == FL_RECORDS_OLDEST ? 0 : r->asked[rank].cursor[0]) +
                   (uint64_t)n;
    for (int i = 0; i < n; i++) {
        a->entry[i] = (fl_flight_entry){.kind = FL_FLIGHT_FORWARD,
                                        .step = FIRST,
                                        .peer = -1,
                                        .entered_ns = entered_ns,
                                        .left_ns = entered_ns + MS};
    }
    r->has_answer[rank] = true;
}

/* Both are asked once more after the steps are over, and have nothing more. */
static void end(rig *r)
{
    turn(r, true);
    for (int i = 0; i < 4; i++) {
        answer(r, 1, 0, true, 0);
        answer(r, 2, 0, true, 0);
        turn(r, true);
    }
    assert_true(fl_trace_far_is_done(r->far, r->now_us));
    assert_int_equal(fl_trace_far_finish(r->far, &r->trace), FL_OK);
}

static void test_trace_far__puts_times_on_one_line(void **state)
{
    rig *r = *state;
    int64_t now_ns = fl_now_ns();
    set_clock(r, 1, 3600 * S, now_ns - S, 2 * MS);
    set_clock(r, 2, -3 * S, now_ns - S, MS);
    turn(r, false);
    answer(r, 1, 2, true, now_ns + 3600 * S);
    answer(r, 2, 1, true, now_ns - 3 * S);
    set_clock(r, 1, 3600 * S + 7, now_ns, 5 * MS); /* later, and worse */
    turn(r, false);
    assert_false(fl_trace_far_is_done(r->far, r->now_us));
    end(r);
    assert_int_equal(r->trace.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->trace.events[i].e.entered_ns, now_ns);
        assert_int_equal(r->trace.events[i].e.left_ns, now_ns + MS);
        assert_int_equal(r->trace.events[i].rank, i < 2 ? 1 : 2);
    }
    assert_int_equal(r->trace.n_hosts, 3);
    assert_string_equal(r->trace.hosts[1].name, "b");
    assert_true(r->trace.hosts[1].offset_ns == 3600 * S && r->trace.hosts[1].error_ns == 2 * MS);
    assert_string_equal(r->trace.hosts[1].missing, "");
    assert_int_equal(r->trace.about.lost, 0);
}

/* By a millisecond in 10 s: in the middle, half of it. */
static void test_trace_far__follows_a_drift(void **state)
{
    rig *r = *state;
    int64_t now_ns = fl_now_ns();
    set_clock(r, 1, S, now_ns - 10 * S, 1000);
    turn(r, false);
    answer(r, 1, 1, true, now_ns - 5 * S + S + MS / 2);
    set_clock(r, 1, S + MS, now_ns, 1000);
    turn(r, false);
    end(r);
    assert_int_equal(r->trace.n, 1);
    assert_in_range(r->trace.events[0].e.entered_ns, now_ns - 5 * S - 1000, now_ns - 5 * S + 1000);
}

/* Another agent of the host has another clock. */
static void test_trace_far__knows_a_host_that_joined_again(void **state)
{
    rig *r = *state;
    int64_t now_ns = fl_now_ns();
    set_clock(r, 1, 10 * S, now_ns, 1000);
    turn(r, false);
    answer(r, 1, 1, true, now_ns + 10 * S);
    turn(r, false);
    r->records[1].state = FL_HOST_STATE_LOST;
    turn(r, false);
    r->records[1] = (fl_host_record){.state = FL_HOST_STATE_JOINED, .joined_us = 2};
    turn(r, false);
    assert_true(r->asked[1].cursor[0] == FL_RECORDS_OLDEST);
    answer(r, 1, 1, true, now_ns + 700 * S);
    set_clock(r, 1, 700 * S, now_ns, 1000);
    turn(r, false);
    end(r);
    assert_int_equal(r->trace.n, 2);
    assert_int_equal(r->trace.events[0].e.entered_ns, now_ns);
    assert_int_equal(r->trace.events[1].e.entered_ns, now_ns);
}

static void test_trace_far__goes_on_without_a_host_that_does_not_answer(void **state)
{
    rig *r = *state;
    int64_t now_ns = fl_now_ns();
    turn(r, false);
    answer(r, 1, 1, true, now_ns);
    answer(r, 2, 1, true, now_ns);
    turn(r, false);
    for (int i = 0; i < 60; i++) { /* 1.8 s: it is asked again, and not given up */
        turn(r, true);
        answer(r, 2, 0, true, 0);
    }
    assert_false(fl_trace_far_is_done(r->far, r->now_us));
    assert_in_range(r->n_asked[1], 3, 5);
    for (int i = 0; i < 60; i++) {
        turn(r, true);
    }
    assert_true(fl_trace_far_is_done(r->far, r->now_us));
    assert_int_equal(fl_trace_far_finish(r->far, &r->trace), FL_OK);
    assert_string_equal(r->trace.hosts[1].missing, "its agent did not answer for 3 s");
    assert_string_equal(r->trace.hosts[2].missing, "");
    assert_int_equal(r->trace.n, 1);
    assert_int_equal(r->trace.events[0].rank, 2);
}

static void test_trace_far__takes_an_answer_once(void **state)
{
    rig *r = *state;
    int64_t now_ns = fl_now_ns();
    turn(r, false);
    answer(r, 1, 1, true, now_ns);
    for (int i = 0; i < 40; i++) { /* it is late: another question is on its way */
        r->has_answer[1] = false;
        turn(r, false);
    }
    r->has_answer[1] = true;
    turn(r, false);
    assert_int_equal(r->trace.n, 0);
    assert_int_equal(r->n_asked[1], 2);
    answer(r, 1, 1, true, now_ns);
    turn(r, false);
    assert_int_equal(r->trace.n, 1);
}

static void test_trace_far__drops_nonsense(void **state)
{
    rig *r = *state;
    int64_t now_ns = fl_now_ns();
    turn(r, false);
    answer(r, 1, 5, true, now_ns);
    r->answer[1].entry[0].entered_ns = r->answer[1].entry[0].left_ns = FL_FLIGHT_TIME_MAX_NS;
    r->answer[1].entry[1].entered_ns = 0; /* weeks, or since the start of the machine */
    r->answer[1].entry[1].left_ns = now_ns + 7200 * S; /* in two hours */
    r->answer[1].entry[2].step = FIRST - 1;            /* it was not asked for */
    r->answer[1].entry[3].step = FIRST + STEPS;
    answer(r, 2, 1, true, now_ns);
    turn(r, false);
    end(r);
    assert_int_equal(r->trace.n, 2);
    assert_int_equal(r->trace.about.lost, 2);
    assert_int_equal(r->trace.events[0].rank + r->trace.events[1].rank, 3);
}

static void test_trace_far__bounds_what_one_worker_sends(void **state)
{
    rig *r = *state;
    int64_t now_ns = fl_now_ns();
    int n = 0;
    turn(r, true);
    answer(r, 2, 0, true, 0);
    turn(r, true);
    for (; !fl_trace_far_is_done(r->far, r->now_us) && n < 100000; n++) {
        answer(r, 1, FL_RECORDS_MAX, false, now_ns);
        turn(r, true);
    }
    assert_in_range(r->trace.n, 1, FL_TRACE_EVENTS_MAX / WORKERS);
    assert_true(r->trace.about.lost > 0);
    int n_asked = r->n_asked[1];
    turn(r, true);
    assert_int_equal(r->n_asked[1], n_asked);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_trace_far__##name, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(puts_times_on_one_line),         TEST(follows_a_drift),
        TEST(knows_a_host_that_joined_again), TEST(goes_on_without_a_host_that_does_not_answer),
        TEST(takes_an_answer_once),           TEST(drops_nonsense),
        TEST(bounds_what_one_worker_sends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
