#include "pipe/step/device_clock.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <string.h>

static fl_status create_events(fl_device_clock *c)
{
    const fl_device_ops *ops = c->device->ops;
    for (int i = 0; i < 2; i++) {
        FL_TRY(ops->event_create(c->device, &c->anchor[i].event));
    }
    for (int i = 0; i < c->capacity; i++) {
        FL_TRY(ops->event_create(c->device, &c->interval[i].begun));
        FL_TRY(ops->event_create(c->device, &c->interval[i].ended));
    }
    return FL_OK;
}

fl_status fl_device_clock_init(fl_device_clock *c, fl_device *device, fl_stream *stream,
                               int capacity)
{
    *c = (fl_device_clock){.device = device, .stream = stream, .capacity = capacity};
    FL_TRY(fl_alloc_array((size_t)capacity, sizeof *c->interval, (void **)&c->interval));
    return create_events(c);
}

void fl_device_clock_fini(fl_device_clock *c)
{
    for (int i = 0; i < 2; i++) {
        fl_device_event_destroy(c->device, &c->anchor[i].event);
    }
    for (int i = 0; c->interval != NULL && i < c->capacity; i++) {
        fl_device_event_destroy(c->device, &c->interval[i].begun);
        fl_device_event_destroy(c->device, &c->interval[i].ended);
    }
    fl_free(c->interval);
    memset(c, 0, sizeof *c);
}

fl_status fl_device_clock_begin(fl_device_clock *c, const fl_clock_work *work)
{
    if (c->n == c->capacity) {
        return fl_fail(FL_EINTERNAL, "more than %d intervals since the clock was read",
                       c->capacity);
    }
    fl_clock_interval *i = &c->interval[c->n];
    i->work = *work;
    i->entry = (fl_flight_entry){
        .kind = work->kind, .item = work->item, .peer = -1, .entered_ns = fl_now_ns()};
    fl_flight_stamp(&i->entry);
    return c->device->ops->event_record(c->device, i->begun, c->stream);
}

fl_status fl_device_clock_end(fl_device_clock *c)
{
    return c->device->ops->event_record(c->device, c->interval[c->n++].ended, c->stream);
}

/* ---- when it was done ---- */

fl_status fl_device_clock_anchor(fl_device_clock *c)
{
    c->anchored = false;
    if (c->device->ops->host_memory) {
        return FL_OK;
    }
    c->turn = 1 - c->turn;
    c->anchor[c->turn].recorded_ns = fl_now_ns();
    return c->device->ops->event_record(c->device, c->anchor[c->turn].event, c->stream);
}

fl_status fl_device_clock_waited(fl_device_clock *c)
{
    fl_clock_anchor *now = &c->anchor[c->turn];
    const fl_clock_anchor *before = &c->anchor[1 - c->turn];
    int64_t waited_ns = fl_now_ns();
    if (c->device->ops->host_memory) {
        return FL_OK;
    }
    now->host_ns = waited_ns;
    if (before->recorded_ns > 0) {
        double us = 0.0;
        FL_TRY(c->device->ops->event_elapsed(c->device, before->event, now->event, &us));
        now->host_ns = before->host_ns + (int64_t)(us * 1e3);
        now->host_ns = now->host_ns < waited_ns ? now->host_ns : waited_ns;
        now->host_ns = now->host_ns > now->recorded_ns ? now->host_ns : now->recorded_ns;
    }
    c->anchored = true;
    return FL_OK;
}

/* Nothing is computed before it was queued. */
static fl_status record_interval(const fl_device_clock *c, const fl_clock_interval *i, double took)
{
    const fl_clock_anchor *anchor = &c->anchor[c->turn];
    fl_flight_entry entry = i->entry;
    double us = 0.0;
    FL_TRY(c->device->ops->event_elapsed(c->device, i->begun, anchor->event, &us));
    int64_t entered_ns = anchor->host_ns - (int64_t)(us * 1e3);
    entry.left_ns = entered_ns + (int64_t)(took * 1e3);
    entry.entered_ns = entered_ns > entry.entered_ns ? entered_ns : entry.entered_ns;
    entry.left_ns = entry.left_ns > entry.entered_ns ? entry.left_ns : entry.entered_ns;
    fl_flight_computed(&entry);
    return FL_OK;
}

/* ---- how long it took ---- */

fl_status fl_device_clock_read(fl_device_clock *c, int64_t us[FL_CLOCK_PARTS],
                               fl_device_clock_told *told, void *context)
{
    double sum[FL_CLOCK_PARTS] = {0};
    for (int i = 0; i < c->n; i++) {
        const fl_clock_interval *interval = &c->interval[i];
        double took;
        FL_TRY(c->device->ops->event_elapsed(c->device, interval->begun, interval->ended, &took));
        sum[interval->work.part] += took;
        if (told != NULL && interval->work.label >= 0) {
            told(context, interval->work.label, took);
        }
        if (c->anchored) {
            FL_TRY(record_interval(c, interval, took));
        }
    }
    for (int part = 0; part < FL_CLOCK_PARTS; part++) {
        us[part] = (int64_t)(sum[part] + 0.5);
    }
    c->n = 0;
    c->anchored = false;
    return FL_OK;
}
