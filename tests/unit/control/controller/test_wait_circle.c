/* Workers that all wait for each other, as the controller sees them from look to look. */
#include "control/controller/judge/standstill.h"
#include "control/controller/judge/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 2, TURN_US = 100000, SECOND_US = 1000000, BEGUN_US = 100 * SECOND_US };

static const fl_standstill_limits standstill = {.silence_us = 3 * SECOND_US,
                                                .deadline_us = 60 * SECOND_US};
static const fl_watch_limits limits = {.silence_us = 3 * SECOND_US,
                                       .settle_us = 200000,
                                       .start_us = 60 * SECOND_US,
                                       .opening_us = 60 * SECOND_US,
                                       .circle_us = 10 * SECOND_US};

/* Worker 1 waits for worker 0, whose computation takes long. */
typedef struct pair {
    fl_standstill_watch watch;
    fl_flight *flight;
    fl_worker worker[N];
    int64_t now_us;
} pair;

static bool get_no_look(void *context, const fl_worker *worker, fl_process_look *out)
{
    (void)context;
    (void)worker;
    (void)out;
    return false;
}

static void open_pair(pair *p)
{
    *p = (pair){.now_us = BEGUN_US};
    for (int i = 0; i < N; i++) {
        p->worker[i] = (fl_worker){.rank = i,
                                   .place = {.active = true, .stage = i},
                                   .spawned_us = BEGUN_US,
                                   .linked = true,
                                   .ready = true};
    }
    assert_int_equal(fl_flight_create(N, &p->flight), FL_OK);
    const fl_flight_view waits = {.depth = 1,
                                  .n_changes = 2,
                                  .whole = true,
                                  .open = {{.kind = FL_FLIGHT_RECEIVE, .peer = 0}}};
    fl_flight_show(p->flight, 1, 0, &waits);
    assert_int_equal(fl_standstill_watch_init(&p->watch, N, true, &standstill), FL_OK);
    p->watch.look = get_no_look;
}

static void close_pair(pair *p)
{
    fl_standstill_watch_fini(&p->watch);
    fl_flight_destroy(&p->flight);
}

static fl_loss_kind judge_after(pair *p, int64_t passed_us)
{
    int who = -1;
    p->now_us += passed_us;
    p->worker[0].heard_us = p->worker[1].heard_us = p->now_us;
    fl_standstill_watch_look(&p->watch, p->flight, p->worker, N, p->now_us);
    fl_loss_kind kind = fl_watch_judge(p->worker, N, &limits, p->now_us, &who);
    assert_int_equal(who, kind == FL_LOSS_NONE ? -1 : 1);
    return kind;
}

/* The last look may be older than the news that the worker has finished, or has left. Would catch:
 * a run that ends well but for a worker that has waited long for another one's last step, and is
 * called stuck as soon as that one is done. */
static void finds_no_circle(bool leaves)
{
    pair p;
    open_pair(&p);
    for (int i = 0; i < limits.circle_us / TURN_US + 5; i++) {
        assert_int_equal(judge_after(&p, TURN_US), FL_LOSS_NONE);
    }
    assert_true(p.worker[1].waits_us > limits.circle_us);
    p.worker[0].done = !leaves;
    p.worker[0].departed = leaves;
    assert_int_equal(judge_after(&p, 1000), FL_LOSS_NONE);
    int n = 1;
    while (judge_after(&p, TURN_US) == FL_LOSS_NONE && n < 1000) { /* it really waits in vain */
        n++;
    }
    assert_in_range(n, limits.circle_us / TURN_US - 1, limits.circle_us / TURN_US + 2);
    close_pair(&p);
}

static void test_wait_circle__counts_from_the_end_of_a_worker_on(void **state)
{
    (void)state;
    finds_no_circle(false);
}

static void test_wait_circle__counts_from_the_departure_of_a_worker_on(void **state)
{
    (void)state;
    finds_no_circle(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_circle__counts_from_the_end_of_a_worker_on),
        cmocka_unit_test(test_wait_circle__counts_from_the_departure_of_a_worker_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
