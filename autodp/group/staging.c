/* Memory for the data of staged buckets. The communication thread runs one bucket at a time,
 * and a bucket is done only when no other member reads its data any more, so all buckets that fit
 * into an area use it in turn. An area is never replaced, because others may have mapped it. */
#include "autodp/group/host_group.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"

struct staging_area {
    size_t size_bytes;
    void *data;
    staging_kind kind;
    fl_shared *shared; /* where data lies, or what names it; NULL: STAGED_ALONE */
    bool pinned;       /* STAGED_SHARED: by fl__host_pin */
    staging_area *next;
};

/* A copy between the device and pageable memory passes through a buffer of the driver's, and the
 * caller waits for it. */
bool fl__host_pin(const host_group *g, void *memory, size_t size_bytes, bool read_only)
{
    fl_device *d = g->base.device;
    fl_status status = d->ops->host_pin(d, memory, size_bytes, read_only);
    if (status != FL_OK && status != FL_ENOTSUP) {
        fl_log(FL_LOG_WARN, "copies of messages to and from the device are slower: %s",
               fl_errmsg());
    }
    return status == FL_OK;
}

void fl__host_unpin(const host_group *g, void *memory, bool pinned)
{
    if (pinned) {
        g->base.device->ops->host_unpin(g->base.device, memory);
    }
}

static fl_status create_memory(host_group *g, staging_area *area)
{
    fl_device *d = g->base.device;
    switch (area->kind) {
    case STAGED_ALONE:
        return d->ops->host_take(d, area->size_bytes, &area->data);
    case STAGED_ON_DEVICE:
        return d->ops->memory_export(d, area->size_bytes, &area->data, &area->shared);
    case STAGED_SHARED:
        break;
    }
    FL_TRY(fl_shared_create(area->size_bytes, &area->shared));
    area->data = fl_shared_data(area->shared);
    area->pinned = fl__host_pin(g, area->data, area->size_bytes, false);
    return FL_OK;
}

static fl_status create_area(host_group *g, size_t size_bytes, staging_kind kind,
                             staging_area **out)
{
    staging_area *area = NULL;
    FL_TRY(fl_alloc(sizeof *area, (void **)&area));
    area->size_bytes = size_bytes;
    area->kind = kind;
    fl_status status = create_memory(g, area);
    if (status != FL_OK) {
        fl_free(area);
        return status;
    }
    area->next = g->staging;
    g->staging = area;
    *out = area;
    return FL_OK;
}

fl_status fl__staging_get(host_group *g, size_t size_bytes, staging_kind kind, float **data,
                          const fl_shared **shared_at)
{
    staging_area *area = g->staging;
    while (area != NULL && (area->size_bytes < size_bytes || area->kind != kind)) {
        area = area->next;
    }
    if (area == NULL) {
        FL_TRY(create_area(g, size_bytes, kind, &area));
    }
    *data = area->data;
    *shared_at = area->shared;
    return FL_OK;
}

void fl__staging_fini(host_group *g)
{
    fl_device *d = g->base.device;
    while (g->staging != NULL) {
        staging_area *area = g->staging;
        g->staging = area->next;
        if (area->kind == STAGED_ALONE) {
            d->ops->host_give(d, area->data, area->size_bytes);
        } else if (area->kind == STAGED_ON_DEVICE) {
            d->ops->memory_give(d, area->data, area->size_bytes);
        }
        fl__host_unpin(g, area->data, area->pinned);
        fl_shared_destroy(&area->shared);
        fl_free(area);
    }
}
