/* The clock of another host against that of the head, from messages that go there and back. The
 * error of one is at most half of its round trip, and grows as the clocks drift apart. Of the last
 * ones, that with the smallest error counts. */
#ifndef FL_CONTROL_STATE_HOSTS_HOST_CLOCK_H
#define FL_CONTROL_STATE_HOSTS_HOST_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FL_HOST_CLOCK_SAMPLES = 128,
    FL_HOST_CLOCK_DRIFT_MAX_PPB = 50000, /* what a quartz has at most; parts of 1e9 */
};

/* One message and its answer. */
typedef struct fl_clock_sample {
    int64_t sent_ns, got_ns; /* fl_now_ns of the head */
    int64_t there_ns;        /* fl_now_ns of the host between the two */
    int64_t wall_offset_ns;  /* its time of day minus the head's, as the sample shows it */
} fl_clock_sample;

typedef struct fl_host_clock {
    fl_clock_sample sample[FL_HOST_CLOCK_SAMPLES]; /* a ring of the last n */
    int64_t n;
} fl_host_clock;

/* What is known of a host's clock. */
typedef struct fl_clock_estimate {
    bool known;
    int64_t offset_ns;      /* the host's fl_now_ns minus the head's, at the same moment */
    int64_t wall_offset_ns; /* the same of the time of day */
    int64_t round_trip_ns;
    int64_t drift_ppb; /* by which the host's clock is faster, parts of 1e9; 0: not known yet */
    int64_t at_ns;     /* fl_now_ns of the head when it was measured */
    int64_t error_ns;  /* of offset_ns, at most, when the last message came */
} fl_clock_estimate;

/* Pure. A sample whose answer came before it was sent is dropped. */
void fl_host_clock_add(fl_host_clock *clock, const fl_clock_sample *sample);

/* Pure. */
fl_clock_estimate fl_host_clock_estimate(const fl_host_clock *clock);

#endif
