#include "control/state/hosts/host_clock.h"

#include <stddef.h>

/* Over less, the error of the offsets is larger than a drift of any clock; so it is where answers
 * took long. */
static const int64_t DRIFT_NS = INT64_C(5000000000);

void fl_host_clock_add(fl_host_clock *clock, const fl_clock_sample *sample)
{
    if (sample->got_ns >= sample->sent_ns) {
        clock->sample[clock->n++ % FL_HOST_CLOCK_SAMPLES] = *sample;
    }
}

static int64_t round_trip(const fl_clock_sample *s)
{
    return s->got_ns - s->sent_ns;
}

static int64_t offset_of(const fl_clock_sample *s)
{
    return s->there_ns - (s->sent_ns + round_trip(s) / 2);
}

/* How far the offset of a sample may be from the true one at a later moment. */
static int64_t error_of(const fl_clock_sample *s, int64_t now_ns)
{
    int64_t age_us = (now_ns - s->got_ns) / 1000;
    return round_trip(s) / 2 + age_us * FL_HOST_CLOCK_DRIFT_MAX_PPB / 1000000;
}

/* The one with the smallest error of the samples first .. end - 1, as they were counted, at the
 * last of these. */
static const fl_clock_sample *best_of(const fl_host_clock *clock, int64_t first, int64_t end)
{
    const fl_clock_sample *best = NULL;
    int64_t now_ns = end > first ? clock->sample[(end - 1) % FL_HOST_CLOCK_SAMPLES].got_ns : 0;
    for (int64_t i = first; i < end; i++) {
        const fl_clock_sample *s = &clock->sample[i % FL_HOST_CLOCK_SAMPLES];
        best = best == NULL || error_of(s, now_ns) < error_of(best, now_ns) ? s : best;
    }
    return best;
}

/* Between the best samples of the older and of the newer half. */
static int64_t drift_of(const fl_host_clock *clock, int64_t first)
{
    int64_t middle = first + (clock->n - first) / 2;
    const fl_clock_sample *old = best_of(clock, first, middle);
    const fl_clock_sample *new = best_of(clock, middle, clock->n);
    if (old == NULL || new == NULL || new->sent_ns - old->sent_ns < DRIFT_NS) {
        return 0;
    }
    double passed_ns = (double)(new->sent_ns - old->sent_ns);
    double error_ns = 0.5 * (double)(round_trip(old) + round_trip(new));
    return error_ns / passed_ns * 1e9 > FL_HOST_CLOCK_DRIFT_MAX_PPB
               ? 0
               : (int64_t)((double)(offset_of(new) - offset_of(old)) / passed_ns * 1e9);
}

fl_clock_estimate fl_host_clock_estimate(const fl_host_clock *clock)
{
    int64_t first = clock->n > FL_HOST_CLOCK_SAMPLES ? clock->n - FL_HOST_CLOCK_SAMPLES : 0;
    const fl_clock_sample *best = best_of(clock, first, clock->n);
    if (best == NULL) {
        return (fl_clock_estimate){.known = false};
    }
    int64_t now_ns = clock->sample[(clock->n - 1) % FL_HOST_CLOCK_SAMPLES].got_ns;
    return (fl_clock_estimate){.known = true,
                               .offset_ns = offset_of(best),
                               .wall_offset_ns = best->wall_offset_ns,
                               .round_trip_ns = round_trip(best),
                               .drift_ppb = drift_of(clock, first),
                               .at_ns = best->sent_ns + round_trip(best) / 2,
                               .error_ns = error_of(best, now_ns)};
}
