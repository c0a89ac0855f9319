/* Priority of threads that run for short moments beside a thread that computes on the same
 * processor. */
#ifndef FL_DEVICE_SYSTEM_THREAD_PRIORITY_H
#define FL_DEVICE_SYSTEM_THREAD_PRIORITY_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ask the scheduler for short but early turns: a thread that waits for this one would otherwise
 * wait until the turn of the one that computes is over. Threads that this one starts inherit it;
 * false takes it back. Where the system knows no such thing nothing happens. */
void fl_thread_raise_priority(bool urgent);

/* Lower this thread's priority for good: beside a thread that computes on the same processor it
 * gets about a tenth of the time. */
void fl_thread_lower_priority(void);

#ifdef __cplusplus
}
#endif
#endif
