/* How many samples each replica, or each micro-batch, takes of a batch. */
#ifndef FL_AUTODP_SPLIT_WORK_H
#define FL_AUTODP_SPLIT_WORK_H

#include <stdint.h>

/* Split `n` samples with the given work (tokens; NULL: all equal; below 0 counts as 0) among
 * `n_shares` shares so that the largest work of a share is as small as a contiguous split allows,
 * and the shares are otherwise near to even; counts differ by at most one when work is NULL or the
 * same for all. first [n_shares + 1] out: share i takes first[i] .. first[i + 1] - 1. Shares may be
 * empty. Time: n times the bits of the largest work. Used twice: batch -> replicas, replica's
 * share -> micro-batches. Threads: pure; any. */
void fl_split_work(int64_t n, const int32_t *work, int n_shares, int64_t *first);

/* The largest share that fl_split_work can make of n equal samples: ceil(n / n_shares). */
static inline int64_t fl_split_work_max(int64_t n, int n_shares)
{
    return (n + n_shares - 1) / n_shares;
}

#endif
