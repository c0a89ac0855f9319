/* What the flight recorder keeps of a worker's device: a track of its own, and for which worker the
 * device waits. */
#include "device/flight/flight.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks/flight_worker.h"

static void note_computed(int micro_batch, int64_t at_ns)
{
    fl_flight_entry e = {.kind = FL_FLIGHT_FORWARD,
                         .item = 4,
                         .peer = -1,
                         .entered_ns = at_ns,
                         .left_ns = at_ns + 10};
    fl_flight_micro_batch(micro_batch);
    fl_flight_stamp(&e);
    fl_flight_computed(&e);
}

static void compute_on_device(void)
{
    fl_flight_generation(7);
    fl_flight_step(37);
    fl_flight_enter(FL_FLIGHT_STEP, -1, -1, 0);
    note_computed(0, 1000);
    note_computed(1, 2000);
    fl_flight_leave();
}

/* Would catch: what a device computed among the main thread's operations, or with the time of the
 * note. */
static void test_flight__a_device_has_a_track_of_its_own(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    fl_flight_view view;
    fl_flight_entry e[4];
    uint64_t cursor = 0, lost = 0;
    assert_int_equal(flight_in_worker(flight, compute_on_device), 0);
    assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 0), 1);
    fl_flight_look(flight, FLIGHT_ME, 1, &view);
    assert_int_equal(view.role, FL_FLIGHT_DEVICE);
    assert_int_equal(view.depth, 0);
    assert_int_equal(fl_flight_read(flight, FLIGHT_ME, 1, &cursor, e, 4, &lost), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(e[i].kind, FL_FLIGHT_FORWARD);
        assert_int_equal(e[i].generation, 7);
        assert_int_equal(e[i].step, 37);
        assert_int_equal(e[i].micro_batch, i);
        assert_int_equal(e[i].item, 4);
        assert_int_equal(e[i].peer, -1);
        assert_int_equal(e[i].entered_ns, 1000 * (i + 1));
        assert_int_equal(e[i].left_ns, 1000 * (i + 1) + 10);
    }
    fl_flight_clear(flight, FLIGHT_ME); /* the next process of this rank begins without it */
    assert_int_equal(flight_in_worker(flight, compute_on_device), 0);
    assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 1), 4);
    fl_flight_destroy(&flight);
}

/* What the watch over a device's waits shows. */
static void *show_awaited(void *unused)
{
    const fl_flight_entry awaited = {
        .kind = FL_FLIGHT_RECEIVE, .peer = 3, .step = 7, .micro_batch = 1, .item = -1};
    fl_flight_thread(FL_FLIGHT_AWAITED, 9);
    fl_flight_awaits(&awaited);
    return unused; /* as if it still watched */
}

static void *show_nothing(void *unused)
{
    fl_flight_thread(FL_FLIGHT_AWAITED, 9);
    fl_flight_awaits(&(fl_flight_entry){.kind = FL_FLIGHT_RECEIVE});
    fl_flight_awaits(NULL);
    return unused;
}

static void wait_on_device(fl_flight_kind kind, void *(*show)(void *))
{
    pthread_t thread;
    fl_flight_entry in;
    fl_flight_enter(FL_FLIGHT_STEP, -1, -1, 0);
    fl_flight_enter(kind, -1, -1, 0);
    fl_flight_innermost(&in);
    if (in.kind != kind || pthread_create(&thread, NULL, show, NULL) != 0) {
        _exit(1);
    }
    pthread_join(thread, NULL);
}

static void wait_in_norms(void)
{
    wait_on_device(FL_FLIGHT_NORMS, show_awaited);
}

static void wait_in_sum(void)
{
    wait_on_device(FL_FLIGHT_SUM, show_awaited);
}

static void wait_for_nothing(void)
{
    wait_on_device(FL_FLIGHT_NORMS, show_nothing);
}

/* Would catch: a worker that is taken for one that hangs while its device waits for a peer, and a
 * wait of the host that one of the device hides. */
static void test_flight__a_device_waits_for_its_worker(void **state)
{
    (void)state;
    static const struct {
        void (*live)(void);
        int depth;
        fl_flight_kind kind;
    } cases[] = {{wait_in_norms, 3, FL_FLIGHT_RECEIVE},
                 {wait_in_sum, 2, FL_FLIGHT_SUM},
                 {wait_for_nothing, 2, FL_FLIGHT_NORMS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_flight *flight = flight_create();
        fl_flight_view view;
        assert_int_equal(flight_in_worker(flight, cases[i].live), 0);
        fl_flight_look_training(flight, FLIGHT_ME, &view);
        assert_int_equal(view.depth, cases[i].depth);
        assert_int_equal(view.open[view.depth - 1].kind, cases[i].kind);
        assert_int_equal(view.open[view.depth - 1].depth, view.depth - 1);
        assert_int_equal(view.open[view.depth - 1].peer, i == 0 ? 3 : -1);
        assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 1), 0); /* it is not remembered */
        fl_flight_destroy(&flight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flight__a_device_has_a_track_of_its_own),
        cmocka_unit_test(test_flight__a_device_waits_for_its_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
