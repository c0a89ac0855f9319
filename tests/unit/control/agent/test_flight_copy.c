/* What an agent sends of its workers' recorders, and the copy that the head makes of it. Would
 * catch: times of the other host's clock in the copy, operations that are shown twice or not at
 * all, and answers that skip operations or go beyond the steps that were asked for. */
#include "control/agent/measure/flight_copy.h"

#include "device/system/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, ME = 1, STEPS = 40, A_STEP = 10 };

static const int64_t OFFSET_NS = INT64_C(1000000000000);

static fl_flight *create(void)
{
    fl_flight *flight = NULL;
    assert_int_equal(fl_flight_create(RANKS, &flight), FL_OK);
    return flight;
}

/* One that the worker has left; they are numbered by `item`. */
static void leave(fl_flight *flight, int track, int64_t step, int item)
{
    const fl_flight_entry e = {.kind = FL_FLIGHT_FORWARD,
                               .step = step,
                               .item = item,
                               .peer = -1,
                               .micro_batch = -1,
                               .entered_ns = 2 * item,
                               .left_ns = 2 * item + 1};
    fl_flight_append(flight, ME, track, &e, 1);
}

static void enter(fl_flight *flight, int track, uint64_t n_changes, int64_t entered_ns)
{
    fl_flight_view view = {.role = track == 0 ? FL_FLIGHT_MAIN : FL_FLIGHT_REDUCER,
                           .depth = 1,
                           .n_changes = n_changes};
    view.open[0] =
        (fl_flight_entry){.kind = FL_FLIGHT_RECEIVE, .peer = 0, .entered_ns = entered_ns};
    fl_flight_show(flight, ME, track, &view);
}

static void test_flight_copy__shows_what_has_changed(void **state)
{
    (void)state;
    static fl_flight_shown shown;
    fl_flight *there = create(), *here = create();
    fl_shown_until until = {.cursor = {0}};
    fl_flight_view view;
    fl_flight_entry entry[64];
    uint64_t cursor = 0, lost = 0;
    assert_false(fl_flight_shown_make(there, ME, false, &until, &shown)); /* nothing yet */
    for (int i = 0; i < 3; i++) {
        leave(there, 0, 5, i);
    }
    enter(there, 0, 8, OFFSET_NS + 70);
    fl_flight_show_step(there, ME, 5);
    assert_true(fl_flight_shown_make(there, ME, false, &until, &shown));
    fl_flight_shown_take(here, ME, &shown, OFFSET_NS);
    fl_flight_look(here, ME, 0, &view);
    assert_int_equal(view.depth, 1);
    assert_int_equal(view.open[0].entered_ns, 70);
    assert_int_equal(view.n_changes, 8);
    assert_int_equal(fl_flight_step_of(here, ME), 5);
    assert_false(fl_flight_shown_make(there, ME, false, &until, &shown));
    for (int i = 3; i < 3 + 20; i++) { /* more than are shown: the last ones are */
        leave(there, 0, 5, i);
    }
    enter(there, 0, 48, OFFSET_NS + 90);
    assert_true(fl_flight_shown_make(there, ME, false, &until, &shown));
    assert_int_equal(shown.track[0].n_recent, FL_SHOWN_RECENT);
    assert_false(shown.track[1].has_changed);
    fl_flight_shown_take(here, ME, &shown, OFFSET_NS);
    assert_int_equal(fl_flight_read(here, ME, 0, &cursor, entry, 64, &lost), 3 + FL_SHOWN_RECENT);
    assert_int_equal(entry[2].item, 2);
    assert_int_equal(entry[3].item, 3 + 20 - FL_SHOWN_RECENT);
    assert_true(entry[18].item == 22 && entry[18].left_ns == 45 - OFFSET_NS);
    fl_flight_destroy(&there);
    fl_flight_destroy(&here);
}

/* A process that was killed in the middle of a change is shown at its end. */
static void test_flight_copy__shows_a_dead_worker(void **state)
{
    (void)state;
    static fl_flight_shown shown;
    fl_flight *there = create();
    fl_shown_until until = {.cursor = {0}}, before = until;
    enter(there, 0, 8, 70);
    assert_true(fl_flight_shown_make(there, ME, true, &until, &shown));
    assert_true(until.n_changes[0] == 8 && before.n_changes[0] == 0);
    assert_int_equal(shown.track[0].view.depth, 1);
    fl_flight_destroy(&there);
}

/* ---- records ---- */

/* Ask until there is no more; the items are those that were left in the steps, without a gap. */
static int64_t read_all(const fl_flight *flight, fl_records_request *request, int first_item)
{
    static fl_flight_records records;
    int64_t n_lost = 0;
    int item = first_item;
    do {
        fl_flight_records_make(flight, ME, request, &records);
        for (int i = 0; i < records.n[0]; i++) {
            assert_int_equal(records.entry[i].item, item++);
            assert_true(records.entry[i].step >= request->first_step);
            assert_true(records.entry[i].step < request->first_step + request->n_steps);
        }
        memcpy(request->cursor, records.cursor, sizeof request->cursor);
        n_lost += records.n_lost;
    } while (!records.all);
    return n_lost * 100000 + item - first_item;
}

static fl_records_request ask_for(int64_t first_step, int64_t n_steps)
{
    fl_records_request request = {.first_step = first_step, .n_steps = n_steps};
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        request.cursor[i] = FL_RECORDS_OLDEST;
    }
    return request;
}

static void test_flight_copy__answers_with_the_steps_that_were_asked_for(void **state)
{
    (void)state;
    fl_flight *flight = create();
    fl_records_request request = ask_for(3, 35);
    for (int i = 0; i < STEPS * A_STEP; i++) {
        leave(flight, 0, i / A_STEP, i);
        leave(flight, 1, i / A_STEP, i);
    }
    assert_true(35 * A_STEP > FL_RECORDS_MAX); /* in several answers */
    assert_int_equal(read_all(flight, &request, 3 * A_STEP), 35 * A_STEP);
    assert_int_equal(read_all(flight, &request, 0), 0); /* nothing new */
    request.cursor[0] = UINT64_C(1) << 60; /* of a process before: what it has now is all new */
    assert_int_equal(read_all(flight, &request, 0), 0);
    assert_int_equal(request.cursor[0], STEPS * A_STEP);
    fl_flight_destroy(&flight);
}

/* The same request gets the same answer: a lost answer costs nothing. */
static void test_flight_copy__answers_again(void **state)
{
    (void)state;
    static fl_flight_records one, other;
    fl_flight *flight = create();
    const fl_records_request request = ask_for(0, 100);
    for (int i = 0; i < 1000; i++) {
        leave(flight, 0, i / A_STEP, i);
    }
    fl_flight_records_make(flight, ME, &request, &one);
    fl_flight_records_make(flight, ME, &request, &other);
    assert_true(!one.all && one.n[0] == FL_RECORDS_MAX);
    assert_memory_equal(&one, &other, sizeof one);
    fl_flight_destroy(&flight);
}

static void test_flight_copy__counts_what_was_overwritten(void **state)
{
    (void)state;
    fl_flight *flight = create();
    fl_records_request request = ask_for(0, 1000000);
    static fl_flight_records records;
    for (int i = 0; i < 2 * FL_FLIGHT_RING; i++) {
        leave(flight, 0, i / A_STEP, i);
    }
    fl_flight_records_make(flight, ME, &request, &records);
    assert_int_equal(records.n_lost, 1); /* at least: it cannot know how many */
    memcpy(request.cursor, records.cursor, sizeof request.cursor);
    for (int i = 0; i < FL_FLIGHT_RING; i++) {
        leave(flight, 0, i / A_STEP, i);
    }
    fl_flight_records_make(flight, ME, &request, &records);
    assert_int_equal(records.n_lost,
                     3 * FL_FLIGHT_RING - FL_FLIGHT_RING - (int64_t)request.cursor[0]);
    request = ask_for(2 * FL_FLIGHT_RING / A_STEP, 10); /* later than what is gone */
    for (int i = 0; i < FL_FLIGHT_RING; i++) {
        leave(flight, 0, i / A_STEP, i);
    }
    fl_flight_records_make(flight, ME, &request, &records);
    assert_int_equal(records.n_lost, 0);
    fl_flight_destroy(&flight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flight_copy__shows_what_has_changed),
        cmocka_unit_test(test_flight_copy__shows_a_dead_worker),
        cmocka_unit_test(test_flight_copy__answers_with_the_steps_that_were_asked_for),
        cmocka_unit_test(test_flight_copy__answers_again),
        cmocka_unit_test(test_flight_copy__counts_what_was_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
