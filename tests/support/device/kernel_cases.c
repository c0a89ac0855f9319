#include "support/device/kernel_cases.h"

#include "device/system/alloc.h"
#include "support/device/kernel_arrays.h"

#define RUN(kernel, ...)                                                                           \
    (r->status != FL_OK ? r->status : r->device->ops->kernel(r->device, r->stream, __VA_ARGS__))

/* ---- cases ---- */

static fl_status run_linear(kernel_rig *r)
{
    fl_weight w = kernel_weight(r, OUT, WIDTH), bias = kernel_weight(r, 1, OUT);
    const fl_linear_args a = {.in = kernel_floats(r, TOKENS * WIDTH),
                              .w = &w,
                              .bias = &bias,
                              .activation = FL_ACT_GELU_TANH,
                              .pre = kernel_floats(r, TOKENS * OUT),
                              .y = kernel_floats(r, TOKENS * OUT),
                              .m = TOKENS};
    return RUN(linear, &a);
}

static fl_status run_linear_residual(kernel_rig *r)
{
    fl_weight w = kernel_weight(r, OUT, WIDTH);
    float *y = kernel_floats(r, TOKENS * OUT);
    const fl_linear_args a = {
        .in = kernel_floats(r, TOKENS * WIDTH), .w = &w, .residual = y, .y = y, .m = TOKENS};
    return RUN(linear, &a);
}

static fl_status run_linear_backward_input(kernel_rig *r)
{
    fl_weight w = kernel_weight(r, OUT, WIDTH);
    const fl_linear_backward_input_args a = {.grad_out = kernel_floats(r, TOKENS * OUT),
                                             .w = &w,
                                             .grad_in = kernel_floats(r, TOKENS * WIDTH),
                                             .m = TOKENS};
    return RUN(linear_backward_input, &a);
}

static fl_status run_linear_backward_weights(kernel_rig *r)
{
    const fl_linear_backward_weights_args a = {.grad_out = kernel_floats(r, TOKENS * OUT),
                                               .in = kernel_floats(r, TOKENS * WIDTH),
                                               .grad_w = kernel_floats(r, OUT * WIDTH),
                                               .grad_bias = kernel_floats(r, OUT),
                                               .m = TOKENS,
                                               .n_out = OUT,
                                               .n_in = WIDTH};
    return RUN(linear_backward_weights, &a);
}

static fl_status run_activate(kernel_rig *r)
{
    const fl_activate_args a = {.activation = FL_ACT_SILU,
                                .in = kernel_floats(r, TOKENS * WIDTH),
                                .y = kernel_floats(r, TOKENS * WIDTH),
                                .n = TOKENS * WIDTH};
    return RUN(activate, &a);
}

static fl_status run_activate_backward(kernel_rig *r)
{
    const fl_activate_backward_args a = {.activation = FL_ACT_GELU_ERF,
                                         .grad_y = kernel_floats(r, TOKENS * WIDTH),
                                         .pre = kernel_floats(r, TOKENS * WIDTH),
                                         .grad_pre = kernel_floats(r, TOKENS * WIDTH),
                                         .y = kernel_floats(r, TOKENS * WIDTH),
                                         .n = TOKENS * WIDTH};
    return RUN(activate_backward, &a);
}

static fl_norm_args norm(kernel_rig *r, const fl_weight *gamma, const fl_weight *beta)
{
    return (fl_norm_args){.in = kernel_floats(r, TOKENS * WIDTH),
                          .residual = kernel_floats(r, TOKENS * WIDTH),
                          .gamma = gamma,
                          .beta = beta,
                          .epsilon = 1e-5f,
                          .sum = kernel_floats(r, TOKENS * WIDTH),
                          .y = kernel_floats(r, TOKENS * WIDTH),
                          .mean = beta == NULL ? NULL : kernel_floats(r, TOKENS),
                          .rstd = kernel_floats(r, TOKENS),
                          .m = TOKENS,
                          .n = WIDTH};
}

static fl_norm_backward_args norm_backward(kernel_rig *r, const fl_weight *gamma, bool layer)
{
    return (fl_norm_backward_args){.grad_y = kernel_floats(r, TOKENS * WIDTH),
                                   .in = kernel_floats(r, TOKENS * WIDTH),
                                   .gamma = gamma,
                                   .mean = layer ? kernel_floats(r, TOKENS) : NULL,
                                   .rstd = kernel_floats(r, TOKENS),
                                   .grad_residual = kernel_floats(r, TOKENS * WIDTH),
                                   .grad_in = kernel_floats(r, TOKENS * WIDTH),
                                   .grad_gamma = kernel_floats(r, WIDTH),
                                   .grad_beta = layer ? kernel_floats(r, WIDTH) : NULL,
                                   .m = TOKENS,
                                   .n = WIDTH};
}

static fl_status run_layernorm(kernel_rig *r)
{
    fl_weight gamma = kernel_weight(r, 1, WIDTH), beta = kernel_weight(r, 1, WIDTH);
    fl_norm_args a = norm(r, &gamma, &beta);
    return RUN(layernorm, &a);
}

static fl_status run_layernorm_backward(kernel_rig *r)
{
    fl_weight gamma = kernel_weight(r, 1, WIDTH);
    fl_norm_backward_args a = norm_backward(r, &gamma, true);
    return RUN(layernorm_backward, &a);
}

static fl_status run_rmsnorm(kernel_rig *r)
{
    fl_weight gamma = kernel_weight(r, 1, WIDTH);
    fl_norm_args a = norm(r, &gamma, NULL);
    return RUN(rmsnorm, &a);
}

static fl_status run_rmsnorm_backward(kernel_rig *r)
{
    fl_weight gamma = kernel_weight(r, 1, WIDTH);
    fl_norm_backward_args a = norm_backward(r, &gamma, false);
    return RUN(rmsnorm_backward, &a);
}

static fl_attention_args attention(kernel_rig *r)
{
    return (fl_attention_args){.qkv = kernel_floats(r, TOKENS * 3 * WIDTH),
                               .offsets = kernel_offsets(r),
                               .heads = HEADS,
                               .width = WIDTH,
                               .causal = true,
                               .mask = kernel_mask(r),
                               .y = kernel_floats(r, TOKENS * WIDTH),
                               .lse = kernel_floats(r, TOKENS * HEADS)};
}

static fl_status run_attention(kernel_rig *r)
{
    fl_attention_args a = attention(r);
    return RUN(attention, &a);
}

static fl_status run_attention_backward(kernel_rig *r)
{
    const fl_attention_backward_args a = {.forward = attention(r),
                                          .grad_y = kernel_floats(r, TOKENS * WIDTH),
                                          .grad_qkv = kernel_floats(r, TOKENS * 3 * WIDTH)};
    return RUN(attention_backward, &a);
}

static fl_status run_dropout(kernel_rig *r)
{
    const fl_dropout_args a = {.in = kernel_floats(r, TOKENS * WIDTH),
                               .offsets = kernel_offsets(r),
                               .width = WIDTH,
                               .mask = kernel_mask(r),
                               .y = kernel_floats(r, TOKENS * WIDTH)};
    return RUN(dropout, &a);
}

static fl_status run_add(kernel_rig *r)
{
    const fl_add_args a = {.a = kernel_floats(r, TOKENS * WIDTH),
                           .b = kernel_floats(r, TOKENS * WIDTH),
                           .y = kernel_floats(r, TOKENS * WIDTH),
                           .n = TOKENS * WIDTH};
    return RUN(add, &a);
}

static fl_status run_convert(kernel_rig *r)
{
    const fl_convert_args a = {.in = kernel_floats(r, TOKENS * WIDTH),
                               .y = kernel_floats(r, TOKENS * WIDTH / 2),
                               .from = FL_F32,
                               .to = FL_BF16,
                               .n = TOKENS * WIDTH};
    return RUN(convert, &a);
}

static fl_status run_gather_rows(kernel_rig *r)
{
    const fl_gather_rows_args a = {.in = kernel_floats(r, TOKENS * WIDTH),
                                   .index = kernel_ints(r, 4, TOKENS),
                                   .y = kernel_floats(r, 4 * WIDTH),
                                   .n_rows = 4,
                                   .width = WIDTH};
    return RUN(gather_rows, &a);
}

static fl_status run_scatter_rows(kernel_rig *r)
{
    const fl_scatter_rows_args a = {.in = kernel_floats(r, 4 * WIDTH),
                                    .index = kernel_ints(r, 4, TOKENS),
                                    .y = kernel_floats(r, TOKENS * WIDTH),
                                    .n_rows = 4,
                                    .total_rows = TOKENS,
                                    .width = WIDTH};
    return RUN(scatter_rows, &a);
}

enum { VOCABULARY = 13 };

/* Tokens, places and types. */
static fl_embed_args embed(kernel_rig *r, const fl_weight table[FL_EMBED_TABLES], bool backward)
{
    fl_embed_args a = {.offsets = kernel_offsets(r), .n_tables = 3, .width = WIDTH};
    for (int i = 0; i < a.n_tables; i++) {
        a.table[i].weight = &table[i];
        a.table[i].grad = backward ? kernel_floats(r, table[i].rows * WIDTH) : NULL;
        a.table[i].stride = 1;
    }
    a.table[0].ids = kernel_ints(r, TOKENS, VOCABULARY);
    a.table[2].ids = kernel_ints(r, TOKENS, 2);
    a.y = backward ? NULL : kernel_floats(r, TOKENS * WIDTH);
    return a;
}

static fl_status run_embed(kernel_rig *r)
{
    const fl_weight table[] = {kernel_weight(r, VOCABULARY, WIDTH), kernel_weight(r, TOKENS, WIDTH),
                               kernel_weight(r, 2, WIDTH)};
    fl_embed_args a = embed(r, table, false);
    return RUN(embed, &a);
}

static fl_status run_embed_backward(kernel_rig *r)
{
    const fl_weight table[] = {kernel_weight(r, VOCABULARY, WIDTH), kernel_weight(r, TOKENS, WIDTH),
                               kernel_weight(r, 2, WIDTH)};
    const fl_embed_backward_args a = {.forward = embed(r, table, true),
                                      .grad_y = kernel_floats(r, TOKENS * WIDTH)};
    return RUN(embed_backward, &a);
}

enum { IMAGES = 2, CHANNELS = 3, HEIGHT = 6, ACROSS = 8, PATCH = 2 };
enum { PIXELS = IMAGES * CHANNELS * HEIGHT * ACROSS };

static fl_patchify_args patchify(kernel_rig *r)
{
    return (fl_patchify_args){.images = kernel_floats(r, PIXELS),
                              .patches = kernel_floats(r, PIXELS),
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
    fl_weight cls = kernel_weight(r, 1, WIDTH), pos = kernel_weight(r, PATCHES + 1, WIDTH);
    const fl_vit_assemble_args a = {.patches = kernel_floats(r, IMAGES * PATCHES * WIDTH),
                                    .cls = &cls,
                                    .pos = &pos,
                                    .y = kernel_floats(r, IMAGES * (PATCHES + 1) * WIDTH),
                                    .n = IMAGES,
                                    .n_patches = PATCHES,
                                    .dim = WIDTH};
    return RUN(vit_assemble, &a);
}

static fl_status run_vit_assemble_backward(kernel_rig *r)
{
    const fl_vit_assemble_backward_args a = {
        .grad_y = kernel_floats(r, IMAGES * (PATCHES + 1) * WIDTH),
        .grad_patches = kernel_floats(r, IMAGES * PATCHES * WIDTH),
        .grad_cls = kernel_floats(r, WIDTH),
        .grad_pos = kernel_floats(r, (PATCHES + 1) * WIDTH),
        .n = IMAGES,
        .n_patches = PATCHES,
        .dim = WIDTH};
    return RUN(vit_assemble_backward, &a);
}

static fl_status run_cross_entropy(kernel_rig *r)
{
    const fl_cross_entropy_args a = {.logits = kernel_floats(r, TOKENS * WIDTH),
                                     .targets = kernel_ints(r, TOKENS, WIDTH),
                                     .grad_scale = 0.5f,
                                     .grad = kernel_floats(r, TOKENS * WIDTH),
                                     .loss = kernel_doubles(r, 1),
                                     .n_correct = kernel_doubles(r, 1),
                                     .n_counted = kernel_doubles(r, 1),
                                     .n_positive = kernel_doubles(r, 1),
                                     .n_true_positive = kernel_doubles(r, 1),
                                     .m = TOKENS,
                                     .n = WIDTH};
    return RUN(cross_entropy, &a);
}

static fl_status run_span_cross_entropy(kernel_rig *r)
{
    const fl_span_cross_entropy_args a = {.logits = kernel_floats(r, TOKENS * 2),
                                          .offsets = kernel_offsets(r),
                                          .targets = kernel_ints(r, SAMPLES * 2, 1),
                                          .columns = 2,
                                          .grad_scale = 0.5f,
                                          .grad = kernel_floats(r, TOKENS * 2),
                                          .loss = kernel_doubles(r, 1),
                                          .n_correct = kernel_doubles(r, 1),
                                          .n_counted = kernel_doubles(r, 1)};
    return RUN(span_cross_entropy, &a);
}

static fl_status run_squared_error(kernel_rig *r)
{
    const fl_squared_error_args a = {.out = kernel_floats(r, TOKENS * WIDTH),
                                     .targets = kernel_floats(r, TOKENS * WIDTH),
                                     .grad_scale = 0.5f,
                                     .grad = kernel_floats(r, TOKENS * WIDTH),
                                     .square_sum = kernel_doubles(r, 1),
                                     .absolute_sum = kernel_doubles(r, 1),
                                     .n = TOKENS * WIDTH};
    return RUN(squared_error, &a);
}

static fl_status run_add_to_sum(kernel_rig *r)
{
    return RUN(add_to_sum, 0.75, kernel_doubles(r, 2) + 1);
}

/* More tensors than fit one piece of a list; all lie in the same arrays. */
enum { TENSORS = 21, LENGTH = 33 };

static void updates(kernel_rig *r, fl_update list[TENSORS], int n_moments)
{
    float *w = kernel_floats(r, TENSORS * LENGTH), *g = kernel_floats(r, TENSORS * LENGTH);
    float *m = kernel_floats(r, TENSORS * LENGTH), *v = NULL;
    if (n_moments > 1) {
        v = kernel_array(r, (float[TENSORS * LENGTH]){0.25f, 1.0f}, TENSORS * LENGTH * sizeof *v);
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
    float *x = kernel_floats(r, TENSORS * LENGTH);
    double *out = kernel_array(r, (double[TENSORS]){1.0}, TENSORS * sizeof *out);
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
