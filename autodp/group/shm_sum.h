/* The sum of a few scalars over all members, when all of them are on one host. */
#ifndef FL_AUTODP_GROUP_SHM_SUM_H
#define FL_AUTODP_GROUP_SHM_SUM_H

#include "autodp/group/group.h"
#include "autodp/group/shm_segment.h"

/* Over a segment that was opened with fl_shm_sum_bytes() of extra memory and that all members
 * share. The caller fills the first three members; the rest is zero. */
typedef struct fl_shm_sum {
    fl_shm_segment *segment; /* NULL: not used */
    int index, size;
    uint32_t round;
} fl_shm_sum;

size_t fl_shm_sum_bytes(void);

/* As fl_group_all_reduce. */
fl_status fl_shm_sum_run(fl_shm_sum *sum, double *values, int n, int64_t deadline_us) FL_MUST_CHECK;

#endif
