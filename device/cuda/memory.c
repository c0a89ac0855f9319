/* Device memory, pinned host memory, and copies between them. */
#include "device/cuda/parts.h"

#include <string.h>

/* Cleared before any stream can use it. No byte is one byte, so that it has an address. */
fl_status fl__cuda_memory_take(fl_device *d, size_t size_bytes, void **out)
{
    fl__cuda *c = fl__cuda_of(d);
    void *memory = NULL;
    FL__CUDA_CALL(c, memory_take, size_bytes == 0 ? 1 : size_bytes, &memory);
    fl_status status = fl__cuda_fill_zero(d, NULL, memory, size_bytes);
    status = status == FL_OK ? fl__cuda_sync(d, NULL) : status;
    if (status != FL_OK) {
        FL__CUDA_GIVE(c, memory_give, memory);
        return status;
    }
    *out = memory;
    return FL_OK;
}

void fl__cuda_memory_give(fl_device *d, void *memory, size_t size_bytes)
{
    const fl__cuda *c = fl__cuda_of(d);
    (void)size_bytes;
    FL__CUDA_GIVE(c, memory_give, memory);
}

/* Other processes cannot look into it. */
fl_status fl__cuda_memory_share(fl_device *d, size_t size_bytes, void **out, fl_shared **shared)
{
    *shared = NULL;
    return fl__cuda_memory_take(d, size_bytes, out);
}

fl_status fl__cuda_host_take(fl_device *d, size_t size_bytes, void **out)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_CALL(c, host_take, size_bytes == 0 ? 1 : size_bytes, out);
    memset(*out, 0, size_bytes);
    return FL_OK;
}

void fl__cuda_host_give(fl_device *d, void *memory, size_t size_bytes)
{
    const fl__cuda *c = fl__cuda_of(d);
    (void)size_bytes;
    FL__CUDA_GIVE(c, host_give, memory);
}

fl_status fl__cuda_copy(fl_device *d, fl_stream *s, void *to, const void *from, size_t n)
{
    const fl__cuda *c = fl__cuda_of(d);
    if (n > 0) {
        FL__CUDA_CALL(c, copy, fl__cuda_queue_of(c, s)->stream, to, from, n);
    }
    return FL_OK;
}

fl_status fl__cuda_fill_zero(fl_device *d, fl_stream *s, void *to, size_t n)
{
    const fl__cuda *c = fl__cuda_of(d);
    if (n > 0) {
        FL__CUDA_CALL(c, fill_zero, fl__cuda_queue_of(c, s)->stream, to, n);
    }
    return FL_OK;
}
