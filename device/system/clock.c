#include "device/system/clock.h"

#include <stdbool.h>
#include <time.h>

int64_t fl_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t fl_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t fl_thread_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t fl_left_ms(int64_t deadline_us)
{
    int64_t left = deadline_us - fl_now_us();
    return left <= 0 ? 0 : (left + 999) / 1000;
}

int64_t fl_now_wall_ns(void)
{
    struct timespec now;
    int64_t ns = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    bool fits = !__builtin_mul_overflow((int64_t)now.tv_sec, INT64_C(1000000000), &ns) &&
                !__builtin_add_overflow(ns, (int64_t)now.tv_nsec, &ns);
    return fits ? ns : now.tv_sec < 0 ? INT64_MIN : INT64_MAX;
}
