/* Facts that every part of the controller may read while it decides or reports. Each pointer leads
 * to the present value; only the part that owns the value changes it. */
#ifndef FL_CONTROL_STATE_RUN_FACTS_H
#define FL_CONTROL_STATE_RUN_FACTS_H

#include "control/state/hosts/host_record.h"
#include "control/state/options.h"
#include "control/state/phase.h"
#include "control/state/sums/run_stats.h"
#include "control/state/worker.h"
#include "device/flight/flight.h"

typedef struct fl_run_facts {
    const fl_controller_options *options;
    const fl_plan *plan; /* of the generation that runs */
    const fl_phase *phase;
    const fl_run_stats *stats;
    const fl_recovery_sums *losses;
    int n_workers;                      /* ranks: the workers that the run may have */
    int n_started;                      /* ranks below this have had a process */
    const fl_worker *workers;           /* [n_workers] */
    const fl_hosts *hosts;              /* NULL: the run has one host */
    const fl_host_record *host_records; /* by host */
    const fl_flight *flight;            /* current and latest operations of the workers */
} fl_run_facts;

#endif
