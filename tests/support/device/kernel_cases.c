#include "support/device/kernel_cases.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

#include <stdio.h>
#include <string.h>

/* Three samples of different length; widths that fill no vector. */
enum { SAMPLES = 3, TOKENS = 21, HEADS = 2, WIDTH = 22, OUT = 19 };
static const int32_t row_offsets[SAMPLES + 1] = {0, 9, 10, TOKENS};
static const int64_t sample_ids[SAMPLES] = {70, 4, INT64_C(5000000000)};

/* ---- arrays ---- */

/* Device memory with a copy of `from`, waited for: the caller's memory may go. */
static void *array(kernel_rig *r, const void *from, size_t size_bytes)
{
    void *memory = NULL;
    if (r->status == FL_OK && r->n_arrays == CASE_ARRAYS_MAX) {
        r->status = fl_fail(FL_EINTERNAL, "a case has more than %d arrays", CASE_ARRAYS_MAX);
    }
    if (r->status == FL_OK) {
        r->status = fl_device_alloc(r->device, size_bytes, "array", &memory);
    }
    if (r->status != FL_OK) {
        return NULL;
    }
    r->array[r->n_arrays].memory = memory;
    r->array[r->n_arrays++].size_bytes = size_bytes;
    r->status = r->device->ops->copy_in(r->device, r->stream, memory, from, size_bytes);
    fl_status waited = r->device->ops->sync(r->device, r->stream);
    r->status = r->status == FL_OK ? waited : r->status;
    return memory;
}

/* n floats in [-1, 1), one in eight of them too small to be normal. */
static float *floats(kernel_rig *r, int64_t n)
{
    float host[4096];
    for (int64_t i = 0; i < n && i < 4096; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {(uint32_t)r->n_arrays, 7};
        uint32_t word[4];
        fl_philox(counter, key, word);
        host[i] = (2.0f * fl_unit(word[0]) - 1.0f) * (word[1] % 8 == 0 ? 1e-39f : 1.0f);
    }
    if (r->status == FL_OK && n > 4096) {
        r->status = fl_fail(FL_EINTERNAL, "%lld floats in a case", (long long)n);
    }
    return array(r, host, (size_t)(n > 4096 ? 0 : n) * sizeof *host);
}

static double *doubles(kernel_rig *r, int64_t n)
{
    double host[8] = {0.5, -0.25, 3.0, 0.0, 1.0, 2.0, -7.0, 0.125};
    return array(r, host, (size_t)(n > 8 ? 8 : n) * sizeof *host);
}

static int32_t *ints(kernel_rig *r, int64_t n, int32_t below)
{
    int32_t host[64];
    for (int64_t i = 0; i < n && i < 64; i++) {
        host[i] = (int32_t)(i * 5 + 3) % below;
    }
    return array(r, host, (size_t)(n > 64 ? 64 : n) * sizeof *host);
}

static fl_weight weight(kernel_rig *r, int64_t rows, int64_t cols)
{
    return (fl_weight){.data = floats(r, rows * cols), .rows = rows, .cols = cols, .version = 1};
}

static fl_offsets offsets(kernel_rig *r)
{
    return (fl_offsets){
        .host = row_offsets, .device = array(r, row_offsets, sizeof row_offsets), SAMPLES};
}

static fl_mask mask(kernel_rig *r)
{
    static const uint64_t epoch_key = 0x123456789abcdef;
    return (fl_mask){.p = 0.3f,
                     .stream = 2,
                     .layer = 5,
                     .sample_ids = sample_ids,
                     .sample_ids_device = array(r, sample_ids, sizeof sample_ids),
                     .epoch_key_device = array(r, &epoch_key, sizeof epoch_key)};
}

#define RUN(kernel, ...)                                                                           \
    (r->status != FL_OK ? r->status : r->device->ops->kernel(r->device, r->stream, __VA_ARGS__))

/* ---- cases ---- */

static fl_status run_linear(kernel_rig *r)
{
    fl_weight w = weight(r, OUT, WIDTH), bias = weight(r, 1, OUT);
    const fl_linear_args a = {.in = floats(r, TOKENS * WIDTH),
                              .w = &w,
                              .bias = &bias,
                              .activation = FL_ACT_GELU_TANH,
                              .pre = floats(r, TOKENS * OUT),
                              .y = floats(r, TOKENS * OUT),
                              .m = TOKENS};
    return RUN(linear, &a);
}

static fl_status run_linear_residual(kernel_rig *r)
{
    fl_weight w = weight(r, OUT, WIDTH);
    float *y = floats(r, TOKENS * OUT);
    const fl_linear_args a = {
        .in = floats(r, TOKENS * WIDTH), .w = &w, .residual = y, .y = y, .m = TOKENS};
    return RUN(linear, &a);
}

static fl_status run_linear_backward_input(kernel_rig *r)
{
    fl_weight w = weight(r, OUT, WIDTH);
    const fl_linear_backward_input_args a = {.grad_out = floats(r, TOKENS * OUT),
                                             .w = &w,
                                             .grad_in = floats(r, TOKENS * WIDTH),
                                             .m = TOKENS};
    return RUN(linear_backward_input, &a);
}

static fl_status run_linear_backward_weights(kernel_rig *r)
{
    const fl_linear_backward_weights_args a = {.grad_out = floats(r, TOKENS * OUT),
                                               .in = floats(r, TOKENS * WIDTH),
                                               .grad_w = floats(r, OUT * WIDTH),
                                               .grad_bias = floats(r, OUT),
                                               .m = TOKENS,
                                               .n_out = OUT,
                                               .n_in = WIDTH};
    return RUN(linear_backward_weights, &a);
}

static fl_status run_activate(kernel_rig *r)
{
    const fl_activate_args a = {.activation = FL_ACT_SILU,
                                .in = floats(r, TOKENS * WIDTH),
                                .y = floats(r, TOKENS * WIDTH),
                                .n = TOKENS * WIDTH};
    return RUN(activate, &a);
}

static fl_status run_activate_backward(kernel_rig *r)
{
    const fl_activate_backward_args a = {.activation = FL_ACT_GELU_ERF,
                                         .grad_y = floats(r, TOKENS * WIDTH),
                                         .pre = floats(r, TOKENS * WIDTH),
                                         .grad_pre = floats(r, TOKENS * WIDTH),
                                         .y = floats(r, TOKENS * WIDTH),
                                         .n = TOKENS * WIDTH};
    return RUN(activate_backward, &a);
}

static fl_norm_args norm(kernel_rig *r, const fl_weight *gamma, const fl_weight *beta)
{
    return (fl_norm_args){.in = floats(r, TOKENS * WIDTH),
                          .residual = floats(r, TOKENS * WIDTH),
                          .gamma = gamma,
                          .beta = beta,
                          .epsilon = 1e-5f,
                          .sum = floats(r, TOKENS * WIDTH),
                          .y = floats(r, TOKENS * WIDTH),
                          .mean = beta == NULL ? NULL : floats(r, TOKENS),
                          .rstd = floats(r, TOKENS),
                          .m = TOKENS,
                          .n = WIDTH};
}

static fl_norm_backward_args norm_backward(kernel_rig *r, const fl_weight *gamma, bool layer)
{
    return (fl_norm_backward_args){.grad_y = floats(r, TOKENS * WIDTH),
                                   .in = floats(r, TOKENS * WIDTH),
                                   .gamma = gamma,
                                   .mean = layer ? floats(r, TOKENS) : NULL,
                                   .rstd = floats(r, TOKENS),
                                   .grad_residual = floats(r, TOKENS * WIDTH),
                                   .grad_in = floats(r, TOKENS * WIDTH),
                                   .grad_gamma = floats(r, WIDTH),
                                   .grad_beta = layer ? floats(r, WIDTH) : NULL,
                                   .m = TOKENS,
                                   .n = WIDTH};
}

static fl_status run_layernorm(kernel_rig *r)
{
    fl_weight gamma = weight(r, 1, WIDTH), beta = weight(r, 1, WIDTH);
    fl_norm_args a = norm(r, &gamma, &beta);
    return RUN(layernorm, &a);
}

static fl_status run_layernorm_backward(kernel_rig *r)
{
    fl_weight gamma = weight(r, 1, WIDTH);
    fl_norm_backward_args a = norm_backward(r, &gamma, true);
    return RUN(layernorm_backward, &a);
}

static fl_status run_rmsnorm(kernel_rig *r)
{
    fl_weight gamma = weight(r, 1, WIDTH);
    fl_norm_args a = norm(r, &gamma, NULL);
    return RUN(rmsnorm, &a);
}

static fl_status run_rmsnorm_backward(kernel_rig *r)
{
    fl_weight gamma = weight(r, 1, WIDTH);
    fl_norm_backward_args a = norm_backward(r, &gamma, false);
    return RUN(rmsnorm_backward, &a);
}

static fl_attention_args attention(kernel_rig *r)
{
    return (fl_attention_args){.qkv = floats(r, TOKENS * 3 * WIDTH),
                               .offsets = offsets(r),
                               .heads = HEADS,
                               .width = WIDTH,
                               .causal = true,
                               .mask = mask(r),
                               .y = floats(r, TOKENS * WIDTH),
                               .lse = floats(r, TOKENS * HEADS)};
}

static fl_status run_attention(kernel_rig *r)
{
    fl_attention_args a = attention(r);
    return RUN(attention, &a);
}

static fl_status run_attention_backward(kernel_rig *r)
{
    const fl_attention_backward_args a = {.forward = attention(r),
                                          .grad_y = floats(r, TOKENS * WIDTH),
                                          .grad_qkv = floats(r, TOKENS * 3 * WIDTH)};
    return RUN(attention_backward, &a);
}

static fl_status run_dropout(kernel_rig *r)
{
    const fl_dropout_args a = {.in = floats(r, TOKENS * WIDTH),
                               .offsets = offsets(r),
                               .width = WIDTH,
                               .mask = mask(r),
                               .y = floats(r, TOKENS * WIDTH)};
    return RUN(dropout, &a);
}

static fl_status run_add(kernel_rig *r)
{
    const fl_add_args a = {.a = floats(r, TOKENS * WIDTH),
                           .b = floats(r, TOKENS * WIDTH),
                           .y = floats(r, TOKENS * WIDTH),
                           .n = TOKENS * WIDTH};
    return RUN(add, &a);
}

static fl_status run_convert(kernel_rig *r)
{
    const fl_convert_args a = {.in = floats(r, TOKENS * WIDTH),
                               .y = floats(r, TOKENS * WIDTH / 2),
                               .from = FL_F32,
                               .to = FL_BF16,
                               .n = TOKENS * WIDTH};
    return RUN(convert, &a);
}

static fl_status run_gather_rows(kernel_rig *r)
{
    const fl_gather_rows_args a = {.in = floats(r, TOKENS * WIDTH),
                                   .index = ints(r, 4, TOKENS),
                                   .y = floats(r, 4 * WIDTH),
                                   .n_rows = 4,
                                   .width = WIDTH};
    return RUN(gather_rows, &a);
}

static fl_status run_scatter_rows(kernel_rig *r)
{
    const fl_scatter_rows_args a = {.in = floats(r, 4 * WIDTH),
                                    .index = ints(r, 4, TOKENS),
                                    .y = floats(r, TOKENS * WIDTH),
                                    .n_rows = 4,
                                    .total_rows = TOKENS,
                                    .width = WIDTH};
    return RUN(scatter_rows, &a);
}

enum { VOCABULARY = 13 };

/* Tokens, places and types. */
static fl_embed_args embed(kernel_rig *r, const fl_weight table[FL_EMBED_TABLES], bool backward)
{
    fl_embed_args a = {.offsets = offsets(r), .n_tables = 3, .width = WIDTH};
    for (int i = 0; i < a.n_tables; i++) {
        a.table[i].weight = &table[i];
        a.table[i].grad = backward ? floats(r, table[i].rows * WIDTH) : NULL;
        a.table[i].stride = 1;
    }
    a.table[0].ids = ints(r, TOKENS, VOCABULARY);
    a.table[2].ids = ints(r, TOKENS, 2);
    a.y = backward ? NULL : floats(r, TOKENS * WIDTH);
    return a;
}

static fl_status run_embed(kernel_rig *r)
{
    const fl_weight table[] = {weight(r, VOCABULARY, WIDTH), weight(r, TOKENS, WIDTH),
                               weight(r, 2, WIDTH)};
    fl_embed_args a = embed(r, table, false);
    return RUN(embed, &a);
}

static fl_status run_embed_backward(kernel_rig *r)
{
    const fl_weight table[] = {weight(r, VOCABULARY, WIDTH), weight(r, TOKENS, WIDTH),
                               weight(r, 2, WIDTH)};
    const fl_embed_backward_args a = {.forward = embed(r, table, true),
                                      .grad_y = floats(r, TOKENS * WIDTH)};
    return RUN(embed_backward, &a);
}

enum { IMAGES = 2, CHANNELS = 3, HEIGHT = 6, ACROSS = 8, PATCH = 2 };
enum { PIXELS = IMAGES * CHANNELS * HEIGHT * ACROSS };

static fl_patchify_args patchify(kernel_rig *r)
{
    return (fl_patchify_args){.images = floats(r, PIXELS),
                              .patches = floats(r, PIXELS),
                              .n = IMAGES,
                              .channels = CHANNELS,
                              .height = HEIGHT,
                              .width = ACROSS,
                              .patch = PATCH};
}

static fl_status run_patchify(kernel_rig *r)
{
    fl_patchify_args a = patchify(r);
    return RUN(patchify, &a);
}

static fl_status run_patchify_backward(kernel_rig *r)
{
    fl_patchify_args a = patchify(r);
    return RUN(patchify_backward, &a);
}

enum { PATCHES = 4 };

static fl_status run_vit_assemble(kernel_rig *r)
{
    fl_weight cls = weight(r, 1, WIDTH), pos = weight(r, PATCHES + 1, WIDTH);
    const fl_vit_assemble_args a = {.patches = floats(r, IMAGES * PATCHES * WIDTH),
                                    .cls = &cls,
                                    .pos = &pos,
                                    .y = floats(r, IMAGES * (PATCHES + 1) * WIDTH),
                                    .n = IMAGES,
                                    .n_patches = PATCHES,
                                    .dim = WIDTH};
    return RUN(vit_assemble, &a);
}

static fl_status run_vit_assemble_backward(kernel_rig *r)
{
    const fl_vit_assemble_backward_args a = {.grad_y = floats(r, IMAGES * (PATCHES + 1) * WIDTH),
                                             .grad_patches = floats(r, IMAGES * PATCHES * WIDTH),
                                             .grad_cls = floats(r, WIDTH),
                                             .grad_pos = floats(r, (PATCHES + 1) * WIDTH),
                                             .n = IMAGES,
                                             .n_patches = PATCHES,
                                             .dim = WIDTH};
    return RUN(vit_assemble_backward, &a);
}

static fl_status run_cross_entropy(kernel_rig *r)
{
    const fl_cross_entropy_args a = {.logits = floats(r, TOKENS * WIDTH),
                                     .targets = ints(r, TOKENS, WIDTH),
                                     .grad_scale = 0.5f,
                                     .grad = floats(r, TOKENS * WIDTH),
                                     .loss = doubles(r, 1),
                                     .n_correct = doubles(r, 1),
                                     .n_counted = doubles(r, 1),
                                     .n_positive = doubles(r, 1),
                                     .n_true_positive = doubles(r, 1),
                                     .m = TOKENS,
                                     .n = WIDTH};
    return RUN(cross_entropy, &a);
}

static fl_status run_span_cross_entropy(kernel_rig *r)
{
    const fl_span_cross_entropy_args a = {.logits = floats(r, TOKENS * 2),
                                          .offsets = offsets(r),
                                          .targets = ints(r, SAMPLES * 2, 1),
                                          .columns = 2,
                                          .grad_scale = 0.5f,
                                          .grad = floats(r, TOKENS * 2),
                                          .loss = doubles(r, 1),
                                          .n_correct = doubles(r, 1),
                                          .n_counted = doubles(r, 1)};
    return RUN(span_cross_entropy, &a);
}

static fl_status run_squared_error(kernel_rig *r)
{
    const fl_squared_error_args a = {.out = floats(r, TOKENS * WIDTH),
                                     .targets = floats(r, TOKENS * WIDTH),
                                     .grad_scale = 0.5f,
                                     .grad = floats(r, TOKENS * WIDTH),
                                     .square_sum = doubles(r, 1),
                                     .absolute_sum = doubles(r, 1),
                                     .n = TOKENS * WIDTH};
    return RUN(squared_error, &a);
}

static fl_status run_add_to_sum(kernel_rig *r)
{
    return RUN(add_to_sum, 0.75, doubles(r, 2) + 1);
}

/* More tensors than fit one piece of a list; all lie in the same arrays. */
enum { TENSORS = 21, LENGTH = 33 };

static void updates(kernel_rig *r, fl_update list[TENSORS], int n_moments)
{
    float *w = floats(r, TENSORS * LENGTH), *g = floats(r, TENSORS * LENGTH);
    float *m = floats(r, TENSORS * LENGTH), *v = NULL;
    if (n_moments > 1) {
        v = array(r, (float[TENSORS * LENGTH]){0.25f, 1.0f}, TENSORS * LENGTH * sizeof *v);
    }
    for (int i = 0; i < TENSORS && r->status == FL_OK; i++) {
        int at = i * LENGTH;
        list[i] = (fl_update){.w = w + at,
                              .g = g + at,
                              .moment = {m + at, v == NULL ? NULL : v + at},
                              .n = LENGTH,
                              .weight_decay = i % 2 == 0 ? 0.0f : 0.1f,
                              .rate = i % 3 == 0 ? 1.0f : 0.5f};
    }
}

static fl_status run_adamw_many(kernel_rig *r)
{
    fl_update list[TENSORS] = {0};
    const fl_adamw_step step = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.5f};
    updates(r, list, 2);
    return RUN(adamw_many, list, TENSORS, &step);
}

static fl_status run_sgd_many(kernel_rig *r)
{
    fl_update list[TENSORS] = {0};
    const fl_sgd_step step = {1e-3f, 0.9f, 0.5f};
    updates(r, list, 1);
    return RUN(sgd_many, list, TENSORS, &step);
}

static fl_status run_sum_squares_many(kernel_rig *r)
{
    fl_square_sum list[TENSORS] = {0};
    float *x = floats(r, TENSORS * LENGTH);
    double *out = array(r, (double[TENSORS]){1.0}, TENSORS * sizeof *out);
    for (int i = 0; i < TENSORS && r->status == FL_OK; i++) {
        list[i] = (fl_square_sum){.x = x + i * LENGTH, .n = LENGTH, .out = out + i};
    }
    return RUN(sum_squares_many, list, TENSORS);
}

/* ---- all of them ---- */

const kernel_case *kernel_case_at(int index)
{
    static const kernel_case cases[] = {
        {"linear", run_linear},
        {"linear", run_linear_residual},
        {"linear_backward_input", run_linear_backward_input},
        {"linear_backward_weights", run_linear_backward_weights},
        {"activate", run_activate},
        {"activate_backward", run_activate_backward},
        {"layernorm", run_layernorm},
        {"layernorm_backward", run_layernorm_backward},
        {"rmsnorm", run_rmsnorm},
        {"rmsnorm_backward", run_rmsnorm_backward},
        {"attention", run_attention},
        {"attention_backward", run_attention_backward},
        {"dropout", run_dropout},
        {"add", run_add},
        {"convert", run_convert},
        {"gather_rows", run_gather_rows},
        {"scatter_rows", run_scatter_rows},
        {"embed", run_embed},
        {"embed_backward", run_embed_backward},
        {"patchify", run_patchify},
        {"patchify_backward", run_patchify_backward},
        {"vit_assemble", run_vit_assemble},
        {"vit_assemble_backward", run_vit_assemble_backward},
        {"cross_entropy", run_cross_entropy},
        {"span_cross_entropy", run_span_cross_entropy},
        {"squared_error", run_squared_error},
        {"add_to_sum", run_add_to_sum},
        {"adamw_many", run_adamw_many},
        {"sgd_many", run_sgd_many},
        {"sum_squares_many", run_sum_squares_many},
        {NULL, NULL},
    };
    return cases[index].kernel == NULL ? NULL : &cases[index];
}

static fl_status fetch(kernel_rig *r, unsigned char **out, size_t *size_bytes)
{
    void *all = NULL;
    size_t at = 0;
    *size_bytes = 0;
    for (int i = 0; i < r->n_arrays; i++) {
        *size_bytes += r->array[i].size_bytes;
    }
    FL_TRY(fl_alloc(*size_bytes, &all));
    fl_status status = FL_OK;
    for (int i = 0; status == FL_OK && i < r->n_arrays; i++) {
        status = r->device->ops->copy_out(r->device, r->stream, (char *)all + at,
                                          r->array[i].memory, r->array[i].size_bytes);
        at += r->array[i].size_bytes;
    }
    fl_status waited = r->device->ops->sync(r->device, r->stream);
    status = status == FL_OK ? waited : status;
    if (status != FL_OK) {
        fl_free(all);
        return status;
    }
    *out = all;
    return FL_OK;
}

fl_status kernel_case_run(const kernel_case *c, fl_device *device, fl_stream *stream,
                          unsigned char **out, size_t *size_bytes)
{
    kernel_rig r = {.device = device, .stream = stream};
    fl_status status = c->run(&r);
    if (status == FL_OK) {
        status = fetch(&r, out, size_bytes);
    } else {
        fl_status waited = device->ops->sync(device, stream); /* before its memory goes */
        (void)waited;
    }
    for (int i = 0; i < r.n_arrays; i++) {
        fl_device_free(device, r.array[i].memory, r.array[i].size_bytes);
    }
    return status;
}
