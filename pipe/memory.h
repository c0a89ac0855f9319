/* What a stage needs, counted before anything is allocated by running its layers on the null
 * device; the stage then allocates just that. */
#ifndef FL_PIPE_MEMORY_H
#define FL_PIPE_MEMORY_H

#include <frostline/plan.h>

typedef struct fl_stage_memory {
    int64_t params_bytes; /* weights, gradients and moments */
    int64_t slot_bytes;   /* one micro-batch in flight */
    int64_t n_slots;
    int64_t scratch_bytes; /* temporaries and gradients under way */
    int64_t channel_bytes; /* send and receive buffers */
    int64_t total_bytes;
} fl_stage_memory;

/* n_samples of shape `input` through layers first .. last - 1 (with the loss if last is the end):
 * kept [last - first] out may be NULL.
 * Threads: any that holds the model. */
typedef struct fl_layer_memory {
    int64_t kept_bytes;    /* output and what it keeps */
    int64_t scratch_bytes; /* of its own forward and backward */
    int64_t in_bytes, out_bytes;
} fl_layer_memory;

/* memory [n_layers] out, for a micro-batch of n_samples samples of shape `input`. */
fl_status fl_memory_measure(const fl_model *model, const fl_shape *input, int64_t n_samples,
                            fl_layer_memory *memory) FL_MUST_CHECK;

/* Put together what stage [first, last) of a pipeline of K needs. Pure. */
void fl_memory_stage(const fl_model *model, const fl_job *job, const fl_layer_memory *memory,
                     fl_schedule schedule, int K, int M, int stage, int first, int last,
                     fl_stage_memory *out);

#endif
