/* What the link between two hosts costs, over the net that a run would use between them. */
#ifndef FL_PIPE_MEASURE_FAR_LINK_H
#define FL_PIPE_MEASURE_FAR_LINK_H

#include "autodp/net/net.h"
#include "pipe/cost/cluster.h"

/* What member 0 has measured. */
typedef struct fl_far_link {
    double latency_us;          /* half of the way there and back of 8 bytes */
    double bytes_per_us[2];     /* from member 0 to member 1, and back */
    double reduce_bytes_per_us; /* all-reduce between the two, payload bytes per time */
} fl_far_link;

/* Measure for about budget_ms, with at most 64 MiB in each direction. Both members of a net of two
 * call it; member 1 only answers, and leaves *out cleared. Waits for at most timeout_ms more. */
fl_status fl_far_link_measure(fl_net *net, int me, int64_t budget_ms, int64_t timeout_ms,
                              fl_far_link *out) FL_MUST_CHECK;

/* As a class of links of a cluster: the slower direction counts. Pure. */
fl_link_cost fl_far_link_cost(const fl_far_link *link);

#endif
