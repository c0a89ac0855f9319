/* The device of dry runs: the memory planner drives real layers through it to learn what they
 * take. Kernels compute nothing; memory is address space that no page stands behind until it is
 * written, and reads as zeros. */
#include "device/device.h"
#include "device/system/alloc.h"

#include <string.h>
#include <sys/mman.h>

/* It counts the operations that its products would take. */
typedef struct null_device {
    fl_device base;
    int64_t n_flops;
} null_device;

static void count(fl_device *d, int64_t n_multiply_adds)
{
    ((null_device *)d)->n_flops += 2 * n_multiply_adds;
}

/* Kernels that do nothing have no use for their arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static fl_status memory_take(fl_device *d, size_t size_bytes, void **out)
{
    size_t size = size_bytes == 0 ? 1 : size_bytes;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "no address space for %zu bytes", size_bytes);
    }
    *out = memory;
    return FL_OK;
}

static void memory_give(fl_device *d, void *memory, size_t size_bytes)
{
    munmap(memory, size_bytes == 0 ? 1 : size_bytes);
}

/* Nobody looks into what holds nothing. */
static fl_status memory_share(fl_device *d, size_t size_bytes, void **out, fl_shared **shared)
{
    *shared = NULL;
    return memory_take(d, size_bytes, out);
}

static fl_status copy_in(fl_device *d, fl_stream *s, void *to, const void *from_host, size_t n)
{
    return FL_OK;
}

static fl_status copy_out(fl_device *d, fl_stream *s, void *to_host, const void *from, size_t n)
{
    memset(to_host, 0, n);
    return FL_OK;
}

static fl_status fill_zero(fl_device *d, fl_stream *s, void *to, size_t n)
{
    return FL_OK;
}

static fl_status copy_within(fl_device *d, fl_stream *s, void *to, const void *from, size_t n)
{
    return FL_OK;
}

/* Streams and events have nothing to order: all share one that holds nothing. */
static fl_status stream_create(fl_device *d, fl_stream **out)
{
    static char the_stream;
    *out = (fl_stream *)&the_stream;
    return FL_OK;
}

static void stream_destroy(fl_device *d, fl_stream **s)
{
    *s = NULL;
}

static fl_status event_create(fl_device *d, fl_event **out)
{
    static char the_event;
    *out = (fl_event *)&the_event;
    return FL_OK;
}

static void event_destroy(fl_device *d, fl_event **e)
{
    *e = NULL;
}

static fl_status event_record(fl_device *d, fl_event *e, fl_stream *s)
{
    return FL_OK;
}

static fl_status event_wait(fl_device *d, fl_event *e)
{
    return FL_OK;
}

static fl_status stream_wait(fl_device *d, fl_stream *s, fl_event *e)
{
    return FL_OK;
}

static fl_status event_elapsed(fl_device *d, const fl_event *from, const fl_event *to, double *us)
{
    *us = 0.0;
    return FL_OK;
}

static fl_status event_reached(fl_device *d, fl_event *e, bool *reached)
{
    *reached = true;
    return FL_OK;
}

static fl_status sync(fl_device *d, fl_stream *s)
{
    return FL_OK;
}

static void destroy(fl_device *d)
{
    fl_free(d);
}

static void weight_release(fl_device *d, fl_weight *w)
{
}

static fl_status linear(fl_device *d, fl_stream *s, const fl_linear_args *a)
{
    count(d, a->m * a->w->rows * a->w->cols);
    return FL_OK;
}

static fl_status linear_backward_input(fl_device *d, fl_stream *s,
                                       const fl_linear_backward_input_args *a)
{
    count(d, a->m * a->w->rows * a->w->cols);
    return FL_OK;
}

static fl_status linear_backward_weights(fl_device *d, fl_stream *s,
                                         const fl_linear_backward_weights_args *a)
{
    count(d, a->m * a->n_out * a->n_in);
    return FL_OK;
}

/* One product over each sample's pairs of tokens, all heads. */
static int64_t pairs(const fl_attention_args *a)
{
    int64_t n = 0;
    for (int64_t i = 0; i < a->offsets.n_samples; i++) {
        int64_t length = a->offsets.host[i + 1] - a->offsets.host[i];
        n += a->causal ? length * (length + 1) / 2 : length * length;
    }
    return n * a->width;
}

static fl_status attention(fl_device *d, fl_stream *s, const fl_attention_args *a)
{
    count(d, 2 * pairs(a)); /* scores, and the sums that they weigh */
    return FL_OK;
}

static fl_status attention_backward(fl_device *d, fl_stream *s, const fl_attention_backward_args *a)
{
    count(d, 4 * pairs(&a->forward)); /* both products, each two ways */
    return FL_OK;
}

/* The other kernels: nothing to count. */
#define NOTHING(kernel, args)                                                                      \
    static fl_status kernel(fl_device *d, fl_stream *s, const args *a)                             \
    {                                                                                              \
        return FL_OK;                                                                              \
    }

NOTHING(activate, fl_activate_args)
NOTHING(activate_backward, fl_activate_backward_args)
NOTHING(layernorm, fl_norm_args)
NOTHING(layernorm_backward, fl_norm_backward_args)
NOTHING(rmsnorm, fl_norm_args)
NOTHING(rmsnorm_backward, fl_norm_backward_args)
NOTHING(dropout, fl_dropout_args)
NOTHING(add, fl_add_args)
NOTHING(convert, fl_convert_args)
NOTHING(gather_rows, fl_gather_rows_args)
NOTHING(scatter_rows, fl_scatter_rows_args)
NOTHING(embed, fl_embed_args)
NOTHING(embed_backward, fl_embed_backward_args)
NOTHING(patchify, fl_patchify_args)
NOTHING(patchify_backward, fl_patchify_args)
NOTHING(vit_assemble, fl_vit_assemble_args)
NOTHING(vit_assemble_backward, fl_vit_assemble_backward_args)
NOTHING(cross_entropy, fl_cross_entropy_args)
NOTHING(span_cross_entropy, fl_span_cross_entropy_args)
NOTHING(squared_error, fl_squared_error_args)

static fl_status add_to_sum(fl_device *d, fl_stream *s, double value, double *sum)
{
    return FL_OK;
}

static fl_status adamw_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                            const fl_adamw_step *step)
{
    return FL_OK;
}

static fl_status sgd_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                          const fl_sgd_step *step)
{
    return FL_OK;
}

static fl_status sum_squares_many(fl_device *d, fl_stream *s, const fl_square_sum *list, int n)
{
    return FL_OK;
}

static const fl_device_ops null_ops = {
    .version = FL_DEVICE_OPS_VERSION,
    .size_bytes = sizeof(fl_device_ops),
    .kind = "null",
    .host_memory = true,
    .memory_take = memory_take,
    .memory_reserve = memory_take,
    .memory_give = memory_give,
    .memory_share = memory_share,
    .memory_export = fl_device_no_export,
    .view_open = fl_device_no_view,
    .view_close = fl_device_no_view_close,
    .host_take = memory_take,
    .host_give = memory_give,
    .host_pin = fl_device_no_pin,
    .host_unpin = fl_device_no_unpin,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy_within,
    .fill_zero = fill_zero,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .sync = sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
    .event_elapsed = event_elapsed,
    .event_reached = event_reached,
    .stream_native = fl_device_no_native,
    .capture_begin = fl_device_no_capture,
    .capture_end = fl_device_no_capture_end,
    .graph_launch = fl_device_no_launch,
    .graph_destroy = fl_device_no_graph_destroy,
    .destroy = destroy,
    .weight_release = weight_release,
    .linear = linear,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weights = linear_backward_weights,
    .activate = activate,
    .activate_backward = activate_backward,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .rmsnorm = rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .attention = attention,
    .attention_backward = attention_backward,
    .dropout = dropout,
    .add = add,
    .convert = convert,
    .gather_rows = gather_rows,
    .scatter_rows = scatter_rows,
    .embed = embed,
    .embed_backward = embed_backward,
    .patchify = patchify,
    .patchify_backward = patchify_backward,
    .vit_assemble = vit_assemble,
    .vit_assemble_backward = vit_assemble_backward,
    .cross_entropy = cross_entropy,
    .span_cross_entropy = span_cross_entropy,
    .squared_error = squared_error,
    .add_to_sum = add_to_sum,
    .adamw_many = adamw_many,
    .sgd_many = sgd_many,
    .sum_squares_many = sum_squares_many,
};

fl_status fl_device_null_create(fl_device **out)
{
    void *memory = NULL;
    FL_TRY(fl_alloc(sizeof(null_device), &memory));
    null_device *device = memory;
    device->base = (fl_device){.ops = &null_ops, .n_threads = 1, .budget_bytes = SIZE_MAX};
    *out = &device->base;
    return FL_OK;
}

int64_t fl_device_null_flops(const fl_device *device)
{
    return ((const null_device *)device)->n_flops;
}
