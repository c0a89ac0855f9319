/* Streams and events. */
#include "device/cuda/parts.h"
#include "device/random/random.h"
#include "device/system/alloc.h"

#include <string.h>

fl_status fl__cuda_stream_create(fl_device *d, fl_stream **out)
{
    const fl__cuda *c = fl__cuda_of(d);
    void *memory = NULL;
    FL_TRY(fl__cuda_enter(c));
    FL_TRY(fl_alloc(sizeof(fl__cuda_stream), &memory));
    fl__cuda_queue *q = memory;
    fl_status status = fl__cuda_status(c, "stream_create", c->plugin->stream_create(&q->stream));
    if (status != FL_OK) {
        fl_free(q);
        return status;
    }
    *out = memory;
    return FL_OK;
}

void fl__cuda_workspace_drop(fl__cuda *c, fl__cuda_queue *q)
{
    if (q->workspace != NULL) {
        FL__CUDA_GIVE(c, memory_give, q->workspace);
        atomic_fetch_sub(&c->base.workspace_bytes, q->workspace_bytes);
        q->workspace = NULL;
        q->workspace_bytes = 0;
    }
}

void fl__cuda_stream_destroy(fl_device *d, fl_stream **s)
{
    fl__cuda *c = fl__cuda_of(d);
    if (*s != NULL) {
        fl__cuda_queue *q = fl__cuda_queue_of(c, *s);
        FL__CUDA_GIVE(c, stream_wait, q->stream);
        FL__CUDA_GIVE(c, stream_destroy, q->stream);
        fl__cuda_workspace_drop(c, q);
        fl_free(q);
        *s = NULL;
    }
}

fl_status fl__cuda_sync(fl_device *d, fl_stream *s)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_CALL(c, stream_wait, fl__cuda_queue_of(c, s)->stream);
    return FL_OK;
}

fl_status fl__cuda_event_create(fl_device *d, fl_event **out)
{
    const fl__cuda *c = fl__cuda_of(d);
    void *event = NULL;
    FL__CUDA_CALL(c, event_create, &event);
    *out = event;
    return FL_OK;
}

void fl__cuda_event_destroy(fl_device *d, fl_event **e)
{
    const fl__cuda *c = fl__cuda_of(d);
    if (*e != NULL) {
        FL__CUDA_GIVE(c, event_destroy, *e);
        *e = NULL;
    }
}

fl_status fl__cuda_event_record(fl_device *d, fl_event *e, fl_stream *s)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_CALL(c, event_record, e, fl__cuda_queue_of(c, s)->stream);
    return FL_OK;
}

fl_status fl__cuda_event_wait(fl_device *d, fl_event *e)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_CALL(c, event_wait, e);
    return FL_OK;
}

fl_status fl__cuda_stream_wait(fl_device *d, fl_stream *s, fl_event *e)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_CALL(c, stream_wait_event, fl__cuda_queue_of(c, s)->stream, e);
    return FL_OK;
}

fl_status fl__cuda_event_elapsed(fl_device *d, const fl_event *from, const fl_event *to, double *us)
{
    const fl__cuda *c = fl__cuda_of(d);
    float ms = 0.0f;
    FL__CUDA_CALL(c, event_elapsed, from, to, &ms);
    *us = 1000.0 * (double)ms;
    return FL_OK;
}

fl_status fl__cuda_event_reached(fl_device *d, fl_event *e, bool *reached)
{
    const fl__cuda *c = fl__cuda_of(d);
    FL__CUDA_CALL(c, event_reached, e, reached);
    return FL_OK;
}

fl_status fl__cuda_stream_native(fl_device *d, fl_stream *s, fl_native *out)
{
    const fl__cuda *c = fl__cuda_of(d);
    fl_cuda_identity identity;
    uint64_t half[2];
    FL__CUDA_CALL(c, identify_device, c->number, &identity);
    FL__CUDA_CALL(c, driver_version, &out->driver_version);
    memcpy(half, identity.bytes, sizeof half);
    out->stream = fl__cuda_queue_of(c, s)->stream;
    out->hardware = fl_mix64(half[0], half[1]) | 1;
    out->registers = !atomic_load(&c->has_unregistered);
    return FL_OK;
}
