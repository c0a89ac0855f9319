/* The pause between two looks of a test that waits for something under a deadline. */
#ifndef FL_TESTS_SUPPORT_NAP_H
#define FL_TESTS_SUPPORT_NAP_H

#include <stdint.h>
#include <time.h>

static inline void nap(int64_t us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

#endif
