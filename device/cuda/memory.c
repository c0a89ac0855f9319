/* Device memory, pinned host memory, and copies between them.
 *
 * The budget is one allocation, made with the device: its bytes are there when they are wanted.
 * What is reserved for a later claim is taken at once. It is not counted before the claim, so that
 * together with what is in use it may exceed the arena, as a stage does that is prepared while
 * another one works. What has no hole in the arena is an allocation of the runtime's own. */
#include "device/cuda/parts.h"
#include "device/text/size_text.h"

#include <stdint.h>
#include <string.h>

/* ---- the arena ---- */

/* What of it NCCL may register is one answer for the device: that of its worst piece. */
static int take_pool(fl__cuda *c, size_t size_bytes, void **out)
{
    bool registers = false;
    int code = c->plugin->pool_take(size_bytes, out, &registers);
    if (code == FL_CUDA_OK && !registers) {
        atomic_store(&c->has_unregistered, true);
    }
    return code;
}

fl_status fl__cuda_arena_open(fl__cuda *c, size_t budget_bytes)
{
    void *base = NULL;
    if (budget_bytes == SIZE_MAX || budget_bytes == 0) {
        return FL_OK;
    }
    FL_TRY(fl__cuda_enter(c));
    int code = take_pool(c, budget_bytes, &base);
    if (code != FL_CUDA_OK) {
        fl_status status = fl__cuda_status(c, "pool_take", code);
        char size[FL_SIZE_TEXT_MAX];
        return fl_within(status, "its budget of %s", fl_size_text((double)budget_bytes, size));
    }
    fl_status status = fl__cuda_arena_init(&c->arena, base, budget_bytes);
    if (status != FL_OK) {
        FL__CUDA_GIVE(c, memory_give, base);
    }
    return status;
}

void fl__cuda_arena_close(fl__cuda *c)
{
    if (c->arena.base != NULL) {
        FL__CUDA_GIVE(c, memory_give, c->arena.base);
        fl__cuda_arena_end(&c->arena);
    }
}

/* An allocation of the runtime's own. hole: the arena's largest, for the message */
static fl_status take_beside(fl__cuda *c, size_t size_bytes, size_t hole, void **out)
{
    FL_TRY(fl__cuda_enter(c));
    int code = take_pool(c, size_bytes == 0 ? 1 : size_bytes, out);
    if (code == FL_CUDA_OUT_OF_MEMORY && c->arena.base != NULL) {
        return fl_fail(
            FL_ENOMEM,
            "device cuda %d: no room for %zu bytes: the largest hole of the budget's %zu "
            "has %zu, and the device has no other memory",
            c->number, size_bytes, c->arena.size_bytes, hole);
    }
    return fl__cuda_status(c, "pool_take", code);
}

fl_status fl__cuda_piece_take(fl__cuda *c, size_t size_bytes, void **out)
{
    pthread_mutex_lock(&c->lock);
    fl_status status = fl__cuda_arena_take(&c->arena, size_bytes, out);
    size_t hole = fl__cuda_arena_largest_hole(&c->arena);
    pthread_mutex_unlock(&c->lock);
    return status == FL_OK && *out == NULL ? take_beside(c, size_bytes, hole, out) : status;
}

/* Work that uses the memory may still be queued: it is waited for, as the runtime does that when
 * memory is given back to it. */
void fl__cuda_piece_give(fl__cuda *c, void *memory)
{
    pthread_mutex_lock(&c->waits);
    (void)c->plugin->choose_device(c->number);
    (void)c->plugin->device_wait();
    pthread_mutex_unlock(&c->waits);
    pthread_mutex_lock(&c->lock);
    bool given = fl__cuda_arena_give(&c->arena, memory);
    pthread_mutex_unlock(&c->lock);
    if (!given && !fl__cuda_export_give(c, memory)) {
        (void)c->plugin->memory_give(memory);
    }
}

/* Cleared before any stream can use it. */
fl_status fl__cuda_memory_take(fl_device *d, size_t size_bytes, void **out)
{
    fl__cuda *c = fl__cuda_of(d);
    void *memory = NULL;
    FL_TRY(fl__cuda_piece_take(c, size_bytes, &memory));
    fl_status status = fl__cuda_fill_zero(d, NULL, memory, size_bytes);
    status = status == FL_OK ? fl__cuda_sync(d, NULL) : status;
    if (status != FL_OK) {
        fl__cuda_piece_give(c, memory);
        return status;
    }
    *out = memory;
    return FL_OK;
}

void fl__cuda_memory_give(fl_device *d, void *memory, size_t size_bytes)
{
    (void)size_bytes;
    fl__cuda_piece_give(fl__cuda_of(d), memory);
}

/* ---- the rest ---- */

/* Other processes' hosts cannot look into it; for their devices there is fl__cuda_memory_export. */
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

fl_status fl__cuda_host_pin(fl_device *d, void *memory, size_t size_bytes, bool read_only)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_CALL(c, host_pin, memory, size_bytes, read_only);
    return FL_OK;
}

void fl__cuda_host_unpin(fl_device *d, void *memory)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_GIVE(c, host_unpin, memory);
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
