/* What the last layer of a model gave for samples, in host memory: for `frostline predict`, and for
 * metrics of more than one sample. */
#ifndef FL_PIPE_STEP_OUTPUTS_H
#define FL_PIPE_STEP_OUTPUTS_H

#include "device/device.h"
#include "pipe/step/stage/stage.h"

/* One micro-batch. All is borrowed, and valid during the call that gets it.
 * rows     [offsets[n_samples], width]: sample s has the rows offsets[s] .. offsets[s + 1] - 1
 * losses   [n_samples] of a prediction whose rows say nothing (fl_loss_is_language); else NULL
 * targets  of the data set, with their offsets; host memory */
typedef struct fl_outputs {
    fl_split split;
    const int64_t *ids; /* [n_samples] */
    int64_t n_samples, width;
    const int32_t *offsets;
    const float *rows;
    const fl_loss_sums *losses;
    fl_tensor targets;
} fl_outputs;

typedef fl_status fl_outputs_taker(void *context, const fl_outputs *outputs);

/* Host memory for one micro-batch; a struct of zeros has none yet. */
typedef struct fl_outputs_memory {
    fl_device *device;
    void *rows, *wide; /* as the device has them; bf16 as fp32 */
    size_t rows_bytes, wide_bytes;
} fl_outputs_memory;

/* Copy the outputs of the slot's micro-batch, wait for them, and give them to `take`.
 * losses    as above
 * Returns what `take` returns; FL_ENOMEM; FL_ENOTSUP for outputs that are no floats. */
fl_status fl_outputs_take(fl_outputs_memory *memory, fl_stage *stage, fl_stream *stream, int slot,
                          int n_layers, fl_split split, const fl_loss_sums *losses,
                          fl_outputs_taker *take, void *context) FL_MUST_CHECK;
void fl_outputs_fini(fl_outputs_memory *memory);

#endif
