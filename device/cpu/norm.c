/* LayerNorm and RMSNorm, split over the compute threads by rows. */
#include "device/cpu/wide.h"

/* ---- forward ---- */

fl_status fl__cpu_layernorm(fl_device *d, FL__UNUSED fl_stream *s, const fl_norm_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    fl_dtype type = a->dtype;
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->m, 1, d->n_threads, t);
        int64_t at = r.begin * a->n;
        cpu->isa->layernorm(type, fl__in_at(type, a->in, at), fl__in_at(type, a->residual, at),
                            a->gamma->data, a->beta->data, a->epsilon, fl__out_at(type, a->sum, at),
                            fl__out_at(type, a->y, at), fl__out_at(FL_F32, a->mean, r.begin),
                            fl__out_at(FL_F32, a->rstd, r.begin), r.end - r.begin, a->n);
    }
    return FL_OK;
}

static fl_status run_rmsnorm(fl_device *d, const void *args)
{
    return fl__cpu_rmsnorm(d, NULL, args);
}

static fl_status rmsnorm_bf16(fl_device *d, const fl_norm_args *a)
{
    fl_norm_args part = *a;
    part.dtype = FL_F32;
    return fl__cpu_run_wide(d, &(fl__wide_call){.args = &part,
                                                .rows = &part.m,
                                                .field = {{&part.in, a->n, FL__WIDE_READ},
                                                          {&part.residual, a->n, FL__WIDE_READ},
                                                          {&part.sum, a->n, FL__WIDE_WRITE},
                                                          {&part.y, a->n, FL__WIDE_WRITE},
                                                          {&part.rstd, 1, FL__WIDE_FP32}},
                                                .run = run_rmsnorm});
}

fl_status fl__cpu_rmsnorm(fl_device *d, FL__UNUSED fl_stream *s, const fl_norm_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    int64_t n = a->n;
    if (a->dtype == FL_BF16) {
        return rmsnorm_bf16(d, a);
    }
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->m, 1, d->n_threads, t);
        int64_t at = r.begin * n;
        cpu->isa->rmsnorm(fl__in_at(FL_F32, a->in, at), fl__in_at(FL_F32, a->residual, at),
                          a->gamma->data, a->epsilon, fl__out_at(FL_F32, a->sum, at),
                          fl__out_at(FL_F32, a->y, at), fl__out_at(FL_F32, a->rstd, r.begin),
                          r.end - r.begin, n);
    }
    return FL_OK;
}

/* ---- backward ---- */

/* Rows whose sums for gamma and beta are added up before they go into the gradient. It is the same
 * for any thread count, and so is the order in which the blocks' sums are added: so are the bits.
 */
enum { SUM_BLOCK = 64 };

/* Rows row .. row + rows - 1; their sums for gamma, and for LayerNorm then for beta, go to parts.
 */
static void backward_rows(const fl__cpu *cpu, const fl_norm_backward_args *a, bool rms, int64_t row,
                          int64_t rows, float *parts)
{
    int64_t n = a->n, at = row * n;
    const void *grad_y = fl__in_at(a->dtype, a->grad_y, at), *in = fl__in_at(a->dtype, a->in, at);
    const void *residual = fl__in_at(a->dtype, a->grad_residual, at);
    void *grad_in = fl__out_at(a->dtype, a->grad_in, at);
    if (rms) {
        cpu->isa->rmsnorm_backward(grad_y, in, a->gamma->data, a->rstd + row, residual, grad_in,
                                   parts, rows, n);
    } else {
        cpu->isa->layernorm_backward(a->dtype, grad_y, in, a->gamma->data, a->mean + row,
                                     a->rstd + row, residual, grad_in, parts, rows, n);
    }
}

static fl_status backward(fl_device *d, const fl_norm_backward_args *a, bool rms)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t n = a->n, part = rms ? n : 2 * n;
    int64_t n_blocks = (a->m + SUM_BLOCK - 1) / SUM_BLOCK;
    int64_t blocks_each = (n_blocks + d->n_threads - 1) / d->n_threads;
    FL_TRY(fl__cpu_reserve(cpu, (size_t)(blocks_each * part) * sizeof(float)));
    FL__EACH_THREAD(cpu, t)
    {
        float *parts = fl__cpu_scratch(cpu, t);
        for (int64_t b = t * blocks_each; b < n_blocks && b < (t + 1) * blocks_each; b++) {
            int64_t row = b * SUM_BLOCK, left = a->m - row;
            backward_rows(cpu, a, rms, row, left < SUM_BLOCK ? left : SUM_BLOCK,
                          parts + (b - t * blocks_each) * part);
        }
    }
    for (int64_t b = 0; b < n_blocks; b++) {
        const float *parts = fl__cpu_scratch(cpu, (int)(b / blocks_each));
        parts += b % blocks_each * part;
        if (a->grad_gamma != NULL) {
            cpu->isa->add(a->grad_gamma, parts, a->grad_gamma, n);
        }
        if (a->grad_beta != NULL && !rms) {
            cpu->isa->add(a->grad_beta, parts + n, a->grad_beta, n);
        }
    }
    return FL_OK;
}

fl_status fl__cpu_layernorm_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                     const fl_norm_backward_args *a)
{
    return backward(d, a, false);
}

static fl_status run_rmsnorm_backward(fl_device *d, const void *args)
{
    return backward(d, args, true);
}

static fl_status rmsnorm_backward_bf16(fl_device *d, const fl_norm_backward_args *a)
{
    fl_norm_backward_args part = *a;
    part.dtype = FL_F32;
    return fl__cpu_run_wide(d,
                            &(fl__wide_call){.args = &part,
                                             .rows = &part.m,
                                             .field = {{&part.grad_y, a->n, FL__WIDE_READ},
                                                       {&part.in, a->n, FL__WIDE_READ},
                                                       {&part.grad_residual, a->n, FL__WIDE_READ},
                                                       {&part.grad_in, a->n, FL__WIDE_WRITE},
                                                       {&part.rstd, 1, FL__WIDE_FP32}},
                                             .run = run_rmsnorm_backward});
}

fl_status fl__cpu_rmsnorm_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                   const fl_norm_backward_args *a)
{
    return a->dtype == FL_BF16 ? rmsnorm_backward_bf16(d, a) : backward(d, a, true);
}
