/* Names of this instruction set's passes, for the table. Their meaning: isa.h. */
#ifndef FL_DEVICE_CPU_ISA_PASSES_H
#define FL_DEVICE_CPU_ISA_PASSES_H

#include "device/cpu/isa/isa.h"
#include "device/cpu/isa/simd.h"

size_t FL_ISA_NAME(gemm_workspace)(void);
void FL_ISA_NAME(gemm)(const fl__gemm *g, float *workspace);
size_t FL_ISA_NAME(gemm_bf16_workspace)(const fl__gemm_bf16 *g);
void FL_ISA_NAME(gemm_bf16)(const fl__gemm_bf16 *g, void *workspace);
void FL_ISA_NAME(column_sums)(const float *x, int64_t stride, float *sums, int64_t m, int64_t n);
void FL_ISA_NAME(activate)(fl_activation kind, fl_dtype type, const void *in, void *y, int64_t n);
void FL_ISA_NAME(activate_backward)(fl_activation kind, fl_dtype type, const void *grad_y,
                                    const void *pre, void *grad_pre, void *y, int64_t n);
void FL_ISA_NAME(layernorm)(fl_dtype type, const void *in, const void *residual, const float *gamma,
                            const float *beta, float eps, void *sum, void *y, float *mean,
                            float *rstd, int64_t m, int64_t n);
void FL_ISA_NAME(layernorm_backward)(fl_dtype type, const void *grad_y, const void *in,
                                     const float *gamma, const float *mean, const float *rstd,
                                     const void *grad_residual, void *grad_in, float *parts,
                                     int64_t m, int64_t n);
void FL_ISA_NAME(rmsnorm)(const float *in, const float *residual, const float *gamma, float eps,
                          float *sum, float *y, float *rstd, int64_t m, int64_t n);
void FL_ISA_NAME(rmsnorm_backward)(const float *grad_y, const float *in, const float *gamma,
                                   const float *rstd, const float *grad_residual, float *grad_in,
                                   float *parts, int64_t m, int64_t n);
size_t FL_ISA_NAME(attention_workspace)(int64_t n_tokens, int64_t head_dim, bool backward);
void FL_ISA_NAME(attention)(const fl__attention_head *h, float *workspace);
void FL_ISA_NAME(attention_backward)(const fl__attention_head *h, float *workspace);
void FL_ISA_NAME(dropout)(const float *in, const uint32_t key[2], int64_t sample, float p, float *y,
                          int64_t n);
void FL_ISA_NAME(add)(const float *a, const float *b, float *y, int64_t n);
void FL_ISA_NAME(add_bf16)(const uint16_t *a, const uint16_t *b, uint16_t *y, int64_t n);
double FL_ISA_NAME(cross_entropy)(const float *logits, int32_t target, int64_t n, float grad_scale,
                                  float *grad, bool *correct);
void FL_ISA_NAME(adamw)(float *w, const float *g, float *m, float *v, int64_t n, float weight_decay,
                        const fl_adamw_step *step);
void FL_ISA_NAME(sgd)(float *w, const float *g, float *momentum, int64_t n, float weight_decay,
                      const fl_sgd_step *step);
double FL_ISA_NAME(sum_squares)(const float *g, int64_t n);
void FL_ISA_NAME(narrow)(const float *from, uint16_t *to, int64_t n);
void FL_ISA_NAME(widen)(const void *from, float *to, int64_t n);
void FL_ISA_NAME(narrow_rows)(const float *from, int64_t from_row, uint16_t *to, int64_t to_row,
                              int64_t rows, int64_t cols);
void FL_ISA_NAME(widen_rows)(const uint16_t *from, int64_t from_row, float *to, int64_t to_row,
                             int64_t rows, int64_t cols);

#endif
