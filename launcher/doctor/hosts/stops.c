#include "launcher/doctor/hosts/stops.h"

#include "control/agent/process/signals.h"

#include <stddef.h>

void fl_doctor_hold_stops(sigset_t *before)
{
    sigset_t stops;
    fl_signals_stops(&stops);
    sigprocmask(SIG_BLOCK, &stops, before);
}

void fl_doctor_release_stops(const sigset_t *before)
{
    sigprocmask(SIG_SETMASK, before, NULL);
}

bool fl_doctor_is_stopped(void)
{
    struct sigaction now;
    int number = fl_signals_pending_stop();
    return number != 0 && sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_IGN;
}
