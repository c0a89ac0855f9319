/* The CUDA device itself: what it is created from, and its table. */
#include "device/cuda/parts.h"
#include "device/system/alloc.h"
#include "device/table_head.h"
#include "device/text/plural.h"

#include <stddef.h>

fl_status fl__cuda_status(const fl__cuda *c, const char *call, int code)
{
    if (code == FL_CUDA_OK) {
        return FL_OK;
    }
    return fl_fail(code == FL_CUDA_OUT_OF_MEMORY ? FL_ENOMEM : FL_EFAILED,
                   "device cuda %d: %s: %s (CUDA error %d)", c->number, call,
                   c->plugin->error_text(code), code);
}

fl_status fl__cuda_enter(const fl__cuda *c)
{
    return fl__cuda_status(c, "choose_device", c->plugin->choose_device(c->number));
}

/* ---- what may be missing ---- */

static fl_status explain_no_devices(const fl_cuda_plugin *plugin, int code)
{
    const char *text = plugin->error_text(code);
    if (code == FL_CUDA_DRIVER_TOO_OLD) {
        return fl_fail(FL_ENOTSUP,
                       "no NVIDIA driver, or one too old for this build's CUDA: %s (CUDA error %d)",
                       text, code);
    }
    return fl_fail(FL_ENOTSUP, "no CUDA device can be used: %s (CUDA error %d)", text, code);
}

fl_status fl_cuda_check(const fl_cuda_plugin *plugin, int *n_devices)
{
    FL_TRY(fl_ops_table_check(&(fl_ops_table){.table = plugin,
                                              .first = offsetof(fl_cuda_plugin, error_text),
                                              .size_bytes = sizeof *plugin,
                                              .version = FL_CUDA_PLUGIN_VERSION,
                                              .its_version = plugin->version,
                                              .its_size_bytes = plugin->size_bytes,
                                              .kind = plugin->kind,
                                              .what = "plugin",
                                              .interface = "CUDA plugin"}));
    int n = 0, code = plugin->count_devices(&n);
    if (code != FL_CUDA_OK || n == 0) {
        return explain_no_devices(plugin, code == FL_CUDA_OK ? FL_CUDA_NO_DEVICE : code);
    }
    *n_devices = n;
    return FL_OK;
}

/* ---- the device ---- */

void fl__cuda_destroy(fl_device *d)
{
    fl__cuda *c = fl__cuda_of(d);
    fl__cuda_stream_destroy(d, &c->default_stream);
    fl__cuda_algorithms_close(c);
    fl__cuda_library_close(c);
    fl__cuda_exports_close(c);
    fl__cuda_arena_close(c);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->waits);
    fl_free(c);
}

static void init_locks(fl__cuda *c)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->waits, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

fl_status fl_device_cuda_create(const fl_cuda_options *o, fl_device **out)
{
    void *memory = NULL;
    int n = 0;
    FL_TRY(fl_cuda_check(o->plugin, &n));
    if (o->number < 0 || o->number >= n) {
        char devices[FL_COUNT_BYTES];
        return fl_fail(FL_ENOTSUP, "CUDA device %d was asked for, but this machine has %s",
                       o->number, fl_count(n, "CUDA device", devices));
    }
    FL_TRY(fl_alloc(sizeof(fl__cuda), &memory));
    fl__cuda *c = memory;
    c->base = (fl_device){.ops = &fl__cuda_ops, .n_threads = 1, .budget_bytes = o->budget_bytes};
    c->plugin = o->plugin;
    c->number = o->number;
    init_locks(c);
    fl_status status = fl__cuda_stream_create(&c->base, &c->default_stream);
    status = status == FL_OK ? fl__cuda_arena_open(c, o->budget_bytes) : status;
    if (status == FL_OK && o->products == FL_CUDA_PRODUCTS_LIBRARY) {
        status = fl__cuda_library_open(c, o->tf32);
        fl__cuda_algorithms_open(c, status == FL_OK ? o->algorithms : NULL);
    }
    if (status != FL_OK) {
        fl__cuda_destroy(&c->base);
        return status;
    }
    *out = &c->base;
    return FL_OK;
}
