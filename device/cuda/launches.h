/* The kernels as C calls them: each function starts one kernel of the device table on a stream. The
 * sources in device/cuda/kernels are CUDA C; nothing here is. */
#ifndef FL_DEVICE_CUDA_LAUNCHES_H
#define FL_DEVICE_CUDA_LAUNCHES_H

#include "device/updates.h"

#include <frostline/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a launch goes. workspace: device memory that belongs to the stream's work, 256-byte
 * aligned.
 */
typedef struct fl__cuda_queue {
    void *stream; /* a cudaStream_t */
    void *workspace;
    size_t workspace_bytes;
    size_t needed_bytes; /* out, with FL__CUDA_MORE */
} fl__cuda_queue;

/* What a launch returns: 0, an error code of the CUDA runtime, which is positive, or this: nothing
 * was started, because the workspace has less than needed_bytes. */
enum { FL__CUDA_MORE = -1 };

/* CASE(kernel, its argument struct). bf16 and fp32 where kernels.h has a dtype; linear and
 * linear_backward_* are fp32. Heads of attention have at most FL__CUDA_HEAD_MAX columns. */
enum { FL__CUDA_HEAD_MAX = 128 };

#define FL__CUDA_KERNELS(CASE)                                                                     \
    CASE(activate, fl_activate_args)                                                               \
    CASE(activate_backward, fl_activate_backward_args)                                             \
    CASE(add, fl_add_args)                                                                         \
    CASE(attention, fl_attention_args)                                                             \
    CASE(attention_backward, fl_attention_backward_args)                                           \
    CASE(convert, fl_convert_args)                                                                 \
    CASE(cross_entropy, fl_cross_entropy_args)                                                     \
    CASE(dropout, fl_dropout_args)                                                                 \
    CASE(embed, fl_embed_args)                                                                     \
    CASE(embed_backward, fl_embed_backward_args)                                                   \
    CASE(gather_rows, fl_gather_rows_args)                                                         \
    CASE(layernorm, fl_norm_args)                                                                  \
    CASE(layernorm_backward, fl_norm_backward_args)                                                \
    CASE(linear, fl_linear_args)                                                                   \
    CASE(linear_backward_input, fl_linear_backward_input_args)                                     \
    CASE(linear_backward_weights, fl_linear_backward_weights_args)                                 \
    CASE(patchify, fl_patchify_args)                                                               \
    CASE(patchify_backward, fl_patchify_args)                                                      \
    CASE(rmsnorm, fl_norm_args)                                                                    \
    CASE(rmsnorm_backward, fl_norm_backward_args)                                                  \
    CASE(scatter_rows, fl_scatter_rows_args)                                                       \
    CASE(span_cross_entropy, fl_span_cross_entropy_args)                                           \
    CASE(squared_error, fl_squared_error_args)                                                     \
    CASE(vit_assemble, fl_vit_assemble_args)                                                       \
    CASE(vit_assemble_backward, fl_vit_assemble_backward_args)

#define FL__CUDA_DECLARE(kernel, args) int fl__cuda_##kernel(fl__cuda_queue *q, const args *a);
FL__CUDA_KERNELS(FL__CUDA_DECLARE)
#undef FL__CUDA_DECLARE

/* *sum += value */
int fl__cuda_add_to_sum(fl__cuda_queue *q, double value, double *sum);

/* Lists are read before the call returns. */
int fl__cuda_adamw_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_adamw_step *step);
int fl__cuda_sgd_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_sgd_step *step);
int fl__cuda_sum_squares_many(fl__cuda_queue *q, const fl_square_sum *list, int n);

#ifdef __cplusplus
}
#endif
#endif
