/* Starting threads and waiting for them. Would catch: a thread that receives signals meant for the
 * main thread, a main thread that loses its signals, a wait on a clock other than fl_now_us. */
#include "device/system/thread.h"

#include "device/system/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t rung;
    bool ready;
    sigset_t mask; /* of the other thread */
} shared = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void *ring(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&shared.mutex);
    pthread_sigmask(SIG_SETMASK, NULL, &shared.mask);
    shared.ready = true;
    pthread_cond_signal(&shared.rung);
    pthread_mutex_unlock(&shared.mutex);
    return NULL;
}

static bool takes(const sigset_t *mask, int number)
{
    return sigismember(mask, number) == 0;
}

static void test_thread_start__leaves_signals_to_the_caller(void **state)
{
    (void)state;
    pthread_t thread;
    sigset_t mine;
    fl_condition_init(&shared.rung);
    assert_int_equal(fl_thread_start(&thread, ring, NULL, "the test's thread"), FL_OK);
    pthread_mutex_lock(&shared.mutex);
    bool in_time = true;
    while (!shared.ready && in_time) {
        in_time = fl_condition_wait_until(&shared.rung, &shared.mutex, fl_deadline_us(60000));
    }
    pthread_mutex_unlock(&shared.mutex);
    pthread_join(thread, NULL);
    assert_true(shared.ready);
    assert_false(takes(&shared.mask, SIGINT) || takes(&shared.mask, SIGTERM));
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_true(takes(&mine, SIGINT) && takes(&mine, SIGTERM));
    pthread_cond_destroy(&shared.rung);
}

static void test_thread_block_signals__is_undone(void **state)
{
    (void)state;
    sigset_t before, now;
    fl_thread_block_signals(&before);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(takes(&now, SIGINT));
    fl_thread_restore_signals(&before);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_true(takes(&now, SIGINT));
}

static void test_condition_wait_until__ends_at_the_deadline(void **state)
{
    (void)state;
    fl_condition_init(&shared.rung);
    pthread_mutex_lock(&shared.mutex);
    int64_t deadline_us = fl_now_us() + 20000;
    assert_false(fl_condition_wait_until(&shared.rung, &shared.mutex, deadline_us));
    assert_true(fl_now_us() >= deadline_us);
    assert_false(fl_condition_wait_until(&shared.rung, &shared.mutex, fl_now_us() - 1));
    pthread_mutex_unlock(&shared.mutex);
    pthread_cond_destroy(&shared.rung);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_start__leaves_signals_to_the_caller),
        cmocka_unit_test(test_thread_block_signals__is_undone),
        cmocka_unit_test(test_condition_wait_until__ends_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
