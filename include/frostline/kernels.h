/* The arguments of the kernels: one struct for each, filled by name. The functions that take them
 * are in exec.h; the table of a device takes the same structs.
 *
 *   fl_linear(x, &(fl_linear_args){.in = in->data, .w = w, .bias = b, .y = y, .m = in->n_tokens});
 *
 * Fields that a call leaves out are zero: NULL, false, FL_F32, FL_ACT_NONE. Shapes stand beside the
 * fields; all matrices are row-major. Everything lies in device memory unless it says `host`.
 *
 * dtype   the type of the activation values, which are `void *` here: FL_F32 or FL_BF16.
 *         Parameters, their gradients, and what a kernel keeps for each row (mean, rstd, lse) are
 *         fp32 in every case. A device that has no kernel for a type refuses the call with
 *         FL_ENOTSUP and the names of both. */
#ifndef FROSTLINE_KERNELS_H
#define FROSTLINE_KERNELS_H

#include <frostline/tensor.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y = f(x), element by element. All forms are PyTorch's. */
typedef enum fl_activation {
    FL_ACT_NONE = 0,
    FL_ACT_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GPT-2's */
    FL_ACT_GELU_ERF,  /* 0.5 x (1 + erf(x / sqrt(2))): BERT's and ViT's */
    FL_ACT_TANH,
    FL_ACT_SILU, /* x / (1 + e^-x) */
} fl_activation;

/* Where the samples of a micro-batch begin, as fl_tensor has it. */
typedef struct fl_offsets {
    const int32_t *host;   /* [n_samples + 1], host memory */
    const int32_t *device; /* the same in device memory */
    int64_t n_samples;
} fl_offsets;

static inline fl_offsets fl_offsets_of(const fl_tensor *t)
{
    fl_offsets offsets = {t->offsets, t->offsets_device, t->n_samples};
    return offsets;
}

/* A random mask for dropout. The layer gives p and stream; fl_exec fills in the rest.
 *
 * A kept value is divided by 1 - p, with p rounded to t / 65536, t <= 65535. Whether a value is
 * kept is a pure function of its key and its place, the same on every device: 16 bits of Philox
 * 4x32-10 are t or more. The key of Philox is the lower and the upper half of k = mix(mix(seed,
 * epoch), layer << 32 | stream), where mix is fl_mix64 (device/random/random.h).
 *
 * In dropout, element e of a sample s (row within the sample * width + column) takes the half
 * (e / 16) % 2, the lower first, of word e % 4 of the block b = 4 (e / 32) + (e % 16) / 4, whose
 * counter is {lo32(b), hi32(b), lo32(s), hi32(s)}.
 *
 * In attention, the probability of query row i and key row j of head h takes the half j % 2, the
 * lower first, of word (j % 8) / 2 of the block with the counter {j / 8, i, lo32(s), hi32(s)}; the
 * key is that of mix(k, h). */
typedef struct fl_mask {
    float p;        /* the share that is dropped, 0 <= p < 1; 0: no mask */
    int32_t stream; /* tells several masks of one layer apart */
    int32_t layer;
    int64_t epoch;
    uint64_t seed;
    const int64_t *sample_ids;        /* [n_samples], host memory */
    const int64_t *sample_ids_device; /* the same in device memory */
    /* mix(seed, epoch) in device memory, read when the kernel runs: work that was captured once
     * draws anew in each epoch. NULL: seed and epoch hold */
    const uint64_t *epoch_key_device;
} fl_mask;

/* ---- matrix products; weights are [n_out, n_in] as in the field's checkpoints ---- */

/* y = activation(residual + in w^T + bias). residual and activation exclude each other. */
typedef struct fl_linear_args {
    fl_dtype dtype;
    const void *in;        /* [m, n_in] */
    fl_weight *w;          /* [n_out, n_in] */
    const fl_weight *bias; /* [n_out], or NULL */
    const void *residual;  /* [m, n_out], or NULL; may be y */
    fl_activation activation;
    void *pre; /* [m, n_out] out: the sum before the activation; NULL if no backward follows */
    void *y;   /* [m, n_out] out */
    int64_t m;
} fl_linear_args;

/* grad_in = grad_out w */
typedef struct fl_linear_backward_input_args {
    fl_dtype dtype;
    const void *grad_out; /* [m, n_out] */
    fl_weight *w;         /* [n_out, n_in] */
    void *grad_in;        /* [m, n_in] out */
    int64_t m;
} fl_linear_backward_input_args;

/* grad_w += grad_out^T in;  grad_bias += column sums of grad_out */
typedef struct fl_linear_backward_weights_args {
    fl_dtype dtype;
    const void *grad_out; /* [m, n_out] */
    const void *in;       /* [m, n_in] */
    float *grad_w;        /* [n_out, n_in], added to; or NULL */
    float *grad_bias;     /* [n_out], added to; or NULL */
    int64_t m, n_out, n_in;
} fl_linear_backward_weights_args;

/* ---- passes over memory ---- */

/* y = activation(in) */
typedef struct fl_activate_args {
    fl_dtype dtype;
    fl_activation activation;
    const void *in; /* [n] */
    void *y;        /* [n] out; may be in */
    int64_t n;
} fl_activate_args;

/* grad_pre = grad_y * the slope of the activation at pre. `y` gives the activation of pre once
 * more, for a layer that kept only pre: it costs next to nothing here and saves keeping y. */
typedef struct fl_activate_backward_args {
    fl_dtype dtype;
    fl_activation activation;
    const void *grad_y; /* [n] */
    const void *pre;    /* [n] */
    void *grad_pre;     /* [n] out; may be grad_y */
    void *y;            /* [n] out, not grad_y; or NULL */
    int64_t n;
} fl_activate_backward_args;

/* LayerNorm: sum = in + residual, y = (sum - mean) rstd gamma + beta for each row, with rstd =
 * 1 / sqrt(variance + epsilon).
 * RMSNorm: y = sum rstd gamma, with rstd = 1 / sqrt(mean square + epsilon); beta and mean are not
 * used. */
typedef struct fl_norm_args {
    fl_dtype dtype;
    const void *in;       /* [m, n] */
    const void *residual; /* [m, n], or NULL */
    const fl_weight *gamma;
    const fl_weight *beta;
    float epsilon;
    void *sum;   /* [m, n] out, or NULL; may be in */
    void *y;     /* [m, n] out; may be in where sum is NULL */
    float *mean; /* [m] out; NULL if no backward follows */
    float *rstd; /* [m] out; NULL if no backward follows */
    int64_t m, n;
} fl_norm_args;

/* grad_in = grad_residual + the gradient at `in`, the sum that was normalized. */
typedef struct fl_norm_backward_args {
    fl_dtype dtype;
    const void *grad_y; /* [m, n] */
    const void *in;     /* [m, n] */
    const fl_weight *gamma;
    const float *mean;         /* [m]; LayerNorm */
    const float *rstd;         /* [m] */
    const void *grad_residual; /* [m, n], or NULL; may be grad_in */
    void *grad_in;             /* [m, n] out, or NULL; may be grad_y */
    float *grad_gamma;         /* [n], added to; or NULL */
    float *grad_beta;          /* [n], added to; or NULL; LayerNorm */
    int64_t m, n;
} fl_norm_backward_args;

/* Softmax attention within each sample, all heads. Rows of qkv hold q, k and v one after another,
 * each as `heads` runs of width / heads. With a mask, probabilities are dropped after the softmax,
 * as in BERT and GPT-2. */
typedef struct fl_attention_args {
    fl_dtype dtype;
    const void *qkv; /* [n_tokens, 3 width] */
    fl_offsets offsets;
    int64_t heads, width; /* heads divides width */
    bool causal;          /* hides later tokens */
    float scale;          /* of the scores; 0: 1 / sqrt(width / heads) */
    fl_mask mask;
    void *y;    /* [n_tokens, width] out */
    float *lse; /* [n_tokens, heads] out: log of the sum of the exponentials of each row's scores;
                 * NULL if no backward follows */
} fl_attention_args;

typedef struct fl_attention_backward_args {
    fl_attention_args forward; /* as in the forward call; y and lse are read */
    const void *grad_y;        /* [n_tokens, width] */
    void *grad_qkv;            /* [n_tokens, 3 width] out */
} fl_attention_backward_args;

/* y = in * mask / (1 - p). The same call with the gradient of y as `in` is the backward. */
typedef struct fl_dropout_args {
    fl_dtype dtype;
    const void *in; /* [n_tokens, width] */
    fl_offsets offsets;
    int64_t width;
    fl_mask mask;
    void *y; /* [n_tokens, width] out; may be in */
} fl_dropout_args;

/* y = a + b */
typedef struct fl_add_args {
    fl_dtype dtype;
    const void *a, *b; /* [n] */
    void *y;           /* [n] out; may be a or b */
    int64_t n;
} fl_add_args;

/* y = in in another type; bf16 is rounded to the nearest, ties to even */
typedef struct fl_convert_args {
    const void *in; /* [n] of type `from` */
    void *y;        /* [n] of type `to`, out; overlaps `in` nowhere */
    fl_dtype from, to;
    int64_t n;
} fl_convert_args;

/* ---- rows moved about ---- */

/* y[i] = in[index[i]] */
typedef struct fl_gather_rows_args {
    fl_dtype dtype;
    const void *in;       /* [any, width] */
    const int32_t *index; /* [n_rows] */
    void *y;              /* [n_rows, width] out */
    int64_t n_rows, width;
} fl_gather_rows_args;

/* y = 0, then y[index[i]] = in[i]. No index comes twice. */
typedef struct fl_scatter_rows_args {
    fl_dtype dtype;
    const void *in;       /* [n_rows, width] */
    const int32_t *index; /* [n_rows] */
    void *y;              /* [total_rows, width] out */
    int64_t n_rows, total_rows, width;
} fl_scatter_rows_args;

enum { FL_EMBED_TABLES = 3 };

/* One table of an embedding, and which of its rows belongs to each row of y. */
typedef struct fl_embed_table {
    const fl_weight *weight; /* [rows, width] */
    float *grad;             /* [rows, width], for the backward: added to; or NULL */
    const int32_t *ids;      /* the id of row i is ids[i * stride]; NULL: its place in its sample */
    int64_t stride;          /* 0: every row has the id ids[0] */
    bool skips;              /* the backward adds nothing to the row `skipped` of grad */
    int64_t skipped;
} fl_embed_table;

/* y = the sum of one row of each table: tokens, or tokens and positions, or these and types.
 * FL_EINVAL, on a device that computes in host memory, for an id that the table does not have. */
typedef struct fl_embed_args {
    fl_dtype dtype;
    fl_offsets offsets;
    fl_embed_table table[FL_EMBED_TABLES];
    int n_tables;
    int64_t width;
    void *y; /* [n_tokens, width] out */
} fl_embed_args;

/* Every table's gradient gets the rows of grad_y one after another, so that its bits depend on the
 * rows and their order alone. */
typedef struct fl_embed_backward_args {
    fl_embed_args forward; /* as in the forward call; y is not used */
    const void *grad_y;    /* [n_tokens, width] */
} fl_embed_backward_args;

/* Cut images into patches, in rows, then columns; height and width are multiples of patch. patchify
 * writes `patches`, patchify_backward writes `images`: the same pixels moved the other way. */
typedef struct fl_patchify_args {
    fl_dtype dtype;
    void *images;  /* [n, channels * height * width] */
    void *patches; /* [n * patches, channels * patch * patch] */
    int64_t n, channels, height, width, patch;
} fl_patchify_args;

/* y[s, 0] = cls + pos[0] and y[s, 1 + p] = patches[s, p] + pos[1 + p] */
typedef struct fl_vit_assemble_args {
    fl_dtype dtype;
    const void *patches;  /* [n * n_patches, dim] */
    const fl_weight *cls; /* [1, dim] */
    const fl_weight *pos; /* [n_patches + 1, dim] */
    void *y;              /* [n * (n_patches + 1), dim] out */
    int64_t n, n_patches, dim;
} fl_vit_assemble_args;

typedef struct fl_vit_assemble_backward_args {
    fl_dtype dtype;
    const void *grad_y; /* [n * (n_patches + 1), dim] */
    void *grad_patches; /* [n * n_patches, dim] out, or NULL */
    float *grad_cls;    /* [dim], added to; or NULL */
    float *grad_pos;    /* [n_patches + 1, dim], added to; or NULL */
    int64_t n, n_patches, dim;
} fl_vit_assemble_backward_args;

/* ---- losses; each sum is added to, and may be NULL but for the loss ---- */

/* Softmax cross-entropy of each row against one class. A row with a target below 0 is ignored: its
 * gradient is 0, and it counts nowhere. */
typedef struct fl_cross_entropy_args {
    fl_dtype dtype;
    const void *logits;     /* [m, n] */
    const int32_t *targets; /* [m], below n_classes */
    float grad_scale;
    void *grad;         /* [m, n] out: grad_scale * (softmax - onehot); may be logits; or NULL */
    double *loss;       /* sum over rows */
    double *n_correct;  /* rows whose largest logit is the target's */
    double *n_counted;  /* rows that are not ignored */
    double *n_positive; /* of these, rows whose largest logit is that of class 1, */
    double *n_true_positive; /* and those of them whose target is class 1 */
    int64_t m, n;
    int64_t n_classes; /* 1 .. n: the columns from here on are padding, which is not read and has
                        * the gradient 0; 0: n */
} fl_cross_entropy_args;

/* Softmax cross-entropy over the tokens of each sample, one for each column: column 0 may tell
 * where an answer begins and column 1 where it ends (SQuAD). A target is the row within its sample;
 * below 0 it is ignored. */
typedef struct fl_span_cross_entropy_args {
    fl_dtype dtype;
    const void *logits; /* [n_tokens, columns] */
    fl_offsets offsets;
    const int32_t *targets; /* [n_samples, columns] */
    int64_t columns;
    float grad_scale;
    void *grad; /* [n_tokens, columns] out, or NULL */
    double *loss, *n_correct, *n_counted;
} fl_span_cross_entropy_args;

/* Squared error of each element of the output against one value. */
typedef struct fl_squared_error_args {
    fl_dtype dtype;
    const void *out;      /* [n] */
    const float *targets; /* [n] */
    float grad_scale;
    void *grad;           /* [n] out: grad_scale * 2 (out - targets); or NULL */
    double *square_sum;   /* the loss */
    double *absolute_sum; /* of |out - targets| */
    int64_t n;
} fl_squared_error_args;

#ifdef __cplusplus
}
#endif
#endif
