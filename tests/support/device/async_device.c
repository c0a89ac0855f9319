#include "support/device/async_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

fl_device *async_device_with(const fl_async_options *wanted)
{
    fl_device *d = NULL;
    fl_async_options o = *wanted;
    o.n_threads = 1;
    o.budget_bytes = o.budget_bytes == 0 ? ASYNC_BUDGET : o.budget_bytes;
    if (fl_device_async_create(&o, &d) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return d;
}

void *async_memory(fl_device *d, size_t size_bytes)
{
    void *memory = NULL;
    assert_int_equal(fl_device_alloc(d, size_bytes, "memory", &memory), FL_OK);
    return memory;
}
