#include "device/device.h"

void fl_device_destroy(fl_device **device)
{
    if (*device != NULL) {
        (*device)->ops->destroy(*device);
        *device = NULL;
    }
}

static fl_status check(const fl_device *device, size_t size_bytes, const char *what)
{
    if (device->used_bytes > device->budget_bytes ||
        size_bytes > device->budget_bytes - device->used_bytes) {
        return fl_fail(FL_EBUDGET, "%s: %zu bytes asked, %zu of %zu in use on this %s device", what,
                       size_bytes, device->used_bytes, device->budget_bytes, device->ops->kind);
    }
    return FL_OK;
}

static void count(fl_device *device, size_t size_bytes)
{
    device->used_bytes += size_bytes;
    if (device->used_bytes > device->peak_bytes) {
        device->peak_bytes = device->used_bytes;
    }
}

fl_status fl_device_alloc(fl_device *device, size_t size_bytes, const char *what, void **out)
{
    FL_TRY(check(device, size_bytes, what));
    FL_TRY(device->ops->memory_take(device, size_bytes, out));
    count(device, size_bytes);
    return FL_OK;
}

void fl_device_free(fl_device *device, void *memory, size_t size_bytes)
{
    if (memory != NULL) {
        device->ops->memory_give(device, memory, size_bytes);
        device->used_bytes -= size_bytes;
    }
}

fl_status fl_device_reserve(fl_device *device, size_t size_bytes, void **out)
{
    return device->ops->memory_reserve(device, size_bytes, out);
}

void fl_device_drop(fl_device *device, void *memory, size_t size_bytes)
{
    if (memory != NULL) {
        device->ops->memory_give(device, memory, size_bytes);
    }
}

fl_status fl_device_share(fl_device *device, size_t size_bytes, void **out, fl_shared **shared)
{
    *shared = NULL;
    if (size_bytes > 0) {
        fl_status status = device->ops->memory_share(device, size_bytes, out, shared);
        if (status != FL_ENOTSUP) {
            return status;
        }
    }
    return fl_device_reserve(device, size_bytes, out);
}

void fl_device_unshare(fl_device *device, void *memory, size_t size_bytes, fl_shared **shared)
{
    if (*shared != NULL) {
        fl_shared_destroy(shared);
    } else {
        fl_device_drop(device, memory, size_bytes);
    }
}

fl_status fl_device_claim(fl_device *device, size_t size_bytes, const char *what)
{
    FL_TRY(check(device, size_bytes, what));
    count(device, size_bytes);
    return FL_OK;
}

void fl_device_disclaim(fl_device *device, size_t size_bytes)
{
    device->used_bytes -= size_bytes;
}
