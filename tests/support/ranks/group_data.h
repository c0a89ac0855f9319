/* A device for tests of the training group, and data on it: on one that computes in host memory,
 * or, over NCCL, on the asynchronous one, whose memory the host cannot touch. So the same test runs
 * over each transport. In ranks only. */
#ifndef FL_TESTS_SUPPORT_RANKS_GROUP_DATA_H
#define FL_TESTS_SUPPORT_RANKS_GROUP_DATA_H

#include "device/alloc.h"
#include "device/device.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

/* One a process, as a worker has. */
static inline fl_device *the_device(void)
{
    static fl_device *device = NULL;
    const fl_device_options options = {.kind = test_backend() == NULL ? FL_DEVICE_CPU
                                                                      : FL_DEVICE_ASYNC_TEST,
                                       .n_threads = 1,
                                       .budget_bytes = (size_t)1 << 30};
    if (device == NULL) {
        RANK_OK(fl_device_open(&options, &device));
    }
    return device;
}

/* What a group works on, and where the test reads and writes it: the same memory where that can
 * be. */
typedef struct group_data {
    void *device, *host;
    size_t size_bytes;
} group_data;

static inline group_data group_data_take(size_t size_bytes)
{
    group_data d = {.size_bytes = size_bytes > 0 ? size_bytes : 1};
    RANK_OK(fl_alloc(d.size_bytes, &d.host));
    d.device = d.host;
    if (!the_device()->ops->host_memory) {
        RANK_OK(fl_device_alloc(the_device(), d.size_bytes, "a test", &d.device));
    }
    return d;
}

static inline void group_data_give(group_data *d)
{
    if (d->device != d->host) {
        fl_device_free(the_device(), d->device, d->size_bytes);
    }
    fl_free(d->host);
    *d = (group_data){0};
}

/* The group, on the default stream, finds what the test wrote. */
static inline void group_data_put(const group_data *d)
{
    fl_device *device = the_device();
    if (d->device != d->host) {
        RANK_OK(device->ops->copy_in(device, NULL, d->device, d->host, d->size_bytes));
        RANK_OK(device->ops->sync(device, NULL));
    }
}

/* The test reads what the default stream's work so far has left. */
static inline void group_data_get(const group_data *d)
{
    fl_device *device = the_device();
    if (d->device != d->host) {
        RANK_OK(device->ops->copy_out(device, NULL, d->host, d->device, d->size_bytes));
        RANK_OK(device->ops->sync(device, NULL));
    }
}

#endif
