/* Compares what a job wants of the machine with what the machine has. */
#ifndef FL_LAUNCHER_RUN_JOB_DEMAND_H
#define FL_LAUNCHER_RUN_JOB_DEMAND_H

#include "device/host_limits.h"

#include <frostline/job.h>

#include <stddef.h>

/* Describe the excess, a sentence each for processors and memory; "" where there is none. An excess
 * is not an error: workers may share processors, and a budget need not be used. */
void fl_job_demand_compare(const fl_host_limits *machine, const fl_job *job, int n_workers,
                           char *processors, char *memory, size_t size_bytes);

#endif
