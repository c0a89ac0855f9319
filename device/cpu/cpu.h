/* Inside the CPU device: what its kernels share. */
#ifndef FL_DEVICE_CPU_CPU_H
#define FL_DEVICE_CPU_CPU_H

#include "device/cpu/isa/isa.h"
#include "device/device.h"
#include "device/offsets.h"

/* scratch: one piece of scratch_bytes a thread; wide: fp32 copies of bf16 arguments (wide.h). Both
 * grow when a kernel first needs more, and lie outside the device's budget. */
typedef struct fl__cpu {
    fl_device base;
    const fl__isa *isa;
    unsigned char *scratch;
    size_t scratch_bytes;
    float *wide;
    size_t wide_bytes;
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

/* Use the passes of the instruction set `name` (baseline, avx2, avx512, avx512bf16) from now on,
 * for tests and comparisons. FL_ENOTSUP if this processor or build has none of that name. */
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

/* The array p from element `at` on; NULL stays so. */
static inline const void *fl__in_at(fl_dtype dtype, const void *p, int64_t at)
{
    return p == NULL ? NULL : (const char *)p + (size_t)at * fl_dtype_size(dtype);
}

static inline void *fl__out_at(fl_dtype dtype, void *p, int64_t at)
{
    return p == NULL ? NULL : (char *)p + (size_t)at * fl_dtype_size(dtype);
}

/* A loop whose body runs once on each compute thread, under the number `t`. */
#define FL__PRAGMA_(text) _Pragma(#text)
#define FL__PRAGMA(text) FL__PRAGMA_(text)
#define FL__EACH_THREAD(cpu, t)                                                                    \
    FL__PRAGMA(omp parallel for schedule(static, 1) num_threads((cpu)->base.n_threads))            \
    for (int t = 0; t < (cpu)->base.n_threads; t++)

/* The key of Philox that a mask names; dropout.c. */
void fl__mask_key(const fl_mask *mask, uint32_t key[2]);

/* ---- the kernels, by file ---- */

/* matmul.c */
fl_status fl__cpu_linear(fl_device *d, fl_stream *s, const fl_linear_args *a);
fl_status fl__cpu_linear_backward_input(fl_device *d, fl_stream *s,
                                        const fl_linear_backward_input_args *a);
fl_status fl__cpu_linear_backward_weights(fl_device *d, fl_stream *s,
                                          const fl_linear_backward_weights_args *a);

/* passes.c, norm.c, dropout.c */
fl_status fl__cpu_activate(fl_device *d, fl_stream *s, const fl_activate_args *a);
fl_status fl__cpu_activate_backward(fl_device *d, fl_stream *s, const fl_activate_backward_args *a);
fl_status fl__cpu_layernorm(fl_device *d, fl_stream *s, const fl_norm_args *a);
fl_status fl__cpu_layernorm_backward(fl_device *d, fl_stream *s, const fl_norm_backward_args *a);
fl_status fl__cpu_rmsnorm(fl_device *d, fl_stream *s, const fl_norm_args *a);
fl_status fl__cpu_rmsnorm_backward(fl_device *d, fl_stream *s, const fl_norm_backward_args *a);
fl_status fl__cpu_dropout(fl_device *d, fl_stream *s, const fl_dropout_args *a);
fl_status fl__cpu_add(fl_device *d, fl_stream *s, const fl_add_args *a);
fl_status fl__cpu_convert(fl_device *d, fl_stream *s, const fl_convert_args *a);

/* attention.c */
fl_status fl__cpu_attention(fl_device *d, fl_stream *s, const fl_attention_args *a);
fl_status fl__cpu_attention_backward(fl_device *d, fl_stream *s,
                                     const fl_attention_backward_args *a);

/* rows.c */
fl_status fl__cpu_gather_rows(fl_device *d, fl_stream *s, const fl_gather_rows_args *a);
fl_status fl__cpu_scatter_rows(fl_device *d, fl_stream *s, const fl_scatter_rows_args *a);
fl_status fl__cpu_patchify(fl_device *d, fl_stream *s, const fl_patchify_args *a);
fl_status fl__cpu_patchify_backward(fl_device *d, fl_stream *s, const fl_patchify_args *a);
fl_status fl__cpu_vit_assemble(fl_device *d, fl_stream *s, const fl_vit_assemble_args *a);
fl_status fl__cpu_vit_assemble_backward(fl_device *d, fl_stream *s,
                                        const fl_vit_assemble_backward_args *a);

/* embed.c */
fl_status fl__cpu_embed(fl_device *d, fl_stream *s, const fl_embed_args *a);
fl_status fl__cpu_embed_backward(fl_device *d, fl_stream *s, const fl_embed_backward_args *b);

/* loss.c */
fl_status fl__cpu_cross_entropy(fl_device *d, fl_stream *s, const fl_cross_entropy_args *a);
fl_status fl__cpu_span_cross_entropy(fl_device *d, fl_stream *s,
                                     const fl_span_cross_entropy_args *a);
fl_status fl__cpu_squared_error(fl_device *d, fl_stream *s, const fl_squared_error_args *a);
fl_status fl__cpu_add_to_sum(fl_device *d, fl_stream *s, double value, double *sum);

/* optimizer.c */
fl_status fl__cpu_adamw_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                             const fl_adamw_step *step);
fl_status fl__cpu_sgd_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                           const fl_sgd_step *step);
fl_status fl__cpu_sum_squares_many(fl_device *d, fl_stream *s, const fl_square_sum *list, int n);

#endif
