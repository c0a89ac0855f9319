/* The parameters of a run of layers. Each layer's weights are one piece of device memory, its
 * moments another, so that a layer can be handed over from one plan to the next, or migrate, as a
 * whole; gradients are one piece for all, so that a bucket is a range of it.
 *
 * Every parameter begins on 64 bytes. Layers below `first_trainable` have weights only.
 *
 *     grad   layer | layer | ... | tie | tie     a layer's untied parameters; each tie that trains
 *
 * All uses of a tied parameter here add to the same gradient, which no layer's bucket holds. */
#ifndef FL_PIPE_STATE_PARAMS_H
#define FL_PIPE_STATE_PARAMS_H

#include "nn/exec.h"
#include "pipe/plan/migrate_schedule.h"
#include "pipe/state/state_source.h"

#include <frostline/job.h>

/* The gradient of a tied parameter that trains and has a use here. */
typedef struct fl_params_tie {
    int tie;       /* its number in the model */
    int64_t at, n; /* elements of params->grad */
    int norm_of;   /* the layer that its norm counts for: the first use; -1: not here */
} fl_params_tie;

typedef struct fl_params {
    fl_device *device; /* borrowed, as everything up to first */
    fl_stream *stream; /* whose work fills, changes and clears what follows */
    const fl_model *model;
    int first, last;     /* layers first .. last - 1 */
    int first_trainable; /* first <= first_trainable <= last */
    int n_moments;
    int64_t n;              /* elements of all weights, padding included */
    int64_t n_grad;         /* elements of all gradients, padding included */
    float **weight;         /* [last - first], each [elements of the layer] */
    float **moments;        /* [last - first], each [n_moments][elements]; NULL: frozen */
    float *grad;            /* [n_grad] */
    fl_shared *grad_shared; /* where other replicas can look into them; NULL: they cannot */
    fl_layer_params *layer; /* [last - first] */
    int64_t *layer_at;      /* [last - first + 1] elements of the layers before each */
    int64_t *grad_at;       /* [last - first + 1] where its gradients begin, then the first tie's */
    int n_ties;
    fl_params_tie *tie;    /* [n_ties], in the model's order */
    fl_update *update;     /* [n_updates] a step's list: a tensor for each trainable parameter */
    int64_t *update_since; /* [n_updates] the step from which the optimizer counts its steps */
    const int64_t *since;  /* [layers of the model] the same for each layer's moments; borrowed, set
                            * by its owner (fl_parked, migrate.h); NULL: 0 for all */
    int n_updates;
    fl_square_sum *square_sum; /* [last - first + n_ties] the list of the gradient norms' sums */
    double *squares;           /* [last - first + n_ties] their results: device memory, a few bytes
                                * that no budget counts */
    double *tie_square;        /* [n_ties] of ties, host memory */
    bool state_counted;        /* weights and moments count against the device's budget, ... */
    bool grad_counted;         /* ... gradients do; else they are reserved */
} fl_params;

typedef struct fl_params_options {
    fl_device *device;
    fl_stream *stream;
    const fl_model *model;
    int first, last, first_trainable;
    int n_frozen; /* layers of the whole model: which ties train */
    int n_moments;
    const fl_state_source *source; /* of weights and moments; NULL: all are 0, they will come */
    const unsigned char *handed; /* [layers of the model] FL_HANDED_*: left NULL, handed over later;
                                    NULL: allocate all */
    bool reserve;                /* only reserve memory: fl_params_claim_* will count it */
} fl_params_options;

/* *params is the caller's memory; on failure it holds nothing. Returns FL_EBUDGET when the device
 * is full. */
fl_status fl_params_init(fl_params *params, const fl_params_options *options) FL_MUST_CHECK;
void fl_params_fini(fl_params *params);

/* Count what was reserved: weights and moments, or gradients. Nothing happens the second time. */
fl_status fl_params_claim_state(fl_params *params) FL_MUST_CHECK;
fl_status fl_params_claim_grad(fl_params *params) FL_MUST_CHECK;

/* Free the gradients, or the weights and moments that were not taken over. Nothing can be computed
 * afterwards. */
void fl_params_drop_grad(fl_params *params);
void fl_params_drop_state(fl_params *params);

/* Elements of a layer that params hold, padding included. */
int64_t fl_params_layer_count(const fl_params *params, int layer);

/* Let the layer's weights lie in `weight`, which becomes params' own. */
void fl_params_take_weight(fl_params *params, int layer, float *weight);

/* A layer's weights for the host to read [fl_params_layer_count], once the stream has done all its
 * work so far: where they lie, if the device computes in host memory, else a copy in `room`.
 * room  as large, or NULL on a device that computes in host memory */
fl_status fl_params_read_weights(const fl_params *params, int layer, float *room,
                                 const float **out) FL_MUST_CHECK;

/* Where the gradients of `layer` begin in params->grad, in elements, but for those of its tied
 * parameters; `last` gives their end. */
int64_t fl_params_grad_at(const fl_params *params, int layer);

/* Give the stream one optimizer step over everything trainable, then the clearing of the gradients.
 * step counts from 0. AdamW corrects its moments for the steps that made them: those of a layer
 * from params->since, those of a tied parameter from the latest of its uses, because all begin
 * anew when one does. */
fl_status fl_params_step(fl_params *params, const fl_job *job, int64_t step, double lr,
                         double grad_scale) FL_MUST_CHECK;

/* Clear the gradients without a step. */
fl_status fl_params_clear_grad(fl_params *params) FL_MUST_CHECK;

#endif
