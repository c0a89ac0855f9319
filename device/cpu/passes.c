/* Passes over memory, split over the compute threads. */
#include "device/cpu/cpu.h"

#include "device/random.h"

#include <string.h>

/* Elements of one cache line: threads do not share lines. */
enum { LINE = 16 };

fl_status fl__cpu_gelu_backward(fl_device *d, FL__UNUSED fl_stream *s, const float *grad_y,
                                const float *pre, float *grad_pre, float *y, int64_t n)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n, LINE, d->n_threads, t);
        cpu->isa->gelu_backward(grad_y + r.begin, pre + r.begin, grad_pre + r.begin,
                                y == NULL ? NULL : y + r.begin, r.end - r.begin);
    }
    return FL_OK;
}

static const float *row_or_null(const float *p, int64_t row, int64_t n)
{
    return p == NULL ? NULL : p + row * n;
}

static float *out_or_null(float *p, int64_t row, int64_t n)
{
    return p == NULL ? NULL : p + row * n;
}

fl_status fl__cpu_layernorm(fl_device *d, FL__UNUSED fl_stream *s, const float *in,
                            const float *residual, const float *gamma, const float *beta, float eps,
                            float *sum, float *y, float *mean, float *rstd, int64_t m, int64_t n)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(m, 1, d->n_threads, t);
        cpu->isa->layernorm(in + r.begin * n, row_or_null(residual, r.begin, n), gamma, beta, eps,
                            out_or_null(sum, r.begin, n), y + r.begin * n,
                            out_or_null(mean, r.begin, 1), out_or_null(rstd, r.begin, 1),
                            r.end - r.begin, n);
    }
    return FL_OK;
}

/* Rows whose sums for gamma and beta are added up before they go into the gradient. It is the same
 * for any thread count, and so is the order in which the blocks' sums are added: so are the bits.
 */
enum { SUM_BLOCK = 64 };

fl_status fl__cpu_layernorm_backward(fl_device *d, FL__UNUSED fl_stream *s, const float *grad_y,
                                     const float *in, const float *gamma, const float *mean,
                                     const float *rstd, const float *grad_residual, float *grad_in,
                                     float *grad_gamma, float *grad_beta, int64_t m, int64_t n)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t n_blocks = (m + SUM_BLOCK - 1) / SUM_BLOCK;
    int64_t blocks_each = (n_blocks + d->n_threads - 1) / d->n_threads;
    FL_TRY(fl__cpu_reserve(cpu, (size_t)(blocks_each * 2 * n) * sizeof(float)));
    FL__EACH_THREAD(cpu, t)
    {
        float *parts = fl__cpu_scratch(cpu, t);
        for (int64_t b = t * blocks_each; b < n_blocks && b < (t + 1) * blocks_each; b++) {
            int64_t row = b * SUM_BLOCK;
            int64_t rows = m - row < SUM_BLOCK ? m - row : SUM_BLOCK;
            cpu->isa->layernorm_backward(grad_y + row * n, in + row * n, gamma, mean + row,
                                         rstd + row, row_or_null(grad_residual, row, n),
                                         out_or_null(grad_in, row, n),
                                         parts + (b - t * blocks_each) * 2 * n, rows, n);
        }
    }
    for (int64_t b = 0; b < n_blocks; b++) {
        const float *parts = fl__cpu_scratch(cpu, (int)(b / blocks_each));
        parts += b % blocks_each * 2 * n;
        if (grad_gamma != NULL) {
            cpu->isa->add(grad_gamma, parts, grad_gamma, n);
        }
        if (grad_beta != NULL) {
            cpu->isa->add(grad_beta, parts + n, grad_beta, n);
        }
    }
    return FL_OK;
}

fl_status fl__cpu_dropout(fl_device *d, FL__UNUSED fl_stream *s, const float *in,
                          const int32_t *offsets, const int64_t *sample_ids, int64_t n_samples,
                          int64_t width, float p, const fl_rng_key *key, float *y)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    if (p <= 0.0f) {
        if (y != in) {
            memcpy(y, in, (size_t)(offsets[n_samples] * width) * sizeof *y);
        }
        return FL_OK;
    }
    uint64_t place = (uint64_t)(uint32_t)key->layer << 32 | (uint32_t)key->stream;
    uint64_t mixed = fl_mix64(fl_mix64(key->seed, (uint64_t)key->epoch), place);
    const uint32_t words[2] = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n_samples, 1, d->n_threads, t);
        for (int64_t i = r.begin; i < r.end; i++) {
            int64_t begin = offsets[i] * width, end = offsets[i + 1] * width;
            cpu->isa->dropout(in + begin, words, sample_ids[i], p, y + begin, end - begin);
        }
    }
    return FL_OK;
}

fl_status fl__cpu_add(fl_device *d, FL__UNUSED fl_stream *s, const float *a, const float *b,
                      float *y, int64_t n)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n, LINE, d->n_threads, t);
        cpu->isa->add(a + r.begin, b + r.begin, y + r.begin, r.end - r.begin);
    }
    return FL_OK;
}
