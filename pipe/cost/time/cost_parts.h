/* Parts of the cost model that both of its files use. n: samples of a micro-batch; times are
 * microseconds on the profile's device. Pure. */
#ifndef FL_PIPE_COST_TIME_COST_PARTS_H
#define FL_PIPE_COST_TIME_COST_PARTS_H

#include "pipe/cost/time/cost_model.h"

bool fl__cost_is_frozen(const fl_plan_input *input, int layer);

/* Bytes of a sample behind a layer, in the mean. */
double fl__cost_out_bytes(const fl_plan_input *input, int layer);

/* Samples of a micro-batch on the replica with the largest share, in the mean. */
double fl__cost_micro_batch(const fl_cost_table *table, fl_grid grid);

/* A micro-batch in the layers first .. last - 1, and in the loss. */
double fl__cost_forward_us(const fl_cost_table *table, int first, int last, double n);
double fl__cost_backward_us(const fl_cost_table *table, int first, int last, double n);
double fl__cost_loss_us(const fl_cost_table *table, double n);

/* The same on a kind of device of the cluster; 0: the profile's. */
double fl__cost_forward_us_of(const fl_cost_table *table, int kind, int first, int last, double n);
double fl__cost_backward_us_of(const fl_cost_table *table, int kind, int first, int last, double n);
double fl__cost_loss_us_of(const fl_cost_table *table, int kind, double n);

/* The costs of that kind. */
const fl_profile *fl__cost_profile(const fl_cost_table *table, int kind);

#endif
