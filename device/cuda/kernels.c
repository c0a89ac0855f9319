/* The kernels of the device table: each is a launch of the plugin's, with a workspace that grows
 * when a kernel first needs more. */
#include "device/cuda/parts.h"

/* ---- what a kernel has no code for ---- */

static fl_status refuse_type(const char *kernel, fl_dtype dtype)
{
    return fl_fail(FL_ENOTSUP, "device cuda: %s has no kernel for %s", kernel,
                   fl_dtype_name(dtype));
}

fl_status fl__cuda_check_type(const char *kernel, fl_dtype dtype)
{
    return dtype == FL_F32 || dtype == FL_BF16 ? FL_OK : refuse_type(kernel, dtype);
}

static fl_status check_heads(const fl_attention_args *a)
{
    if (a->width / a->heads > FL__CUDA_HEAD_MAX) {
        return fl_fail(FL_ENOTSUP,
                       "device cuda: attention has heads of %lld columns, allowed are "
                       "at most %d",
                       (long long)(a->width / a->heads), FL__CUDA_HEAD_MAX);
    }
    return fl__cuda_check_type("attention", a->dtype);
}

/* ---- launches ---- */

/* A workspace of needed_bytes. The one before may still be in use, so its work is waited for. */
fl_status fl__cuda_workspace_grow(fl__cuda *c, fl__cuda_queue *q)
{
    fl__cuda_stream *s = (fl__cuda_stream *)q;
    if (s->capture != NULL) {
        return fl__cuda_refuse_in_capture(c, "a larger workspace is needed");
    }
    FL__CUDA_CALL(c, stream_wait, q->stream);
    fl__cuda_workspace_drop(c, q);
    s->n_workspaces++;
    FL__CUDA_CALL(c, memory_take, q->needed_bytes, &q->workspace);
    q->workspace_bytes = q->needed_bytes;
    atomic_fetch_add(&c->base.workspace_bytes, q->workspace_bytes);
    return FL_OK;
}

/* Call an entry of the plugin's table on stream s of device d. */
#define RUN_LAUNCH(entry, ...)                                                                     \
    fl__cuda *c = fl__cuda_of(d);                                                                  \
    fl__cuda_queue *q = fl__cuda_queue_of(c, s);                                                   \
    int code;                                                                                      \
    FL__CUDA_LAUNCH(c, q, code, entry, q, __VA_ARGS__);                                            \
    return fl__cuda_status(c, #entry, code)

/* CHECK: what refuses arguments that the kernel has no code for */
#define LAUNCH(entry, args, CHECK)                                                                 \
    static fl_status launch_##entry(fl_device *d, fl_stream *s, const args *a)                     \
    {                                                                                              \
        FL_TRY(CHECK);                                                                             \
        RUN_LAUNCH(entry, a);                                                                      \
    }

LAUNCH(activate, fl_activate_args, fl__cuda_check_type("activate", a->dtype))
LAUNCH(activate_backward, fl_activate_backward_args,
       fl__cuda_check_type("activate_backward", a->dtype))
LAUNCH(add, fl_add_args, fl__cuda_check_type("add", a->dtype))
LAUNCH(attention, fl_attention_args, check_heads(a))
LAUNCH(attention_backward, fl_attention_backward_args, check_heads(&a->forward))
LAUNCH(cross_entropy, fl_cross_entropy_args, fl__cuda_check_type("cross_entropy", a->dtype))
LAUNCH(dropout, fl_dropout_args, fl__cuda_check_type("dropout", a->dtype))
LAUNCH(embed, fl_embed_args, fl__cuda_check_type("embed", a->dtype))
LAUNCH(embed_backward, fl_embed_backward_args,
       fl__cuda_check_type("embed_backward", a->forward.dtype))
LAUNCH(gather_rows, fl_gather_rows_args, fl__cuda_check_type("gather_rows", a->dtype))
LAUNCH(layernorm, fl_norm_args, fl__cuda_check_type("layernorm", a->dtype))
LAUNCH(layernorm_backward, fl_norm_backward_args,
       fl__cuda_check_type("layernorm_backward", a->dtype))
LAUNCH(patchify, fl_patchify_args, fl__cuda_check_type("patchify", a->dtype))
LAUNCH(patchify_backward, fl_patchify_args, fl__cuda_check_type("patchify_backward", a->dtype))
LAUNCH(rmsnorm, fl_norm_args, fl__cuda_check_type("rmsnorm", a->dtype))
LAUNCH(rmsnorm_backward, fl_norm_backward_args, fl__cuda_check_type("rmsnorm_backward", a->dtype))
LAUNCH(scatter_rows, fl_scatter_rows_args, fl__cuda_check_type("scatter_rows", a->dtype))
LAUNCH(span_cross_entropy, fl_span_cross_entropy_args,
       fl__cuda_check_type("span_cross_entropy", a->dtype))
LAUNCH(squared_error, fl_squared_error_args, fl__cuda_check_type("squared_error", a->dtype))
LAUNCH(vit_assemble, fl_vit_assemble_args, fl__cuda_check_type("vit_assemble", a->dtype))
LAUNCH(vit_assemble_backward, fl_vit_assemble_backward_args,
       fl__cuda_check_type("vit_assemble_backward", a->dtype))

static fl_status launch_convert(fl_device *d, fl_stream *s, const fl_convert_args *a)
{
    FL_TRY(fl__cuda_check_type("convert", a->from));
    FL_TRY(fl__cuda_check_type("convert", a->to));
    RUN_LAUNCH(convert, a);
}

static fl_status launch_add_to_sum(fl_device *d, fl_stream *s, double value, double *sum)
{
    RUN_LAUNCH(add_to_sum, value, sum);
}

static fl_status launch_adamw_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                                   const fl_adamw_step *step)
{
    RUN_LAUNCH(adamw_many, list, n, step);
}

static fl_status launch_sgd_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                                 const fl_sgd_step *step)
{
    RUN_LAUNCH(sgd_many, list, n, step);
}

static fl_status launch_sum_squares_many(fl_device *d, fl_stream *s, const fl_square_sum *list,
                                         int n)
{
    RUN_LAUNCH(sum_squares_many, list, n);
}

/* ---- the table ---- */

const fl_device_ops fl__cuda_ops = {
    .version = FL_DEVICE_OPS_VERSION,
    .size_bytes = sizeof(fl_device_ops),
    .kind = "cuda",
    .host_memory = false,
    .has_graphs = true,
    .memory_take = fl__cuda_memory_take,
    .memory_reserve = fl__cuda_memory_take,
    .memory_give = fl__cuda_memory_give,
    .memory_share = fl__cuda_memory_share,
    .memory_export = fl__cuda_memory_export,
    .view_open = fl__cuda_view_open,
    .view_close = fl__cuda_view_close,
    .host_take = fl__cuda_host_take,
    .host_give = fl__cuda_host_give,
    .host_pin = fl__cuda_host_pin,
    .host_unpin = fl__cuda_host_unpin,
    .copy_in = fl__cuda_copy,
    .copy_out = fl__cuda_copy,
    .copy = fl__cuda_copy,
    .fill_zero = fl__cuda_fill_zero,
    .stream_create = fl__cuda_stream_create,
    .stream_destroy = fl__cuda_stream_destroy,
    .sync = fl__cuda_sync,
    .event_create = fl__cuda_event_create,
    .event_destroy = fl__cuda_event_destroy,
    .event_record = fl__cuda_event_record,
    .event_wait = fl__cuda_event_wait,
    .stream_wait = fl__cuda_stream_wait,
    .event_elapsed = fl__cuda_event_elapsed,
    .event_reached = fl__cuda_event_reached,
    .stream_native = fl__cuda_stream_native,
    .capture_begin = fl__cuda_capture_begin,
    .capture_end = fl__cuda_capture_end,
    .graph_launch = fl__cuda_graph_launch,
    .graph_destroy = fl__cuda_graph_destroy,
    .destroy = fl__cuda_destroy,
    .weight_release = fl__cuda_weight_release,
    .linear = fl__cuda_linear,
    .linear_backward_input = fl__cuda_linear_backward_input,
    .linear_backward_weights = fl__cuda_linear_backward_weights,
#define FL_ENTRY(kernel, args) .kernel = launch_##kernel,
    FL__CUDA_KERNELS(FL_ENTRY)
#undef FL_ENTRY
        .add_to_sum = launch_add_to_sum,
    .adamw_many = launch_adamw_many,
    .sgd_many = launch_sgd_many,
    .sum_squares_many = launch_sum_squares_many,
};
