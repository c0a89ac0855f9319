/* Commands that read the flight recorders, or trace them. */
#include "control/socket/ctl.h"

#include <inttypes.h>
#include <stdio.h>

enum { STEPS = 20 }; /* the length of a trace unless the request names one */

void fl_ctl_flight(fl_ctl *ctl, fl_ctl_call *call)
{
    fl_flight_dump_json(ctl->flight_dump, call->result);
}

void fl_ctl_trace(fl_ctl *ctl, fl_ctl_call *call)
{
    const fl_ctl_value *steps = &call->request.value[0], *at = &call->request.value[1];
    int64_t first_step = at->given ? at->integer : -1;
    if (ctl->run->phase->state > FL_CONTROLLER_RUNNING) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "the run is ending");
        return;
    }
    if (ctl->look(ctl->context)->recovery.returns_us != 0) { /* its workers record no step yet */
        fl_ctl_refuse(call, FL_CTL_RECOVERING,
                      "the run goes back after a loss, and has done no step since; ask again when "
                      "it trains");
        return;
    }
    if (fl_tracer_request(ctl->tracer, &first_step, steps->given ? steps->integer : STEPS) !=
        FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
        return;
    }
    char file[4096 + 64], when[96];
    int64_t last_step = fl_tracer_last_step(ctl->tracer);
    fl_tracer_file_name(ctl->tracer, file, sizeof file);
    fl_json_integer(call->result, "step", first_step);
    fl_json_integer(call->result, "last_step", last_step);
    fl_json_text(call->result, "file", file);
    snprintf(when, sizeof when, "once every worker has done step %" PRId64, last_step);
    fl_json_text(call->result, "written", when);
}
