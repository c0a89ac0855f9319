#include "control/controller/parts/host_times.h"

#include "control/controller/parts/parts.h"
#include "device/system/clock.h"

#include <math.h>

static double run_time_of(const fl_controller *controller, int64_t at_us)
{
    return fmax((double)(at_us - controller->log.files.start_us) * 1e-6, 0.0);
}

static double wall_time_of(int64_t at_us)
{
    return (double)fl_now_wall_ns() * 1e-9 - (double)(fl_now_us() - at_us) * 1e-6;
}

void fl_host_times_note(const fl_controller *controller, int i)
{
    fl_host_record *r = &controller->hosts.records[i];
    fl_host_drain *d = &controller->hosts.drains[i];
    if (controller->log.files.start_us == 0) {
        return; /* the run has no clock: its files are not open */
    }
    if (r->joined_us != 0 && r->joined_s == 0.0) {
        r->joined_s = d->joined_s > 0.0 ? d->joined_s : run_time_of(controller, r->joined_us);
        d->joined_s = 0.0;
    }
    if (r->ended_us != 0 && r->ended_wall_s == 0.0) {
        r->ended_s = run_time_of(controller, r->ended_us);
        r->ended_wall_s = wall_time_of(r->ended_us);
    }
}
