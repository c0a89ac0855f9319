#include "device/device.h"

#include "device/async/async.h"
#include "device/cuda/cuda.h"
#include "device/table_head.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

_Static_assert((sizeof(fl_device_ops) - offsetof(fl_device_ops, memory_take)) %
                       sizeof(void (*)(void)) ==
                   0,
               "behind its head, the table holds functions only");

fl_status fl_device_ops_check(const fl_device_ops *ops)
{
    return fl_ops_table_check(&(fl_ops_table){.table = ops,
                                              .first = offsetof(fl_device_ops, memory_take),
                                              .size_bytes = sizeof *ops,
                                              .version = FL_DEVICE_OPS_VERSION,
                                              .its_version = ops->version,
                                              .its_size_bytes = ops->size_bytes,
                                              .kind = ops->kind,
                                              .what = "device",
                                              .interface = "device"});
}

const char *fl_device_kind_name(fl_device_kind kind)
{
    switch (kind) {
    case FL_DEVICE_CPU:
        return "cpu";
    case FL_DEVICE_ASYNC_TEST:
        return "async-test";
    case FL_DEVICE_CUDA:
        return "cuda";
    }
    return "unknown";
}

static fl_status create_async(const fl_device_options *o, fl_device **out)
{
    fl_async_options options = {.n_threads = o->n_threads,
                                .cpu_ids = o->cpu_ids,
                                .budget_bytes = o->budget_bytes,
                                .max_delay_us = FL_ASYNC_DELAY_US};
    FL_TRY(fl_async_options_of_environment(&options));
    return fl_device_async_create(&options, out);
}

/* All threads that this process starts may run on all of its processors: they read data, wait for
 * the network and start kernels. */
static fl_status confine_host(const fl_device_options *o)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; o->cpu_ids != NULL && i < o->n_threads; i++) {
        CPU_SET((size_t)o->cpu_ids[i], &set);
    }
    return o->cpu_ids == NULL || sched_setaffinity(0, sizeof set, &set) == 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "cannot pin the worker to its %d processors: %s", o->n_threads,
                         strerror(errno));
}

static fl_status create_cuda(const fl_device_options *o, fl_device **out)
{
    const fl_cuda_plugin *plugin;
    FL_TRY(confine_host(o));
    FL_TRY(fl_cuda_plugin_find(&plugin));
    return fl_device_cuda_create(&(fl_cuda_options){.plugin = plugin,
                                                    .number = o->number,
                                                    .budget_bytes = o->budget_bytes,
                                                    .products = FL_CUDA_PRODUCTS_LIBRARY,
                                                    .tf32 = o->tf32,
                                                    .algorithms = o->algorithms},
                                 out);
}

static fl_status create_device(const fl_device_options *o, fl_device **out)
{
    switch (o->kind) {
    case FL_DEVICE_CPU:
        return fl_device_cpu_create(o->n_threads, o->cpu_ids, o->budget_bytes, out);
    case FL_DEVICE_ASYNC_TEST:
        return create_async(o, out);
    case FL_DEVICE_CUDA:
        return create_cuda(o, out);
    }
    return fl_fail(FL_ENOTSUP, "no device of kind %d in this build", (int)o->kind);
}

fl_status fl_device_open(const fl_device_options *o, fl_device **out)
{
    FL_TRY(create_device(o, out));
    fl_status status = fl_device_ops_check((*out)->ops);
    if (status != FL_OK) {
        fl_device_destroy(out);
    }
    return status;
}

void fl_device_destroy(fl_device **device)
{
    if (*device != NULL) {
        (*device)->ops->destroy(*device);
        *device = NULL;
    }
}

/* Add to what is in use, as one atomic step with the check against the budget. */
static fl_status count_in(fl_device *device, size_t size_bytes, const char *what)
{
    size_t used = atomic_load(&device->used_bytes);
    do {
        if (used > device->budget_bytes || size_bytes > device->budget_bytes - used) {
            return fl_fail(FL_EBUDGET, "%s: %zu bytes asked, %zu of %zu in use on this %s device",
                           what, size_bytes, used, device->budget_bytes, device->ops->kind);
        }
    } while (!atomic_compare_exchange_weak(&device->used_bytes, &used, used + size_bytes));
    size_t peak = atomic_load(&device->peak_bytes);
    while (peak < used + size_bytes &&
           !atomic_compare_exchange_weak(&device->peak_bytes, &peak, used + size_bytes)) {
    }
    return FL_OK;
}

static void count_out(fl_device *device, size_t size_bytes)
{
    atomic_fetch_sub(&device->used_bytes, size_bytes);
}

fl_status fl_device_alloc(fl_device *device, size_t size_bytes, const char *what, void **out)
{
    FL_TRY(count_in(device, size_bytes, what));
    fl_status status = device->ops->memory_take(device, size_bytes, out);
    if (status != FL_OK) {
        count_out(device, size_bytes);
    }
    return status;
}

void fl_device_free(fl_device *device, void *memory, size_t size_bytes)
{
    if (memory != NULL) {
        device->ops->memory_give(device, memory, size_bytes);
        count_out(device, size_bytes);
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

fl_status fl_device_no_export(fl_device *d, size_t size_bytes, void **out, fl_shared **shared)
{
    (void)size_bytes;
    (void)out;
    (void)shared;
    return fl_fail(FL_ENOTSUP, "a device of kind %s exports no memory", d->ops->kind);
}

static fl_status refuse_capture(const fl_device *d)
{
    return fl_fail(FL_ENOTSUP, "a device of kind %s captures no work", d->ops->kind);
}

fl_status fl_device_no_native(fl_device *d, fl_stream *s, fl_native *out)
{
    (void)s;
    (void)out;
    return fl_fail(FL_ENOTSUP, "device %s: no library can queue work in its streams", d->ops->kind);
}

fl_status fl_device_no_capture(fl_device *d, fl_stream *s)
{
    (void)s;
    return refuse_capture(d);
}

fl_status fl_device_no_capture_end(fl_device *d, fl_stream *s, fl_graph **graph)
{
    (void)s;
    *graph = NULL;
    return refuse_capture(d);
}

fl_status fl_device_no_launch(fl_device *d, fl_stream *s, fl_graph *graph)
{
    (void)s, (void)graph;
    return refuse_capture(d);
}

void fl_device_no_graph_destroy(fl_device *d, fl_graph **graph)
{
    (void)d;
    *graph = NULL;
}

fl_status fl_device_no_view(fl_device *d, int64_t pid, const fl_shared_key *key, size_t size_bytes,
                            fl_shared_view *out)
{
    (void)pid;
    (void)key;
    (void)size_bytes;
    (void)out;
    return fl_fail(FL_ENOTSUP, "a device of kind %s sees no memory of others", d->ops->kind);
}

void fl_device_no_view_close(fl_device *d, fl_shared_view *view)
{
    (void)d;
    *view = (fl_shared_view){0};
}

fl_status fl_device_no_pin(fl_device *d, void *memory, size_t size_bytes, bool read_only)
{
    (void)memory;
    (void)size_bytes;
    (void)read_only;
    return fl_fail(FL_ENOTSUP, "a device of kind %s locks no pages", d->ops->kind);
}

void fl_device_no_unpin(fl_device *d, void *memory)
{
    (void)d;
    (void)memory;
}

fl_status fl_device_claim(fl_device *device, size_t size_bytes, const char *what)
{
    return count_in(device, size_bytes, what);
}

void fl_device_disclaim(fl_device *device, size_t size_bytes)
{
    count_out(device, size_bytes);
}

void fl_device_event_destroy(fl_device *device, fl_event **event)
{
    if (*event != NULL) {
        device->ops->event_destroy(device, event);
        *event = NULL;
    }
}

bool fl_device_kind_has_host_memory(fl_device_kind kind)
{
    return kind == FL_DEVICE_CPU;
}
