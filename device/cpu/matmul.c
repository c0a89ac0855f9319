/* Matrix products, split over the compute threads so that a result's bits do not depend on their
 * number: forward and the gradient of the input by rows, the gradient of a weight by its rows.
 * oneDNN's products are as fast, but its results for a single row differ in the last bits from
 * those for several, and it allocates in each call. */
#include "device/cpu/cpu.h"

/* Run rows [begin, end) of the product `g` on each thread. */
static fl_status by_rows(fl__cpu *cpu, const fl__gemm *g)
{
    FL_TRY(fl__cpu_reserve(cpu, cpu->isa->gemm_workspace()));
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(g->m, 1, cpu->base.n_threads, t);
        fl__gemm part = *g;
        part.m = r.end - r.begin;
        part.a += r.begin * g->a_row;
        part.y += r.begin * g->n;
        part.start = g->start == NULL ? NULL : g->start + r.begin * g->n;
        part.a_sums = g->a_sums == NULL ? NULL : g->a_sums + r.begin;
        part.pre = g->pre == NULL ? NULL : g->pre + r.begin * g->n;
        cpu->isa->gemm(&part, fl__cpu_scratch(cpu, t));
    }
    return FL_OK;
}

fl_status fl__cpu_linear(fl_device *d, FL__UNUSED fl_stream *s, const float *in, fl_weight *w,
                         const float *bias, const float *residual, bool gelu, float *pre, float *y,
                         int64_t m)
{
    const fl__gemm g = {
        .m = m,
        .n = w->rows,
        .k = w->cols,
        .a = in,
        .a_row = w->cols,
        .a_k = 1,
        .b = w->data,
        .b_k = 1,
        .b_col = w->cols,
        .start = residual,
        .bias = bias,
        .gelu = gelu,
        .pre = pre,
        .y = y,
    };
    return by_rows(fl__cpu_of(d), &g);
}

fl_status fl__cpu_linear_backward_input(fl_device *d, FL__UNUSED fl_stream *s,
                                        const float *grad_out, fl_weight *w, float *grad_in,
                                        int64_t m)
{
    const fl__gemm g = {
        .m = m,
        .n = w->cols,
        .k = w->rows,
        .a = grad_out,
        .a_row = w->rows,
        .a_k = 1,
        .b = w->data,
        .b_k = w->cols,
        .b_col = 1,
        .y = grad_in,
    };
    return by_rows(fl__cpu_of(d), &g);
}

fl_status fl__cpu_linear_backward_weights(fl_device *d, FL__UNUSED fl_stream *s,
                                          const float *grad_out, const float *in, float *grad_w,
                                          float *grad_bias, int64_t m, int64_t n_out, int64_t n_in)
{
    fl__cpu *cpu = fl__cpu_of(d);
    if (grad_w == NULL) {
        cpu->isa->column_sums(grad_out, n_out, grad_bias, m, n_out);
        return FL_OK;
    }
    const fl__gemm g = {
        .m = n_out,
        .n = n_in,
        .k = m,
        .a = grad_out,
        .a_row = 1,
        .a_k = n_out,
        .b = in,
        .b_k = n_in,
        .b_col = 1,
        .start = grad_w,
        .y = grad_w,
        .a_sums = grad_bias,
    };
    return by_rows(cpu, &g);
}
