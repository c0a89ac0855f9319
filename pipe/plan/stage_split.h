/* The split of the layers into stages for one K, R and M, on given devices. Pure. */
#ifndef FL_PIPE_PLAN_STAGE_SPLIT_H
#define FL_PIPE_PLAN_STAGE_SPLIT_H

#include "pipe/cost/memory/memory.h"
#include "pipe/cost/time/cost_model.h"

/* What splits of any K, R and M need. */
typedef struct fl_stage_split_tables {
    const fl_plan_input *input;
    int n_layers;
    fl_memory_table *memory; /* of a sample; where lengths differ: of the split at work */
    fl_layer_memory *layers; /* [n_layers] of that split */
    fl_cost_table *price;
} fl_stage_split_tables;

/* Where samples differ in length, the largest micro-batch is known exactly only after all batches
 * of the run were split for this R and M. Bounds are quick, and enough for what fits anyway, or
 * never. */
typedef enum fl_stage_split_precision {
    FL_SPLIT_AT_LEAST,
    FL_SPLIT_AT_MOST,
    FL_SPLIT_EXACTLY
} fl_stage_split_precision;

/* One K, R and M. */
typedef struct fl_stage_split {
    const fl_stage_split_tables *tables;
    fl_grid grid;
    const int *device_of;                /* [K * R], borrowed; NULL without a cluster */
    int64_t budget_bytes[FL_MAX_STAGES]; /* of the device with least memory that has the stage */
    double slowness[FL_MAX_STAGES];      /* of the slowest, relative to its kind */
    int kind[FL_MAX_STAGES];             /* of the slowest; 0: the profile's */
    int64_t n_units;   /* a micro-batch is n_units times what tables->memory holds */
    int64_t n_samples; /* of a micro-batch */
} fl_stage_split;

/* The places of the split on their devices, without its micro-batches. */
void fl_stage_split_init(fl_stage_split *q, const fl_stage_split_tables *tables, fl_grid grid,
                         const int *device_of);

/* Whether stages have the same budgets, kinds and speeds on other devices: then cuts are the same.
 */
bool fl_stage_split_is_same(const fl_stage_split *a, const fl_stage_split *b);

/* The largest micro-batches, by bounds or exactly. FL_ENOMEM. */
fl_status fl_stage_split_measure(fl_stage_split *q,
                                 fl_stage_split_precision precision) FL_MUST_CHECK;

/* What a stage of these layers needs. */
int64_t fl_stage_split_bytes(const fl_stage_split *q, int stage, int first, int last,
                             fl_stage_memory *memory);

/* The stage that needs most, or most beyond its budget, and how much that is; whether every stage
 * fits. first [K + 1]. */
bool fl_stage_split_fits(const fl_stage_split *q, const int *first, int *stage, int64_t *bytes);

/* The cuts with the fastest slowest stage, whatever they need. */
fl_status fl_stage_split_fast(const fl_stage_split *q, int *first) FL_MUST_CHECK;

/* The fastest cuts that fit, measured as precisely as needed. *bytes is what the largest stage
 * needs; with FL_EBUDGET, what it would need at least. */
fl_status fl_stage_split_choose(fl_stage_split *q, int *first, int64_t *bytes) FL_MUST_CHECK;

/* The slowest stage decides most of a step, but not all of it: the pipeline fills and drains, and
 * gradients leave stage by stage. Where splits are few enough to look at each, the best by the
 * whole step is taken: first and *best, on the way in, are what fl_stage_split_choose found. */
void fl_stage_split_polish(const fl_stage_split *q, int *first, fl_candidate *best);

#endif
