/* What a signal does to the relay: ④ and ⑥ of control/agent/relay/relay.c.
 *
 *     in a run ── DRAIN to the head ──> RELEASE ────────────────> as ③
 *                                  └──> refused, or too late ──┐
 *     before it ───────────────────────────────────────────────┴> held for hold_ms ──> LEAVE
 *
 * An engine sends Ctrl-C and SIGTERM to all of its tasks, the head included, and not at one moment.
 * Its tasks hold their end for a while, in which the head says that the run is over; a host that
 * leaves first would count as lost. A host that has not joined does not do so any more. */
#include "control/agent/relay/relay_state.h"
#include "control/state/hosts/hosts.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { SAME_REQUEST_US = 1000000 }; /* timeout(1) sends SIGTERM to its child and to the group */

/* ---- ④ ---- */

/* What the signal ends, for the user of this host; the run has it as that of the host. */
static const char *outcome_text(const fl__relay *r)
{
    return r->over     ? ", when the run was over"
           : r->joined ? "; the run has lost this host"
                       : " before this host had joined the run";
}

static fl_status end_for_signal(fl__relay *r, int number, const char *why)
{
    char text[FL_HOST_TEXT_MAX];
    r->signal_number = number;
    snprintf(text, sizeof text, FL_HOST_STOPPED "%d%s%.180s", number, why[0] == '\0' ? "" : ": ",
             why);
    fl__relay_kill_agent(r);
    fl__relay_send_text(r, FL_HOST_LEAVE, text);
    return fl_fail(FL_ESTOPPED, "the agent of host '%s' was %s%s", r->o->name, text,
                   why[0] == '\0' ? outcome_text(r) : "");
}

/* since_us: of the signal. */
static fl_status hold_end(fl__relay *r, int number, const char *why, int64_t since_us)
{
    if (r->o->hold_ms == 0) {
        return end_for_signal(r, number, why);
    }
    if (r->held_number == 0) {
        r->held_number = number;
        r->held_until_us = since_us + r->o->hold_ms * 1000;
        snprintf(r->held_why, sizeof r->held_why, "%s", why);
    }
    return FL_OK;
}

/* ---- ⑥ ---- */

static void ask_for_drain(fl__relay *r, int number)
{
    r->asked_us = fl_now_us();
    r->asked_number = number;
    if (r->joined) {
        fl__relay_send_drain(r);
    }
    fl_log(FL_LOG_INFO,
           "%s: asked the head to go on without this host, within %.1f s; a second one ends it at "
           "once",
           number == SIGTERM ? "SIGTERM" : strsignal(number), (double)r->o->grace_ms * 1e-3);
}

fl_status fl__relay_take_release(fl__relay *r, const char *why)
{
    if (why[0] != '\0') {
        return r->asked_us == 0 ? FL_OK : hold_end(r, r->asked_number, why, r->asked_us);
    }
    fl_log(FL_LOG_INFO, "drained%s: the run goes on without this host, and this agent ends",
           r->asked_us == 0 ? " by a request to the head (frostline ctl drain host)" : "");
    r->drained = true;
    fl__relay_begin_end(r);
    return FL_OK;
}

/* ---- both ---- */

fl_status fl__relay_read_signals(fl__relay *r)
{
    struct signalfd_siginfo info;
    if (read(r->signal_fd, &info, sizeof info) != (ssize_t)sizeof info) {
        return FL_OK;
    }
    int number = (int)info.ssi_signo;
    bool in_run = r->joined || (r->again && !r->apart);
    bool drains = in_run && r->o->grace_ms > 0 && (number == SIGTERM || r->o->hold_ms > 0);
    if (!drains) {
        return hold_end(r, number, "", fl_now_us());
    }
    if ((r->over && !r->again) || r->asked_us > fl_now_us() - SAME_REQUEST_US) {
        return FL_OK;
    }
    if (r->asked_us == 0) {
        ask_for_drain(r, number);
        return FL_OK;
    }
    return end_for_signal(r, number, "");
}

fl_status fl__relay_watch_stop(fl__relay *r, int64_t now_us)
{
    if (r->over) {
        return FL_OK;
    }
    if (r->asked_us != 0 && now_us - r->asked_us > r->o->grace_ms * 1000) {
        return end_for_signal(r, r->asked_number,
                              "the head did not drain this host in the time of --grace");
    }
    return r->held_number != 0 && now_us > r->held_until_us
               ? end_for_signal(r, r->held_number, r->held_why)
               : FL_OK;
}
