/* The flight recorder: what a thread wrote is read back whole, by another process, while it writes,
 * after it was killed, and however much it wrote. */
#include "device/flight/flight.h"
#include "device/system/alloc.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks/flight_worker.h"

static void nest(void)
{
    fl_flight_generation(7);
    fl_flight_step(37);
    fl_flight_enter(FL_FLIGHT_STEP, -1, -1, 0);
    fl_flight_micro_batch(2);
    fl_flight_enter(FL_FLIGHT_FORWARD, -1, 5, 0);
    fl_flight_leave();
    fl_flight_enter(FL_FLIGHT_RECEIVE, 0, -1, 4096);
    raise(SIGKILL);
}

static void test_flight__shows_a_worker_of_another_host(void **state)
{
    (void)state;
    fl_flight *there = flight_create(), *here = flight_create();
    fl_flight_view wanted, seen;
    assert_true(WIFSIGNALED(flight_in_worker(there, nest)));
    fl_flight_look(there, FLIGHT_ME, 0, &wanted);
    assert_true(wanted.whole && wanted.depth == 2);
    fl_flight_show(here, FLIGHT_ME, 0, &wanted);
    fl_flight_look(here, FLIGHT_ME, 0, &seen);
    assert_true(seen.whole);
    assert_int_equal(seen.role, FL_FLIGHT_MAIN);
    assert_int_equal(seen.n_changes, wanted.n_changes);
    assert_int_equal(seen.depth, wanted.depth);
    for (int i = 0; i < seen.depth; i++) {
        assert_int_equal(seen.open[i].kind, wanted.open[i].kind);
        assert_int_equal(seen.open[i].generation, wanted.open[i].generation);
        assert_int_equal(seen.open[i].step, wanted.open[i].step);
        assert_int_equal(seen.open[i].peer, wanted.open[i].peer);
        assert_int_equal(seen.open[i].bytes, wanted.open[i].bytes);
        assert_int_equal(seen.open[i].entered_ns, wanted.open[i].entered_ns);
    }
    fl_flight_look(here, FLIGHT_ME + 1, 0, &seen); /* of another rank: untouched */
    assert_int_equal(seen.n_changes, 0);
    fl_flight_entry left = {.kind = FL_FLIGHT_SUM, .step = 36, .entered_ns = 5, .left_ns = 6};
    fl_flight_append(here, FLIGHT_ME, 0, &left, 1);
    fl_flight_look(here, FLIGHT_ME, 0, &seen);
    assert_int_equal(seen.last.kind, FL_FLIGHT_SUM);
    assert_int_equal(seen.last.left_ns, 6);
    assert_int_equal(seen.depth, wanted.depth);
    fl_flight_show_step(here, FLIGHT_ME, 37);
    assert_int_equal(fl_flight_step_of(here, FLIGHT_ME), 37);
    fl_flight_destroy(&there);
    fl_flight_destroy(&here);
}

/* Would catch: a recorder that is lost with its worker, or loses the worker's last operation. */
static void test_flight__survives_a_killed_worker(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    fl_flight_view view;
    int status = flight_in_worker(flight, nest);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    fl_flight_look(flight, FLIGHT_ME, 0, &view);
    assert_int_equal(view.role, FL_FLIGHT_MAIN);
    assert_int_equal(view.depth, 2);
    assert_int_equal(view.open[0].kind, FL_FLIGHT_STEP);
    assert_int_equal(view.open[0].micro_batch, -1);
    const fl_flight_entry *e = &view.open[1];
    assert_int_equal(e->kind, FL_FLIGHT_RECEIVE);
    assert_int_equal(e->depth, 1);
    assert_int_equal(e->peer, 0);
    assert_int_equal(e->item, -1);
    assert_int_equal(e->bytes, 4096);
    assert_int_equal(e->generation, 7);
    assert_int_equal(e->step, 37);
    assert_int_equal(e->micro_batch, 2);
    assert_int_equal(e->left_ns, 0);
    assert_int_equal(view.last.kind, FL_FLIGHT_FORWARD);
    assert_int_equal(view.last.item, 5);
    assert_true(view.last.entered_ns > 0 && view.last.left_ns >= view.last.entered_ns);
    assert_true(e->entered_ns >= view.last.left_ns);
    assert_int_equal(fl_flight_step_of(flight, FLIGHT_ME), 37);
    /* The neighbours' memory is as it was. */
    for (int other = 0; other < FLIGHT_WORKERS; other += 2) {
        fl_flight_look(flight, other, 0, &view);
        assert_int_equal(view.role, FL_FLIGHT_NOBODY);
        assert_int_equal(view.depth, 0);
        assert_int_equal(view.last.kind, FL_FLIGHT_NONE);
    }
    fl_flight_destroy(&flight);
    assert_null(flight);
}

static void do_nothing(void)
{
}

static void look_up_from_a_wait(void)
{
    fl_flight_enter(FL_FLIGHT_COMMAND, -1, -1, 0);
    fl_flight_beat();
    fl_flight_beat();
    raise(SIGKILL);
}

/* Would catch: a wait that looks the same whether its thread runs or hangs; one that seems to begin
 * anew each time, or that fills the ring. */
static void test_flight__a_wait_shows_that_its_thread_runs(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    fl_flight_view view;
    assert_int_equal(flight_in_worker(flight, do_nothing), 0);
    fl_flight_look(flight, FLIGHT_ME, 0, &view);
    uint64_t before = 2 * view.n_changes; /* each process begins its track */
    assert_true(WIFSIGNALED(flight_in_worker(flight, look_up_from_a_wait)));
    fl_flight_look(flight, FLIGHT_ME, 0, &view);
    assert_true(view.whole);
    assert_int_equal(view.n_changes, before + 2 + 2 * 2);
    assert_int_equal(view.depth, 1);
    assert_int_equal(view.open[0].kind, FL_FLIGHT_COMMAND);
    assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 0), 0);
    fl_flight_destroy(&flight);
}

enum { MANY = FL_FLIGHT_RING * 2 + 100 };

static void write_many(void)
{
    uint64_t before = fl_alloc_count();
    for (int i = 0; i < MANY; i++) {
        fl_flight_step(i);
        fl_flight_enter(FL_FLIGHT_SEND, i % 7, i, (int64_t)i * 3);
        fl_flight_leave();
    }
    _exit(fl_alloc_count() == before ? 0 : 1);
}

/* Would catch: a ring that returns overwritten entries or miscounts; an allocation. */
static void test_flight__remembers_the_newest_and_counts_the_lost(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    static fl_flight_entry out[64];
    uint64_t cursor = 0, lost = 0;
    int expected = MANY - FL_FLIGHT_RING, n;
    assert_int_equal(flight_in_worker(flight, write_many), 0);
    assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 0), MANY);
    while ((n = fl_flight_read(flight, FLIGHT_ME, 0, &cursor, out, 64, &lost)) > 0) {
        for (int i = 0; i < n; i++, expected++) {
            assert_int_equal(out[i].item, expected);
            assert_int_equal(out[i].step, expected);
            assert_int_equal(out[i].peer, expected % 7);
            assert_int_equal(out[i].bytes, expected * 3);
        }
    }
    assert_int_equal(expected, MANY);
    assert_int_equal(lost, MANY - FL_FLIGHT_RING);
    assert_int_equal(cursor, MANY);
    assert_true(fl_flight_newest(flight, FLIGHT_ME, 0, FL_FLIGHT_SEND, &out[0]));
    assert_int_equal(out[0].item, MANY - 1);
    assert_false(fl_flight_newest(flight, FLIGHT_ME, 0, FL_FLIGHT_DATA, &out[0]));
    fl_flight_destroy(&flight);
}

static void write_deep(void)
{
    for (int i = 0; i < FL_FLIGHT_DEPTH + 3; i++) {
        fl_flight_enter(FL_FLIGHT_FORWARD, -1, i, 0);
    }
    for (int i = 0; i < FL_FLIGHT_DEPTH + 3; i++) {
        fl_flight_leave();
    }
    fl_flight_leave(); /* once too often */
    fl_flight_enter(FL_FLIGHT_LOSS, -1, -1, 0);
}

/* Would catch: a write beyond the last entry, and a depth that does not return to zero. */
static void test_flight__deeper_operations_are_left_out(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    fl_flight_view view;
    assert_int_equal(flight_in_worker(flight, write_deep), 0);
    fl_flight_look(flight, FLIGHT_ME, 0, &view);
    assert_int_equal(view.depth, 1);
    assert_int_equal(view.open[0].kind, FL_FLIGHT_LOSS);
    assert_int_equal(view.last.item, 0);
    assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 0), FL_FLIGHT_DEPTH);
    fl_flight_destroy(&flight);
}

static void *one_thread(void *number)
{
    fl_flight_thread(FL_FLIGHT_REDUCER, 9);
    fl_flight_enter(FL_FLIGHT_REDUCE, -1, *(int *)number, 8);
    fl_flight_leave();
    fl_flight_thread_end();
    fl_flight_enter(FL_FLIGHT_REDUCE, -1, 1000, 8); /* without a track: nowhere */
    return NULL;
}

static void write_threads(void)
{
    for (int i = 0; i < 3 * FL_FLIGHT_TRACKS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, one_thread, &i) != 0) {
            _exit(1);
        }
        pthread_join(thread, NULL);
    }
    fl_flight_enter(FL_FLIGHT_SUM, -1, 4, 0);
}

/* Would catch: tracks that are not given back, so that later threads have none. */
static void test_flight__threads_have_tracks_of_their_own(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    fl_flight_view view;
    assert_int_equal(flight_in_worker(flight, write_threads), 0);
    fl_flight_look(flight, FLIGHT_ME, 1, &view);
    assert_int_equal(view.role, FL_FLIGHT_NOBODY);
    assert_int_equal(view.last.item, 3 * FL_FLIGHT_TRACKS - 1);
    assert_int_equal(view.last.generation, 9);
    assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 1), 3 * FL_FLIGHT_TRACKS);
    assert_int_equal(fl_flight_written(flight, FLIGHT_ME, 2), 0);
    fl_flight_look(flight, FLIGHT_ME, 0, &view);
    assert_int_equal(view.depth, 1);
    assert_int_equal(view.open[0].kind, FL_FLIGHT_SUM);
    fl_flight_destroy(&flight);
}

static void write_for_ever(void)
{
    for (int i = 0;; i = (i + 1) % 1000000) {
        fl_flight_generation((uint32_t)i);
        fl_flight_enter(FL_FLIGHT_SEND, i, i, i);
        fl_flight_enter(FL_FLIGHT_RECEIVE, i, i, i);
        fl_flight_leave();
        fl_flight_leave();
    }
}

static void check_whole(const fl_flight_entry *e, bool left)
{
    assert_true(e->kind == FL_FLIGHT_SEND || e->kind == FL_FLIGHT_RECEIVE);
    assert_int_equal(e->peer, e->item);
    assert_int_equal(e->bytes, e->item);
    assert_int_equal(e->generation, e->item);
    assert_int_equal(e->depth, e->kind == FL_FLIGHT_RECEIVE);
    assert_true(e->entered_ns > 0);
    if (left) {
        assert_true(e->left_ns >= e->entered_ns);
    }
}

/* Would catch: an entry that is half of one operation and half of another. */
static void test_flight__a_running_worker_is_read_whole(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    static fl_flight_entry out[256];
    uint64_t cursor = 0, lost = 0;
    int64_t n_read = 0, n_open = 0;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when an assertion fails */
        fl_flight_join(flight, FLIGHT_ME);
        write_for_ever();
    }
    while (n_read < 2000000 || n_open < 1000) {
        fl_flight_view view;
        int n = fl_flight_read(flight, FLIGHT_ME, 0, &cursor, out, 256, &lost);
        for (int i = 0; i < n; i++) {
            check_whole(&out[i], true);
        }
        n_read += n;
        fl_flight_look(flight, FLIGHT_ME, 0, &view);
        for (int i = 0; view.whole && i < view.depth; i++) {
            check_whole(&view.open[i], false);
            n_open++;
        }
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    print_message("%lld read, %llu overwritten before\n", (long long)n_read,
                  (unsigned long long)lost);
    fl_flight_destroy(&flight);
}

/* Would catch: a program that records without having joined, as a benchmark does, and crashes,
 * or writes into the recorder of a worker. */
static void test_flight__without_a_recorder_nothing_happens(void **state)
{
    (void)state;
    fl_flight *flight = flight_create();
    fl_flight_step(1);
    fl_flight_enter(FL_FLIGHT_FORWARD, -1, 0, 0);
    fl_flight_leave();
    fl_flight_thread(FL_FLIGHT_PREPARER, 1);
    fl_flight_thread_end();
    for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
        fl_flight_view view;
        fl_flight_look(flight, FLIGHT_ME, track, &view);
        assert_int_equal(view.role, FL_FLIGHT_NOBODY);
        assert_int_equal(view.depth, 0);
        assert_int_equal(fl_flight_written(flight, FLIGHT_ME, track), 0);
    }
    assert_int_equal(fl_flight_step_of(flight, FLIGHT_ME), 0);
    fl_flight_destroy(&flight);
}

static void test_flight__every_kind_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < FL_FLIGHT_KINDS; i++) {
        assert_true(strlen(fl_flight_text((fl_flight_kind)i)) > 3);
        assert_non_null(fl_flight_category_text(fl_flight_category_of((fl_flight_kind)i)));
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(fl_flight_text((fl_flight_kind)i),
                                    fl_flight_text((fl_flight_kind)j));
        }
    }
    assert_string_equal(fl_flight_text(FL_FLIGHT_KINDS), fl_flight_text(FL_FLIGHT_NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flight__shows_a_worker_of_another_host),
        cmocka_unit_test(test_flight__survives_a_killed_worker),
        cmocka_unit_test(test_flight__a_wait_shows_that_its_thread_runs),
        cmocka_unit_test(test_flight__remembers_the_newest_and_counts_the_lost),
        cmocka_unit_test(test_flight__deeper_operations_are_left_out),
        cmocka_unit_test(test_flight__threads_have_tracks_of_their_own),
        cmocka_unit_test(test_flight__a_running_worker_is_read_whole),
        cmocka_unit_test(test_flight__without_a_recorder_nothing_happens),
        cmocka_unit_test(test_flight__every_kind_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
