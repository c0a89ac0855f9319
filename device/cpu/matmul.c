/* Matrix products, with bias, GELU and residual on blocks of rows that still lie in the cache. */
#include "device/cpu/cpu.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

static fl_status checked(dnnl_status_t status)
{
    if (status != dnnl_success) {
        return fl_fail(FL_EINTERNAL, "oneDNN refused a matrix product (%d)", (int)status);
    }
    return FL_OK;
}

enum { ROW_BLOCK = 128 };

fl_status fl__cpu_linear(fl_device *d, FL__UNUSED fl_stream *s, const float *in, fl_weight *w,
                         const float *bias, const float *residual, bool gelu, float *pre, float *y,
                         int64_t m)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    int64_t n = w->rows, k = w->cols;
    if (residual != NULL && residual != y) {
        memcpy(y, residual, (size_t)(m * n) * sizeof *y);
    }
    FL_TRY(checked(dnnl_sgemm('N', 'T', m, n, k, 1.0f, in, k, w->data, k,
                              residual != NULL ? 1.0f : 0.0f, y, n)));
    cpu->isa->bias_gelu(bias, gelu, pre, y, m, n);
    return FL_OK;
}

fl_status fl__cpu_linear_backward_input(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s,
                                        const float *grad_out, fl_weight *w, float *grad_in,
                                        int64_t m)
{
    return checked(dnnl_sgemm('N', 'N', m, w->cols, w->rows, 1.0f, grad_out, w->rows, w->data,
                              w->cols, 0.0f, grad_in, w->cols));
}

fl_status fl__cpu_linear_backward_weights(fl_device *d, FL__UNUSED fl_stream *s,
                                          const float *grad_out, const float *in, float *grad_w,
                                          float *grad_bias, int64_t m, int64_t n_out, int64_t n_in)
{
    if (grad_bias != NULL) {
        fl__cpu_of(d)->isa->column_sums(grad_out, n_out, grad_bias, m, n_out);
    }
    if (grad_w == NULL) {
        return FL_OK;
    }
    return checked(
        dnnl_sgemm('T', 'N', n_out, n_in, m, 1.0f, grad_out, n_out, in, n_in, 1.0f, grad_w, n_in));
}
