/* The kernels as a layer calls them: checked, and handed to the device that owns the stage. An
 * empty micro-batch stops here, so no device has to think of it. */
#include "nn/exec.h"

#include <math.h>

static fl_status no_weight(const char *kernel)
{
    return fl_fail(FL_EINVAL, "%s got no weight: fl_exec_weight knows no such parameter", kernel);
}

static fl_status check_dtype(const char *kernel, fl_dtype dtype)
{
    return dtype == FL_F32 || dtype == FL_BF16
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s got a dtype of %s, allowed are fp32 and bf16", kernel,
                         fl_dtype_name(dtype));
}

/* Hand the arguments to the device's kernel. */
#define LAUNCH(x, kernel, args) (x)->device->ops->kernel((x)->device, (x)->stream, args)

/* ---- matrix products ---- */

fl_status fl_linear(fl_exec *x, const fl_linear_args *a)
{
    FL_TRY(check_dtype("fl_linear", a->dtype));
    if (a->w == NULL) {
        return no_weight("fl_linear");
    }
    if (a->bias != NULL && a->bias->rows * a->bias->cols != a->w->rows) {
        return fl_fail(FL_EINVAL, "fl_linear: the bias has %lld elements for %lld outputs",
                       (long long)(a->bias->rows * a->bias->cols), (long long)a->w->rows);
    }
    if (a->residual != NULL && (a->activation != FL_ACT_NONE || a->pre != NULL)) {
        return fl_fail(FL_EINVAL, "fl_linear: a residual and an activation exclude each other");
    }
    return a->m == 0 ? FL_OK : LAUNCH(x, linear, a);
}

fl_status fl_linear_backward_input(fl_exec *x, const fl_linear_backward_input_args *a)
{
    FL_TRY(check_dtype("fl_linear_backward_input", a->dtype));
    if (a->w == NULL) {
        return no_weight("fl_linear_backward_input");
    }
    return a->m == 0 ? FL_OK : LAUNCH(x, linear_backward_input, a);
}

fl_status fl_linear_backward_weights(fl_exec *x, const fl_linear_backward_weights_args *a)
{
    FL_TRY(check_dtype("fl_linear_backward_weights", a->dtype));
    if (a->m == 0 || (a->grad_w == NULL && a->grad_bias == NULL)) {
        return FL_OK;
    }
    return LAUNCH(x, linear_backward_weights, a);
}

/* ---- passes over memory ---- */

fl_status fl_activate(fl_exec *x, const fl_activate_args *a)
{
    FL_TRY(check_dtype("fl_activate", a->dtype));
    return a->n == 0 ? FL_OK : LAUNCH(x, activate, a);
}

fl_status fl_activate_backward(fl_exec *x, const fl_activate_backward_args *a)
{
    FL_TRY(check_dtype("fl_activate_backward", a->dtype));
    return a->n == 0 ? FL_OK : LAUNCH(x, activate_backward, a);
}

fl_status fl_layernorm(fl_exec *x, const fl_norm_args *a)
{
    FL_TRY(check_dtype("fl_layernorm", a->dtype));
    if (a->gamma == NULL || a->beta == NULL) {
        return no_weight("fl_layernorm");
    }
    return a->m == 0 ? FL_OK : LAUNCH(x, layernorm, a);
}

fl_status fl_layernorm_backward(fl_exec *x, const fl_norm_backward_args *a)
{
    FL_TRY(check_dtype("fl_layernorm_backward", a->dtype));
    if (a->gamma == NULL) {
        return no_weight("fl_layernorm_backward");
    }
    return a->m == 0 ? FL_OK : LAUNCH(x, layernorm_backward, a);
}

fl_status fl_rmsnorm(fl_exec *x, const fl_norm_args *a)
{
    FL_TRY(check_dtype("fl_rmsnorm", a->dtype));
    if (a->gamma == NULL) {
        return no_weight("fl_rmsnorm");
    }
    return a->m == 0 ? FL_OK : LAUNCH(x, rmsnorm, a);
}

fl_status fl_rmsnorm_backward(fl_exec *x, const fl_norm_backward_args *a)
{
    FL_TRY(check_dtype("fl_rmsnorm_backward", a->dtype));
    if (a->gamma == NULL) {
        return no_weight("fl_rmsnorm_backward");
    }
    return a->m == 0 ? FL_OK : LAUNCH(x, rmsnorm_backward, a);
}

/* ---- kernels with masks ---- */

/* The rest of a mask: a layer gives p and stream. */
static fl_mask complete_mask(const fl_exec *x, const fl_mask *mask)
{
    return (fl_mask){.p = x->training ? mask->p : 0.0f,
                     .stream = mask->stream,
                     .layer = x->layer,
                     .epoch = x->batch->epoch,
                     .seed = x->batch->seed,
                     .sample_ids = x->batch->sample_ids,
                     .sample_ids_device = x->batch->sample_ids_device,
                     .epoch_key_device = x->batch->epoch_key_device};
}

static fl_status check_mask(const char *kernel, const fl_mask *mask)
{
    return mask->p >= 0.0f && mask->p < 1.0f
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: p is %g, allowed is 0 to below 1", kernel,
                         (double)mask->p);
}

static fl_status complete_attention(const char *kernel, const fl_exec *x, fl_attention_args *a)
{
    FL_TRY(check_dtype(kernel, a->dtype));
    FL_TRY(check_mask(kernel, &a->mask));
    if (a->heads < 1 || a->width % a->heads != 0) {
        return fl_fail(FL_EINVAL, "%s: width %lld is not a multiple of heads %lld", kernel,
                       (long long)a->width, (long long)a->heads);
    }
    int64_t head_dim = a->width / a->heads;
    a->mask = complete_mask(x, &a->mask);
    a->scale = a->scale == 0.0f ? 1.0f / sqrtf((float)head_dim) : a->scale;
    return FL_OK;
}

fl_status fl_attention(fl_exec *x, const fl_attention_args *args)
{
    fl_attention_args a = *args;
    FL_TRY(complete_attention("fl_attention", x, &a));
    return a.offsets.n_samples == 0 ? FL_OK : LAUNCH(x, attention, &a);
}

fl_status fl_attention_backward(fl_exec *x, const fl_attention_backward_args *args)
{
    fl_attention_backward_args a = *args;
    FL_TRY(complete_attention("fl_attention_backward", x, &a.forward));
    return a.forward.offsets.n_samples == 0 ? FL_OK : LAUNCH(x, attention_backward, &a);
}

fl_status fl_dropout(fl_exec *x, const fl_dropout_args *args)
{
    fl_dropout_args a = *args;
    FL_TRY(check_dtype("fl_dropout", a.dtype));
    FL_TRY(check_mask("fl_dropout", &a.mask));
    a.mask = complete_mask(x, &a.mask);
    if (a.offsets.n_samples == 0 || (a.mask.p == 0.0f && a.in == a.y)) {
        return FL_OK;
    }
    return LAUNCH(x, dropout, &a);
}

/* ---- sums, conversions, rows ---- */

fl_status fl_add(fl_exec *x, const fl_add_args *a)
{
    FL_TRY(check_dtype("fl_add", a->dtype));
    return a->n == 0 ? FL_OK : LAUNCH(x, add, a);
}

fl_status fl_convert(fl_exec *x, const fl_convert_args *a)
{
    FL_TRY(check_dtype("fl_convert", a->from));
    FL_TRY(check_dtype("fl_convert", a->to));
    return a->n == 0 ? FL_OK : LAUNCH(x, convert, a);
}

fl_status fl_gather_rows(fl_exec *x, const fl_gather_rows_args *a)
{
    return a->n_rows == 0 ? FL_OK : LAUNCH(x, gather_rows, a);
}

fl_status fl_scatter_rows(fl_exec *x, const fl_scatter_rows_args *a)
{
    return a->total_rows == 0 ? FL_OK : LAUNCH(x, scatter_rows, a);
}

static fl_status check_tables(const char *kernel, const fl_embed_args *a)
{
    FL_TRY(check_dtype(kernel, a->dtype));
    if (a->n_tables < 1 || a->n_tables > FL_EMBED_TABLES) {
        return fl_fail(FL_EINVAL, "%s: %d tables, allowed are 1 to %d", kernel, a->n_tables,
                       FL_EMBED_TABLES);
    }
    for (int i = 0; i < a->n_tables; i++) {
        const fl_weight *w = a->table[i].weight;
        if (w == NULL) {
            return no_weight(kernel);
        }
        if (w->cols != a->width) {
            return fl_fail(FL_EINVAL, "%s: table %d has rows of width %lld for a width of %lld",
                           kernel, i, (long long)w->cols, (long long)a->width);
        }
    }
    return FL_OK;
}

fl_status fl_embed(fl_exec *x, const fl_embed_args *a)
{
    FL_TRY(check_tables("fl_embed", a));
    return a->offsets.n_samples == 0 ? FL_OK : LAUNCH(x, embed, a);
}

fl_status fl_embed_backward(fl_exec *x, const fl_embed_backward_args *a)
{
    bool wanted = false;
    FL_TRY(check_tables("fl_embed_backward", &a->forward));
    for (int i = 0; i < a->forward.n_tables; i++) {
        wanted = wanted || a->forward.table[i].grad != NULL;
    }
    return !wanted || a->forward.offsets.n_samples == 0 ? FL_OK : LAUNCH(x, embed_backward, a);
}

fl_status fl_patchify(fl_exec *x, const fl_patchify_args *a)
{
    return a->n == 0 ? FL_OK : LAUNCH(x, patchify, a);
}

fl_status fl_patchify_backward(fl_exec *x, const fl_patchify_args *a)
{
    return a->n == 0 ? FL_OK : LAUNCH(x, patchify_backward, a);
}

fl_status fl_vit_assemble(fl_exec *x, const fl_vit_assemble_args *a)
{
    FL_TRY(check_dtype("fl_vit_assemble", a->dtype));
    if (a->cls == NULL || a->pos == NULL) {
        return no_weight("fl_vit_assemble");
    }
    return a->n == 0 ? FL_OK : LAUNCH(x, vit_assemble, a);
}

fl_status fl_vit_assemble_backward(fl_exec *x, const fl_vit_assemble_backward_args *a)
{
    FL_TRY(check_dtype("fl_vit_assemble_backward", a->dtype));
    return a->n == 0 ? FL_OK : LAUNCH(x, vit_assemble_backward, a);
}

/* ---- losses ---- */

fl_status fl_cross_entropy(fl_exec *x, const fl_cross_entropy_args *a)
{
    FL_TRY(check_dtype("fl_cross_entropy", a->dtype));
    if (a->n_classes < 0 || a->n_classes > a->n) {
        return fl_fail(FL_EINVAL, "fl_cross_entropy: n_classes is %lld, allowed is 0 to n, %lld",
                       (long long)a->n_classes, (long long)a->n);
    }
    return a->m == 0 ? FL_OK : LAUNCH(x, cross_entropy, a);
}

fl_status fl_span_cross_entropy(fl_exec *x, const fl_span_cross_entropy_args *a)
{
    FL_TRY(check_dtype("fl_span_cross_entropy", a->dtype));
    return a->offsets.n_samples == 0 ? FL_OK : LAUNCH(x, span_cross_entropy, a);
}

fl_status fl_squared_error(fl_exec *x, const fl_squared_error_args *a)
{
    FL_TRY(check_dtype("fl_squared_error", a->dtype));
    return a->n == 0 ? FL_OK : LAUNCH(x, squared_error, a);
}

fl_status fl_add_to_sum(fl_exec *x, double value, double *sum)
{
    return x->device->ops->add_to_sum(x->device, x->stream, value, sum);
}
