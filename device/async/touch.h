/* What a fault says when somebody touches memory of an asynchronous test device that he must not:
 * one line and the calls that led there, before the process dies of the signal as it would have.
 * Threads: any. */
#ifndef FL_DEVICE_ASYNC_TOUCH_H
#define FL_DEVICE_ASYNC_TOUCH_H

#include "device/async/space.h"

/* Explain faults in this space until it is unwatched. `what`: constant, as in "memory". No more
 * than 16 spaces are explained at a time. */
void fl__touch_watch(const fl__space *space, const char *what);
void fl__touch_unwatch(const fl__space *space);

/* Let faults of this thread, which takes no signals, be explained, too. */
void fl__touch_watch_thread(void);

/* What this thread, a stream's, is running; NULL: it is not a stream's. Constant text. */
void fl__touch_running(const char *entry);

#endif
