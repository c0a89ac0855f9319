/* The clock of another host. Would catch: a delay of the network that is taken for an offset, the
 * sign of an offset or a drift, and samples that are kept for ever. */
#include "control/state/hosts/host_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static const int64_t MS = 1000000, S = INT64_C(1000000000);

/* The host's clock is `offset_ns` ahead; the message takes there_ns to it and back_ns from it. */
static fl_clock_sample sample(int64_t at_ns, int64_t offset_ns, int64_t there_ns, int64_t back_ns)
{
    return (fl_clock_sample){.sent_ns = at_ns,
                             .got_ns = at_ns + there_ns + back_ns,
                             .there_ns = at_ns + there_ns + offset_ns,
                             .wall_offset_ns = offset_ns};
}

static void add(fl_host_clock *clock, int64_t at_ns, int64_t offset_ns, int64_t there_ns,
                int64_t back_ns)
{
    fl_clock_sample s = sample(at_ns, offset_ns, there_ns, back_ns);
    fl_host_clock_add(clock, &s);
}

static void test_host_clock__the_shortest_round_trip_wins(void **state)
{
    (void)state;
    fl_host_clock clock = {.n = 0};
    assert_false(fl_host_clock_estimate(&clock).known);
    add(&clock, 0, 70 * MS, 90 * MS, 10 * MS); /* alone it would say 110 ms */
    fl_clock_estimate e = fl_host_clock_estimate(&clock);
    assert_true(e.known && e.offset_ns == 110 * MS);
    assert_true(llabs(e.offset_ns - 70 * MS) <= e.round_trip_ns / 2);
    add(&clock, S, 70 * MS, MS, MS);
    add(&clock, 2 * S, 70 * MS, 1 * MS, 60 * MS);
    e = fl_host_clock_estimate(&clock);
    assert_true(e.offset_ns == 70 * MS && e.round_trip_ns == 2 * MS && e.drift_ppb == 0);
}

static void test_host_clock__drift_is_what_the_offset_gains(void **state)
{
    (void)state;
    fl_host_clock clock = {.n = 0};
    for (int64_t i = 0; i < 20; i++) { /* 50 microseconds a second, and behind by a second */
        add(&clock, i * S, -S + i * 50000, MS / 10, MS / 10);
    }
    fl_clock_estimate e = fl_host_clock_estimate(&clock);
    assert_in_range(e.drift_ppb, 49000, 51000);
    assert_true(e.offset_ns < -900 * MS);
}

/* Would catch: answers that took seconds, as under a flood, and are taken for a drift of the clock.
 */
static void test_host_clock__slow_answers_show_no_drift(void **state)
{
    (void)state;
    fl_host_clock clock = {.n = 0};
    for (int64_t i = 0; i < 20; i++) {
        add(&clock, i * S, i < 10 ? 2 * S : 0, i < 10 ? 4 * S : MS, 0);
    }
    assert_int_equal(fl_host_clock_estimate(&clock).drift_ppb, 0);
}

/* Would catch: an offset that is used long after it was measured, although the clocks drift. */
static void test_host_clock__a_new_offset_beats_an_old_one(void **state)
{
    (void)state;
    fl_host_clock clock = {.n = 0};
    add(&clock, 0, 0, 0, 200);
    add(&clock, 10 * S, 50000, 100000, 100000); /* by 10 s, 500 microseconds may have come */
    fl_clock_estimate e = fl_host_clock_estimate(&clock);
    assert_true(e.offset_ns == 50000 && e.error_ns == 100000);
    assert_true(e.at_ns == 10 * S + 100000);
    add(&clock, 11 * S, 900000, 2 * MS, 0);
    e = fl_host_clock_estimate(&clock);
    assert_true(e.offset_ns == 50000);
    assert_in_range(e.error_ns, 150000, 151000); /* by then, 50 more may have come */
}

static void test_host_clock__forgets_what_is_old(void **state)
{
    (void)state;
    fl_host_clock clock = {.n = 0};
    add(&clock, 0, 0, 0, 1);
    for (int64_t i = 1; i <= FL_HOST_CLOCK_SAMPLES; i++) {
        add(&clock, i * S, 5 * MS, MS, MS);
    }
    assert_true(fl_host_clock_estimate(&clock).offset_ns == 5 * MS);
    fl_clock_sample back = {.sent_ns = 9, .got_ns = 8}; /* time does not go back */
    int64_t n = clock.n;
    fl_host_clock_add(&clock, &back);
    assert_int_equal(clock.n, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_clock__the_shortest_round_trip_wins),
        cmocka_unit_test(test_host_clock__drift_is_what_the_offset_gains),
        cmocka_unit_test(test_host_clock__slow_answers_show_no_drift),
        cmocka_unit_test(test_host_clock__a_new_offset_beats_an_old_one),
        cmocka_unit_test(test_host_clock__forgets_what_is_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
