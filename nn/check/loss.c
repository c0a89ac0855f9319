#include "nn/check/loss.h"

#include "device/system/alloc.h"
#include "nn/check/harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    N_DIRECTIONS = 3,
    STREAM_OUT = 2,
    STREAM_DIRECTION = 2000,
    STREAM_PARAM = 3000,
    FIRST_ID = 1000,
    ID_STEP = 7,
    PARAMS_MAX = 64
};

static const float GRAD_SCALE = 0.3f, OUT_DEVIATION = 2.0f, PARAM_NOISE = 0.3f;
static const double STEP = 1.0 / 64, ROUNDINGS = 8, SUM_TOLERANCE = 1e-5;
static const size_t DEVICE_BYTES = (size_t)1 << 40;

/* n values that a finite difference moves along d from v0. */
typedef struct moved_values {
    int64_t n;
    float *v, *v0, *grad, *d; /* [n], one allocation */
} moved_values;

typedef struct loss_check {
    const fl_model *model;
    const fl_check_options *options;
    fl_device *device;
    fl_arena scratch;
    fl_arena_guard guard;
    void *scratch_memory;
    int n_samples;
    int64_t ids[FL_CHECK_SAMPLES_MAX];
    int32_t offsets[FL_CHECK_SAMPLES_MAX + 1], part_offsets[2][FL_CHECK_SAMPLES_MAX + 1];
    moved_values out;               /* the output, a row of all samples */
    moved_values param[PARAMS_MAX]; /* of the last layer, which the loss may use */
    fl_weight weight[PARAMS_MAX];
    float *param_grad[PARAMS_MAX];
    fl_layer_params params;
    fl_tensor out_all, targets;
    double error;
    int n_failed;
} loss_check;

/* Samples from .. to - 1 as a micro-batch of their own. */
static fl_tensor part_of(const fl_tensor *t, int from, int to, int32_t *offsets)
{
    fl_tensor part = *t;
    int64_t first = t->offsets[from];
    for (int i = from; i <= to; i++) {
        offsets[i - from] = (int32_t)(t->offsets[i] - first);
    }
    part.data = (char *)t->data + (size_t)(first * t->width) * sizeof(float);
    part.offsets = part.offsets_device = offsets;
    part.n_samples = to - from;
    part.n_tokens = offsets[to - from];
    return part;
}

/* One call for samples from .. to - 1; the gradient goes to its rows of `grad`, unless NULL. */
static fl_status call_loss(loss_check *c, int from, int to, float *grad, fl_loss_sums *sums)
{
    fl_tensor out = part_of(&c->out_all, from, to, c->part_offsets[0]);
    fl_tensor targets = part_of(&c->targets, from, to, c->part_offsets[1]);
    fl_tensor to_grad = out;
    fl_batch batch = {.n_samples = to - from,
                      .sample_ids = c->ids + from,
                      .sample_ids_device = c->ids + from,
                      .seed = c->options->seed,
                      .n_global = c->n_samples};
    fl_exec x = {.device = c->device,
                 .batch = &batch,
                 .training = grad != NULL,
                 .keep = &c->scratch,
                 .scratch = &c->scratch,
                 .params = &c->params};
    c->guard.n = 0;
    to_grad.data = grad == NULL ? NULL : grad + c->out_all.offsets[from] * out.width;
    FL_TRY(fl_exec_loss(&x, c->model, &out, &targets, GRAD_SCALE, grad == NULL ? NULL : &to_grad,
                        sums));
    size_t off = 0;
    return fl_arena_guard_find(&c->guard, &off) == NULL
               ? FL_OK
               : fl_fail(FL_EINVAL, "it writes %zu bytes behind the end of its scratch memory",
                         off);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= SUM_TOLERANCE * fmax(1.0, fabs(b));
}

static fl_status compare_sum(const char *what, const char *name, double found, double expected)
{
    return near(found, expected)
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: %s %g found, %g expected", what, name, found, expected);
}

static fl_status compare_sums(const loss_check *c, const char *what, const fl_loss_sums *found,
                              const fl_loss_sums *expected, double more)
{
    FL_TRY(compare_sum(what, "loss", found->loss, expected->loss + more));
    FL_TRY(compare_sum(what, "targets", found->n_targets, expected->n_targets + more));
    const fl_metric_list metrics = fl_model_metrics(c->model);
    for (int i = 0; i < metrics.n; i++) {
        FL_TRY(compare_sum(what, metrics.metric[i].name, found->metric[i],
                           expected->metric[i] + more));
    }
    return FL_OK;
}

/* The sums of one call are numbers that a run can report. */
static fl_status check_values(const loss_check *c, const fl_loss_sums *sums)
{
    const fl_metric_list metrics = fl_model_metrics(c->model);
    if (!isfinite(sums->loss) || !(sums->n_targets > 0)) {
        return fl_fail(FL_EINVAL, "loss %g of %g targets", sums->loss, sums->n_targets);
    }
    for (int i = 0; i < FL_METRICS_MAX; i++) {
        double value = sums->metric[i];
        if (i >= metrics.n && value != 0) {
            return fl_fail(FL_EINVAL, "it adds to metric %d, but names %d", i, metrics.n);
        }
        const char *name = i < metrics.n ? metrics.metric[i].name : "";
        if (!isfinite(value)) {
            return fl_fail(FL_EINVAL, "metric %s: %g is not finite", name, value);
        }
        bool is_share = i < metrics.n && metrics.metric[i].is_share;
        if (is_share && !(value >= 0 && value <= sums->n_targets)) {
            return fl_fail(FL_EINVAL, "metric %s: %g of %g targets is no share", name, value,
                           sums->n_targets);
        }
    }
    return FL_OK;
}

static fl_status check_grad_written(const loss_check *c)
{
    int64_t width = c->out_all.width;
    for (int64_t i = 0; i < c->out.n; i++) {
        uint32_t bits;
        memcpy(&bits, &c->out.grad[i], sizeof bits);
        if (bits == FL_POISON || !isfinite(c->out.grad[i])) {
            return fl_fail(FL_EINVAL, "element [%lld, %lld] of the gradient is %s",
                           (long long)(i / width), (long long)(i % width),
                           bits == FL_POISON ? "not written" : "not finite");
        }
    }
    return FL_OK;
}

/* m->d: the gradient of all samples in one call. */
static fl_status compare_grads(const moved_values *m, const char *what)
{
    for (int64_t i = 0; i < m->n; i++) {
        if (!near((double)m->grad[i], (double)m->d[i])) {
            return fl_fail(FL_EINVAL, "the gradient of %s depends on how samples are batched",
                           what);
        }
    }
    return FL_OK;
}

static void keep_grads(loss_check *c)
{
    memcpy(c->out.d, c->out.grad, (size_t)c->out.n * sizeof(float));
    for (int i = 0; i < c->params.n; i++) {
        moved_values *m = &c->param[i];
        memcpy(m->d, m->grad, (size_t)m->n * sizeof(float));
        memset(m->grad, 0, (size_t)m->n * sizeof(float));
    }
}

static fl_status compare_all_grads(const loss_check *c)
{
    FL_TRY(compare_grads(&c->out, "the output"));
    for (int i = 0; i < c->params.n; i++) {
        FL_TRY(compare_grads(&c->param[i],
                             fl_model_param_name(c->model, fl_model_n_layers(c->model) - 1, i)));
    }
    return FL_OK;
}

static fl_status check_sums(loss_check *c)
{
    const uint32_t poison = FL_POISON;
    fl_loss_sums once = {0}, again = {.loss = 1, .n_targets = 1}, halves = {0};
    for (int i = 0; i < FL_METRICS_MAX; i++) {
        again.metric[i] = 1;
    }
    for (int64_t i = 0; i < c->out.n; i++) {
        memcpy(&c->out.grad[i], &poison, sizeof poison);
    }
    FL_TRY(call_loss(c, 0, c->n_samples, c->out.grad, &once));
    FL_TRY(check_values(c, &once));
    if (memcmp(c->out.v, c->out.v0, (size_t)c->out.n * sizeof(float)) != 0) {
        return fl_fail(FL_EINVAL, "it changes the output that it reads");
    }
    FL_TRY(check_grad_written(c));
    keep_grads(c);
    FL_TRY(call_loss(c, 0, c->n_samples, NULL, &again));
    FL_TRY(compare_sums(c, "it does not add to the sums, or differs without a gradient", &again,
                        &once, 1));
    FL_TRY(call_loss(c, 0, c->n_samples / 2, c->out.grad, &halves));
    FL_TRY(call_loss(c, c->n_samples / 2, c->n_samples, c->out.grad, &halves));
    FL_TRY(compare_sums(c, "it depends on how samples are batched", &halves, &once, 0));
    return compare_all_grads(c);
}

/* ---- finite differences: the output and the parameters move together ---- */

static void move(moved_values *m, double by)
{
    for (int64_t i = 0; i < m->n; i++) {
        m->v[i] = (float)((double)m->v0[i] + by * (double)m->d[i]);
    }
}

static void move_all(loss_check *c, double by)
{
    move(&c->out, by);
    for (int i = 0; i < c->params.n; i++) {
        move(&c->param[i], by);
        c->weight[i].version++;
    }
}

static void add_products(const moved_values *m, double *given, double *square)
{
    for (int64_t i = 0; i < m->n; i++) {
        *given += (double)m->grad[i] * (double)m->d[i];
        *square += (double)m->grad[i] * (double)m->grad[i];
    }
}

static fl_status check_direction(loss_check *c, int k)
{
    static const double at[4] = {1, -1, 2, -2};
    double f[4], given = 0, square = 0;
    int stream = STREAM_DIRECTION + k * (PARAMS_MAX + 1);
    fl__harness_noise(c->options->seed, stream, 1.0f, c->out.d, c->out.n);
    add_products(&c->out, &given, &square);
    for (int i = 0; i < c->params.n; i++) {
        moved_values *m = &c->param[i];
        fl__harness_noise(c->options->seed, stream + 1 + i, 1.0f, m->d, m->n);
        add_products(m, &given, &square);
    }
    for (int j = 0; j < 4; j++) {
        fl_loss_sums moved = {0};
        move_all(c, at[j] * STEP);
        FL_TRY(call_loss(c, 0, c->n_samples, NULL, &moved));
        f[j] = (double)GRAD_SCALE * moved.loss;
    }
    double measured = (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * STEP);
    double by = fmax(sqrt(square), fabs(given)), off = fabs(measured - given);
    double noise = ROUNDINGS * (double)FLT_EPSILON * fabs(f[0]) / STEP;
    c->error = fmax(c->error, off / fmax(by, fabs(measured)));
    if (!(off <= c->options->tolerance * by + noise)) {
        return fl_fail(FL_EINVAL,
                       "error %.2g, at most %.2g expected: along a random direction it gives "
                       "%.6g, finite differences %.6g",
                       c->error, c->options->tolerance, given, measured);
    }
    return FL_OK;
}

static fl_status check_gradient(loss_check *c)
{
    c->error = 0;
    for (int k = 0; k < N_DIRECTIONS; k++) {
        FL_TRY(check_direction(c, k));
    }
    return FL_OK;
}

/* Whether it passed. */
static bool run_check(loss_check *c, const char *name, fl_status (*check)(loss_check *c))
{
    fl_check_result r = {.layer = fl_model_n_layers(c->model), .state = FL_CHECK_BEGUN};
    r.error = c->error = (double)NAN;
    snprintf(r.kind, sizeof r.kind, "%s", fl_model_loss(c->model)->ops->kind);
    snprintf(r.name, sizeof r.name, "%s", name);
    if (c->options->seen != NULL) {
        c->options->seen(c->options->context, &r);
    }
    bool good = check(c) == FL_OK;
    r.state = good ? FL_CHECK_PASSED : FL_CHECK_FAILED;
    r.error = c->error;
    if (!good) {
        snprintf(r.text, sizeof r.text, "%s", fl_errmsg());
        c->n_failed++;
    }
    if (c->options->seen != NULL) {
        c->options->seen(c->options->context, &r);
    }
    return good;
}

static fl_status moved_values_init(moved_values *m, int64_t n)
{
    void *memory = NULL;
    FL_TRY(fl_alloc_array(4 * (size_t)n, sizeof(float), &memory));
    *m = (moved_values){.n = n, .v = memory};
    m->v0 = m->v + n;
    m->grad = m->v0 + n;
    m->d = m->grad + n;
    return FL_OK;
}

/* As the model starts, and then a little away from it: zeros hide wrong gradients. */
static fl_status init_param(loss_check *c, int layer, int i)
{
    const fl_param_spec *spec = &fl_model_params(c->model, layer)->spec[i];
    moved_values *m = &c->param[i];
    FL_TRY(moved_values_init(m, spec->rows * spec->cols));
    fl_model_draw_param(c->model, layer, i, c->options->seed, m->v0);
    fl__harness_noise(c->options->seed, STREAM_PARAM + i, PARAM_NOISE, m->d, m->n);
    for (int64_t k = 0; k < m->n; k++) {
        m->v0[k] += m->d[k];
    }
    memcpy(m->v, m->v0, (size_t)m->n * sizeof(float));
    c->weight[i] = (fl_weight){.data = m->v, .rows = spec->rows, .cols = spec->cols, .version = 1};
    c->param_grad[i] = m->grad;
    return FL_OK;
}

static fl_status init_params(loss_check *c)
{
    int last = fl_model_n_layers(c->model) - 1;
    int n = last < 0 ? 0 : fl_model_params(c->model, last)->n;
    if (n > PARAMS_MAX) {
        return fl_fail(FL_EINVAL, "%d parameters in the last layer, at most %d can be checked", n,
                       PARAMS_MAX);
    }
    c->params = (fl_layer_params){.weight = c->weight, .grad = c->param_grad};
    for (int i = 0; i < n; i++) {
        c->params.n = i + 1;
        FL_TRY(init_param(c, last, i));
    }
    return FL_OK;
}

static fl_status loss_check_init(loss_check *c, const fl_shape *shape)
{
    FL_TRY(fl_device_cpu_create(1, NULL, DEVICE_BYTES, &c->device));
    FL_TRY(fl_alloc_untouched(FL__CHECK_ARENA_BYTES, &c->scratch_memory));
    fl_arena_init(&c->scratch, c->scratch_memory, FL__CHECK_ARENA_BYTES, "scratch memory");
    c->scratch.guard = &c->guard;
    for (int s = 0; s < c->n_samples; s++) {
        c->ids[s] = FIRST_ID + ID_STEP * s;
        c->offsets[s + 1] = (int32_t)(c->offsets[s] + shape[s].tokens);
    }
    FL_TRY(moved_values_init(&c->out, c->offsets[c->n_samples] * shape[0].width));
    fl__harness_noise(c->options->seed, STREAM_OUT, OUT_DEVIATION, c->out.v, c->out.n);
    memcpy(c->out.v0, c->out.v, (size_t)c->out.n * sizeof(float));
    c->out_all = (fl_tensor){.data = c->out.v,
                             .offsets = c->offsets,
                             .offsets_device = c->offsets,
                             .n_samples = c->n_samples,
                             .n_tokens = c->offsets[c->n_samples],
                             .width = shape[0].width,
                             .dtype = FL_F32};
    return init_params(c);
}

static void loss_check_fini(loss_check *c)
{
    for (int i = 0; i < c->params.n; i++) {
        c->device->ops->weight_release(c->device, &c->weight[i]);
        fl_free(c->param[i].v);
    }
    fl_free(c->out.v);
    fl_free(c->scratch_memory);
    fl_device_destroy(&c->device);
    fl_free(c);
}

fl_status fl__check_loss(const fl_model *model, const fl_shape *shape, const fl_tensor *targets,
                         const fl_check_options *options, int *n_failed)
{
    void *memory = NULL;
    FL_TRY(fl_alloc(sizeof(loss_check), &memory));
    loss_check *c = memory;
    c->model = model;
    c->options = options;
    c->targets = *targets;
    c->n_samples = (int)targets->n_samples;
    fl_status status = loss_check_init(c, shape);
    if (status == FL_OK && run_check(c, "sums", check_sums)) {
        (void)run_check(c, "gradient", check_gradient);
    }
    *n_failed += c->n_failed;
    loss_check_fini(c);
    return status;
}
