/* When a device computed, in the host's time. Would catch: an interval before its work was queued
 * or after the host had waited for it, clocks that drift apart, an anchor of an earlier step. */
#include "pipe/step/device_clock.h"

#include "device/system/clock.h"
#include "support/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { INTERVALS = 4, LATE_US = 2000 };

/* ---- a device whose events happen a while after they were recorded, by a clock of its own ---- */

struct fl_event {
    double us;
};

static struct {
    double ahead_us; /* of the host's clock */
    double rate;     /* of its seconds in one of the host's */
} device_clock;

static fl_status make_event(fl_device *d, fl_event **out)
{
    (void)d;
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    return FL_OK;
}

static void drop_event(fl_device *d, fl_event **e)
{
    (void)d;
    free(*e);
    *e = NULL;
}

static fl_status record_event(fl_device *d, fl_event *e, fl_stream *s)
{
    (void)d;
    (void)s;
    e->us = ((double)fl_now_ns() * 1e-3 + LATE_US) * device_clock.rate + device_clock.ahead_us;
    return FL_OK;
}

static fl_status elapsed(fl_device *d, const fl_event *from, const fl_event *to, double *us)
{
    (void)d;
    *us = to->us - from->us;
    return FL_OK;
}

typedef struct rig {
    fl_device_ops ops;
    fl_device device;
    fl_flight *flight;
    fl_device_clock clock;
    uint64_t cursor;
} rig;

static void open_rig(rig *r)
{
    *r = (rig){.ops = {.event_create = make_event,
                       .event_destroy = drop_event,
                       .event_record = record_event,
                       .event_elapsed = elapsed}};
    r->device.ops = &r->ops;
    device_clock.ahead_us = -3e9;
    device_clock.rate = 1.0;
    assert_int_equal(fl_flight_create(1, &r->flight), FL_OK);
    fl_flight_join(r->flight, 0);
    assert_int_equal(fl_device_clock_init(&r->clock, &r->device, NULL, INTERVALS), FL_OK);
}

static void close_rig(rig *r)
{
    fl_device_clock_fini(&r->clock);
    fl_flight_thread_end();
    fl_flight_destroy(&r->flight);
}

static void compute(rig *r, int item)
{
    const fl_clock_work work = {
        .part = FL_CLOCK_COMPUTE, .label = -1, .kind = FL_FLIGHT_FORWARD, .item = item};
    assert_int_equal(fl_device_clock_begin(&r->clock, &work), FL_OK);
    nap(100);
    assert_int_equal(fl_device_clock_end(&r->clock), FL_OK);
}

/* What two intervals in front of an anchor leave: within the host's limits, one behind the other.
 * Returns microseconds from the anchor's record to its time. */
static double take_step(rig *r)
{
    int64_t us[FL_CLOCK_PARTS], begun_ns = fl_now_ns();
    fl_flight_entry e[INTERVALS];
    uint64_t lost = 0;
    compute(r, 0);
    compute(r, 1);
    assert_int_equal(fl_device_clock_anchor(&r->clock), FL_OK);
    int64_t recorded_ns = r->clock.anchor[r->clock.turn].recorded_ns;
    nap(2 * LATE_US); /* the wait for the stream */
    assert_int_equal(fl_device_clock_waited(&r->clock), FL_OK);
    int64_t at_ns = r->clock.anchor[r->clock.turn].host_ns, waited_ns = fl_now_ns();
    assert_in_range(at_ns, recorded_ns, waited_ns);
    assert_int_equal(fl_device_clock_read(&r->clock, us, NULL, NULL), FL_OK);
    assert_int_equal(fl_flight_read(r->flight, 0, 1, &r->cursor, e, INTERVALS, &lost), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(e[i].kind, FL_FLIGHT_FORWARD);
        assert_int_equal(e[i].item, i);
        assert_true(e[i].entered_ns >= begun_ns && e[i].left_ns <= waited_ns);
        assert_true(e[i].left_ns >= e[i].entered_ns);
    }
    assert_true(e[1].entered_ns >= e[0].left_ns - 1000); /* what rounding may move */
    return (double)(at_ns - recorded_ns) * 1e-3;
}

static void test_device_clock__knows_when_a_device_computed(void **state)
{
    (void)state;
    rig r;
    open_rig(&r);
    take_step(&r);
    double first = take_step(&r), second = take_step(&r);
    /* Whatever the first wait's end was late by, the next anchors are late by as much or less. */
    assert_true(second <= first + 1.0 && second >= 0.0);
    close_rig(&r);
}

/* A device whose clock runs away, or jumps. */
static void test_device_clock__stays_within_the_hosts_limits(void **state)
{
    (void)state;
    rig r;
    open_rig(&r);
    static const double jumps_us[] = {0.0, 1e6, -1e6, 5e5, 0.0};
    for (size_t i = 0; i < sizeof jumps_us / sizeof *jumps_us; i++) {
        device_clock.ahead_us += jumps_us[i]; /* between two steps */
        take_step(&r);
    }
    close_rig(&r);
}

/* Work that nobody anchored has a duration, and no time. */
static void test_device_clock__records_nothing_without_an_anchor(void **state)
{
    (void)state;
    rig r;
    int64_t us[FL_CLOCK_PARTS];
    open_rig(&r);
    take_step(&r);
    uint64_t written = fl_flight_written(r.flight, 0, 1);
    compute(&r, 0);
    assert_int_equal(fl_device_clock_read(&r.clock, us, NULL, NULL), FL_OK);
    assert_true(us[FL_CLOCK_COMPUTE] >= 100);
    assert_int_equal(fl_flight_written(r.flight, 0, 1), written);
    r.ops.host_memory = true; /* its calls compute: the main thread's operations have the times */
    compute(&r, 0);
    assert_int_equal(fl_device_clock_anchor(&r.clock), FL_OK);
    assert_int_equal(fl_device_clock_waited(&r.clock), FL_OK);
    assert_int_equal(fl_device_clock_read(&r.clock, us, NULL, NULL), FL_OK);
    assert_int_equal(fl_flight_written(r.flight, 0, 1), written);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_clock__knows_when_a_device_computed),
        cmocka_unit_test(test_device_clock__stays_within_the_hosts_limits),
        cmocka_unit_test(test_device_clock__records_nothing_without_an_anchor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
