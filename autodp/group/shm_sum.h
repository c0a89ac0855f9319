/* The sum of a few scalars over everybody, where all live on one host. */
#ifndef FL_AUTODP_GROUP_SHM_SUM_H
#define FL_AUTODP_GROUP_SHM_SUM_H

#include "autodp/group/group.h"
#include "autodp/group/shm_segment.h"

/* Over a board that was opened with fl_shm_sum_bytes() of extra memory, and on which all are near
 * each other. Cleared but for the first three. */
typedef struct fl_shm_sum {
    fl_shm_segment *segment; /* NULL: not used */
    int index, size;
    uint32_t round;
} fl_shm_sum;

size_t fl_shm_sum_bytes(void);

/* As fl_group_all_reduce. */
fl_status fl_shm_sum_run(fl_shm_sum *sum, double *values, int n, int64_t deadline_us) FL_MUST_CHECK;

#endif
