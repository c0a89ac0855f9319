/* What this process may use of the machine: less than the machine has in a container, in a batch
 * job, or under taskset. */
#ifndef FL_LAUNCHER_RUN_HOST_LIMITS_H
#define FL_LAUNCHER_RUN_HOST_LIMITS_H

#include <frostline/job.h>

#include <stddef.h>
#include <stdint.h>

typedef struct fl_host_limits {
    int affinity;         /* processors that the process may run on */
    double quota;         /* processors' worth of time that its control groups allow; 0: any */
    int processors;       /* that both allow, rounded down, at least 1 */
    int64_t memory_bytes; /* of the machine, or what its control groups allow; 0: not known */
    int64_t total_bytes;  /* of the machine; 0: not known */
} fl_host_limits;

/* root  where /proc and /sys lie: "" but in tests. What cannot be read counts as no limit. */
void fl_host_limits_read(const char *root, fl_host_limits *out);

/* What the job wants beyond that, a sentence for each of processors and memory; "" where it wants
 * no more. Nothing of this is an error: workers share processors, and a budget is not a use. */
void fl_host_limits_compare(const fl_host_limits *machine, const fl_job *job, int n_workers,
                            char *processors, char *memory, size_t size_bytes);

#endif
