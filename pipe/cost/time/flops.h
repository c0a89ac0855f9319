/* Model FLOPs: the operations that the mathematics of a step requires, whichever worker computes
 * them and however often; and what the devices could do in the same time. Pure. docs/traces.md has
 * the formula. */
#ifndef FL_PIPE_COST_TIME_FLOPS_H
#define FL_PIPE_COST_TIME_FLOPS_H

#include "pipe/cost/time/cost_model.h"

/* Operations of the matrix products of one optimizer step over `batch` samples, with F blocks
 * frozen. memory_one  [n_layers] of fl_memory_measure for one sample; where samples differ in
 * length, with the operations of fl_memory_mean_flops fed         what frozen layers put out comes
 * from the cache: they compute nothing */
double fl_flops_step(const fl_model *model, const fl_layer_memory *memory_one, int F, bool fed,
                     int64_t batch);

/* Operations per second of n_workers devices together, from the measured peak of one device.
 * Devices beyond the number of processors do not count. 0: no peak was measured. */
double fl_flops_peak(const fl_plan_input *input, int n_workers);

#endif
