/* The largest values that a report may hold. They are above what any run reaches, and so low that
 * sums over workers, and over the steps of a run, stay within 64 bits. */
#ifndef FL_CONTROL_LINK_WIRE_RANGES_H
#define FL_CONTROL_LINK_WIRE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#define FL_WIRE_STEP_MAX (INT64_C(1) << 60)
#define FL_WIRE_US_MAX (INT64_C(1) << 43)    /* 101 days: longer than a pause of a run */
#define FL_WIRE_CLOCK_MAX (INT64_C(1) << 53) /* microseconds of uptime: 285 years */
#define FL_WIRE_COUNT_MAX (INT64_C(1) << 40)
#define FL_WIRE_BYTES_MAX (INT64_C(1) << 50) /* 1 PiB */

/* A step, an epoch, a batch of a pass, a number of commands, or a serial number. */
static inline bool fl_wire_is_step(int64_t step)
{
    return step >= 0 && step <= FL_WIRE_STEP_MAX;
}

static inline bool fl_wire_is_us(int64_t us)
{
    return us >= 0 && us <= FL_WIRE_US_MAX;
}

static inline bool fl_wire_is_ms(double ms)
{
    return ms >= 0.0 && ms <= (double)FL_WIRE_US_MAX * 1e-3;
}

/* Samples, tokens, values, ... of one report. */
static inline bool fl_wire_is_count(int64_t n)
{
    return n >= 0 && n <= FL_WIRE_COUNT_MAX;
}

static inline bool fl_wire_is_bytes(int64_t bytes)
{
    return bytes >= 0 && bytes <= FL_WIRE_BYTES_MAX;
}

#endif
