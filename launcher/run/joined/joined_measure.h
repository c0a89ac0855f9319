/* A host that is to measure what the layers of a run's job cost there, before it joins the run. */
#ifndef FL_LAUNCHER_RUN_JOINED_JOINED_MEASURE_H
#define FL_LAUNCHER_RUN_JOINED_JOINED_MEASURE_H

#include "control/agent/relay/relay.h"

/* For fl_relay_options.measure. context: fl_curve_keys, those of the run. */
void fl_joined_measure(void *context, const fl_host_measure_order *order, int job_fd, int socket);

#endif
