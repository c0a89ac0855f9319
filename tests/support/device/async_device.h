/* An asynchronous test device of a test, and memory of it. */
#ifndef FL_TESTS_SUPPORT_DEVICE_ASYNC_DEVICE_H
#define FL_TESTS_SUPPORT_DEVICE_ASYNC_DEVICE_H

#include "device/async/async.h"

enum { ASYNC_BUDGET = 1 << 20 };

/* With one thread; budget_bytes 0: ASYNC_BUDGET. */
fl_device *async_device_with(const fl_async_options *wanted);
void *async_memory(fl_device *d, size_t size_bytes);

#endif
