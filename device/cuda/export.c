/* Memory of a CUDA device that other processes of the machine read, through CUDA IPC.
 *
 * To them a page of shared host memory names it: they read the runtime's handle there. What was
 * exported once stays allocated until the device is destroyed, and is used again, because another
 * process may still have it open. */
#include "device/cuda/parts.h"
#include "device/system/alloc.h"

/* The runtime may put smaller allocations side by side, and would export their neighbours too. */
static const size_t unit_bytes = (size_t)2 << 20;

struct fl__cuda_export {
    void *memory;
    size_t size_bytes;
    bool taken;
    fl__cuda_export *next;
};

/* What the page has. */
typedef struct export_page {
    fl_cuda_handle handle;
    uint64_t size_bytes;
} export_page;

/* ---- the memory ---- */

static fl__cuda_export *find_free(fl__cuda *c, size_t size_bytes)
{
    pthread_mutex_lock(&c->lock);
    fl__cuda_export *e = c->exports;
    while (e != NULL && (e->taken || e->size_bytes < size_bytes)) {
        e = e->next;
    }
    if (e != NULL) {
        e->taken = true;
    }
    pthread_mutex_unlock(&c->lock);
    return e;
}

static fl_status create_export(fl__cuda *c, size_t size_bytes, fl__cuda_export **out)
{
    fl__cuda_export *e = NULL;
    FL_TRY(fl__cuda_enter(c));
    FL_TRY(fl_alloc(sizeof *e, (void **)&e));
    fl_status status =
        fl__cuda_status(c, "memory_take", c->plugin->memory_take(size_bytes, &e->memory));
    if (status != FL_OK) {
        fl_free(e);
        return status;
    }
    e->size_bytes = size_bytes;
    e->taken = true;
    atomic_fetch_add(&c->base.workspace_bytes, size_bytes);
    pthread_mutex_lock(&c->lock);
    e->next = c->exports;
    c->exports = e;
    pthread_mutex_unlock(&c->lock);
    *out = e;
    return FL_OK;
}

bool fl__cuda_export_give(fl__cuda *c, const void *memory)
{
    pthread_mutex_lock(&c->lock);
    fl__cuda_export *e = c->exports;
    while (e != NULL && e->memory != memory) {
        e = e->next;
    }
    if (e != NULL) {
        e->taken = false;
    }
    pthread_mutex_unlock(&c->lock);
    return e != NULL;
}

void fl__cuda_exports_close(fl__cuda *c)
{
    while (c->exports != NULL) {
        fl__cuda_export *e = c->exports;
        c->exports = e->next;
        FL__CUDA_GIVE(c, memory_give, e->memory);
        fl_free(e);
    }
}

/* ---- for other processes ---- */

static fl_status name_export(fl__cuda *c, const fl__cuda_export *e, size_t size_bytes,
                             fl_shared **shared)
{
    export_page page = {.size_bytes = size_bytes};
    FL__CUDA_CALL(c, ipc_export, e->memory, &page.handle);
    FL_TRY(fl_shared_create(sizeof page, shared));
    *(export_page *)fl_shared_data(*shared) = page;
    return FL_OK;
}

fl_status fl__cuda_memory_export(fl_device *d, size_t size_bytes, void **out, fl_shared **shared)
{
    fl__cuda *c = fl__cuda_of(d);
    size_t whole = (size_bytes / unit_bytes + 1) * unit_bytes;
    fl__cuda_export *e = find_free(c, whole);
    if (e == NULL) {
        FL_TRY(create_export(c, whole, &e));
    }
    fl_status status = fl__cuda_fill_zero(d, NULL, e->memory, size_bytes);
    status = status == FL_OK ? fl__cuda_sync(d, NULL) : status;
    status = status == FL_OK ? name_export(c, e, size_bytes, shared) : status;
    if (status != FL_OK) {
        (void)fl__cuda_export_give(c, e->memory);
        return status;
    }
    *out = e->memory;
    return FL_OK;
}

/* ---- of other processes ---- */

fl_status fl__cuda_view_open(fl_device *d, int64_t pid, const fl_shared_key *key, size_t size_bytes,
                             fl_shared_view *out)
{
    const fl__cuda *c = fl__cuda_of(d);
    fl_shared_view look;
    void *memory = NULL;
    FL_TRY(fl_shared_view_open(pid, key, 0, sizeof(export_page), &look));
    const export_page page = *(const export_page *)look.data;
    fl_shared_view_close(&look);
    if (page.size_bytes < size_bytes) {
        return fl_fail(FL_EIO,
                       "device cuda %d: process %lld has exported %llu bytes there, not %zu",
                       c->number, (long long)pid, (unsigned long long)page.size_bytes, size_bytes);
    }
    FL__CUDA_CALL(c, ipc_open, &page.handle, &memory);
    *out = (fl_shared_view){.data = memory, .map = memory, .map_bytes = size_bytes};
    return FL_OK;
}

void fl__cuda_view_close(fl_device *d, fl_shared_view *view)
{
    const fl__cuda *c = fl__cuda_of(d);
    if (view->map != NULL) {
        FL__CUDA_GIVE(c, ipc_close, view->map);
    }
    *view = (fl_shared_view){0};
}
