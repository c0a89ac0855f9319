/* Optimizers and learning-rate schedules as functions of the step. */
#ifndef FL_NN_OPTIMIZER_H
#define FL_NN_OPTIMIZER_H

#include "device/device.h"

#include <frostline/job.h>
#include <frostline/model.h>

/* Floats of optimizer state per parameter element: AdamW 2, SGD 1. */
int fl_optimizer_n_moments(fl_optimizer_kind kind);

/* Learning rate of step `step` (from 0) of `n_steps`: linear warm-up from base / n_warmup to base,
 * then constant, linear or cosine decay to 0 at n_steps. Threads: pure; any. */
double fl_learning_rate(const fl_job *job, int64_t step, int64_t n_steps);

/* The share of the learning rate that a parameter gets: train.layer_decay to the power of its depth
 * below the head. The head has depth 0, the last block 1, the first of L blocks L; the embedding, a
 * first layer with others behind it in its block, has L + 1. A tied parameter has one rate, that of
 * its first use. Threads: pure; any. */
double fl_layer_rate(const fl_job *job, const fl_model *model, int layer, int param);

/* The factor that limits the global norm of the gradients to `clip` (0: 1 always);
 * as the field does it: clip / (norm + 1e-6) when that is below 1. Pure. */
double fl_clip_scale(double grad_norm, double clip);

/* One step of all tensors of the list; step counts from 0. */
fl_status fl_optimizer_step(fl_device *device, fl_stream *stream, const fl_job *job, int64_t step,
                            double lr, double grad_scale, const fl_update *list,
                            int n) FL_MUST_CHECK;

#endif
