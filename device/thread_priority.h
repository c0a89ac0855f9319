/* Threads that work for moments only, beside one that computes on the same processor. */
#ifndef FL_DEVICE_THREAD_PRIORITY_H
#define FL_DEVICE_THREAD_PRIORITY_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ask the system for short turns, but soon: who waits for this thread's answer otherwise waits
 * until the turn of the one that computes is over. Threads that this one starts inherit it; false
 * takes it back. Where the system knows no such thing nothing happens. */
void fl_thread_raise_priority(bool urgent);

#ifdef __cplusplus
}
#endif
#endif
