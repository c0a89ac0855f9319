/* A pinned worker that waits for its processor while others are idle. Would catch: one that keeps
 * its pin for ever, one that gives it up because of a moment of foreign work or on a machine that
 * is busy altogether, and threads that stay pinned. */
#include "device/system/proc.h"
#include "launcher/worker/processors/crowding.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

/* Intervals of 2 s, in which the worker waited and the others were idle for so many ms. */
typedef struct interval {
    int64_t waited_ms, idle_ms;
} interval;

/* After which of the intervals it gives up; 0: after none of them. */
static int gives_up_after(const interval *intervals, int n)
{
    fl_crowding c = {.last = {.at_us = 5000000, .waited_us = 700000, .idle_us = 123}};
    fl_crowding_reading now = c.last;
    for (int i = 0; i < n; i++) {
        now.at_us += 2000000;
        now.waited_us += intervals[i].waited_ms * 1000;
        now.idle_us += intervals[i].idle_ms * 1000;
        if (fl_crowding_judge(&c, &now)) {
            return i + 1;
        }
    }
    return 0;
}

#define GIVES_UP_AFTER(...)                                                                        \
    gives_up_after((const interval[]){__VA_ARGS__},                                                \
                   sizeof((const interval[]){__VA_ARGS__}) / sizeof(interval))

static void test_crowding__gives_up_a_shared_processor(void **state)
{
    (void)state;
    assert_int_equal(GIVES_UP_AFTER({1000, 2000}, {1000, 2000}, {1000, 2000}), 2);
    assert_int_equal(GIVES_UP_AFTER({600, 600}, {600, 600}), 2);
}

static void test_crowding__keeps_what_is_its_own(void **state)
{
    (void)state;
    /* Its own threads for messages. */
    assert_int_equal(GIVES_UP_AFTER({250, 2000}, {590, 2000}, {250, 2000}), 0);
    /* The others are no better. */
    assert_int_equal(GIVES_UP_AFTER({1000, 0}, {1000, 900}, {1000, 999}), 0);
}

static void test_crowding__takes_no_notice_of_a_moment(void **state)
{
    (void)state;
    assert_int_equal(GIVES_UP_AFTER({1900, 2000}, {0, 2000}, {1900, 2000}, {0, 2000}), 0);
    assert_int_equal(GIVES_UP_AFTER({1900, 2000}, {0, 0}, {1900, 2000}, {1900, 2000}), 4);
}

static void test_idle_us__is_of_these_processors_alone(void **state)
{
    (void)state;
    static const char stat[] = "cpu  99 99 99 9999 99 0 9 9 0 0\n"
                               "cpu0 10 20 30 400 5 0 1 1 0 0\n"
                               "cpu1 10 20 30 800 50 0 1 1 0 0\n"
                               "cpu2 10 20 30 7000 0 0 1 1 0 0\n"
                               "cpu5000 10 20 30 7000 0 0 1 1 0 0\n"
                               "intr 123 0 0\n"
                               "cpu12 1 2"; /* where the text was cut */
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    assert_int_equal(fl_crowding_idle_us(stat, &cpus, 100), 0);
    CPU_SET(0, &cpus);
    CPU_SET(2, &cpus);
    CPU_SET(12, &cpus);
    assert_int_equal(fl_crowding_idle_us(stat, &cpus, 100), 74050000);
    assert_int_equal(fl_crowding_idle_us("", &cpus, 100), 0);
}

/* ---- threads ---- */

typedef struct pinned_thread {
    pthread_barrier_t pinned, widened;
    int cpu;
    cpu_set_t seen; /* of the thread, at its end */
} pinned_thread;

static void pin_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

static void *be_pinned(void *argument)
{
    pinned_thread *t = argument;
    pin_to(t->cpu);
    pthread_barrier_wait(&t->pinned);
    pthread_barrier_wait(&t->widened);
    sched_getaffinity(0, sizeof t->seen, &t->seen);
    return NULL;
}

/* What frees a worker's threads. */
typedef void freeing(fl_crowding *c);

static void widen(fl_crowding *c)
{
    assert_true(fl_proc_unpin(getpid(), &c->allowed));
}

/* A thread that is pinned, and this one, may run anywhere afterwards. */
static void check_freed(freeing *free_them)
{
    pinned_thread t = {.cpu = 0};
    pthread_t thread;
    fl_crowding c;
    cpu_set_t all, mine;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET((size_t)t.cpu, &all)) {
        t.cpu++;
    }
    fl_crowding_init(&c, &t.cpu, 1);
    assert_int_equal(c.pinned, CPU_COUNT(&all) > 1);
    assert_true(CPU_EQUAL(&c.allowed, &all));
    pthread_barrier_init(&t.pinned, NULL, 2);
    pthread_barrier_init(&t.widened, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, be_pinned, &t), 0);
    pin_to(t.cpu);
    pthread_barrier_wait(&t.pinned);
    free_them(&c);
    pthread_barrier_wait(&t.widened);
    pthread_join(thread, NULL);
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    assert_true(CPU_EQUAL(&mine, &all));
    assert_true(CPU_EQUAL(&t.seen, &all));
    pthread_barrier_destroy(&t.pinned);
    pthread_barrier_destroy(&t.widened);
}

static void test_widen__frees_every_thread(void **state)
{
    (void)state;
    check_freed(widen);
}

/* Would catch: a worker that departs, and whose last thread waits on a processor that another
 * program keeps busy: nobody can reap it meanwhile. */
static void test_end__frees_every_thread(void **state)
{
    (void)state;
    check_freed(fl_crowding_end);
}

/* Where the user has pinned it, it stays. */
static void test_end__leaves_a_worker_alone_that_is_not_pinned(void **state)
{
    (void)state;
    fl_crowding c;
    cpu_set_t all, mine;
    int cpu = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET((size_t)cpu, &all)) {
        cpu++;
    }
    fl_crowding_init(&c, NULL, 1);
    pin_to(cpu);
    fl_crowding_end(&c);
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    assert_int_equal(CPU_COUNT(&mine), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void test_crowding__leaves_a_worker_alone_that_is_not_pinned(void **state)
{
    (void)state;
    fl_crowding c;
    fl_crowding_init(&c, NULL, 1);
    assert_false(c.pinned);
    fl_crowding_check(&c);
    assert_false(c.pinned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowding__gives_up_a_shared_processor),
        cmocka_unit_test(test_crowding__keeps_what_is_its_own),
        cmocka_unit_test(test_crowding__takes_no_notice_of_a_moment),
        cmocka_unit_test(test_idle_us__is_of_these_processors_alone),
        cmocka_unit_test(test_widen__frees_every_thread),
        cmocka_unit_test(test_end__frees_every_thread),
        cmocka_unit_test(test_end__leaves_a_worker_alone_that_is_not_pinned),
        cmocka_unit_test(test_crowding__leaves_a_worker_alone_that_is_not_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
