/* Compares what a job wants of the machine with what the machine has. */
#ifndef FL_LAUNCHER_RUN_MACHINE_JOB_DEMAND_H
#define FL_LAUNCHER_RUN_MACHINE_JOB_DEMAND_H

#include "control/state/hosts/hosts.h"
#include "device/machine/host_limits.h"

#include <frostline/job.h>

#include <stddef.h>

/* Describe the excess, a sentence each for processors and memory; "" where there is none. An excess
 * is not an error: workers may share processors, and a budget need not be used.
 * own: this host, where the run has several: its workers alone count; NULL: all n_workers do */
void fl_job_demand_compare(const fl_host_limits *machine, const fl_job *job, const fl_host *own,
                           int n_workers, char *processors, char *memory, size_t size_bytes);

#endif
