#include "device/device.h"

void fl_device_destroy(fl_device **device)
{
    if (*device != NULL) {
        (*device)->ops->destroy(*device);
        *device = NULL;
    }
}

fl_status fl_device_alloc(fl_device *device, size_t size_bytes, const char *what, void **out)
{
    if (size_bytes > device->budget_bytes - device->used_bytes) {
        return fl_fail(FL_EBUDGET, "%s: %zu bytes asked, %zu of %zu in use on this %s device", what,
                       size_bytes, device->used_bytes, device->budget_bytes, device->ops->kind);
    }
    FL_TRY(device->ops->memory_take(device, size_bytes, out));
    device->used_bytes += size_bytes;
    if (device->used_bytes > device->peak_bytes) {
        device->peak_bytes = device->used_bytes;
    }
    return FL_OK;
}

void fl_device_free(fl_device *device, void *memory, size_t size_bytes)
{
    if (memory != NULL) {
        device->ops->memory_give(device, memory, size_bytes);
        device->used_bytes -= size_bytes;
    }
}
