/* What the flight recorder costs: nanoseconds for one operation, entered and left.
 *
 *   build/release/bench/bench_flight
 *
 * A step of the quickstart job records about 90 operations a worker. Times are of this thread's
 * processor, so that a busy machine does not change them much. */
#include "device/flight/flight.h"

#include <stdio.h>
#include <time.h>

enum { OPERATIONS = 10000000 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double one_operation_ns(void)
{
    double begun = now_ns();
    for (int i = 0; i < OPERATIONS; i++) {
        fl_flight_enter(FL_FLIGHT_FORWARD, -1, i, 0);
        fl_flight_leave();
    }
    return (now_ns() - begun) / OPERATIONS;
}

int main(void)
{
    fl_flight *flight = NULL;
    if (fl_flight_create(1, &flight) != FL_OK) {
        fprintf(stderr, "%s\n", fl_errmsg());
        return 3;
    }
    printf("without a recorder  %6.1f ns\n", one_operation_ns());
    fl_flight_join(flight, 0);
    printf("with one            %6.1f ns\n", one_operation_ns());
    fl_flight_destroy(&flight);
    return 0;
}
