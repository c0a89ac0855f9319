/* The signals that ask this process to end, while it has files and processes elsewhere: they wait
 * until these are gone. */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_STOPS_H
#define FL_LAUNCHER_DOCTOR_HOSTS_STOPS_H

#include <signal.h>
#include <stdbool.h>

/* before: for fl_doctor_release_stops. May be nested. */
void fl_doctor_hold_stops(sigset_t *before);

/* A signal that waits ends the process here, unless the caller of the caller holds it. */
void fl_doctor_release_stops(const sigset_t *before);

/* Whether a signal that is to end this process waits. */
bool fl_doctor_is_stopped(void);

#endif
