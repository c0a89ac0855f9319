#include "support/device/kernel_pairs.h"

#include "device/bf16.h"
#include "device/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS_MAX = 24, IDS = 13, CLASSES = 7, OUT = 19 };
static const int64_t sample_ids[] = {70, 4, INT64_C(5000000000), 9, 11};

typedef enum element { VALUES, FLOATS, DOUBLES, INTS, LONGS } element;

/* The arrays of a call on one device. VALUES are of `dtype`. */
typedef struct rig {
    fl_device *device;
    fl_dtype dtype;
    bool rounded; /* values are rounded to bf16, whatever their type is */
    const pair_shape *shape;
    fl_weight weights[8];
    int n_weights, n_arrays;
    struct {
        void *memory; /* of the device */
        void *host;   /* what is copied there, and back from there in the end */
        int64_t n;
        element element;
    } array[ARRAYS_MAX];
    fl_status status; /* of the first failure */
} rig;

static size_t size_of(const rig *r, element e)
{
    static const size_t sizes[] = {0, sizeof(float), sizeof(double), sizeof(int32_t),
                                   sizeof(int64_t)};
    return e == VALUES ? fl_dtype_size(r->dtype) : sizes[e];
}

static size_t bytes_of(const rig *r, int array)
{
    return (size_t)r->array[array].n * size_of(r, r->array[array].element);
}

/* Exactly n elements, so that an access beyond the end shows. Returns the host's copy, for
 * `upload`; NULL after a failure. */
static void *array(rig *r, element e, int64_t n)
{
    void *memory = NULL, *host = NULL;
    if (r->status == FL_OK && r->n_arrays == ARRAYS_MAX) {
        r->status = fl_fail(FL_EINTERNAL, "a case has more than %d arrays", ARRAYS_MAX);
    }
    if (r->status == FL_OK) {
        r->status = fl_device_alloc(r->device, (size_t)n * size_of(r, e), "array", &memory);
    }
    if (r->status == FL_OK) {
        host = calloc((size_t)n + 1, sizeof(double));
        r->array[r->n_arrays].memory = memory;
        r->array[r->n_arrays].host = host;
        r->array[r->n_arrays].n = n;
        r->array[r->n_arrays++].element = e;
        r->status = host == NULL ? fl_fail(FL_ENOMEM, "no memory") : FL_OK;
    }
    return host;
}

/* The last array, as the host has filled it. Returns the device's memory; NULL after a failure. */
static void *upload(rig *r)
{
    const fl_device_ops *ops = r->device->ops;
    int last = r->n_arrays - 1;
    if (r->status == FL_OK) {
        r->status = ops->copy_in(r->device, NULL, r->array[last].memory, r->array[last].host,
                                 bytes_of(r, last));
    }
    if (r->status == FL_OK) {
        r->status = ops->sync(r->device, NULL);
    }
    return r->status == FL_OK ? r->array[last].memory : NULL;
}

static fl_status download(const rig *r)
{
    const fl_device_ops *ops = r->device->ops;
    for (int i = 0; i < r->n_arrays; i++) {
        FL_TRY(
            ops->copy_out(r->device, NULL, r->array[i].host, r->array[i].memory, bytes_of(r, i)));
    }
    return ops->sync(r->device, NULL);
}

/* Uniform in [-1, 1), a function of the array's number and the place. */
static float drawn(const rig *r, int64_t i)
{
    const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {(uint32_t)r->n_arrays, 7};
    uint32_t word[4];
    fl_philox(counter, key, word);
    return 2.0f * fl_unit(word[0]) - 1.0f;
}

static float *floats(rig *r, int64_t n)
{
    float *x = array(r, FLOATS, n);
    for (int64_t i = 0; i < n && x != NULL; i++) {
        x[i] = drawn(r, i);
    }
    return upload(r);
}

/* Activations. */
static void *values(rig *r, int64_t n)
{
    void *memory = array(r, VALUES, n);
    for (int64_t i = 0; i < n && memory != NULL; i++) {
        float x = drawn(r, i);
        uint16_t half;
        fl_bf16_narrow(&x, 1, &half);
        if (r->dtype == FL_BF16) {
            ((uint16_t *)memory)[i] = half;
        } else if (r->rounded) {
            fl_bf16_widen(&half, 1, (float *)memory + i);
        } else {
            ((float *)memory)[i] = x;
        }
    }
    return upload(r);
}

static double *doubles(rig *r, int64_t n)
{
    double *x = array(r, DOUBLES, n);
    for (int64_t i = 0; i < n && x != NULL; i++) {
        x[i] = 0.5;
    }
    return upload(r);
}

/* In 0 .. below - 1, every seventh ignored (-1) if `ignored`. */
static int32_t *ints(rig *r, int64_t n, int64_t below, bool ignored)
{
    int32_t *x = array(r, INTS, n);
    for (int64_t i = 0; i < n && x != NULL; i++) {
        x[i] = ignored && i % 7 == 3 ? -1 : (int32_t)((i * 5 + 3) % below);
    }
    return upload(r);
}

static fl_weight *weight(rig *r, int64_t rows, int64_t cols)
{
    fl_weight *w = &r->weights[r->n_weights++];
    *w = (fl_weight){.data = floats(r, rows * cols), .rows = rows, .cols = cols, .version = 1};
    return w;
}

static int64_t tokens(const rig *r)
{
    return r->shape->offsets[r->shape->n_samples];
}

static int64_t size(const rig *r)
{
    return tokens(r) * r->shape->width;
}

static fl_offsets offsets(rig *r)
{
    int64_t n = r->shape->n_samples + 1;
    int32_t *copy = array(r, INTS, n);
    if (copy != NULL) {
        memcpy(copy, r->shape->offsets, (size_t)n * sizeof *copy);
    }
    return (fl_offsets){.host = r->shape->offsets, .device = upload(r), .n_samples = n - 1};
}

static fl_mask mask(rig *r)
{
    int64_t n = r->shape->n_samples;
    int64_t *copy = array(r, LONGS, n);
    if (copy != NULL) {
        memcpy(copy, sample_ids, (size_t)n * sizeof *copy);
    }
    const int64_t *ids_device = upload(r);
    int64_t *epoch_key = array(r, LONGS, 1);
    if (epoch_key != NULL) {
        *epoch_key = 0x123456789abcdef;
    }
    return (fl_mask){.p = 0.3f,
                     .stream = 2,
                     .layer = 5,
                     .sample_ids = sample_ids,
                     .sample_ids_device = ids_device,
                     .epoch_key_device = upload(r)};
}

/* Run a kernel of the table once its arrays are there. */
#define RUN(kernel, ...)                                                                           \
    if (r->status == FL_OK) {                                                                      \
        r->status = r->device->ops->kernel(r->device, NULL, __VA_ARGS__);                          \
    }

/* ---- products ---- */

/* With a bias and an activation. pre: whether the sum before it is kept */
static void run_activated(rig *r, int64_t n_out, fl_activation activation, bool pre)
{
    const fl_linear_args a = {.dtype = r->dtype,
                              .in = values(r, size(r)),
                              .w = weight(r, n_out, r->shape->width),
                              .bias = weight(r, 1, n_out),
                              .activation = activation,
                              .pre = pre ? values(r, tokens(r) * n_out) : NULL,
                              .y = values(r, tokens(r) * n_out),
                              .m = tokens(r)};
    RUN(linear, &a)
}

static void run_linear(rig *r)
{
    run_activated(r, OUT, FL_ACT_GELU_TANH, true);
}

static void run_linear_of_eights(rig *r)
{
    run_activated(r, 24, FL_ACT_GELU_TANH, true);
}

static void run_linear_pre_not_kept(rig *r)
{
    run_activated(r, OUT, FL_ACT_GELU_TANH, false);
    run_activated(r, OUT, FL_ACT_GELU_ERF, false);
}

static void run_linear_erf(rig *r)
{
    run_activated(r, OUT, FL_ACT_GELU_ERF, true);
}

static void run_linear_residual(rig *r)
{
    void *y = values(r, tokens(r) * 70);
    const fl_linear_args a = {.dtype = r->dtype,
                              .in = values(r, size(r)),
                              .w = weight(r, 70, r->shape->width),
                              .residual = y,
                              .y = y,
                              .m = tokens(r)};
    RUN(linear, &a)
}

/* Neither bias nor anything else, then a residual that is not y. */
static void run_linear_plain(rig *r)
{
    fl_linear_args a = {.dtype = r->dtype,
                        .in = values(r, size(r)),
                        .w = weight(r, OUT, r->shape->width),
                        .y = values(r, tokens(r) * OUT),
                        .m = tokens(r)};
    RUN(linear, &a)
    a.bias = weight(r, 1, OUT);
    a.residual = values(r, tokens(r) * OUT);
    a.y = values(r, tokens(r) * OUT);
    RUN(linear, &a)
}

static void run_linear_backward_input(rig *r)
{
    const fl_linear_backward_input_args a = {.dtype = r->dtype,
                                             .grad_out = values(r, tokens(r) * OUT),
                                             .w = weight(r, OUT, r->shape->width),
                                             .grad_in = values(r, size(r)),
                                             .m = tokens(r)};
    RUN(linear_backward_input, &a)
}

static void run_linear_backward_weights(rig *r)
{
    fl_linear_backward_weights_args a = {.dtype = r->dtype,
                                         .grad_out = values(r, tokens(r) * OUT),
                                         .in = values(r, size(r)),
                                         .grad_w = floats(r, OUT * r->shape->width),
                                         .grad_bias = floats(r, OUT),
                                         .m = tokens(r),
                                         .n_out = OUT,
                                         .n_in = r->shape->width};
    RUN(linear_backward_weights, &a)
    a.grad_w = NULL;
    RUN(linear_backward_weights, &a)
}

/* ---- passes ---- */

/* Every activation in turn, on parts of the arrays, far from zero too. */
static void run_activate(rig *r)
{
    for (fl_activation kind = FL_ACT_NONE; kind <= FL_ACT_SILU; kind++) {
        const fl_activate_args a = {.dtype = r->dtype,
                                    .activation = kind,
                                    .in = values(r, size(r)),
                                    .y = values(r, size(r)),
                                    .n = size(r)};
        RUN(activate, &a)
    }
}

static void run_activate_backward(rig *r)
{
    for (fl_activation kind = FL_ACT_NONE; kind <= FL_ACT_SILU; kind++) {
        const fl_activate_backward_args a = {.dtype = r->dtype,
                                             .activation = kind,
                                             .grad_y = values(r, size(r)),
                                             .pre = values(r, size(r)),
                                             .grad_pre = values(r, size(r)),
                                             .y = kind % 2 == 0 ? NULL : values(r, size(r)),
                                             .n = size(r)};
        RUN(activate_backward, &a)
    }
}

static void run_add(rig *r)
{
    void *y = values(r, size(r));
    const fl_add_args a = {
        .dtype = r->dtype, .a = y, .b = values(r, size(r)), .y = y, .n = size(r)};
    RUN(add, &a)
}

static void run_dropout(rig *r)
{
    void *y = values(r, size(r));
    const fl_dropout_args a = {.dtype = r->dtype,
                               .in = y,
                               .offsets = offsets(r),
                               .width = r->shape->width,
                               .mask = mask(r),
                               .y = y};
    RUN(dropout, &a)
}

static void run_no_dropout(rig *r)
{
    const fl_dropout_args a = {.dtype = r->dtype,
                               .in = values(r, size(r)),
                               .offsets = offsets(r),
                               .width = r->shape->width,
                               .y = values(r, size(r))};
    RUN(dropout, &a)
}

/* ---- norms ---- */

static fl_norm_args norm(rig *r, bool layer, bool residual)
{
    void *in = values(r, size(r));
    return (fl_norm_args){.dtype = r->dtype,
                          .in = in,
                          .residual = residual ? values(r, size(r)) : NULL,
                          .gamma = weight(r, 1, r->shape->width),
                          .beta = layer ? weight(r, 1, r->shape->width) : NULL,
                          .epsilon = 1e-5f,
                          .sum = residual ? in : NULL,
                          .y = values(r, size(r)),
                          .mean = layer && residual ? floats(r, tokens(r)) : NULL,
                          .rstd = residual ? floats(r, tokens(r)) : NULL,
                          .m = tokens(r),
                          .n = r->shape->width};
}

static void run_layernorm(rig *r)
{
    const fl_norm_args a = norm(r, true, true);
    RUN(layernorm, &a)
}

static void run_layernorm_alone(rig *r)
{
    const fl_norm_args a = norm(r, true, false);
    RUN(layernorm, &a)
}

static void run_rmsnorm(rig *r)
{
    const fl_norm_args a = norm(r, false, true);
    RUN(rmsnorm, &a)
}

static fl_norm_backward_args norm_backward(rig *r, bool layer)
{
    void *grad_y = values(r, size(r));
    return (fl_norm_backward_args){.dtype = r->dtype,
                                   .grad_y = grad_y,
                                   .in = values(r, size(r)),
                                   .gamma = weight(r, 1, r->shape->width),
                                   .mean = layer ? floats(r, tokens(r)) : NULL,
                                   .rstd = floats(r, tokens(r)),
                                   .grad_residual = values(r, size(r)),
                                   .grad_in = grad_y,
                                   .grad_gamma = floats(r, r->shape->width),
                                   .grad_beta = layer ? floats(r, r->shape->width) : NULL,
                                   .m = tokens(r),
                                   .n = r->shape->width};
}

static void run_layernorm_backward(rig *r)
{
    const fl_norm_backward_args a = norm_backward(r, true);
    RUN(layernorm_backward, &a)
}

static void run_rmsnorm_backward(rig *r)
{
    const fl_norm_backward_args a = norm_backward(r, false);
    RUN(rmsnorm_backward, &a)
}

/* ---- attention ---- */

static fl_attention_args attention(rig *r, bool causal, bool dropped)
{
    return (fl_attention_args){.dtype = r->dtype,
                               .qkv = values(r, 3 * size(r)),
                               .offsets = offsets(r),
                               .heads = r->shape->heads,
                               .width = r->shape->width,
                               .causal = causal,
                               .scale =
                                   2.0f / sqrtf((float)r->shape->width / (float)r->shape->heads),
                               .mask = dropped ? mask(r) : (fl_mask){0},
                               .y = values(r, size(r)),
                               .lse = floats(r, tokens(r) * r->shape->heads)};
}

static void attend(rig *r, bool causal, bool dropped)
{
    const fl_attention_args a = attention(r, causal, dropped);
    RUN(attention, &a)
    const fl_attention_backward_args b = {
        .forward = a, .grad_y = values(r, size(r)), .grad_qkv = values(r, 3 * size(r))};
    RUN(attention_backward, &b)
}

static void run_attention(rig *r)
{
    attend(r, false, false);
}

static void run_attention_causal(rig *r)
{
    attend(r, true, false);
}

static void run_attention_dropped(rig *r)
{
    attend(r, true, true);
}

/* ---- rows ---- */

static void run_gather_rows(rig *r)
{
    int64_t n = tokens(r) == 0 ? 0 : 5;
    const fl_gather_rows_args a = {.dtype = r->dtype,
                                   .in = values(r, size(r)),
                                   .index = ints(r, n, n == 0 ? 1 : tokens(r), false),
                                   .y = values(r, n * r->shape->width),
                                   .n_rows = n,
                                   .width = r->shape->width};
    RUN(gather_rows, &a)
}

static void run_scatter_rows(rig *r)
{
    int64_t n = tokens(r) < 4 ? tokens(r) : 4;
    const fl_scatter_rows_args a = {.dtype = r->dtype,
                                    .in = values(r, n * r->shape->width),
                                    .index = ints(r, n, 23, false),
                                    .y = values(r, 23 * r->shape->width),
                                    .n_rows = n,
                                    .total_rows = 23,
                                    .width = r->shape->width};
    RUN(scatter_rows, &a)
}

/* Tokens, places and a type that all rows share; the backward skips one token. */
static fl_embed_args embed(rig *r, bool backward)
{
    fl_embed_args a = {.dtype = r->dtype,
                       .offsets = offsets(r),
                       .n_tables = 3,
                       .width = r->shape->width,
                       .y = backward ? NULL : values(r, size(r))};
    const int64_t rows[] = {IDS, tokens(r) + 1, 2};
    for (int k = 0; k < a.n_tables; k++) {
        a.table[k].weight = weight(r, rows[k], a.width);
        a.table[k].grad = backward ? floats(r, rows[k] * a.width) : NULL;
        a.table[k].stride = k == 0 ? 1 : 0;
    }
    a.table[0].ids = ints(r, tokens(r), IDS, false);
    a.table[0].skips = true;
    a.table[0].skipped = 8;
    a.table[2].ids = ints(r, 1, 2, false);
    return a;
}

static void run_embed(rig *r)
{
    const fl_embed_args a = embed(r, false);
    RUN(embed, &a)
}

static void run_embed_backward(rig *r)
{
    const fl_embed_backward_args b = {.forward = embed(r, true), .grad_y = values(r, size(r))};
    RUN(embed_backward, &b)
}

static fl_patchify_args patchify(rig *r)
{
    int64_t n = r->shape->n_samples, pixels = n * 3 * 6 * 8;
    return (fl_patchify_args){.dtype = r->dtype,
                              .images = values(r, pixels),
                              .patches = values(r, pixels),
                              .n = n,
                              .channels = 3,
                              .height = 6,
                              .width = 8,
                              .patch = 2};
}

static void run_patchify(rig *r)
{
    const fl_patchify_args a = patchify(r);
    RUN(patchify, &a)
}

static void run_patchify_backward(rig *r)
{
    const fl_patchify_args a = patchify(r);
    RUN(patchify_backward, &a)
}

enum { PATCHES = 4 };

static void run_vit_assemble(rig *r)
{
    int64_t n = r->shape->n_samples, dim = r->shape->width;
    const fl_vit_assemble_args a = {.dtype = r->dtype,
                                    .patches = values(r, n * PATCHES * dim),
                                    .cls = weight(r, 1, dim),
                                    .pos = weight(r, PATCHES + 1, dim),
                                    .y = values(r, n * (PATCHES + 1) * dim),
                                    .n = n,
                                    .n_patches = PATCHES,
                                    .dim = dim};
    RUN(vit_assemble, &a)
}

static void run_vit_assemble_backward(rig *r)
{
    int64_t n = r->shape->n_samples, dim = r->shape->width;
    const fl_vit_assemble_backward_args a = {.dtype = r->dtype,
                                             .grad_y = values(r, n * (PATCHES + 1) * dim),
                                             .grad_patches = values(r, n * PATCHES * dim),
                                             .grad_cls = floats(r, dim),
                                             .grad_pos = floats(r, (PATCHES + 1) * dim),
                                             .n = n,
                                             .n_patches = PATCHES,
                                             .dim = dim};
    RUN(vit_assemble_backward, &a)
}

/* ---- losses ---- */

static void classify(rig *r, int64_t n, int64_t n_classes)
{
    void *logits = values(r, tokens(r) * n);
    const fl_cross_entropy_args a = {.dtype = r->dtype,
                                     .logits = logits,
                                     .targets = ints(r, tokens(r), n_classes, true),
                                     .grad_scale = 0.5f,
                                     .grad = logits,
                                     .loss = doubles(r, 1),
                                     .n_correct = doubles(r, 1),
                                     .n_counted = doubles(r, 1),
                                     .n_positive = doubles(r, 1),
                                     .n_true_positive = doubles(r, 1),
                                     .m = tokens(r),
                                     .n = n,
                                     .n_classes = n_classes};
    RUN(cross_entropy, &a)
}

static void run_cross_entropy(rig *r)
{
    classify(r, CLASSES, CLASSES);
}

/* A vocabulary that is padded, and wider than a block. */
static void run_cross_entropy_padded(rig *r)
{
    classify(r, 320, 301);
}

/* Each target is a token of its sample. */
static void run_span_cross_entropy(rig *r)
{
    const fl_span_cross_entropy_args a = {.dtype = r->dtype,
                                          .logits = values(r, tokens(r) * 2),
                                          .offsets = offsets(r),
                                          .targets = ints(r, r->shape->n_samples * 2, 1, true),
                                          .columns = 2,
                                          .grad_scale = 0.5f,
                                          .grad = values(r, tokens(r) * 2),
                                          .loss = doubles(r, 1),
                                          .n_correct = doubles(r, 1),
                                          .n_counted = doubles(r, 1)};
    RUN(span_cross_entropy, &a)
}

static void run_squared_error(rig *r)
{
    const fl_squared_error_args a = {.dtype = r->dtype,
                                     .out = values(r, size(r)),
                                     .targets = floats(r, size(r)),
                                     .grad_scale = 0.5f,
                                     .grad = values(r, size(r)),
                                     .square_sum = doubles(r, 1),
                                     .absolute_sum = doubles(r, 1),
                                     .n = size(r)};
    RUN(squared_error, &a)
}

static void run_add_to_sum(rig *r)
{
    double *sums = doubles(r, 2);
    RUN(add_to_sum, 0.75, sums + 1)
}

/* ---- lists of tensors: more than one launch takes, one of several chunks, one empty ---- */

enum { TENSORS = 460 };

static int64_t length_of(int i)
{
    return i == 2 ? 5000 : i % 5;
}

static int64_t list_updates(rig *r, fl_update list[TENSORS], int n_moments)
{
    int64_t n = 0;
    for (int i = 0; i < TENSORS; i++) {
        n += length_of(i);
    }
    float *w = floats(r, n), *g = floats(r, n), *m = floats(r, n), *v = floats(r, n);
    for (int64_t i = 0; i < n && v != NULL; i++) {
        v[i] = fabsf(v[i]);
    }
    for (int64_t i = 0, at = 0; i < TENSORS && r->status == FL_OK; at += length_of((int)i), i++) {
        list[i] = (fl_update){.w = w + at,
                              .g = g + at,
                              .moment = {m + at, n_moments == 2 ? v + at : NULL},
                              .n = length_of((int)i),
                              .weight_decay = i % 2 == 0 ? 0.0f : 0.1f,
                              .rate = i % 3 == 0 ? 1.0f : 0.5f};
    }
    return n;
}

static void run_adamw_many(rig *r)
{
    fl_update list[TENSORS] = {0};
    const fl_adamw_step step = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.5f};
    (void)list_updates(r, list, 2);
    RUN(adamw_many, list, TENSORS, &step)
}

static void run_sgd_many(rig *r)
{
    fl_update list[TENSORS] = {0};
    const fl_sgd_step step = {1e-3f, 0.9f, 0.5f};
    (void)list_updates(r, list, 1);
    RUN(sgd_many, list, TENSORS, &step)
}

static void run_sum_squares_many(rig *r)
{
    fl_update updates[TENSORS] = {0};
    fl_square_sum list[TENSORS] = {0};
    (void)list_updates(r, updates, 1);
    double *out = doubles(r, TENSORS);
    for (int i = 0; i < TENSORS && out != NULL; i++) {
        list[i] = (fl_square_sum){.x = updates[i].g, .n = updates[i].n, .out = out + i};
    }
    RUN(sum_squares_many, list, TENSORS)
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    void (*run)(rig *r);
    bool once; /* its call depends on no shape */
} kernels[] = {
    {"linear", run_linear, false},
    {"linear of eights", run_linear_of_eights, false},
    {"linear, sum not kept", run_linear_pre_not_kept, false},
    {"linear, erf", run_linear_erf, false},
    {"linear, plain", run_linear_plain, false},
    {"linear, residual", run_linear_residual, false},
    {"linear_backward_input", run_linear_backward_input, false},
    {"linear_backward_weights", run_linear_backward_weights, false},
    {"activate", run_activate, false},
    {"activate_backward", run_activate_backward, false},
    {"add", run_add, false},
    {"dropout", run_dropout, false},
    {"dropout of nothing", run_no_dropout, false},
    {"layernorm", run_layernorm, false},
    {"layernorm without a residual", run_layernorm_alone, false},
    {"layernorm_backward", run_layernorm_backward, false},
    {"rmsnorm", run_rmsnorm, false},
    {"rmsnorm_backward", run_rmsnorm_backward, false},
    {"attention", run_attention, false},
    {"attention, causal", run_attention_causal, false},
    {"attention, causal, dropped", run_attention_dropped, false},
    {"gather_rows", run_gather_rows, false},
    {"scatter_rows", run_scatter_rows, false},
    {"embed", run_embed, false},
    {"embed_backward", run_embed_backward, false},
    {"patchify", run_patchify, false},
    {"patchify_backward", run_patchify_backward, false},
    {"vit_assemble", run_vit_assemble, false},
    {"vit_assemble_backward", run_vit_assemble_backward, false},
    {"cross_entropy", run_cross_entropy, false},
    {"cross_entropy, padded", run_cross_entropy_padded, false},
    {"span_cross_entropy", run_span_cross_entropy, false},
    {"squared_error", run_squared_error, false},
    {"add_to_sum", run_add_to_sum, true},
    {"adamw_many", run_adamw_many, true},
    {"sgd_many", run_sgd_many, true},
    {"sum_squares_many", run_sum_squares_many, true},
    {NULL, NULL, false},
};

const char *pair_kernel_at(int index)
{
    return kernels[index].name;
}

bool pair_kernel_has_shapes(int index)
{
    return !kernels[index].once;
}

const pair_shape *pair_shape_at(int index)
{
    static const pair_shape shapes[] = {
        {"three samples", 3, {0, 9, 10, 21}, 2, 22},
        {"one token", 1, {0, 1}, 1, 1},
        {"no token", 1, {0, 0}, 2, 8},
        {"empty samples", 4, {0, 0, 33, 33, 70}, 1, 64},
        {"a row behind whole tiles", 2, {0, 33, 98}, 3, 96},
        {"a wide head", 1, {0, 37}, 1, 100},
        {NULL, 0, {0}, 0, 0},
    };
    return shapes[index].name == NULL ? NULL : &shapes[index];
}

static double value_at(const rig *r, int array, int64_t i)
{
    const void *memory = r->array[array].host;
    float wide = 0.0f;
    switch (r->array[array].element) {
    case VALUES:
        if (r->dtype == FL_BF16) {
            fl_bf16_widen((const uint16_t *)memory + i, 1, &wide);
            return wide;
        }
        return ((const float *)memory)[i];
    case FLOATS:
        return ((const float *)memory)[i];
    case DOUBLES:
        return ((const double *)memory)[i];
    case INTS:
        return ((const int32_t *)memory)[i];
    case LONGS:
        return (double)((const int64_t *)memory)[i];
    }
    return 0.0;
}

static fl_status compare_array(const rig *got, const rig *want, int array, double tolerance)
{
    int64_t n = want->array[array].n;
    double largest = 1.0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(value_at(want, array, i)));
    }
    for (int64_t i = 0; i < n; i++) {
        double x = value_at(got, array, i), y = value_at(want, array, i);
        if (!(fabs(x - y) <= tolerance * largest)) {
            return fl_fail(FL_EINTERNAL, "array %d, element %lld of %lld: %.9g, wanted %.9g", array,
                           (long long)i, (long long)n, x, y);
        }
    }
    return FL_OK;
}

static void drop_arrays(rig *r)
{
    for (int i = 0; i < r->n_weights; i++) {
        r->device->ops->weight_release(r->device, &r->weights[i]);
    }
    for (int i = 0; i < r->n_arrays; i++) {
        free(r->array[i].host);
        fl_device_free(r->device, r->array[i].memory, bytes_of(r, i));
    }
}

fl_status pair_run(int index, const pair_shape *shape, fl_dtype dtype, fl_device *got,
                   fl_device *want, double tolerance)
{
    rig a = {.device = got, .dtype = dtype, .shape = shape};
    rig b = {.device = want, .dtype = FL_F32, .rounded = dtype == FL_BF16, .shape = shape};
    kernels[index].run(&a);
    if (a.status == FL_OK) {
        kernels[index].run(&b);
    }
    fl_status status = a.status == FL_OK ? b.status : a.status;
    status = status == FL_OK ? download(&a) : status;
    status = status == FL_OK ? download(&b) : status;
    for (int i = 0; i < b.n_arrays && status == FL_OK; i++) {
        status = compare_array(&a, &b, i, tolerance);
    }
    drop_arrays(&a);
    drop_arrays(&b);
    return status;
}
