/* The predicted time of one optimizer step of a plan, from a profile. Pure. docs/planner.md
 * describes the model. */
#ifndef FL_PIPE_PLAN_COST_MODEL_H
#define FL_PIPE_PLAN_COST_MODEL_H

#include "pipe/plan/planner.h"

/* Sums of costs over runs of layers, each asked for in O(1). [i]: of the layers below i. */
typedef struct fl_cost_table {
    const fl_plan_input *input; /* borrowed */
    int n_layers;
    int heaviest; /* the layer that takes a sample longest */
    double fwd_call_us[FL_MAX_LAYERS + 1], fwd_us[FL_MAX_LAYERS + 1];
    double bwd_call_us[FL_MAX_LAYERS + 1], bwd_us[FL_MAX_LAYERS + 1];
    int64_t n_trainable[FL_MAX_LAYERS + 1];
} fl_cost_table;

/* The table is of one F, the input's; a grid's own F is not read below. */
void fl_cost_table_init(fl_cost_table *table, const fl_plan_input *input);

/* cost [n_layers] out: one layer's forward and backward of one micro-batch, microseconds, the loss
 * with the last: what a partition balances. */
void fl_cost_model_layers(const fl_cost_table *table, fl_grid grid, double *cost);

/* What stage `stage` computes in a step, microseconds: forward, backward, and the loss with the
 * last. first [K + 1]. */
double fl_cost_model_compute(const fl_cost_table *table, fl_grid grid, const int *first, int stage);

/* No split of this grid takes less. Much cheaper to know than fl_cost_model_price. */
double fl_cost_model_bound(const fl_cost_table *table, fl_grid grid);

/* The step with these cuts: first [K + 1]. Fills out->grid, step_us, bubble and reduce_us. */
void fl_cost_model_price(const fl_cost_table *table, fl_grid grid, const int *first,
                         fl_candidate *out);

#endif
