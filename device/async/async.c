/* The asynchronous test device: its table, its life.
 *
 *     caller's thread                                        a stream's thread
 *     1  a call is counted; it may fail on request
 *     2  its pointers are checked, and become bytes
 *     3  it is copied to the queue of its stream   ───────>  4  a random pause
 *                                                            5  the CPU device computes in the
 * bytes 7  event_wait, sync: the caller waits        <───────  6  done; a failure stays with the
 * device
 *
 *     faults.c 1    memory.c, space.c 2    copy.c, kernels.c, event.c 3 and 5    stream.c 3 to 7
 *     touch.c: what a fault in memory says */
#include "device/async/parts.h"

#include "device/async/touch.h"
#include "device/system/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Addresses, not memory: freed ones come again late. */
#define MEMORY_RANGE ((size_t)1 << 36)
#define HOST_RANGE ((size_t)1 << 34)

static void weight_release(fl_device *d, fl_weight *w)
{
    (void)d;
    w->pack = NULL;
}

/* ---- its end ---- */

/* With the lock, as everything that counts; the caller's threads are done. */
static void look_for_leaks(fl__async *a, int n_streams)
{
    if (a->memory.n_blocks > 0) {
        fl__async_misuse(a, "%d allocations, %zu bytes in all, were not given back",
                         a->memory.n_blocks, a->memory.used_bytes);
    }
    if (a->host.n_blocks > 0) {
        fl__async_misuse(a, "%d pieces of pinned memory, %zu bytes in all, were not given back",
                         a->host.n_blocks, a->host.used_bytes);
    }
    if (n_streams > 0) {
        fl__async_misuse(a, "%d streams were not destroyed", n_streams);
    }
    if (a->n_events > 0) {
        fl__async_misuse(a, "%d events were not destroyed", a->n_events);
    }
}

static void release(fl__async *a)
{
    if (a->memory.handed != NULL) {
        fl__touch_unwatch(&a->memory);
        fl__space_fini(&a->memory);
    }
    if (a->host.handed != NULL) {
        fl__touch_unwatch(&a->host);
        fl__space_fini(&a->host);
    }
    pthread_mutex_destroy(&a->lock);
    fl_free((void *)(uintptr_t)a->o.cpu_ids);
    fl_free(a);
}

static void destroy(fl_device *d)
{
    fl__async *a = fl__async_of(d);
    int n_streams = 0;
    fl__stream_close(&a->first);
    while (a->streams != NULL) {
        fl_stream *left = a->streams;
        fl__stream_close(&left);
        n_streams++;
    }
    pthread_mutex_lock(&a->lock);
    look_for_leaks(a, n_streams);
    bool misused = a->misused;
    pthread_mutex_unlock(&a->lock);
    release(a);
    if (misused) {
        abort(); /* a defect of the caller, whose calls here could not fail */
    }
}

/* ---- its table ---- */

static const fl_device_ops async_ops = {.version = FL_DEVICE_OPS_VERSION,
                                        .size_bytes = sizeof(fl_device_ops),
                                        .kind = "async-test",
                                        .host_memory = false,
                                        .memory_take = fl__async_memory_take,
                                        .memory_reserve = fl__async_memory_reserve,
                                        .memory_give = fl__async_memory_give,
                                        .memory_share = fl__async_memory_share,
                                        .memory_export = fl_device_no_export,
                                        .view_open = fl_device_no_view,
                                        .view_close = fl_device_no_view_close,
                                        .host_take = fl__async_host_take,
                                        .host_give = fl__async_host_give,
                                        .host_pin = fl_device_no_pin,
                                        .host_unpin = fl_device_no_unpin,
                                        .copy_in = fl__async_copy_in,
                                        .copy_out = fl__async_copy_out,
                                        .copy = fl__async_copy,
                                        .fill_zero = fl__async_fill_zero,
                                        .stream_create = fl__async_stream_create,
                                        .stream_destroy = fl__async_stream_destroy,
                                        .sync = fl__async_sync,
                                        .event_create = fl__async_event_create,
                                        .event_destroy = fl__async_event_destroy,
                                        .event_record = fl__async_event_record,
                                        .event_wait = fl__async_event_wait,
                                        .stream_wait = fl__async_stream_wait,
                                        .event_elapsed = fl__async_event_elapsed,
                                        .event_reached = fl__async_event_reached,
                                        .stream_native = fl__async_stream_native,
                                        .capture_begin = fl_device_no_capture,
                                        .capture_end = fl_device_no_capture_end,
                                        .graph_launch = fl_device_no_launch,
                                        .graph_destroy = fl_device_no_graph_destroy,
                                        .destroy = destroy,
                                        .weight_release = weight_release,
#define ENTRY(name, ...) .name = fl__async_##name,
                                        FL__ASYNC_KERNELS(ENTRY) FL__ASYNC_OTHER_KERNELS(ENTRY)
#undef ENTRY
};

/* ---- its begin ---- */

static fl_status copy_cpu_ids(fl__async *a)
{
    void *copy = NULL;
    if (a->o.cpu_ids == NULL) {
        return FL_OK;
    }
    const int *ids = a->o.cpu_ids;
    a->o.cpu_ids = NULL;
    FL_TRY(fl_alloc_array((size_t)a->o.n_threads, sizeof *ids, &copy));
    memcpy(copy, ids, (size_t)a->o.n_threads * sizeof *ids);
    a->o.cpu_ids = copy;
    return FL_OK;
}

/* The caller computes as a CPU device's does: on the first processor, with results below 1e-38
 * zero. Its threads inherit both. */
static fl_status set_up_caller(const fl_async_options *o)
{
    fl_device *cpu = NULL;
    FL_TRY(fl_device_cpu_create(1, o->cpu_ids, 0, &cpu));
    fl_device_destroy(&cpu);
    return FL_OK;
}

static fl_status open_spaces(fl__async *a)
{
    FL_TRY(fl__space_init(&a->memory, MEMORY_RANGE, true));
    fl__touch_watch(&a->memory, "memory");
    FL_TRY(fl__space_init(&a->host, HOST_RANGE, false));
    fl__touch_watch(&a->host, "pinned memory");
    return FL_OK;
}

static fl_status open_parts(fl__async *a)
{
    FL_TRY(copy_cpu_ids(a));
    FL_TRY(fl__async_fault_set(a, &a->o.fault));
    FL_TRY(set_up_caller(&a->o));
    FL_TRY(open_spaces(a));
    return fl__stream_open(a, &a->first);
}

fl_status fl_device_async_create(const fl_async_options *o, fl_device **out)
{
    fl__async *a = NULL;
    if (o->n_threads < 1) {
        return fl_fail(FL_EINVAL, "%d compute threads; at least 1 is needed", o->n_threads);
    }
    FL_TRY(fl_alloc(sizeof *a, (void **)&a));
    a->base =
        (fl_device){.ops = &async_ops, .n_threads = o->n_threads, .budget_bytes = o->budget_bytes};
    a->o = *o;
    a->o.memory_bytes = o->memory_bytes == 0 ? MEMORY_RANGE : o->memory_bytes;
    a->fault_entry = FL__ASYNC_ENTRIES;
    pthread_mutex_init(&a->lock, NULL);
    fl_status status = open_parts(a);
    if (status != FL_OK) {
        release(a);
        return status;
    }
    *out = &a->base;
    return FL_OK;
}
