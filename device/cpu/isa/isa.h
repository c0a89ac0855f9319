/* The passes over memory that exist once for each instruction set. They work on a range of rows or
 * elements in the calling thread; the files of device/cpu split the
 * work over threads. */
#ifndef FL_DEVICE_CPU_ISA_ISA_H
#define FL_DEVICE_CPU_ISA_ISA_H

#include "device/device.h"

/* One (sample, head): pointers stand at its first token and column. Rows of q, k, v and of their
 * gradients are 3 * width apart, rows of y and grad_y width, lse one head of `heads`. */
typedef struct fl__attention_head {
    const float *q, *k, *v;
    const float *grad_y; /* backward */
    float *grad_q, *grad_k, *grad_v;
    float *y;            /* forward */
    float *lse;          /* forward; may be NULL */
    const float *lse_in; /* backward: what forward gave */
    int64_t n_tokens, head_dim, width, heads;
    bool causal;
    float scale;          /* of the scores */
    float drop;           /* the share of the probabilities that is dropped */
    uint32_t drop_key[2]; /* of this head; see fl_mask */
    int64_t sample;
} fl__attention_head;

/* pre = start + a b + bias and y = activation(pre).
 * a: element (i, k) of [m, k] is a[i * a_row + k * a_k]; b: element (k, j) of [k, n] is
 * b[k * b_k + j * b_col], where one of the two strides is 1. start (or NULL), pre (or NULL) and y
 * are [m, n]; start may be y. a_sums [m] or NULL is
 * added to: the sums of a over k, where a_row is 1.
 * Nothing happens when m, n or k is 0. bias [n] or NULL. */
typedef struct fl__gemm {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_k;
    const float *b;
    int64_t b_k, b_col;
    const float *start, *bias;
    fl_activation activation;
    float *pre, *y, *a_sums;
} fl__gemm;

/* The same for a and, but for b_type, b in bf16; b is fp32 where b_col is not 1. Rows of a are one
 * number apart (a_row is 1), or their depth is contiguous. Sums are fp32.
 * They go rounded to y, pre and y as above in bf16; or y is NULL, and `sums` [m, n] is added to,
 * without bias, start and activation. */
typedef struct fl__gemm_bf16 {
    int64_t m, n, k;
    const uint16_t *a;
    int64_t a_row, a_k;
    const void *b;
    fl_dtype b_type;
    int64_t b_k, b_col;
    const uint16_t *start;
    const float *bias;
    fl_activation activation;
    uint16_t *pre, *y;
    float *sums, *a_sums;
} fl__gemm_bf16;

/* `type` is that of the arguments that are `void *`. */
typedef struct fl__isa {
    const char *name;

    size_t (*gemm_workspace)(void); /* bytes */
    void (*gemm)(const fl__gemm *g, float *workspace);
    size_t (*gemm_bf16_workspace)(const fl__gemm_bf16 *g);
    void (*gemm_bf16)(const fl__gemm_bf16 *g, void *workspace);
    void (*column_sums)(const float *x, int64_t stride, float *sums, int64_t m, int64_t n);
    void (*activate)(fl_activation kind, fl_dtype type, const void *in, void *y, int64_t n);
    /* y may be NULL */
    void (*activate_backward)(fl_activation kind, fl_dtype type, const void *grad_y,
                              const void *pre, void *grad_pre, void *y, int64_t n);
    void (*layernorm)(fl_dtype type, const void *in, const void *residual, const float *gamma,
                      const float *beta, float eps, void *sum, void *y, float *mean, float *rstd,
                      int64_t m, int64_t n);
    /* parts[2 n]: sums for gamma, then beta; written */
    void (*layernorm_backward)(fl_dtype type, const void *grad_y, const void *in,
                               const float *gamma, const float *mean, const float *rstd,
                               const void *grad_residual, void *grad_in, float *parts, int64_t m,
                               int64_t n);
    void (*rmsnorm)(const float *in, const float *residual, const float *gamma, float eps,
                    float *sum, float *y, float *rstd, int64_t m, int64_t n);
    /* parts[n]: sums for gamma; written */
    void (*rmsnorm_backward)(const float *grad_y, const float *in, const float *gamma,
                             const float *rstd, const float *grad_residual, float *grad_in,
                             float *parts, int64_t m, int64_t n);
    size_t (*attention_workspace)(int64_t n_tokens, int64_t head_dim, bool backward);
    void (*attention)(const fl__attention_head *h, float *workspace);
    void (*attention_backward)(const fl__attention_head *h, float *workspace);
    void (*dropout)(const float *in, const uint32_t key[2], int64_t sample, float p, float *y,
                    int64_t n);
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    void (*add_bf16)(const uint16_t *a, const uint16_t *b, uint16_t *y, int64_t n);
    /* One row: its loss, and whether the target had the highest logit. grad may be NULL. */
    double (*cross_entropy)(const float *logits, int32_t target, int64_t n, float grad_scale,
                            float *grad, bool *correct);
    void (*adamw)(float *w, const float *g, float *m, float *v, int64_t n, float weight_decay,
                  const fl_adamw_step *step);
    void (*sgd)(float *w, const float *g, float *momentum, int64_t n, float weight_decay,
                const fl_sgd_step *step);
    double (*sum_squares)(const float *g, int64_t n);
    void (*narrow)(const float *from, uint16_t *to, int64_t n); /* device/cpu/bf16.h */
    void (*widen)(const void *from, float *to, int64_t n);
    /* [rows, cols] between matrices whose rows are from_row and to_row elements apart */
    void (*narrow_rows)(const float *from, int64_t from_row, uint16_t *to, int64_t to_row,
                        int64_t rows, int64_t cols);
    void (*widen_rows)(const uint16_t *from, int64_t from_row, float *to, int64_t to_row,
                       int64_t rows, int64_t cols);
} fl__isa;

#endif
