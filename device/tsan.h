/* Calls that gcc's ThreadSanitizer does not follow by itself. In every other build they are the
 * plain calls. */
#ifndef FL_DEVICE_TSAN_H
#define FL_DEVICE_TSAN_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#ifdef __SANITIZE_THREAD__

#include <sanitizer/tsan_interface.h>

/* A fence orders the plain bytes of a sequence lock. ThreadSanitizer does not model fences
 * (-Wtsan); the processor and the compiler still obey this one. */
static inline void fl_tsan_fence(memory_order order)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
    atomic_thread_fence(order);
#pragma GCC diagnostic pop
}

/* libtsan does not intercept pthread_mutex_clocklock, so it would not see that the lock is held. */
static inline int fl_tsan_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                    const struct timespec *until)
{
    __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
    int error = pthread_mutex_clocklock(mutex, clock, until);
    unsigned held = error == 0 || error == EOWNERDEAD ? 0 : __tsan_mutex_try_lock_failed;
    __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock | held, 0);
    return error;
}

#else

static inline void fl_tsan_fence(memory_order order)
{
    atomic_thread_fence(order);
}

static inline int fl_tsan_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                    const struct timespec *until)
{
    return pthread_mutex_clocklock(mutex, clock, until);
}

#endif

#endif
