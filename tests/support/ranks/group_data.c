#include "support/ranks/group_data.h"

#include "device/system/alloc.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

fl_device *the_device(void)
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

group_data group_data_take(size_t size_bytes)
{
    group_data d = {.size_bytes = size_bytes > 0 ? size_bytes : 1};
    RANK_OK(fl_alloc(d.size_bytes, &d.host));
    d.device = d.host;
    if (!the_device()->ops->host_memory) {
        RANK_OK(fl_device_alloc(the_device(), d.size_bytes, "a test", &d.device));
    }
    return d;
}

void group_data_give(group_data *d)
{
    if (d->device != d->host) {
        fl_device_free(the_device(), d->device, d->size_bytes);
    }
    fl_free(d->host);
    *d = (group_data){0};
}

void group_data_put(const group_data *d)
{
    fl_device *device = the_device();
    if (d->device != d->host) {
        RANK_OK(device->ops->copy_in(device, NULL, d->device, d->host, d->size_bytes));
        RANK_OK(device->ops->sync(device, NULL));
    }
}

void group_data_get(const group_data *d)
{
    fl_device *device = the_device();
    if (d->device != d->host) {
        RANK_OK(device->ops->copy_out(device, NULL, d->host, d->device, d->size_bytes));
        RANK_OK(device->ops->sync(device, NULL));
    }
}
