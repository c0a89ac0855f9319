/* A worker that stands still before it is ready, while its link answers. Would catch: one that is
 * found only after both the time to start and that of a wait, although it keeps all others; and one
 * that is lost because it waited for others, or got no processor. */
#include "control/controller/judge/standstill.h"
#include "control/controller/judge/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = 3, TURN_US = 100000, SECOND_US = 1000000, DETECT_MS = 2000, DEADLINE_MS = 60000 };

/* Three workers that have just been started, and the process of each. */
typedef struct rig {
    fl_standstill_watch watch;
    fl_watch_limits limits;
    fl_flight *flight;
    fl_worker worker[N];
    fl_process_look process[N];
    int64_t begun_us, now_us;
} rig;

static bool get_look(void *context, const fl_worker *worker, fl_process_look *out)
{
    const rig *r = context;
    *out = r->process[worker->rank];
    return true;
}

static void begin(rig *r)
{
    const fl_standstill_limits limits = {.silence_us = 3 * SECOND_US,
                                         .deadline_us = DEADLINE_MS * INT64_C(1000)};
    *r = (rig){.begun_us = 1000 * (int64_t)SECOND_US, .now_us = 1000 * (int64_t)SECOND_US};
    r->limits = fl_watch_limits_of(DETECT_MS, DEADLINE_MS);
    for (int i = 0; i < N; i++) {
        r->worker[i] = (fl_worker){.rank = i,
                                   .incarnation = 1,
                                   .pid = 100 + i,
                                   .place = {.active = true, .stage = i},
                                   .spawned_us = r->begun_us,
                                   .linked = true};
    }
    assert_int_equal(fl_flight_create(N, &r->flight), FL_OK);
    assert_int_equal(fl_standstill_watch_init(&r->watch, N, true, &limits), FL_OK);
    r->watch.look = get_look;
    r->watch.context = r;
}

static void end(rig *r)
{
    fl_standstill_watch_fini(&r->watch);
    fl_flight_destroy(&r->flight);
}

/* Seconds from now until worker `who` is judged never to be ready; -1: nobody is within most_s. */
static int64_t late_after(rig *r, int who, int64_t most_s)
{
    int64_t from_us = r->now_us;
    while (r->now_us - from_us < most_s * SECOND_US) {
        int found = -1;
        r->now_us += TURN_US;
        for (int i = 0; i < N; i++) {
            r->worker[i].heard_us = r->now_us;
        }
        fl_standstill_watch_look(&r->watch, r->flight, r->worker, N, r->now_us);
        fl_loss_kind kind = fl_watch_judge(r->worker, N, &r->limits, r->now_us, &found);
        if (kind != FL_LOSS_NONE) {
            assert_int_equal(kind, FL_LOSS_NEVER_READY);
            assert_int_equal(found, who);
            return (r->now_us - from_us) / SECOND_US;
        }
    }
    return -1;
}

static void test_opening__one_that_keeps_all_others(void **state)
{
    (void)state;
    rig r;
    begin(&r);
    assert_int_equal(late_after(&r, -1, 1), -1);
    r.worker[0].ready = r.worker[2].ready = true;
    assert_in_range(late_after(&r, 1, 300), DEADLINE_MS / 1000, DEADLINE_MS / 1000 + 1);
    assert_false(r.worker[1].hung);
    end(&r);
}

/* What waits for others counts only from when these are ready. */
static void test_opening__one_that_has_waited_for_others(void **state)
{
    (void)state;
    rig r;
    begin(&r);
    assert_int_equal(late_after(&r, -1, DEADLINE_MS / 1000 + 10), -1);
    r.worker[0].ready = r.worker[2].ready = true;
    assert_int_equal(late_after(&r, -1, 5), -1);
    r.worker[1].ready = true;
    assert_int_equal(late_after(&r, -1, 30), -1);
    assert_int_equal(r.worker[1].waits_us, 0);
    end(&r);
}

/* The limit that holds in any case. */
static void test_opening__all_of_them(void **state)
{
    (void)state;
    rig r;
    begin(&r);
    assert_in_range(late_after(&r, 0, 300), 2 * DEADLINE_MS / 1000, 2 * DEADLINE_MS / 1000 + 1);
    end(&r);
}

static void test_opening__one_that_gets_no_processor(void **state)
{
    (void)state;
    rig r;
    begin(&r);
    r.worker[0].ready = r.worker[2].ready = true;
    r.process[1].work.is_runnable = true;
    assert_int_equal(late_after(&r, -1, 2 * DEADLINE_MS / 1000 - 1), -1);
    assert_in_range(late_after(&r, 1, 300), 0, 2);
    end(&r);
}

/* It waits for no worker, whatever the others do. */
static void test_opening__one_that_joins(void **state)
{
    (void)state;
    rig r;
    begin(&r);
    r.worker[1].joins = r.worker[1].departed = true;
    assert_int_equal(late_after(&r, -1, DEADLINE_MS / 1000 - 1), -1);
    assert_true(fl_watch_late_us(&r.worker[1], &r.limits, r.now_us) <= 0);
    assert_int_equal(late_after(&r, -1, 2), -1);
    assert_true(fl_watch_late_us(&r.worker[1], &r.limits, r.now_us) > 0);
    assert_true(fl_watch_late_us(&r.worker[2], &r.limits, r.now_us) <= 0);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening__one_that_keeps_all_others),
        cmocka_unit_test(test_opening__one_that_has_waited_for_others),
        cmocka_unit_test(test_opening__all_of_them),
        cmocka_unit_test(test_opening__one_that_gets_no_processor),
        cmocka_unit_test(test_opening__one_that_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
