/* A flight recorder, and a process that records in it. Include after cmocka.h. */
#ifndef FL_TESTS_SUPPORT_RANKS_FLIGHT_WORKER_H
#define FL_TESTS_SUPPORT_RANKS_FLIGHT_WORKER_H

#include "device/flight/flight.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLIGHT_WORKERS = 3, FLIGHT_ME = 1 };

static inline fl_flight *flight_create(void)
{
    fl_flight *flight = NULL;
    assert_int_equal(fl_flight_create(FLIGHT_WORKERS, &flight), FL_OK);
    return flight;
}

/* Run `body` in a forked worker that records as rank FLIGHT_ME; its wait status. */
static inline int flight_in_worker(fl_flight *flight, void (*body)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fl_flight_join(flight, FLIGHT_ME);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

#endif
