/* What a job wants of the machine, beside what the machine has. */
#ifndef FL_LAUNCHER_RUN_JOB_DEMAND_H
#define FL_LAUNCHER_RUN_JOB_DEMAND_H

#include "device/host_limits.h"

#include <frostline/job.h>

#include <stddef.h>

/* What the job wants beyond that, a sentence for each of processors and memory; "" where it wants
 * no more. Nothing of this is an error: workers share processors, and a budget is not a use. */
void fl_job_demand_compare(const fl_host_limits *machine, const fl_job *job, int n_workers,
                           char *processors, char *memory, size_t size_bytes);

#endif
