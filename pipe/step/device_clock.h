/* How long a stream's work takes, and when it was done. A device may still compute when the call
 * that gave it work returns, so the times are those between events of its stream, read when the
 * host has waited for them anyway.
 *
 * The device's events share no clock with the host. An anchor ties them together: an event that is
 * recorded before the host waits for the stream, so that it happened between the record and the end
 * of the wait. From anchor to anchor, its time on the host is that of the one before and the time
 * between both; where the clocks have drifted apart, it is brought back between the two limits.
 *
 *     stream  ──begun▄▄▄▄ended──begun▄▄▄ended──anchor
 *     host    ─────────────────────────────recorded═══waited──read: into the flight recorder
 *
 * Threads: one. */
#ifndef FL_PIPE_STEP_DEVICE_CLOCK_H
#define FL_PIPE_STEP_DEVICE_CLOCK_H

#include "device/device.h"
#include "device/flight/flight.h"

/* What an interval counts for. */
typedef enum fl_clock_part { FL_CLOCK_COMPUTE, FL_CLOCK_OPTIMIZER, FL_CLOCK_PARTS } fl_clock_part;

/* Work of a stream. */
typedef struct fl_clock_work {
    fl_clock_part part;
    int label;           /* that the reader gets with its time; -1: none */
    fl_flight_kind kind; /* in the flight recorder */
    int item;            /* as in fl_flight_entry */
} fl_clock_work;

typedef struct fl_clock_interval {
    fl_clock_work work;
    fl_flight_entry entry; /* entered_ns: when it was queued, until it is read */
    fl_event *begun, *ended;
} fl_clock_interval;

/* Times of the host, fl_now_ns. */
typedef struct fl_clock_anchor {
    fl_event *event;
    int64_t recorded_ns; /* before the record; 0: not recorded yet */
    int64_t host_ns;     /* when the event happened */
} fl_clock_anchor;

typedef struct fl_device_clock {
    fl_device *device; /* borrowed, as the stream */
    fl_stream *stream;
    int n, capacity;
    fl_clock_interval *interval; /* [capacity], n of them since the last read */
    fl_clock_anchor anchor[2];   /* they take turns */
    int turn;                    /* the newer one */
    bool anchored;               /* it was recorded and waited for since the last read */
} fl_device_clock;

/* For up to `capacity` intervals between two reads. Call fini after a failure, too; it also takes a
 * clock of zeros. */
fl_status fl_device_clock_init(fl_device_clock *clock, fl_device *device, fl_stream *stream,
                               int capacity) FL_MUST_CHECK;
void fl_device_clock_fini(fl_device_clock *clock);

/* The work that the stream is given between these two calls. */
fl_status fl_device_clock_begin(fl_device_clock *clock, const fl_clock_work *work) FL_MUST_CHECK;
fl_status fl_device_clock_end(fl_device_clock *clock) FL_MUST_CHECK;

/* Before the host waits for the stream, and when it has: what is read next also goes to the flight
 * recorder. Neither waits. A device whose calls compute has no times of its own: nothing happens.
 */
fl_status fl_device_clock_anchor(fl_device_clock *clock) FL_MUST_CHECK;
fl_status fl_device_clock_waited(fl_device_clock *clock) FL_MUST_CHECK;

typedef void fl_device_clock_told(void *context, int label, double us);

/* Microseconds of each part since the last read. The host has waited for the stream. told: is
 * called for each interval with a label; NULL: nobody asks */
fl_status fl_device_clock_read(fl_device_clock *clock, int64_t us[FL_CLOCK_PARTS],
                               fl_device_clock_told *told, void *context) FL_MUST_CHECK;

#endif
