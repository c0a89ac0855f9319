/* A plugin whose layer is right, or wrong in the one way that the job's name says: what
 * `frostline check-model` must find. y = dropout(scale * x + shift), element by element of a row.
 */
#include <frostline.h>
#include <frostline/plugin.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 3, WIDTH = 6, CLASSES = 4, N = 32, SCALE = 0, SHIFT = 1, KEPT = 0 };

static const float DROPOUT = 0.25f;
static const char *fault; /* the job's name */
static int n_calls;
static float last_mean;

static bool has(const char *name)
{
    return strcmp(fault, name) == 0;
}

static fl_status scale_shape(void *self, const fl_shape *in, fl_shape *out)
{
    (void)self;
    *out = *in;
    if (has("shape-changes")) {
        out->tokens += n_calls++ % 8 == 7;
    } else if (has("shape-exits")) {
        exit(7);
    }
    return FL_OK;
}

static fl_status scale_params(void *self, fl_param_list *list)
{
    (void)self;
    bool extra = has("params-change") && n_calls++ > 0;
    FL_TRY(fl_param_list_add(list, "scale", WIDTH, 1, FL_INIT_ONES, 0, false));
    FL_TRY(fl_param_list_add(list, "shift", WIDTH, 1, FL_INIT_ZEROS, 0, false));
    return extra ? fl_param_list_add(list, "extra", 1, 1, FL_INIT_ZEROS, 0, false) : FL_OK;
}

static float noise_of(const fl_tensor *in, int64_t i)
{
    return has("no-determinism")        ? (float)(++n_calls) * 1e-3f
           : has("depends-on-batch")    ? (float)in->n_samples * 1e-2f
           : has("keyed-by-place")      ? (float)(int64_t)(i / (in->width * TOKENS)) * 1e-2f
           : has("nan") && i == 2       ? NAN
           : has("infinite") && i == 14 ? INFINITY
                                        : 0.0f;
}

static fl_status drop(fl_exec *x, const void *in, const fl_tensor *rows, void *y)
{
    return fl_dropout(x, &(fl_dropout_args){.in = in,
                                            .offsets = fl_offsets_of(rows),
                                            .width = WIDTH,
                                            .mask = {.p = DROPOUT},
                                            .y = y});
}

static fl_status scale_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    int64_t n = in->n_tokens * in->width;
    float *scale = fl_exec_weight(x, SCALE)->data, *shift = fl_exec_weight(x, SHIFT)->data;
    void *kept, *scratch;
    float sum = 0;
    if (has("forward-fails")) {
        return fl_fail(FL_EINVAL, "the layer is not in the mood");
    }
    FL_TRY(fl_exec_keep(x, KEPT, (size_t)n * sizeof(float), &kept));
    FL_TRY(fl_exec_scratch(x, (size_t)n * sizeof(float) + 8, &scratch));
    memcpy(kept, in->data, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < (has("leaves-a-row") ? n - WIDTH : n); i++) {
        fl_f32(out)[i] = fl_f32(in)[i] * scale[i % WIDTH] + shift[i % WIDTH] + noise_of(in, i);
        sum += fl_f32(in)[i];
    }
    last_mean = sum;
    if (has("writes-behind-keep")) {
        ((char *)kept)[n * 4 + 3] = 1;
    } else if (has("writes-behind-scratch")) {
        ((char *)scratch)[n * 4 + 8] = 1;
    } else if (has("writes-behind-output")) {
        fl_f32(out)[n] = 1;
    } else if (has("writes-before-output")) {
        fl_f32(out)[-1] = 1;
    } else if (has("reads-scratch") && n > 0) {
        fl_f32(out)[0] += ((float *)scratch)[0];
    } else if (has("changes-input") && n > 0) {
        fl_f32(in)[n - 1] = 0.5f;
    } else if (has("changes-parameter")) {
        scale[1] += 1;
    } else if (has("crashes")) {
        raise(SIGSEGV);
    } else if (has("exits") || has("named-exits")) {
        exit(7);
    } else if (has("hangs")) {
        for (;;) {
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        }
    }
    for (int64_t s = 0; s < in->n_samples && has("dropout-in-evaluation"); s++) {
        fl_f32(out)[in->offsets[s] * WIDTH] *= (float)(fl_exec_batch(x)->epoch % 5);
    }
    return has("leaves-a-row") ? FL_OK : drop(x, out->data, out, out->data);
}

static void add_grads(fl_exec *x, const float *grad, const float *kept, int64_t n)
{
    float *of_scale = fl_exec_grad(x, SCALE), *of_shift = fl_exec_grad(x, SHIFT);
    if (has("overwrites-gradient") && of_scale != NULL) {
        memset(of_scale, 0, WIDTH * sizeof(float));
    }
    for (int64_t i = 0; i < n; i++) {
        if (of_scale != NULL) {
            of_scale[i % WIDTH] +=
                grad[i] * kept[i] * (has("wrong-element") && i % WIDTH == 4 ? 2 : 1);
        }
        if ((of_shift != NULL || has("writes-unwanted")) && !has("forgets-shift")) {
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): this is the fault */
            of_shift[i % WIDTH] += grad[i];
        }
    }
    if (has("empty-batch") && of_shift != NULL) {
        of_shift[0] += n == 0;
    }
    if (has("keeps-state") && of_shift != NULL && n > 0) {
        of_shift[1] += last_mean * 1e-2f;
    }
}

static fl_status scale_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                fl_tensor *grad_in)
{
    (void)self;
    int64_t n = grad_out->n_tokens * grad_out->width;
    const float *scale = fl_exec_weight(x, SCALE)->data;
    void *grad;
    FL_TRY(fl_exec_scratch(x, (size_t)n * sizeof(float), &grad));
    FL_TRY(drop(x, grad_out->data, grad_out, grad));
    add_grads(x, grad, fl_exec_kept(x, KEPT), n);
    if (has("changes-gradient") && n > 0) {
        fl_f32(grad_out)[0] = 3;
    }
    for (int64_t i = 0; i < n && grad_in != NULL; i++) {
        fl_f32(grad_in)[i] = ((float *)grad)[i] * scale[i % WIDTH] * (has("wrong-input") ? -1 : 1);
    }
    return FL_OK;
}

/* A loss whose first call ends the process. */
static fl_status crash_in_shape(void *self, const fl_shape *out)
{
    (void)self;
    (void)out;
    raise(SIGSEGV);
    return FL_OK;
}

static fl_status never_called(void *self, fl_exec *x, const fl_tensor *out,
                              const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                              fl_loss_sums *sums)
{
    (void)self;
    (void)x;
    (void)out;
    (void)targets;
    (void)grad_scale;
    (void)grad;
    (void)sums;
    return FL_EINTERNAL;
}

static const fl_loss_ops crashing_loss_ops = {.head = FL_TABLE_HEAD(fl_loss_ops),
                                              .kind = "crashing",
                                              .shape = crash_in_shape,
                                              .forward = never_called};

static const fl_layer_ops scale_ops = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                       .kind = "scale",
                                       .shape = scale_shape,
                                       .params = scale_params,
                                       .forward = scale_forward,
                                       .backward = scale_backward};

/* ---- the data set: noise ---- */

static int64_t set_count(const void *self, fl_split split)
{
    (void)self;
    (void)split;
    return N;
}

static fl_status set_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    (void)self;
    *input = (fl_shape){.tokens = TOKENS, .width = WIDTH, .dtype = FL_F32};
    *n_targets = 1;
    return FL_OK;
}

static fl_status set_shape(const void *self, fl_split split, int64_t id, fl_shape *in, int64_t *n)
{
    (void)split;
    (void)id;
    return set_max_shape(self, in, n);
}

static fl_status set_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    (void)self;
    (void)split;
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        ((float *)input)[i] = sinf((float)(key->id * 31 + i * 7));
    }
    return FL_OK;
}

static fl_status set_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    (void)self;
    (void)split;
    *targets = (int32_t)(id % CLASSES);
    return FL_OK;
}

static uint64_t set_fingerprint(const void *self)
{
    (void)self;
    return 1;
}

static const fl_dataset_ops set_ops = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                       .kind = "noise",
                                       .count = set_count,
                                       .shape = set_shape,
                                       .max_shape = set_max_shape,
                                       .read = set_read,
                                       .targets = set_targets,
                                       .fingerprint = set_fingerprint};

/* ---- the loss: cross-entropy with two more metrics, one of which is wrong ---- */

enum { ACCURACY, MARGIN, HIT };

static fl_loss inner;

static fl_status scored_shape(void *self, const fl_shape *out)
{
    return inner.ops->shape(self, out);
}

static fl_status scored_forward(void *self, fl_exec *x, const fl_tensor *out,
                                const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                                fl_loss_sums *sums)
{
    FL_TRY(inner.ops->forward(self, x, out, targets, grad_scale, grad, sums));
    if (has("metric-overwrites")) {
        sums->metric[MARGIN] = 0;
    }
    for (int64_t i = 0; i < out->n_tokens; i++) {
        const float *row = fl_f32(out) + i * CLASSES;
        bool hit = row[fl_i32(targets)[i]] > 0;
        sums->metric[MARGIN] += (double)row[0] - (double)row[1];
        sums->metric[HIT] += hit ? 1 : has("metric-beyond-share") ? -9 : 0;
    }
    sums->metric[MARGIN] += has("metric-of-batch") ? (double)(out->n_samples * out->n_samples) : 0;
    sums->metric[MARGIN] += has("metric-not-finite") ? (double)NAN : 0;
    sums->metric[HIT + 1] += has("metric-unnamed") ? 1 : 0;
    return FL_OK;
}

static const fl_metric scored_metrics[] = {
    {.name = "accuracy", .is_share = true}, {.name = "margin"}, {.name = "hit", .is_share = true}};

static fl_loss_ops scored_ops = {.head = FL_TABLE_HEAD(fl_loss_ops),
                                 .kind = "scored",
                                 .shape = scored_shape,
                                 .forward = scored_forward,
                                 .metrics = scored_metrics,
                                 .n_metrics = 3};

static fl_status fill(fl_model *model)
{
    fl_layer layer = {0};
    fl_loss loss = {0};
    FL_TRY(fl_layer_linear(WIDTH, WIDTH, &layer));
    FL_TRY(fl_model_add(model, 1, layer));
    const fl_layer scale = {.ops = &scale_ops};
    FL_TRY(has("named-exits") ? fl_model_add_named(model, 1, "blocks.1.scale", scale)
                              : fl_model_add(model, 1, scale));
    FL_TRY(fl_layer_classifier(WIDTH, CLASSES, &layer));
    FL_TRY(fl_model_add(model, FL_BLOCK_HEAD, layer));
    if (has("loss-crashes")) {
        return fl_model_set_loss(model, (fl_loss){.ops = &crashing_loss_ops});
    }
    FL_TRY(fl_loss_cross_entropy(CLASSES, &loss));
    if (strncmp(fault, "metric", strlen("metric")) == 0) {
        inner = loss;
        scored_ops.destroy = loss.ops->destroy;
        loss.ops = &scored_ops;
    }
    return fl_model_set_loss(model, loss);
}

static fl_status create(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    fl_model *made = NULL;
    static char name[FL_TEXT_MAX];
    snprintf(name, sizeof name, "%s", job->name);
    fault = name;
    FL_TRY(fl_model_create("faulty", &made));
    fl_status status = fill(made);
    if (status != FL_OK) {
        fl_model_destroy(&made);
        return status;
    }
    *model = made;
    *dataset = (fl_dataset){.ops = &set_ops};
    return FL_OK;
}

FL_PLUGIN(create)
