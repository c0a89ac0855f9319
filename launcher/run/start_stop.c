#include "launcher/run/start_stop.h"

#include "control/agent/join/host_dismiss.h"
#include "control/agent/process/signals.h"
#include "control/link/held_port.h"
#include "device/errors/log.h"
#include "launcher/run/plan/resume.h"

static const char why[] = "stopped before the training began";

void fl_start_stop_begin(void)
{
    fl_signals_hold_stops();
}

fl_status fl_start_stop_look(const fl_preparation *p, bool has_met, fl_run_result *result)
{
    int number = fl_resume_goes_back(p) ? 0 : fl_signals_take_stop();
    if (number == 0) {
        return FL_OK;
    }
    result->terminated = number == SIGTERM;
    if (has_met) {
        fl_held_ports_close(p->held_ports);
        fl_hosts_dismiss(p->hosts, result->terminated ? FL_AGENT_ENDS_STOPPED : FL_AGENT_ENDS_QUIT,
                         why, 0);
    }
    return fl_fail(FL_ESTOPPED, "%s", why);
}

bool fl_start_stop_is_early(fl_status status, const fl_run_result *result)
{
    return status == FL_ESTOPPED && result->run_dir[0] == '\0';
}

void fl_start_stop_end(fl_status status, fl_run_result *result, const sigset_t *mask)
{
    if (fl_start_stop_is_early(status, result)) {
        result->terminated = result->terminated || fl_signals_take_stop() == SIGTERM;
        fl_log(FL_LOG_INFO, "%s", why);
    }
    fl_signals_drop_stops();
    sigprocmask(SIG_SETMASK, mask, NULL);
}
