#include "device/system/thread.h"

#include <string.h>
#include <time.h>

void fl_thread_block_signals(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

void fl_thread_restore_signals(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

fl_status fl_thread_start(pthread_t *thread, void *(*run)(void *), void *argument, const char *what)
{
    sigset_t before;
    fl_thread_block_signals(&before);
    int error = pthread_create(thread, NULL, run, argument);
    fl_thread_restore_signals(&before);
    return error == 0 ? FL_OK : fl_fail(FL_ENOMEM, "cannot start %s: %s", what, strerror(error));
}

void fl_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool fl_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline_us)
{
    const struct timespec until = {.tv_sec = deadline_us / 1000000,
                                   .tv_nsec = deadline_us % 1000000 * 1000};
    return pthread_cond_timedwait(condition, mutex, &until) == 0;
}
