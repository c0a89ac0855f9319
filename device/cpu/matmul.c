/* Matrix products, split over the compute threads so that a result's bits do not depend on their
 * number: forward and the gradient of the input by rows, the gradient of a weight by its rows.
 * oneDNN's products are as fast, but its results for a single row differ in the last bits from
 * those for several, and it allocates in each call. */
#include "device/cpu/wide.h"

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

/* The same for bf16. */
static fl_status by_rows_bf16(fl__cpu *cpu, const fl__gemm_bf16 *g)
{
    FL_TRY(fl__cpu_reserve(cpu, cpu->isa->gemm_bf16_workspace(g)));
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(g->m, 1, cpu->base.n_threads, t);
        int64_t at = r.begin * g->n;
        fl__gemm_bf16 part = *g;
        part.m = r.end - r.begin;
        part.a += r.begin * g->a_row;
        part.y = g->y == NULL ? NULL : g->y + at;
        part.sums = g->sums == NULL ? NULL : g->sums + at;
        part.start = g->start == NULL ? NULL : g->start + at;
        part.pre = g->pre == NULL ? NULL : g->pre + at;
        part.a_sums = g->a_sums == NULL ? NULL : g->a_sums + r.begin;
        cpu->isa->gemm_bf16(&part, fl__cpu_scratch(cpu, t));
    }
    return FL_OK;
}

static fl_status linear_bf16(fl__cpu *cpu, const fl_linear_args *a)
{
    const fl__gemm_bf16 g = {
        .m = a->m,
        .n = a->w->rows,
        .k = a->w->cols,
        .a = a->in,
        .a_row = a->w->cols,
        .a_k = 1,
        .b = a->w->data,
        .b_type = FL_F32,
        .b_k = 1,
        .b_col = a->w->cols,
        .start = a->residual,
        .bias = a->bias == NULL ? NULL : a->bias->data,
        .activation = a->activation,
        .pre = a->pre,
        .y = a->y,
    };
    return by_rows_bf16(cpu, &g);
}

fl_status fl__cpu_linear(fl_device *d, FL__UNUSED fl_stream *s, const fl_linear_args *a)
{
    if (a->dtype == FL_BF16) {
        return linear_bf16(fl__cpu_of(d), a);
    }
    const fl__gemm g = {
        .m = a->m,
        .n = a->w->rows,
        .k = a->w->cols,
        .a = a->in,
        .a_row = a->w->cols,
        .a_k = 1,
        .b = a->w->data,
        .b_k = 1,
        .b_col = a->w->cols,
        .start = a->residual,
        .bias = a->bias == NULL ? NULL : a->bias->data,
        .activation = a->activation,
        .pre = a->pre,
        .y = a->y,
    };
    return by_rows(fl__cpu_of(d), &g);
}

static fl_status backward_input_bf16(fl__cpu *cpu, const fl_linear_backward_input_args *a)
{
    const fl__gemm_bf16 g = {
        .m = a->m,
        .n = a->w->cols,
        .k = a->w->rows,
        .a = a->grad_out,
        .a_row = a->w->rows,
        .a_k = 1,
        .b = a->w->data,
        .b_type = FL_F32,
        .b_k = a->w->cols,
        .b_col = 1,
        .y = a->grad_in,
    };
    return by_rows_bf16(cpu, &g);
}

fl_status fl__cpu_linear_backward_input(fl_device *d, FL__UNUSED fl_stream *s,
                                        const fl_linear_backward_input_args *a)
{
    if (a->dtype == FL_BF16) {
        return backward_input_bf16(fl__cpu_of(d), a);
    }
    const fl__gemm g = {
        .m = a->m,
        .n = a->w->cols,
        .k = a->w->rows,
        .a = a->grad_out,
        .a_row = a->w->rows,
        .a_k = 1,
        .b = a->w->data,
        .b_k = a->w->cols,
        .b_col = 1,
        .y = a->grad_in,
    };
    return by_rows(fl__cpu_of(d), &g);
}

/* The gradient of a bias alone. */
static fl_status run_column_sums(fl_device *d, const void *args)
{
    return fl__cpu_linear_backward_weights(d, NULL, args);
}

static fl_status column_sums_bf16(fl_device *d, const fl_linear_backward_weights_args *a)
{
    fl_linear_backward_weights_args part = *a;
    part.dtype = FL_F32;
    const fl__wide_call call = {.args = &part,
                                .rows = &part.m,
                                .field = {{&part.grad_out, a->n_out, FL__WIDE_READ}},
                                .run = run_column_sums};
    return fl__cpu_run_wide(d, &call);
}

static fl_status backward_weights_bf16(fl_device *d, const fl_linear_backward_weights_args *a)
{
    if (a->grad_w == NULL) {
        return column_sums_bf16(d, a);
    }
    const fl__gemm_bf16 g = {
        .m = a->n_out,
        .n = a->n_in,
        .k = a->m,
        .a = a->grad_out,
        .a_row = 1,
        .a_k = a->n_out,
        .b = a->in,
        .b_type = FL_BF16,
        .b_k = a->n_in,
        .b_col = 1,
        .sums = a->grad_w,
        .a_sums = a->grad_bias,
    };
    return by_rows_bf16(fl__cpu_of(d), &g);
}

fl_status fl__cpu_linear_backward_weights(fl_device *d, FL__UNUSED fl_stream *s,
                                          const fl_linear_backward_weights_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    if (a->dtype == FL_BF16) {
        return backward_weights_bf16(d, a);
    }
    if (a->grad_w == NULL) {
        cpu->isa->column_sums(a->grad_out, a->n_out, a->grad_bias, a->m, a->n_out);
        return FL_OK;
    }
    const fl__gemm g = {
        .m = a->n_out,
        .n = a->n_in,
        .k = a->m,
        .a = a->grad_out,
        .a_row = 1,
        .a_k = a->n_out,
        .b = a->in,
        .b_k = a->n_in,
        .b_col = 1,
        .start = a->grad_w,
        .y = a->grad_w,
        .a_sums = a->grad_bias,
    };
    return by_rows(cpu, &g);
}
