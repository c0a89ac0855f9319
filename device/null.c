/* The device of dry runs: the memory planner drives real layers through it to learn what they
 * take. Kernels compute nothing; memory is address space that no page stands behind until it is
 * written, and reads as zeros. */
#include "device/alloc.h"
#include "device/device.h"

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

static fl_status linear(fl_device *d, fl_stream *s, const float *in, fl_weight *w,
                        const float *bias, const float *residual, bool gelu, float *pre, float *y,
                        int64_t m)
{
    count(d, m * w->rows * w->cols);
    return FL_OK;
}

static fl_status linear_backward_input(fl_device *d, fl_stream *s, const float *grad_out,
                                       fl_weight *w, float *grad_in, int64_t m)
{
    count(d, m * w->rows * w->cols);
    return FL_OK;
}

static fl_status linear_backward_weights(fl_device *d, fl_stream *s, const float *grad_out,
                                         const float *in, float *grad_w, float *grad_bias,
                                         int64_t m, int64_t n_out, int64_t n_in)
{
    count(d, m * n_out * n_in);
    return FL_OK;
}

static fl_status gelu_backward(fl_device *d, fl_stream *s, const float *grad_y, const float *pre,
                               float *grad_pre, float *y, int64_t n)
{
    return FL_OK;
}

static fl_status layernorm(fl_device *d, fl_stream *s, const float *in, const float *residual,
                           const float *gamma, const float *beta, float eps, float *sum, float *y,
                           float *mean, float *rstd, int64_t m, int64_t n)
{
    return FL_OK;
}

static fl_status layernorm_backward(fl_device *d, fl_stream *s, const float *grad_y,
                                    const float *in, const float *gamma, const float *mean,
                                    const float *rstd, const float *grad_residual, float *grad_in,
                                    float *grad_gamma, float *grad_beta, int64_t m, int64_t n)
{
    return FL_OK;
}

/* One product over each sample's pairs of tokens, all heads. */
static int64_t pairs(const int32_t *offsets, int64_t n_samples, int64_t width, bool causal)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_samples; i++) {
        int64_t length = offsets[i + 1] - offsets[i];
        n += causal ? length * (length + 1) / 2 : length * length;
    }
    return n * width;
}

static fl_status attention(fl_device *d, fl_stream *s, const float *qkv, const int32_t *offsets,
                           int64_t n_samples, int64_t heads, int64_t width, bool causal, float *y,
                           float *lse)
{
    count(d, 2 * pairs(offsets, n_samples, width, causal)); /* scores, and what they weigh */
    return FL_OK;
}

static fl_status attention_backward(fl_device *d, fl_stream *s, const float *grad_y,
                                    const float *qkv, const float *y, const float *lse,
                                    const int32_t *offsets, int64_t n_samples, int64_t heads,
                                    int64_t width, bool causal, float *grad_qkv)
{
    count(d, 4 * pairs(offsets, n_samples, width, causal)); /* both products, each two ways */
    return FL_OK;
}

static fl_status dropout(fl_device *d, fl_stream *s, const float *in, const int32_t *offsets,
                         const int64_t *sample_ids, int64_t n_samples, int64_t width, float p,
                         const fl_rng_key *key, float *y)
{
    return FL_OK;
}

static fl_status add(fl_device *d, fl_stream *s, const float *a, const float *b, float *y,
                     int64_t n)
{
    return FL_OK;
}

static fl_status gather_rows(fl_device *d, fl_stream *s, const float *in, const int32_t *index,
                             int64_t n_rows, int64_t width, float *y)
{
    return FL_OK;
}

static fl_status scatter_rows(fl_device *d, fl_stream *s, const float *in, const int32_t *index,
                              int64_t n_rows, int64_t width, float *y, int64_t total_rows)
{
    return FL_OK;
}

static fl_status patchify(fl_device *d, fl_stream *s, const float *images, int64_t n,
                          int64_t channels, int64_t height, int64_t width, int64_t patch, float *y)
{
    return FL_OK;
}

static fl_status vit_assemble(fl_device *d, fl_stream *s, const float *patches, const float *cls,
                              const float *pos, int64_t n, int64_t n_patches, int64_t dim, float *y)
{
    return FL_OK;
}

static fl_status vit_assemble_backward(fl_device *d, fl_stream *s, const float *grad_y, int64_t n,
                                       int64_t n_patches, int64_t dim, float *grad_patches,
                                       float *grad_cls, float *grad_pos)
{
    return FL_OK;
}

static fl_status cross_entropy(fl_device *d, fl_stream *s, const float *logits,
                               const int32_t *targets, int64_t m, int64_t n, float grad_scale,
                               float *grad, double *loss_sum, double *n_correct)
{
    return FL_OK;
}

static fl_status adamw(fl_device *d, fl_stream *s, float *w, const float *g, float *m, float *v,
                       int64_t n, const fl_adamw_step *step)
{
    return FL_OK;
}

static fl_status sgd(fl_device *d, fl_stream *s, float *w, const float *g, float *momentum,
                     int64_t n, const fl_sgd_step *step)
{
    return FL_OK;
}

static fl_status sum_squares(fl_device *d, fl_stream *s, const float *g, int64_t n, double *out)
{
    *out = 0.0;
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
    .host_take = memory_take,
    .host_give = memory_give,
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
    .destroy = destroy,
    .weight_release = weight_release,
    .linear = linear,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weights = linear_backward_weights,
    .gelu_backward = gelu_backward,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .attention = attention,
    .attention_backward = attention_backward,
    .dropout = dropout,
    .add = add,
    .gather_rows = gather_rows,
    .scatter_rows = scatter_rows,
    .patchify = patchify,
    .vit_assemble = vit_assemble,
    .vit_assemble_backward = vit_assemble_backward,
    .cross_entropy = cross_entropy,
    .adamw = adamw,
    .sgd = sgd,
    .sum_squares = sum_squares,
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
