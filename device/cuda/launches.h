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

/* CASE(kernel, its argument struct). bf16 and fp32 where kernels.h has a dtype. Heads of attention
 * have at most FL__CUDA_HEAD_MAX columns. */
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
    CASE(patchify, fl_patchify_args)                                                               \
    CASE(patchify_backward, fl_patchify_args)                                                      \
    CASE(rmsnorm, fl_norm_args)                                                                    \
    CASE(rmsnorm_backward, fl_norm_backward_args)                                                  \
    CASE(scatter_rows, fl_scatter_rows_args)                                                       \
    CASE(span_cross_entropy, fl_span_cross_entropy_args)                                           \
    CASE(squared_error, fl_squared_error_args)                                                     \
    CASE(vit_assemble, fl_vit_assemble_args)                                                       \
    CASE(vit_assemble_backward, fl_vit_assemble_backward_args)

/* y = activation(added + a b + bias): one product of matrices, all row-major. What the kernel and
 * the library take of it stands at each. */
typedef struct fl__cuda_product {
    const void *a; /* [rows, depth]; [depth, rows] if it is transposed */
    const void *b; /* [depth, cols]; [cols, depth] if it is transposed */
    bool a_transposed, b_transposed;
    fl_dtype a_dtype, b_dtype, y_dtype; /* y's is that of added and pre too */
    int64_t rows, cols, depth;
    const void *added; /* [rows, cols], or NULL; may be y */
    const void *bias;  /* [cols], or NULL */
    fl_activation activation;
    void *pre; /* [rows, cols] out: the sum before the activation; or NULL */
    void *y;   /* [rows, cols] out */
} fl__cuda_product;

/* sums[j] += the sum of column j */
typedef struct fl__cuda_column_sums_args {
    fl_dtype dtype;
    const void *x; /* [m, n] */
    float *sums;   /* [n] */
    int64_t m, n;
} fl__cuda_column_sums_args;

/* Of these the kernels of linear are made (device/cuda/products.c). multiply: the project's own
 * kernel; a, b and y are fp32; or a and y bf16 and b fp32; or a and b bf16 and y fp32. The bias is
 * fp32. */
#define FL__CUDA_PRODUCTS(CASE)                                                                    \
    CASE(multiply, fl__cuda_product)                                                               \
    CASE(column_sums, fl__cuda_column_sums_args)

/* Products by cuBLASLt, of one device. */
typedef struct fl__cuda_library fl__cuda_library;

enum {
    FL__CUDA_NO_PRODUCT = -2, /* the library has no algorithm for a product: nothing was started */
    FL__CUDA_NO_LIBRARY = -3, /* it cannot be loaded */
};

/* Every launch that takes one struct. */
#define FL__CUDA_LAUNCHES(CASE)                                                                    \
    FL__CUDA_KERNELS(CASE)                                                                         \
    FL__CUDA_PRODUCTS(CASE)

#define FL__CUDA_DECLARE(kernel, args) int fl__cuda_##kernel(fl__cuda_queue *q, const args *a);
FL__CUDA_LAUNCHES(FL__CUDA_DECLARE)
#undef FL__CUDA_DECLARE

/* *sum += value */
int fl__cuda_add_to_sum(fl__cuda_queue *q, double value, double *sum);

/* y by cuBLASLt. a and b have one type, the bias that of y; the activation is GELU's tanh form or
 * none; rows and depth are at least 1. The library is asked for an algorithm once for each shape;
 * its answers are kept. Threads: any. FL__CUDA_NO_PRODUCT if it has none. */
int fl__cublaslt_multiply(fl__cuda_library *library, fl__cuda_queue *q, const fl__cuda_product *p);
int fl__cublaslt_close(fl__cuda_library *library);

/* The answers as lines of text that end with a zero; *needed_bytes: how long it is with it. What
 * does not fit is left out, by whole lines. text: NULL where size_bytes is 0 */
int fl__cublaslt_save(fl__cuda_library *library, char *text, size_t size_bytes,
                      size_t *needed_bytes);

/* Answers of an earlier process. Those of another version of the library, and lines that are none,
 * are left out. *n_taken counts the others. */
int fl__cublaslt_take(fl__cuda_library *library, const char *text, int *n_taken);

/* Lists are read before the call returns. */
int fl__cuda_adamw_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_adamw_step *step);
int fl__cuda_sgd_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_sgd_step *step);
int fl__cuda_sum_squares_many(fl__cuda_queue *q, const fl_square_sum *list, int n);

#ifdef __cplusplus
}
#endif
#endif
