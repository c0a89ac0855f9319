#include "nn/check/layer.h"

#include "device/system/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rounding may differ where other kernels or another order of summation come in; nothing else may.
 */
static const double OUTPUT_TOLERANCE = 1e-5, SUM_TOLERANCE = 1e-4;
static const float REST = 2.0f; /* what gradients hold before backward adds to them */

enum { OTHER_EPOCH = 11, OTHER_ID = 5000, OTHER_SEED = 77 };

/* ---- reporting ---- */

static fl_check_result result_of(const fl__layer_check *c, const char *name, fl_check_state state)
{
    fl_check_result r = {.layer = c->h.layer, .state = state, .error = (double)NAN};
    snprintf(r.layer_name, sizeof r.layer_name, "%s", fl_model_layer_name(c->h.model, c->h.layer));
    snprintf(r.kind, sizeof r.kind, "%s", fl_model_layer_kind(c->h.model, c->h.layer));
    snprintf(r.name, sizeof r.name, "%s", name);
    return r;
}

static void report(const fl__layer_check *c, const fl_check_result *r)
{
    if (c->options->seen != NULL) {
        c->options->seen(c->options->context, r);
    }
}

/* Run one check; `found` is what to tell when it passes. Whether it did. */
typedef fl_status check_fn(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX]);

static bool run_check(fl__layer_check *c, const char *name, check_fn *check)
{
    fl_check_result r = result_of(c, name, FL_CHECK_BEGUN);
    report(c, &r);
    c->error = (double)NAN;
    bool good = check(c, r.text) == FL_OK;
    r.state = good ? FL_CHECK_PASSED : FL_CHECK_FAILED;
    r.error = c->error;
    if (!good) {
        snprintf(r.text, sizeof r.text, "%s", fl_errmsg());
        c->n_failed++;
    }
    report(c, &r);
    return good;
}

static void skip_check(const fl__layer_check *c, const char *name, const char *because)
{
    fl_check_result r = result_of(c, name, FL_CHECK_SKIPPED);
    snprintf(r.text, sizeof r.text, "not checked: %s failed", because);
    report(c, &r);
}

/* ---- parts ---- */

static void all_samples(const fl__layer_check *c, int order[FL_CHECK_SAMPLES_MAX])
{
    for (int i = 0; i < c->h.n_samples; i++) {
        order[i] = i;
    }
}

static void load_all(fl__layer_check *c)
{
    int order[FL_CHECK_SAMPLES_MAX];
    all_samples(c, order);
    fl__harness_load(&c->h, 0, order, c->h.n_samples);
}

/* Forward of all samples in one micro-batch; the output in out[which]. */
static fl_status forward_all(fl__layer_check *c, bool training, int which)
{
    load_all(c);
    FL_TRY(fl__harness_forward(&c->h, 0, training));
    fl__harness_take_out(&c->h, 0, c->out[which]);
    return FL_OK;
}

static fl_status backward_all(fl__layer_check *c, bool want_input)
{
    FL_TRY(forward_all(c, true, 1));
    return fl__harness_backward(&c->h, 0, want_input);
}

/* The place of the element and its sample, for values in the samples' order. */
static fl_status differ(const char *what, const fl__layer_check *c, const int64_t *first,
                        int64_t width, int64_t i, const float *a, const float *b, const char *as)
{
    int s = 0;
    while (s + 1 < c->h.n_samples && first[s + 1] <= i / width) {
        s++;
    }
    return fl_fail(
        FL_EINVAL, "%s: %s of sample %d, element [%lld, %lld]: %.9g found, %.9g expected", what, as,
        s, (long long)(i / width - first[s]), (long long)(i % width), (double)b[i], (double)a[i]);
}

static double largest(const float *v, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)v[i]));
    }
    return most;
}

/* The first element of b that is further from a's than the tolerance allows; -1: none. */
static int64_t find_difference(const float *a, const float *b, int64_t n, double tolerance)
{
    double allowed = tolerance * largest(a, n);
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)a[i] - (double)b[i]) <= allowed)) {
            return i;
        }
    }
    return -1;
}

static fl_status compare_outputs(const fl__layer_check *c, const char *what, double tolerance)
{
    int64_t i = find_difference(c->out[0], c->out[1], fl__out_elements(&c->h), tolerance);
    return i < 0 ? FL_OK
                 : differ(what, c, c->h.out_row, c->h.out_shape.width, i, c->out[0], c->out[1],
                          "output");
}

static fl_status compare_grad_in(const fl__layer_check *c, const char *what)
{
    int64_t n = fl__in_elements(&c->h);
    int64_t i = find_difference(c->whole_grad_in, c->grad_in[1], n, SUM_TOLERANCE);
    return i < 0 ? FL_OK
                 : differ(what, c, c->h.in_row, c->h.in_shape.width, i, c->whole_grad_in,
                          c->grad_in[1], "gradient of the input");
}

/* The gradients of parameters, less `rest`, against those of the whole batch. */
static fl_status compare_grads(const fl__layer_check *c, const char *what, float rest)
{
    const fl_param_list *list = fl_model_params(c->h.model, c->h.layer);
    for (int p = 0; p < c->h.params.n; p++) {
        int64_t n = c->h.grad[p].n, cols = list->spec[p].cols;
        double allowed = SUM_TOLERANCE * (largest(c->grad[p], n) + (double)rest * 1e-2);
        for (int64_t i = 0; i < n && c->h.want[p] != NULL; i++) {
            double found = (double)c->h.grad[p].data[i] - (double)rest;
            if (!(fabs(found - (double)c->grad[p][i]) <= allowed)) {
                return fl_fail(
                    FL_EINVAL,
                    "%s: gradient of %s, element [%lld, %lld]: %.9g found, %.9g expected", what,
                    list->spec[p].name, (long long)(i / cols), (long long)(i % cols), found,
                    (double)c->grad[p][i]);
            }
        }
    }
    return FL_OK;
}

/* ---- the checks ---- */

static void shape_text(const fl_shape *s, char text[48])
{
    snprintf(text, 48, "[%lld, %lld]", (long long)s->tokens, (long long)s->width);
}

/* What shape() promises, twice, and params() as when the model was made. */
static fl_status check_declared(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX])
{
    const fl_layer *l = fl_model_layer(c->h.model, c->h.layer);
    const fl_param_list *before = fl_model_params(c->h.model, c->h.layer);
    char in[48], out[48];
    for (int s = 0; s < c->h.n_samples; s++) {
        int64_t tokens = c->h.in_row[s + 1] - c->h.in_row[s];
        fl_shape given = c->h.in_shape, first = {0};
        given.tokens = tokens;
        FL_TRY(l->ops->shape(l->self, &given, &first));
        if (first.tokens != c->h.out_row[s + 1] - c->h.out_row[s] ||
            first.width != c->h.out_shape.width || first.dtype != c->h.out_shape.dtype) {
            shape_text(&first, out);
            shape_text(&given, in);
            return fl_fail(FL_EINVAL, "shape gives %s for %s, and gave another size before", out,
                           in);
        }
        shape_text(&given, in);
        shape_text(&first, out);
    }
    fl_param_list again = {0};
    fl_status status = l->ops->params(l->self, &again);
    bool same = status == FL_OK && again.n == before->n;
    for (int i = 0; same && i < again.n; i++) {
        same = strcmp(again.spec[i].name, before->spec[i].name) == 0 &&
               again.spec[i].rows == before->spec[i].rows &&
               again.spec[i].cols == before->spec[i].cols;
    }
    int n = again.n;
    fl_free(again.spec);
    FL_TRY(status);
    snprintf(found, FL_CHECK_TEXT_MAX, "%s to %s, %d parameters", in, out, n);
    return same ? FL_OK
                : fl_fail(FL_EINVAL,
                          "params declares other parameters (%d) than when the model was made (%d)",
                          n, before->n);
}

static fl_status check_forward(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX])
{
    FL_TRY(forward_all(c, true, 0));
    size_t kept = c->h.slot[0].keep.used_bytes, scratch = c->h.scratch.peak_bytes;
    FL_TRY(forward_all(c, true, 1));
    FL_TRY(compare_outputs(
        c, "forward is not deterministic: a second call with the same micro-batch", 0.0));
    snprintf(found, FL_CHECK_TEXT_MAX, "keeps %zu bytes, %zu of scratch", kept, scratch);
    return FL_OK;
}

static fl_status check_evaluation(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX])
{
    uint64_t seed = c->h.seed;
    (void)found;
    FL_TRY(forward_all(c, false, 0));
    c->h.seed = OTHER_SEED;
    c->h.epoch += OTHER_EPOCH;
    c->h.id_shift = OTHER_ID;
    fl_status status = forward_all(c, false, 1);
    c->h.seed = seed;
    c->h.epoch -= OTHER_EPOCH;
    c->h.id_shift = 0;
    FL_TRY(status);
    return compare_outputs(c,
                           "the output in evaluation depends on seed, epoch or sample ids (dropout "
                           "belongs to training, see fl_exec_training)",
                           0.0);
}

static fl_status forward_part(fl__layer_check *c, int slot, const int *order, int n)
{
    fl__harness_load(&c->h, slot, order, n);
    FL_TRY(fl__harness_forward(&c->h, slot, true));
    fl__harness_take_out(&c->h, slot, c->out[1]);
    return FL_OK;
}

static fl_status backward_part(fl__layer_check *c, int slot)
{
    FL_TRY(fl__harness_backward(&c->h, slot, c->want_input));
    fl__harness_take_grad_in(&c->h, slot, c->grad_in[1]);
    return FL_OK;
}

/* Two micro-batches in place of one. in_flight: the second goes forward before the first comes
 * back. */
static fl_status run_halves(fl__layer_check *c, bool in_flight, const char *what)
{
    int order[FL_CHECK_SAMPLES_MAX], half = c->h.n_samples / 2;
    all_samples(c, order);
    fl__harness_fill_grads(&c->h, 0.0f);
    FL_TRY(forward_part(c, 0, order, half));
    if (!in_flight) {
        FL_TRY(backward_part(c, 0));
    }
    FL_TRY(forward_part(c, 1, order + half, c->h.n_samples - half));
    if (in_flight) {
        FL_TRY(backward_part(c, 0));
    }
    FL_TRY(backward_part(c, 1));
    FL_TRY(compare_outputs(c, what, OUTPUT_TOLERANCE));
    FL_TRY(compare_grads(c, what, 0.0f));
    return c->want_input ? compare_grad_in(c, what) : FL_OK;
}

static fl_status check_batches(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX])
{
    (void)found;
    FL_TRY(forward_all(c, true, 0));
    FL_TRY(run_halves(c, false,
                      "the result depends on how samples are batched: with two micro-batches"));
    return run_halves(c, true,
                      "the layer keeps state of a micro-batch in itself: with two in flight");
}

static fl_status check_order(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX])
{
    static const char what[] =
        "the result of a sample depends on its place in the micro-batch (random "
        "numbers are keyed by sample id): in reverse order";
    int order[FL_CHECK_SAMPLES_MAX];
    (void)found;
    for (int i = 0; i < c->h.n_samples; i++) {
        order[i] = c->h.n_samples - 1 - i;
    }
    FL_TRY(forward_all(c, true, 0));
    fl__harness_fill_grads(&c->h, 0.0f);
    FL_TRY(forward_part(c, 0, order, c->h.n_samples));
    FL_TRY(compare_outputs(c, what, OUTPUT_TOLERANCE));
    FL_TRY(backward_part(c, 0));
    FL_TRY(compare_grads(c, what, 0.0f));
    return c->want_input ? compare_grad_in(c, what) : FL_OK;
}

static void keep_grads(fl__layer_check *c)
{
    for (int p = 0; p < c->h.params.n; p++) {
        memcpy(c->grad[p], c->h.grad[p].data, (size_t)c->h.grad[p].n * sizeof(float));
    }
    fl__harness_take_grad_in(&c->h, 0, c->whole_grad_in);
}

/* Gradients of the parameters in `wanted` (bit i: parameter i) and of the input, or not. */
static fl_status check_wants(fl__layer_check *c, uint64_t wanted, bool input, const char *what)
{
    fl__harness_fill_grads(&c->h, REST);
    for (int p = 0; p < c->h.params.n; p++) {
        c->h.want[p] = wanted >> p & 1 ? c->h.grad[p].data : NULL;
    }
    FL_TRY(backward_all(c, input));
    FL_TRY(compare_grads(c, what, REST));
    if (input) {
        fl__harness_take_grad_in(&c->h, 0, c->grad_in[1]);
        return compare_grad_in(c, what);
    }
    return FL_OK;
}

static fl_status check_backward(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX])
{
    const uint64_t all = UINT64_MAX;
    size_t scratch_before = c->h.scratch.peak_bytes;
    fl__harness_fill_grads(&c->h, 0.0f);
    FL_TRY(backward_all(c, c->want_input));
    keep_grads(c);
    FL_TRY(check_wants(c, all, c->want_input,
                       "backward does not add to what gradients hold (they held 2)"));
    FL_TRY(check_wants(c, all, false, "backward without a gradient of the input"));
    FL_TRY(check_wants(c, 0, c->want_input, "backward without gradients of parameters"));
    for (int p = 0; p < c->h.params.n; p++) {
        FL_TRY(check_wants(c, all & ~(UINT64_C(1) << p), c->want_input,
                           "backward without the gradient of one parameter"));
        FL_TRY(check_wants(c, UINT64_C(1) << p, false, "backward for one parameter alone"));
    }
    size_t scratch = c->h.scratch.peak_bytes;
    snprintf(found, FL_CHECK_TEXT_MAX, "%zu bytes of scratch",
             scratch > scratch_before ? scratch : scratch_before);
    return FL_OK;
}

static fl_status check_empty(fl__layer_check *c, char found[FL_CHECK_TEXT_MAX])
{
    (void)found;
    fl__harness_fill_grads(&c->h, REST);
    fl__harness_load(&c->h, 0, NULL, 0);
    FL_TRY(fl__harness_forward(&c->h, 0, true));
    FL_TRY(fl__harness_backward(&c->h, 0, c->want_input));
    for (int p = 0; p < c->h.params.n; p++) {
        for (int64_t i = 0; i < c->h.grad[p].n; i++) {
            if (c->h.grad[p].data[i] != REST) {
                return fl_fail(
                    FL_EINVAL,
                    "backward of a micro-batch without samples changes the gradient of %s",
                    fl_model_params(c->h.model, c->h.layer)->spec[p].name);
            }
        }
    }
    return FL_OK;
}

/* ---- gradients ---- */

static void check_gradients(fl__layer_check *c, const char *because)
{
    const fl_param_list *list = fl_model_params(c->h.model, c->h.layer);
    for (int p = c->want_input ? -1 : 0; p < c->h.params.n; p++) {
        char name[FL_CHECK_NAME_MAX];
        snprintf(name, sizeof name, "gradient of %s", p < 0 ? "the input" : list->spec[p].name);
        if (because != NULL) {
            skip_check(c, name, because);
            continue;
        }
        fl_check_result r = result_of(c, name, FL_CHECK_BEGUN);
        report(c, &r);
        int64_t cols = p < 0 ? c->h.in_shape.width : list->spec[p].cols;
        double scale = p < 0 || cols == 1 ? 1.0 : 1.0 / sqrt((double)cols);
        fl_status status = p < 0 ? fl__check_gradient(c, p, c->h.in, c->whole_grad_in,
                                                      fl__in_elements(&c->h), cols, scale)
                                 : fl__check_gradient(c, p, c->h.value[p].data, c->grad[p],
                                                      c->h.value[p].n, cols, scale);
        r.state = status == FL_OK ? FL_CHECK_PASSED : FL_CHECK_FAILED;
        r.error = c->error;
        if (status != FL_OK) {
            snprintf(r.text, sizeof r.text, "%s", fl_errmsg());
            c->n_failed++;
        }
        report(c, &r);
    }
}

static const struct {
    const char *name;
    check_fn *check;
    bool decides; /* whether what follows makes sense after its failure */
} checks[] = {
    {"declared", check_declared, true},  {"forward", check_forward, true},
    {"backward", check_backward, true},  {"evaluation", check_evaluation, false},
    {"batches", check_batches, false},   {"order", check_order, false},
    {"empty batch", check_empty, false},
};

static void run_checks(fl__layer_check *c)
{
    const char *because = NULL;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (because != NULL) {
            skip_check(c, checks[i].name, because);
        } else if (!run_check(c, checks[i].name, checks[i].check) && checks[i].decides) {
            because = checks[i].name;
        }
    }
    check_gradients(c, because);
}

/* ---- making it ---- */

static fl_status take_floats(int64_t n, float **out)
{
    void *memory = NULL;
    FL_TRY(fl_alloc_array((size_t)n, sizeof(float), &memory));
    *out = memory;
    return FL_OK;
}

static fl_status take_results(fl__layer_check *c)
{
    int64_t n_in = fl__in_elements(&c->h), n_out = fl__out_elements(&c->h);
    for (int i = 0; i < 2; i++) {
        FL_TRY(take_floats(n_out, &c->out[i]));
        FL_TRY(take_floats(n_in, &c->grad_in[i]));
    }
    FL_TRY(take_floats(n_in, &c->whole_grad_in));
    for (int p = 0; p < c->h.params.n; p++) {
        FL_TRY(take_floats(c->h.value[p].n, &c->grad[p]));
    }
    return FL_OK;
}

static void layer_check_fini(fl__layer_check *c)
{
    for (int i = 0; i < 2; i++) {
        fl_free(c->out[i]);
        fl_free(c->grad_in[i]);
    }
    fl_free(c->whole_grad_in);
    for (int p = 0; p < c->h.params.n; p++) {
        fl_free(c->grad[p]);
    }
    fl__harness_fini(&c->h);
}

fl_status fl__check_layer(const fl_model *model, int layer, const fl_shape *shape, int n_samples,
                          const void *input, bool want_input, const fl_check_options *options,
                          int *n_failed)
{
    void *memory = NULL;
    FL_TRY(fl_alloc(sizeof(fl__layer_check), &memory));
    fl__layer_check *c = memory;
    c->options = options;
    c->want_input = want_input;
    fl_status status =
        fl__harness_init(&c->h, model, layer, shape, n_samples, input, options->seed);
    if (status == FL_OK) {
        status = take_results(c);
    }
    if (status == FL_OK) {
        run_checks(c);
    }
    *n_failed += c->n_failed;
    layer_check_fini(c);
    fl_free(c);
    char text[FL_LAYER_TEXT_MAX];
    return status == FL_OK ? FL_OK
                           : fl_within(status, "%s", fl_model_layer_text(model, layer, text));
}
