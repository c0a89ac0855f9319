/* The parameters of a run of layers: weights, gradients and moments, each one contiguous piece of
 * device memory, so that a bucket is a range of it and a layer migrates as one range.
 *
 * Every parameter begins on 64 bytes. Layers below `first_trainable` have weights only. */
#ifndef FL_PIPE_PARAMS_H
#define FL_PIPE_PARAMS_H

#include "nn/exec.h"

#include <frostline/job.h>

typedef struct fl_params {
    fl_device *device; /* borrowed */
    const fl_model *model;
    int first, last;     /* layers first .. last - 1 */
    int first_trainable; /* first <= first_trainable <= last */
    int n_moments;
    int64_t n;              /* elements of all weights, padding included */
    int64_t n_trainable;    /* elements from first_trainable on: gradients and each moment */
    float *weight;          /* [n] */
    float *grad;            /* [n_trainable] */
    float *moments;         /* [n_moments][n_trainable] */
    fl_layer_params *layer; /* [last - first] */
    int64_t *layer_at;      /* [last - first + 1] where each layer begins, in elements of weight */
} fl_params;

/* Elements that layers first .. last - 1 take, padding included. Pure. */
int64_t fl_params_count(const fl_model *model, int first, int last);

/* Allocate, and draw the starting weights from *seed (NULL: they will migrate here; all are 0).
 * *params is the caller's memory; on failure it holds nothing. Returns FL_EBUDGET when the device
 * is full. */
fl_status fl_params_init(fl_params *params, fl_device *device, const fl_model *model, int first,
                         int last, int first_trainable, int n_moments,
                         const uint64_t *seed) FL_MUST_CHECK;
void fl_params_fini(fl_params *params);

/* Where the gradients of `layer` begin in params->grad, in elements; `last` gives n_trainable. */
int64_t fl_params_grad_at(const fl_params *params, int layer);

/* One optimizer step over everything trainable, then clear the gradients. step counts from 0. */
fl_status fl_params_step(fl_params *params, fl_stream *stream, const fl_job *job, int64_t step,
                         double lr, double grad_scale) FL_MUST_CHECK;

#endif
