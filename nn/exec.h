/* The driver's side of fl_exec: what pipe/ sets before it calls a layer. */
#ifndef FL_NN_EXEC_H
#define FL_NN_EXEC_H

#include "device/device.h"
#include "device/system/arena.h"

#include <frostline/exec.h>
#include <frostline/model.h>

/* What one layer keeps between forward and backward of one micro-batch. */
typedef struct fl_exec_frame {
    fl_tensor in, out;
    void *kept[FL_KEEP_MAX];
} fl_exec_frame;

/* The parameters of one layer as its stage holds them. */
typedef struct fl_layer_params {
    int n;
    fl_weight *weight; /* [n] */
    float **grad;      /* [n]; an element or the array may be NULL: not wanted */
} fl_layer_params;

enum { FL_EXEC_SAMPLE_BYTES = 48 };

struct fl_exec {
    fl_device *device;
    fl_stream *stream;
    const fl_batch *batch;
    bool *batch_asked; /* becomes true with fl_exec_batch; NULL: no matter */
    bool training;     /* false: nothing is kept, no dropout */
    fl_arena *keep;    /* of this micro-batch */
    fl_arena *scratch; /* of this worker */
    /* writes the name of sample `i` of the batch, for messages: text [FL_EXEC_SAMPLE_BYTES]. NULL:
     * the number in batch->sample_ids is the name */
    void (*sample_text)(const void *context, int64_t i, char *text);
    const void *sample_context;
    /* set by fl_exec_forward and fl_exec_backward, and for the loss by its caller: those of the
     * model's last layer; NULL: a loss that asks for parameters fails */
    const fl_layer_params *params;
    /* set by fl_exec_forward and fl_exec_backward */
    int layer;
    fl_exec_frame *frame;
};

/* The name of sample `i` of the batch in a message: "sample 7", "training sample 7". Returns text.
 */
const char *fl_exec_sample_text(const fl_exec *x, int64_t i, char text[FL_EXEC_SAMPLE_BYTES]);

/* Run layer `layer` of the model on `in`; out->data is allocated by the caller. Scratch taken by
 * the layer is given back. Fills *frame. */
fl_status fl_exec_forward(fl_exec *x, const fl_model *model, int layer,
                          const fl_layer_params *params, fl_exec_frame *frame, const fl_tensor *in,
                          fl_tensor *out) FL_MUST_CHECK;

/* The way back, with the frame that forward filled. grad_in may be NULL. */
fl_status fl_exec_backward(fl_exec *x, const fl_model *model, int layer,
                           const fl_layer_params *params, fl_exec_frame *frame,
                           const fl_tensor *grad_out, fl_tensor *grad_in) FL_MUST_CHECK;

/* The loss of the model, as fl_loss_ops.forward describes it. Scratch that it takes is given
 * back. */
fl_status fl_exec_loss(fl_exec *x, const fl_model *model, const fl_tensor *out,
                       const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                       fl_loss_sums *sums) FL_MUST_CHECK;

#endif
