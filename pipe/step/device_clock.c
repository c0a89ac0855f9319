#include "pipe/step/device_clock.h"

#include "device/alloc.h"

#include <string.h>

static fl_status create_events(fl_device_clock *c)
{
    const fl_device_ops *ops = c->device->ops;
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
    for (int i = 0; c->interval != NULL && i < c->capacity; i++) {
        fl_device_event_destroy(c->device, &c->interval[i].begun);
        fl_device_event_destroy(c->device, &c->interval[i].ended);
    }
    fl_free(c->interval);
    memset(c, 0, sizeof *c);
}

fl_status fl_device_clock_begin(fl_device_clock *c, fl_clock_part part)
{
    return fl_device_clock_begin_labelled(c, part, -1);
}

fl_status fl_device_clock_begin_labelled(fl_device_clock *c, fl_clock_part part, int label)
{
    if (c->n == c->capacity) {
        return fl_fail(FL_EINTERNAL, "more than %d intervals since the clock was read",
                       c->capacity);
    }
    c->interval[c->n].part = part;
    c->interval[c->n].label = label;
    return c->device->ops->event_record(c->device, c->interval[c->n].begun, c->stream);
}

fl_status fl_device_clock_end(fl_device_clock *c)
{
    return c->device->ops->event_record(c->device, c->interval[c->n++].ended, c->stream);
}

fl_status fl_device_clock_read(fl_device_clock *c, int64_t us[FL_CLOCK_PARTS],
                               fl_device_clock_told *told, void *context)
{
    double sum[FL_CLOCK_PARTS] = {0};
    for (int i = 0; i < c->n; i++) {
        const fl_clock_interval *interval = &c->interval[i];
        double took;
        FL_TRY(c->device->ops->event_elapsed(c->device, interval->begun, interval->ended, &took));
        sum[interval->part] += took;
        if (told != NULL && interval->label >= 0) {
            told(context, interval->label, took);
        }
    }
    for (int part = 0; part < FL_CLOCK_PARTS; part++) {
        us[part] = (int64_t)(sum[part] + 0.5);
    }
    c->n = 0;
    return FL_OK;
}
