/* One layer on a device, with every byte around it watched: what the layer may write lies between
 * guard bytes, and what it may not write is compared with a copy after each call.
 *
 * A harness holds the values of all samples. Any list of them makes a micro-batch, of which two may
 * be in flight; results come back in the order of the samples, so that they can be compared. */
#ifndef FL_NN_CHECK_HARNESS_H
#define FL_NN_CHECK_HARNESS_H

#include "nn/exec.h"
#include "nn/model.h"

#include <frostline/check.h>

/* Room for what a layer or a loss computes in; held only where it is touched. AddressSanitizer
 * touches an eighth of it, at each allocation. */
#ifdef __SANITIZE_ADDRESS__
#define FL__CHECK_ARENA_BYTES ((size_t)1 << 24)
#else
#define FL__CHECK_ARENA_BYTES ((size_t)1 << 29)
#endif

enum { FL__SLOTS = 2, FL__CHECK_PARAMS_MAX = 64 };

/* n values of 4 bytes between guard bytes. */
typedef struct fl__guarded {
    float *data;
    int64_t n;
    void *whole;
} fl__guarded;

/* A micro-batch between forward and backward. */
typedef struct fl__slot {
    int order[FL_CHECK_SAMPLES_MAX]; /* samples, by their place in the micro-batch */
    int64_t ids[FL_CHECK_SAMPLES_MAX];
    int32_t in_offsets[FL_CHECK_SAMPLES_MAX + 1], out_offsets[FL_CHECK_SAMPLES_MAX + 1];
    fl_batch batch;
    fl_tensor in, out, grad_in, grad_out;
    fl__guarded in_memory, out_memory, grad_in_memory, grad_out_memory;
    float *out_copy; /* what forward wrote */
    fl_exec_frame frame;
    fl_arena keep;
    fl_arena_guard keep_guard;
    void *keep_memory;
} fl__slot;

typedef struct fl__harness {
    const fl_model *model; /* borrowed */
    int layer;
    fl_device *device; /* owned */
    uint64_t seed;
    int64_t epoch, id_shift; /* what samples are called in the micro-batches to come */
    int n_samples;
    fl_shape in_shape, out_shape;             /* width and type; tokens differ */
    int64_t in_row[FL_CHECK_SAMPLES_MAX + 1]; /* sample s has these rows of the input */
    int64_t out_row[FL_CHECK_SAMPLES_MAX + 1];
    float *in;            /* [in_row[n_samples], width] */
    float *weight_of_out; /* R; f = sum of out * R */
    fl_layer_params params;
    fl_weight weight[FL__CHECK_PARAMS_MAX];
    fl__guarded value[FL__CHECK_PARAMS_MAX], grad[FL__CHECK_PARAMS_MAX];
    float *value_copy[FL__CHECK_PARAMS_MAX]; /* what they must be: changed with fl__harness_moved */
    float *grad_copy[FL__CHECK_PARAMS_MAX];
    float *want[FL__CHECK_PARAMS_MAX]; /* grad's data, or NULL: not wanted */
    fl_exec x;
    fl_arena scratch;
    fl_arena_guard scratch_guard;
    void *scratch_memory;
    fl__slot slot[FL__SLOTS];
} fl__harness;

/* shape    [n_samples] what the layer reads of each sample; its widths and types are one
 * input    [rows of all samples, width]; NULL: drawn
 * Returns  FL_ENOMEM, FL_EINVAL for too many parameters, what the layer's shape() gives.
 * fl__harness_fini also after a failure. */
fl_status fl__harness_init(fl__harness *h, const fl_model *model, int layer, const fl_shape *shape,
                           int n_samples, const void *input, uint64_t seed) FL_MUST_CHECK;
void fl__harness_fini(fl__harness *h);

/* Make the samples order[0 .. n - 1] the micro-batch of a slot, in training or not. Nothing is kept
 * of the one before. */
void fl__harness_load(fl__harness *h, int slot, const int *order, int n);

/* Call the layer, then look at all that it could have damaged. FL_EINVAL with a sentence about the
 * call that begins with its name; the layer's own failure is one, too. */
fl_status fl__harness_forward(fl__harness *h, int slot, bool training) FL_MUST_CHECK;
fl_status fl__harness_backward(fl__harness *h, int slot, bool want_input) FL_MUST_CHECK;

/* Copy the slot's results to their samples' places in `to` [rows of all samples, width]. */
void fl__harness_take_out(const fl__harness *h, int slot, float *to);
void fl__harness_take_grad_in(const fl__harness *h, int slot, float *to);

/* Every gradient of a parameter = value; all of them wanted. */
void fl__harness_fill_grads(fl__harness *h, float value);

/* The values of parameter i were changed by the caller. */
void fl__harness_moved(fl__harness *h, int i);

/* f of all samples, without a look at what the call may have damaged. */
fl_status fl__harness_value(fl__harness *h, double *f) FL_MUST_CHECK;

/* Deviates of mean 0 and deviation `scale` from stream `index` of the seed. */
void fl__harness_noise(uint64_t seed, int index, float scale, float *out, int64_t n);

int64_t fl__in_elements(const fl__harness *h);
int64_t fl__out_elements(const fl__harness *h);

#endif
