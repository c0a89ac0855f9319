/* The sum of a few scalars over everybody, where all live on one host. */
#ifndef FL_AUTODP_NEAR_SUM_H
#define FL_AUTODP_NEAR_SUM_H

#include "autodp/board.h"
#include "autodp/group.h"

/* Over a board that was opened with fl_near_sum_bytes() of extra memory, and on which all are near
 * each other. Cleared but for the first three. */
typedef struct fl_near_sum {
    fl_board *board; /* NULL: not used */
    int index, size;
    uint32_t round;
} fl_near_sum;

size_t fl_near_sum_bytes(void);

/* As fl_group_sum. */
fl_status fl_near_sum_run(fl_near_sum *sum, double *values, int n,
                          int64_t deadline_us) FL_MUST_CHECK;

#endif
