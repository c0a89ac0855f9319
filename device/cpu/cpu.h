/* Inside the CPU device: what its kernels share. */
#ifndef FL_DEVICE_CPU_CPU_H
#define FL_DEVICE_CPU_CPU_H

#include "device/cpu/isa/isa.h"
#include "device/device.h"

/* scratch: one piece of scratch_bytes a thread, grown when a kernel first needs more; it lies
 * outside the device's budget. */
typedef struct fl__cpu {
    fl_device base;
    const fl__isa *isa;
    unsigned char *scratch;
    size_t scratch_bytes;
} fl__cpu;

static inline fl__cpu *fl__cpu_of(fl_device *d)
{
    return (fl__cpu *)d;
}

/* Streams mean nothing here: every kernel is done when it returns. */
#define FL__UNUSED __attribute__((unused))

/* Let every thread have at least size_bytes of scratch; what it held is lost. */
fl_status fl__cpu_reserve(fl__cpu *cpu, size_t size_bytes) FL_MUST_CHECK;

static inline void *fl__cpu_scratch(const fl__cpu *cpu, int thread)
{
    return cpu->scratch + (size_t)thread * cpu->scratch_bytes;
}

/* Use the passes of the instruction set `name` (baseline, avx2, avx512) from now on, for tests and
 * comparisons. FL_ENOTSUP if this processor or build has none of that name. */
fl_status fl__cpu_isa_set(fl_device *d, const char *name) FL_MUST_CHECK;

/* The best that this processor has. */
const fl__isa *fl__cpu_best_isa(void);

/* The part of [0, n) that thread `i` of `parts` takes, cut at multiples of `grain`. */
typedef struct fl__range {
    int64_t begin, end;
} fl__range;

static inline fl__range fl__range_of(int64_t n, int64_t grain, int parts, int i)
{
    int64_t grains = (n + grain - 1) / grain;
    int64_t begin = grains * i / parts * grain;
    int64_t end = grains * (i + 1) / parts * grain;
    return (fl__range){begin < n ? begin : n, end < n ? end : n};
}

/* A loop whose body runs once on each compute thread, under the number `t`. */
#define FL__PRAGMA_(text) _Pragma(#text)
#define FL__PRAGMA(text) FL__PRAGMA_(text)
#define FL__EACH_THREAD(cpu, t)                                                                    \
    FL__PRAGMA(omp parallel for schedule(static, 1) num_threads((cpu)->base.n_threads))            \
    for (int t = 0; t < (cpu)->base.n_threads; t++)

/* ---- the kernels, by file ---- */

/* matmul.c */
fl_status fl__cpu_linear(fl_device *d, fl_stream *s, const float *in, fl_weight *w,
                         const float *bias, const float *residual, bool gelu, float *pre, float *y,
                         int64_t m);
fl_status fl__cpu_linear_backward_input(fl_device *d, fl_stream *s, const float *grad_out,
                                        fl_weight *w, float *grad_in, int64_t m);
fl_status fl__cpu_linear_backward_weights(fl_device *d, fl_stream *s, const float *grad_out,
                                          const float *in, float *grad_w, float *grad_bias,
                                          int64_t m, int64_t n_out, int64_t n_in);

/* passes.c */
fl_status fl__cpu_gelu_backward(fl_device *d, fl_stream *s, const float *grad_y, const float *pre,
                                float *grad_pre, float *y, int64_t n);
fl_status fl__cpu_layernorm(fl_device *d, fl_stream *s, const float *in, const float *residual,
                            const float *gamma, const float *beta, float eps, float *sum, float *y,
                            float *mean, float *rstd, int64_t m, int64_t n);
fl_status fl__cpu_layernorm_backward(fl_device *d, fl_stream *s, const float *grad_y,
                                     const float *in, const float *gamma, const float *mean,
                                     const float *rstd, const float *grad_residual, float *grad_in,
                                     float *grad_gamma, float *grad_beta, int64_t m, int64_t n);
fl_status fl__cpu_dropout(fl_device *d, fl_stream *s, const float *in, const int32_t *offsets,
                          const int64_t *sample_ids, int64_t n_samples, int64_t width, float p,
                          const fl_rng_key *key, float *y);
fl_status fl__cpu_add(fl_device *d, fl_stream *s, const float *a, const float *b, float *y,
                      int64_t n);

/* attention.c */
fl_status fl__cpu_attention(fl_device *d, fl_stream *s, const float *qkv, const int32_t *offsets,
                            int64_t n_samples, int64_t heads, int64_t width, bool causal, float *y,
                            float *lse);
fl_status fl__cpu_attention_backward(fl_device *d, fl_stream *s, const float *grad_y,
                                     const float *qkv, const float *y, const float *lse,
                                     const int32_t *offsets, int64_t n_samples, int64_t heads,
                                     int64_t width, bool causal, float *grad_qkv);

/* rows.c */
fl_status fl__cpu_gather_rows(fl_device *d, fl_stream *s, const float *in, const int32_t *index,
                              int64_t n_rows, int64_t width, float *y);
fl_status fl__cpu_scatter_rows(fl_device *d, fl_stream *s, const float *in, const int32_t *index,
                               int64_t n_rows, int64_t width, float *y, int64_t total_rows);
fl_status fl__cpu_patchify(fl_device *d, fl_stream *s, const float *images, int64_t n,
                           int64_t channels, int64_t height, int64_t width, int64_t patch,
                           float *y);
fl_status fl__cpu_vit_assemble(fl_device *d, fl_stream *s, const float *patches, const float *cls,
                               const float *pos, int64_t n, int64_t n_patches, int64_t dim,
                               float *y);
fl_status fl__cpu_vit_assemble_backward(fl_device *d, fl_stream *s, const float *grad_y, int64_t n,
                                        int64_t n_patches, int64_t dim, float *grad_patches,
                                        float *grad_cls, float *grad_pos);

/* reduce.c */
fl_status fl__cpu_cross_entropy(fl_device *d, fl_stream *s, const float *logits,
                                const int32_t *targets, int64_t m, int64_t n, float grad_scale,
                                float *grad, double *loss_sum, double *n_correct);
fl_status fl__cpu_adamw(fl_device *d, fl_stream *s, float *w, const float *g, float *m, float *v,
                        int64_t n, const fl_adamw_step *step);
fl_status fl__cpu_sgd(fl_device *d, fl_stream *s, float *w, const float *g, float *momentum,
                      int64_t n, const fl_sgd_step *step);
fl_status fl__cpu_sum_squares(fl_device *d, fl_stream *s, const float *g, int64_t n, double *out);

#endif
