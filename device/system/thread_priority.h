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

/* Run before all ordinary threads of the machine, where the process may: as root, or with
 * RLIMIT_RTPRIO; else as fl_thread_raise_priority(true). For a thread that is late where it waits
 * for a turn, and needs microseconds. Threads that it starts do not inherit it. */
void fl_thread_run_first(void);

/* Lower this thread's priority for good: beside a thread that computes on the same processor it
 * gets about a tenth of the time. */
void fl_thread_lower_priority(void);

#ifdef __cplusplus
}
#endif
#endif
