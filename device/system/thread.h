/* Threads that work beside the program's own: how they start, and how to wait for one. */
#ifndef FL_DEVICE_SYSTEM_THREAD_H
#define FL_DEVICE_SYSTEM_THREAD_H

#include <frostline/status.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Start a thread that takes no signals: they are for the program's own threads. what: names it in
 * the message, as in "the loader's thread". FL_ENOMEM */
fl_status fl_thread_start(pthread_t *thread, void *(*run)(void *), void *argument,
                          const char *what) FL_MUST_CHECK;

/* The same for a library that starts threads by itself: those that it starts between these two
 * calls take no signals. *before is what the second call restores. */
void fl_thread_block_signals(sigset_t *before);
void fl_thread_restore_signals(const sigset_t *before);

/* A condition whose deadlines are those of fl_now_us. */
void fl_condition_init(pthread_cond_t *condition);

/* As pthread_cond_wait; false once the deadline has passed. */
bool fl_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex,
                             int64_t deadline_us);

#ifdef __cplusplus
}
#endif
#endif
