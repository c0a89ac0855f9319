/* How long a stream's work takes. A device may still compute when the call that gave it work
 * returns, so the times are those between events of its stream, read when the host has waited for
 * them anyway. Threads: one. */
#ifndef FL_PIPE_STEP_DEVICE_CLOCK_H
#define FL_PIPE_STEP_DEVICE_CLOCK_H

#include "device/device.h"

/* What an interval counts for. */
typedef enum fl_clock_part { FL_CLOCK_COMPUTE, FL_CLOCK_OPTIMIZER, FL_CLOCK_PARTS } fl_clock_part;

typedef struct fl_clock_interval {
    fl_clock_part part;
    int label; /* -1: none */
    fl_event *begun, *ended;
} fl_clock_interval;

typedef struct fl_device_clock {
    fl_device *device; /* borrowed, as the stream */
    fl_stream *stream;
    int n, capacity;
    fl_clock_interval *interval; /* [capacity], n of them since the last read */
} fl_device_clock;

/* For up to `capacity` intervals between two reads. Call fini after a failure, too; it also takes a
 * clock of zeros. */
fl_status fl_device_clock_init(fl_device_clock *clock, fl_device *device, fl_stream *stream,
                               int capacity) FL_MUST_CHECK;
void fl_device_clock_fini(fl_device_clock *clock);

/* The work that the stream is given between these two calls. */
fl_status fl_device_clock_begin(fl_device_clock *clock, fl_clock_part part) FL_MUST_CHECK;
fl_status fl_device_clock_end(fl_device_clock *clock) FL_MUST_CHECK;

/* The same, with a label that the reader gets with its time. */
fl_status fl_device_clock_begin_labelled(fl_device_clock *clock, fl_clock_part part,
                                         int label) FL_MUST_CHECK;

typedef void fl_device_clock_told(void *context, int label, double us);

/* Microseconds of each part since the last read. The host has waited for the stream. told: is
 * called for each interval with a label; NULL: nobody asks */
fl_status fl_device_clock_read(fl_device_clock *clock, int64_t us[FL_CLOCK_PARTS],
                               fl_device_clock_told *told, void *context) FL_MUST_CHECK;

#endif
