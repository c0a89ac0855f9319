/* What one worker has reported about captured work (CUDA graphs) since the run began. A worker
 * counts from zero in each generation, and so does a process that takes the place of a lost one:
 * the sums of the rank go on. What a lost worker did after its last report is not in them. */
#ifndef FL_CONTROL_STATE_SUMS_GRAPH_SUMS_H
#define FL_CONTROL_STATE_SUMS_GRAPH_SUMS_H

#include "control/link/link.h"

typedef struct fl_graph_counts {
    int64_t captures, launches, calls; /* as in fl_stage_graph_report */
} fl_graph_counts;

typedef struct fl_graph_sums {
    bool any;            /* a report has come: the worker's device has graphs */
    uint32_t generation; /* and the step of the last report */
    int64_t step;
    fl_graph_counts before, now; /* of earlier generations; of this one */
    int n_shapes[FL_STAGE_WAYS]; /* of this generation, by how they are computed */
    int64_t memory_bytes;        /* the driver's for the graphs, at the last report */
} fl_graph_sums;

void fl_graph_sums_add(fl_graph_sums *sums, const fl_graphs_report *report);

/* The worker's process has ended: what its device held is gone, what was counted stays. */
void fl_graph_sums_end(fl_graph_sums *sums);

/* Since the run began. */
fl_graph_counts fl_graph_sums_total(const fl_graph_sums *sums);

#endif
