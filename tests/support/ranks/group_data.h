/* A device for tests of the training group, and data on it: on one that computes in host memory,
 * or, over NCCL, on the asynchronous one, whose memory the host cannot touch. So the same test runs
 * over each transport. In ranks only. */
#ifndef FL_TESTS_SUPPORT_RANKS_GROUP_DATA_H
#define FL_TESTS_SUPPORT_RANKS_GROUP_DATA_H

#include "device/device.h"

/* One a process, as a worker has. */
fl_device *the_device(void);

/* What a group works on, and where the test reads and writes it: the same memory where that can
 * be. */
typedef struct group_data {
    void *device, *host;
    size_t size_bytes;
} group_data;

group_data group_data_take(size_t size_bytes);

void group_data_give(group_data *d);

/* The group, on the default stream, finds what the test wrote. */
void group_data_put(const group_data *d);

/* The test reads what the default stream's work so far has left. */
void group_data_get(const group_data *d);

#endif
