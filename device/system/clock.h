/* Time: monotonic, in microseconds; and deadlines on it. */
#ifndef FL_DEVICE_SYSTEM_CLOCK_H
#define FL_DEVICE_SYSTEM_CLOCK_H

#include <stdint.h>

int64_t fl_now_us(void);
int64_t fl_now_ns(void); /* the same clock */

/* The time of day, since 1970; below 0 before it. A clock that is set to a year that the number
 * does not hold, before 1678 or after 2261, has the first or the last moment that it holds. */
int64_t fl_now_wall_ns(void);

/* Processor time that the calling thread has had. */
int64_t fl_thread_ns(void);

/* The moment `timeout_ms` from now, on fl_now_us's clock. */
static inline int64_t fl_deadline_us(int64_t timeout_ms)
{
    return fl_now_us() + timeout_ms * 1000;
}

/* When somebody counts as heard last, after nobody listened for `us`: that is no silence of the
 * other one. */
static inline int64_t fl_excused_us(int64_t heard_us, int64_t us, int64_t now_us)
{
    return heard_us + us < now_us ? heard_us + us : now_us;
}

/* Milliseconds left until the deadline, rounded up, never below 0. */
int64_t fl_left_ms(int64_t deadline_us);

#endif
