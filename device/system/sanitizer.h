/* What gcc's sanitizers do not follow by themselves. In every other build these are the plain
 * calls, or nothing. */
#ifndef FL_DEVICE_SYSTEM_SANITIZER_H
#define FL_DEVICE_SYSTEM_SANITIZER_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#endif

/* A fence orders the plain bytes of a sequence lock. ThreadSanitizer does not model fences
 * (-Wtsan); the processor and the compiler still obey this one. */
static inline void fl_sanitizer_fence(memory_order order)
{
#ifdef __SANITIZE_THREAD__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    atomic_thread_fence(order);
#ifdef __SANITIZE_THREAD__
#pragma GCC diagnostic pop
#endif
}

/* Around the reads of a sequence lock: they may overlap a write, and are checked afterwards. */
static inline void fl_sanitizer_begin_checked_reads(void)
{
#ifdef __SANITIZE_THREAD__
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
#endif
}

static inline void fl_sanitizer_end_checked_reads(void)
{
#ifdef __SANITIZE_THREAD__
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

/* libtsan does not intercept pthread_mutex_clocklock, so it would not see that the lock is held. */
static inline int fl_sanitizer_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                         const struct timespec *until)
{
#ifdef __SANITIZE_THREAD__
    __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
#endif
    int error = pthread_mutex_clocklock(mutex, clock, until);
#ifdef __SANITIZE_THREAD__
    unsigned missed = error == 0 || error == EOWNERDEAD ? 0 : __tsan_mutex_try_lock_failed;
    __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock | missed, 0);
#endif
    return error;
}

/* A forked process ends with _exit, before which LeakSanitizer does not look. */
static inline void fl_sanitizer_find_leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
    __lsan_do_leak_check();
#endif
}

#endif
