/* For LD_PRELOAD: a process whose time of day is TIME_OF_DAY_SHIFT_S seconds later than that of
 * this machine, or earlier below 0. Its other clocks are those of this machine. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs are reserved */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const char *shift = getenv("TIME_OF_DAY_SHIFT_S");
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && shift != NULL) {
        now->tv_sec += strtol(shift, NULL, 10);
    }
    return result;
}
