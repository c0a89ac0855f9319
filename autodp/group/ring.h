/* The ring all-reduce through sockets, in chunks. P members form a ring; the data is cut into P
 * segments, and a segment into C chunks. In step t = 0 .. 2(P-1) - 1 the member at place p
 *
 *     sends segment (p - t) to its right, and receives segment (p - t - 1) from its left,
 *
 *   P = 3:   step   place 0          place 1          place 2
 *            0      ->0  +2          ->1  +0          ->2  +1       reduce: received data is added
 *            1      ->2  +1          ->0  +2          ->1  +0
 *            2      ->1  =0          ->2  =1          ->0  =2       gather: received data is final
 *            3      ->0  =2          ->1  =0          ->2  =1
 *
 * A reduce-scatter ends after the first half, which leaves segment p + 1 complete at place p; an
 * all-gather is the second half. An item is one chunk of one step. Item i may be sent as soon as
 * item i - C has arrived, so the chunks of neighbouring steps overlap. No member waits for a send
 * before its next receive, so no cycle of waits can close. Source: Patarasuk and Yuan, "Bandwidth
 * optimal all-reduce algorithms", JPDC 2009. */
#ifndef FL_AUTODP_GROUP_RING_H
#define FL_AUTODP_GROUP_RING_H

#include "autodp/group/host_group.h"

typedef struct fl__ring {
    host_group *group;
    const host_bucket *bucket; /* its data, and its id for the tag */
    fl_net_buffer *buffer;     /* over the bucket's data */
    span whole;                /* what this ring sums of it */
    int n_places, place;
    int left, right; /* members */
} fl__ring;

/* members[n] in the order of the ring, of which the one at `place` is this one. */
fl_status fl__ring_open(fl__ring *ring, const host_bucket *bucket, span whole, const int *members,
                        int n, int place) FL_MUST_CHECK;
void fl__ring_close(fl__ring *ring); /* also one that is all zeros */

/* On the communication thread. */
fl_status fl__ring_run(const fl__ring *ring, fl_bucket_op op) FL_MUST_CHECK;

/* What the member at `place` has complete after a reduce-scatter. */
span fl__ring_part(span whole, int n_places, int place);

#endif
