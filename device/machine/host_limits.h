/* What this process may use of the machine: less than the machine has in a container, in a batch
 * job, or under taskset. */
#ifndef FL_DEVICE_MACHINE_HOST_LIMITS_H
#define FL_DEVICE_MACHINE_HOST_LIMITS_H

#include <stdint.h>

typedef struct fl_host_limits {
    int affinity;            /* processors that the process may run on */
    double quota;            /* processors' worth of time that its control groups allow; 0: any */
    int processors;          /* that both allow, rounded down, at least 1 */
    int64_t memory_bytes;    /* of the machine, or what its control groups allow; 0: not known */
    int64_t total_bytes;     /* of the machine; 0: not known */
    int64_t available_bytes; /* of memory_bytes, what can be taken without swapping; 0: not known */
} fl_host_limits;

/* root  where /proc and /sys lie: "" but in tests. What cannot be read counts as no limit. */
void fl_host_limits_read(const char *root, fl_host_limits *out);

/* Processors that this process may use, at least 1. */
int fl_host_limits_processors(void);

#endif
