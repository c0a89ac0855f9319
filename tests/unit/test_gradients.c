/* Every layer's gradients against finite differences of its own forward pass: odd sizes, ragged
 * samples down to one token, dropout on (its mask is a pure function, so differences see it).
 *
 * f = sum of out * R for a fixed random R, summed in double. Along a random direction d,
 * (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h differs from the derivative by terms of h^4 and by
 * the rounding of a 32-bit forward pass, about 1e-7 |f| / h. The allowed difference is a share of
 * the gradient's norm, the typical size of its product with d. */
#include "support/nn_rig.h"

#include "device/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { N_DIRECTIONS = 3, N_SAMPLES = 4, ARENA_BYTES = 1 << 20 };

static const double STEP = 1.0 / 64, TOLERANCE = 1e-3;
static const int64_t lengths[N_SAMPLES] = {3, 1, 7, 2};
static const int64_t images[N_SAMPLES] = {1, 1, 1, 1};

static fl_device *device;

/* Deviates of mean 0 and deviation `scale` from stream `index`. */
static void noise(float *out, int64_t n, int index, float scale)
{
    const fl_param_spec spec = {.rows = n, .cols = 1, .init = FL_INIT_NORMAL, .scale = scale};
    fl_param_init(&spec, 77, 0, index, out);
}

typedef struct check {
    rig r;
    float *R; /* like the output */
    const char *what;
} check;

static double value(check *c)
{
    rig_changed(&c->r);
    assert_int_equal(rig_forward(&c->r), FL_OK);
    const fl_tensor *out = &c->r.act[c->r.n_layers];
    double sum = 0;
    for (int64_t i = 0; i < rig_elements(out); i++) {
        sum += (double)fl_f32(out)[i] * (double)c->R[i];
    }
    return sum;
}

static double value_at(check *c, float *v, const float *v0, const float *d, int64_t n, double h)
{
    for (int64_t i = 0; i < n; i++) {
        v[i] = (float)((double)v0[i] + h * (double)d[i]);
    }
    return value(c);
}

/* The values v [n] (of the input or a parameter) and the gradient that backward gave for them. */
static void compare(check *c, const char *name, float *v, const float *grad, int64_t n)
{
    float *v0 = test_malloc((size_t)n * sizeof *v0), *d = test_malloc((size_t)n * sizeof *d);
    memcpy(v0, v, (size_t)n * sizeof *v0);
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        norm += (double)grad[i] * (double)grad[i];
    }
    norm = sqrt(norm);
    for (int k = 0; k < N_DIRECTIONS; k++) {
        noise(d, n, 100 + k, 1.0f);
        double near = value_at(c, v, v0, d, n, STEP) - value_at(c, v, v0, d, n, -STEP);
        double far = value_at(c, v, v0, d, n, 2 * STEP) - value_at(c, v, v0, d, n, -2 * STEP);
        double measured = (8.0 * near - far) / (12.0 * STEP), given = 0;
        for (int64_t i = 0; i < n; i++) {
            given += (double)grad[i] * (double)d[i];
        }
        double allowed = TOLERANCE * fmax(norm, fabs(given)) + 1e-4;
        if (!(fabs(measured - given) <= allowed)) {
            fail_msg("%s: %s: direction %d: measured %.6g, backward gave %.6g (norm %.4g)", c->what,
                     name, k, measured, given, norm);
        }
    }
    memcpy(v, v0, (size_t)n * sizeof *v0);
    test_free(v0);
    test_free(d);
}

static void begin(check *c, const char *what, fl_status made, fl_layer layer, const fl_shape *raw,
                  const int64_t *length)
{
    c->what = what;
    fl_model *model = NULL;
    assert_int_equal(made, FL_OK);
    assert_int_equal(fl_model_create("test", &model), FL_OK);
    assert_int_equal(fl_model_add(model, 1, layer), FL_OK);
    assert_int_equal(rig_init(&c->r, device, model, raw, length, N_SAMPLES, ARENA_BYTES), FL_OK);
    noise(fl_f32(&c->r.act[0]), rig_elements(&c->r.act[0]), 0, 1.0f);
    for (int j = 0; j < c->r.params[0].n; j++) { /* away from ones and zeros */
        const fl_weight *w = &c->r.weight[0][j];
        float some[4096];
        assert_true(w->rows * w->cols <= 4096);
        noise(some, w->rows * w->cols, 10 + j, 0.3f);
        for (int64_t i = 0; i < w->rows * w->cols; i++) {
            w->data[i] += some[i];
        }
    }
    rig_changed(&c->r);
    const fl_tensor *out = &c->r.act[1];
    c->R = test_malloc((size_t)rig_elements(out) * sizeof *c->R);
    noise(c->R, rig_elements(out), 1, 1.0f);
    memcpy(c->r.grad[1].data, c->R, (size_t)rig_elements(out) * sizeof *c->R);
}

static void end(check *c)
{
    test_free(c->R);
    rig_fini(&c->r);
    fl_model_destroy(&c->r.model);
}

/* Forward and backward with `rest` in every gradient beforehand and poison in the input's: the
 * first must be added to, the second overwritten. */
static void run(check *c, float rest, bool want_input)
{
    fl_tensor *grad_in = &c->r.grad[0];
    for (int64_t i = 0; i < rig_elements(grad_in); i++) {
        fl_f32(grad_in)[i] = NAN;
    }
    for (int j = 0; j < c->r.params[0].n; j++) {
        const fl_weight *w = &c->r.weight[0][j];
        for (int64_t i = 0; i < w->rows * w->cols; i++) {
            c->r.wgrad[0][j][i] = rest;
        }
    }
    assert_int_equal(rig_forward(&c->r), FL_OK);
    assert_int_equal(rig_backward(&c->r, want_input), FL_OK);
    assert_int_equal(c->r.scratch.used_bytes, 0);
}

static float *copy_of(const float *v, int64_t n)
{
    float *copy = test_malloc((size_t)n * sizeof *copy);
    memcpy(copy, v, (size_t)n * sizeof *copy);
    return copy;
}

static void check_differences(check *c)
{
    run(c, 0.0f, true);
    int64_t n_in = rig_elements(&c->r.act[0]);
    float *grad = copy_of(fl_f32(&c->r.grad[0]), n_in);
    compare(c, "input", fl_f32(&c->r.act[0]), grad, n_in);
    test_free(grad);
    for (int j = 0; j < c->r.params[0].n; j++) {
        const fl_weight *w = &c->r.weight[0][j];
        int64_t n = w->rows * w->cols;
        grad = copy_of(c->r.wgrad[0][j], n);
        compare(c, fl_model_params(c->r.model, 0)->spec[j].name, w->data, grad, n);
        test_free(grad);
    }
}

static void check_near(const check *c, const char *name, const float *a, const float *b, int64_t n,
                       float rest)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(a[i] - rest - b[i]) <= 1e-4f * (1.0f + fabsf(b[i])))) {
            fail_msg("%s: %s: element %lld is %g + %g, was %g", c->what, name, (long long)i,
                     (double)(a[i] - rest), (double)rest, (double)b[i]);
        }
    }
}

/* Gradients add to what is there, and any of them may be unwanted without a change to the rest. */
static void check_wants(check *c)
{
    int n = c->r.params[0].n;
    float *whole[RIG_MAX_PARAMS];
    run(c, 0.0f, true);
    float *grad_in = copy_of(fl_f32(&c->r.grad[0]), rig_elements(&c->r.grad[0]));
    for (int j = 0; j < n; j++) {
        whole[j] = copy_of(c->r.wgrad[0][j], c->r.weight[0][j].rows * c->r.weight[0][j].cols);
    }
    /* Bit j of `wanted` is parameter j, bit n the input. */
    for (int wanted = 0; wanted < 2 << n; wanted++) {
        for (int j = 0; j < n; j++) {
            c->r.want[0][j] = wanted >> j & 1 ? c->r.wgrad[0][j] : NULL;
        }
        bool want_input = wanted >> n & 1;
        run(c, 2.0f, want_input);
        for (int j = 0; j < n; j++) {
            int64_t size = c->r.weight[0][j].rows * c->r.weight[0][j].cols;
            float *untouched = test_calloc((size_t)size, sizeof *untouched);
            check_near(c, fl_model_params(c->r.model, 0)->spec[j].name, c->r.wgrad[0][j],
                       wanted >> j & 1 ? whole[j] : untouched, size, 2.0f);
            test_free(untouched);
        }
        if (want_input) {
            check_near(c, "input", fl_f32(&c->r.grad[0]), grad_in, rig_elements(&c->r.grad[0]),
                       0.0f);
        } else {
            assert_true(isnan(fl_f32(&c->r.grad[0])[0]));
        }
    }
    for (int j = 0; j < n; j++) {
        test_free(whole[j]);
    }
    test_free(grad_in);
}

/* A micro-batch without samples: nothing is computed, nothing is touched. */
static void check_empty(check *c)
{
    fl_tensor act[2] = {c->r.act[0], c->r.act[1]}, grad[2] = {c->r.grad[0], c->r.grad[1]};
    for (int i = 0; i < 2; i++) {
        c->r.act[i].n_samples = c->r.grad[i].n_samples = 0;
        c->r.act[i].n_tokens = c->r.grad[i].n_tokens = 0;
    }
    c->r.batch.n_samples = 0;
    for (int j = 0; j < c->r.params[0].n; j++) {
        c->r.want[0][j] = c->r.wgrad[0][j];
    }
    run(c, 2.0f, true);
    for (int j = 0; j < c->r.params[0].n; j++) {
        const fl_weight *w = &c->r.weight[0][j];
        for (int64_t i = 0; i < w->rows * w->cols; i++) {
            assert_true(c->r.wgrad[0][j][i] == 2.0f);
        }
    }
    c->r.batch.n_samples = N_SAMPLES;
    memcpy(c->r.act, act, sizeof act);
    memcpy(c->r.grad, grad, sizeof grad);
}

static void check_layer(const char *what, fl_status made, fl_layer layer, int64_t width,
                        const int64_t *length)
{
    check c;
    const fl_shape raw = {.tokens = 1, .width = width, .dtype = FL_F32};
    begin(&c, what, made, layer, &raw, length);
    check_differences(&c);
    check_wants(&c);
    check_empty(&c);
    end(&c);
}

static void test_gradients__attention(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_attention(15, 3, false, 0.0f, 1, &layer);
    check_layer("attention", made, layer, 15, lengths);
    made = fl_layer_attention(7, 1, true, 0.0f, 1, &layer);
    check_layer("causal attention", made, layer, 7, lengths);
    made = fl_layer_attention(12, 4, false, 0.4f, 1, &layer);
    check_layer("attention with dropout", made, layer, 12, lengths);
    made = fl_layer_attention(3, 3, true, 0.0f, 1, &layer);
    check_layer("attention with heads of width 1", made, layer, 3, lengths);
    made = fl_layer_attention_first(10, 2, 0.0f, 1, &layer);
    check_layer("attention of the first token", made, layer, 10, lengths);
    made = fl_layer_attention_first(6, 3, 0.4f, 1, &layer);
    check_layer("attention of the first token with dropout", made, layer, 6, lengths);
}

static void test_gradients__mlp(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_mlp(7, 13, 0.0f, 1, &layer);
    check_layer("mlp", made, layer, 7, lengths);
    made = fl_layer_mlp(5, 3, 0.4f, 1, &layer);
    check_layer("mlp with dropout", made, layer, 5, lengths);
}

static void test_gradients__norm(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_norm(9, &layer);
    check_layer("norm", made, layer, 9, lengths);
}

static void test_gradients__linear(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_linear(5, 11, &layer);
    check_layer("linear", made, layer, 5, lengths);
    made = fl_layer_linear(17, 1, &layer);
    check_layer("linear to one", made, layer, 17, lengths);
}

static void test_gradients__classifier(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_classifier(9, 5, &layer);
    check_layer("classifier", made, layer, 9, lengths);
}

static void test_gradients__patch_embed(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_patch_embed(3, 6, 9, 3, 7, &layer);
    check_layer("patch_embed", made, layer, 3 * 6 * 9, images);
    made = fl_layer_patch_embed(1, 5, 5, 5, 3, &layer);
    check_layer("patch_embed of one patch", made, layer, 25, images);
}

/* The loss's gradient is that of grad_scale times the sum of losses. */
static void test_gradients__cross_entropy(void **state)
{
    (void)state;
    enum { ROWS = 6, CLASSES = 7, N = ROWS * CLASSES };
    static const int32_t rows[4] = {0, 1, 4, 6};
    static const int64_t ids[3] = {4, 5, 6};
    int32_t target[ROWS] = {0, 6, 3, 3, 1, 5};
    float logits[N], logits0[N], grad[N], d[N];
    fl_loss loss = {0};
    assert_int_equal(fl_loss_cross_entropy(CLASSES, &loss), FL_OK);
    fl_batch batch = {.n_samples = 3, .sample_ids = ids, .n_global = 3};
    fl_arena scratch;
    fl_arena_init(&scratch, NULL, 0, "scratch");
    fl_exec x = {.device = device, .batch = &batch, .training = true, .scratch = &scratch};
    fl_tensor out = {logits, rows, 3, ROWS, CLASSES, FL_F32};
    fl_tensor targets = {target, rows, 3, ROWS, 1, FL_I32};
    fl_tensor grad_out = {grad, rows, 3, ROWS, CLASSES, FL_F32};
    noise(logits0, N, 0, 2.0f);
    memcpy(logits, logits0, sizeof logits);
    fl_loss_sums sums = {0};
    const float scale = 0.3f;
    assert_int_equal(loss.ops->forward(loss.self, &x, &out, &targets, scale, &grad_out, &sums),
                     FL_OK);
    assert_true(sums.n_targets == ROWS);
    for (int k = 0; k < N_DIRECTIONS; k++) {
        noise(d, N, 100 + k, 1.0f);
        double f[4], given = 0, norm = 0;
        static const double at[4] = {1, -1, 2, -2};
        for (int j = 0; j < 4; j++) {
            fl_loss_sums moved = {0};
            for (int i = 0; i < N; i++) {
                logits[i] = (float)((double)logits0[i] + at[j] * STEP * (double)d[i]);
            }
            assert_int_equal(loss.ops->forward(loss.self, &x, &out, &targets, scale, NULL, &moved),
                             FL_OK);
            f[j] = (double)scale * moved.loss;
        }
        for (int i = 0; i < N; i++) {
            given += (double)grad[i] * (double)d[i];
            norm += (double)grad[i] * (double)grad[i];
        }
        double measured = (8.0 * (f[0] - f[1]) - (f[2] - f[3])) / (12.0 * STEP);
        assert_true(fabs(measured - given) <= TOLERANCE * fmax(sqrt(norm), fabs(given)));
    }
    loss.ops->destroy(loss.self);
}

static int make_device(void **state)
{
    (void)state;
    return fl_device_cpu_create(1, NULL, (size_t)1 << 28, &device) == FL_OK ? 0 : -1;
}

static int drop_device(void **state)
{
    (void)state;
    fl_device_destroy(&device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients__attention),
        cmocka_unit_test(test_gradients__mlp),
        cmocka_unit_test(test_gradients__norm),
        cmocka_unit_test(test_gradients__linear),
        cmocka_unit_test(test_gradients__classifier),
        cmocka_unit_test(test_gradients__patch_embed),
        cmocka_unit_test(test_gradients__cross_entropy),
    };
    return cmocka_run_group_tests(tests, make_device, drop_device);
}
