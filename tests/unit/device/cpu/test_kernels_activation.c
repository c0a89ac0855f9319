/* Activations and their slopes against double, alone and at the end of a product. Catches a form of
 * GELU taken for the other, a slope that is not that of the function, and elements left out at the
 * end of an array. The tanh form of GELU has its own tests in test_kernels_norm.c. */
#include "support/device/kernels.h"

enum { N = 40003 };

static const fl_activation kinds[] = {FL_ACT_NONE, FL_ACT_GELU_TANH, FL_ACT_GELU_ERF, FL_ACT_TANH,
                                      FL_ACT_SILU};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static double value_of(fl_activation kind, double x)
{
    switch (kind) {
    case FL_ACT_NONE:
        return x;
    case FL_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case FL_ACT_GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case FL_ACT_TANH:
        return tanh(x);
    case FL_ACT_SILU:
        return x / (1.0 + exp(-x));
    }
    return 0.0;
}

/* Central differences in double. */
static double slope_of(fl_activation kind, double x)
{
    const double h = 1e-5;
    return (value_of(kind, x + h) - value_of(kind, x - h)) / (2.0 * h);
}

static float *steps(void)
{
    float *x = floats(N);
    for (int i = 0; i < N; i++) {
        x[i] = -20.0f + 1e-3f * (float)i;
    }
    return x;
}

static void check_kind(fl_device *d, fl_activation kind)
{
    float *x = steps(), *y = floats(N), *slope = floats(N), *again = floats(N), *ones = floats(N);
    for (int i = 0; i < N; i++) {
        ones[i] = 1.0f;
    }
    RUN(d, activate, .activation = kind, .in = x, .y = y, .n = N);
    RUN(d, activate_backward, .activation = kind, .grad_y = ones, .pre = x, .grad_pre = slope,
        .y = again, .n = N);
    for (int i = 0; i < N; i++) {
        double at = (double)x[i], want = value_of(kind, at);
        if (!(fabs((double)y[i] - want) <= 1e-6 * fmax(1.0, fabs(at))) ||
            !(fabs((double)slope[i] - slope_of(kind, at)) <= 2e-6)) {
            fail_msg("activation %d at %g: %.9g and slope %.9g, the reference %.9g and %.9g",
                     (int)kind, at, (double)y[i], (double)slope[i], want, slope_of(kind, at));
        }
    }
    same_bits("y on the way back", again, y, N);
    guard_check(slope, N);
    guard_check(y, N);
    RUN(d, activate_backward, .activation = kind, .grad_y = ones, .pre = x, .grad_pre = ones,
        .n = N);
    same_bits("slope in place", ones, slope, N);
    RUN(d, activate, .activation = kind, .in = x, .y = x, .n = N);
    same_bits("in place", x, y, N);
    free(x);
    free(y);
    free(slope);
    free(again);
    free(ones);
}

static void test_activate__agrees_with_double(void **state)
{
    (void)state;
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (int k = 0; k < N_KINDS; k++) {
            check_kind(d, kinds[k]);
        }
        fl_device_destroy(&d);
    }
}

/* Near zero, tanh keeps its relative precision: 1 - 2 / (1 + e^2x) alone would lose it. */
static void test_activate__tanh_is_precise_near_zero(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    float x[64], y[64];
    for (int i = 0; i < 64; i++) {
        x[i] = ldexpf(i % 2 == 0 ? 0.9f : -1.1f, -i / 2);
    }
    RUN(d, activate, .activation = FL_ACT_TANH, .in = x, .y = y, .n = 64);
    for (int i = 0; i < 64; i++) {
        double want = tanh((double)x[i]);
        assert_true(fabs((double)y[i] - want) <= 4e-7 * fabs(want));
    }
    fl_device_destroy(&d);
}

static void test_activate__holds_at_the_ends(void **state)
{
    (void)state;
    enum { ENDS = 5 };
    const float x[ENDS] = {1e30f, -1e30f, INFINITY, NAN, 0.0f};
    fl_device *d = cpu_with(1);
    for (int k = 0; k < N_KINDS; k++) {
        float y[ENDS], slope[ENDS], ones[ENDS] = {1, 1, 1, 1, 1};
        bool bounded = kinds[k] == FL_ACT_TANH;
        if (kinds[k] == FL_ACT_NONE) {
            continue;
        }
        RUN(d, activate_backward, .activation = kinds[k], .grad_y = ones, .pre = x,
            .grad_pre = slope, .y = y, .n = ENDS);
        assert_true(y[0] == (bounded ? 1.0f : 1e30f));
        assert_true(bounded ? y[1] == -1.0f : fabsf(y[1]) < 1e-4f);
        assert_true(bounded ? y[2] == 1.0f : isinf(y[2]));
        assert_true(isnan(y[3]) && isnan(slope[3]));
        assert_true(y[4] == 0.0f && fabsf(slope[4] - (bounded ? 1.0f : 0.5f)) < 1e-6f);
        assert_true(fabsf(slope[0] - (bounded ? 0.0f : 1.0f)) < 1e-6f && fabsf(slope[1]) < 1e-6f);
    }
    fl_device_destroy(&d);
}

/* At the end of a product, every activation has the bits that it has alone. */
static void test_linear__ends_with_the_activation_alone(void **state)
{
    (void)state;
    enum { M = 17, N_OUT = 37, N_IN = 29 };
    fl_device *d = cpu_with(2);
    float *in = random_floats(M * N_IN, 1, 1.0f), *data = random_floats(N_OUT * N_IN, 2, 1.0f);
    float *bias = random_floats(N_OUT, 3, 1.0f), *plain = floats(M * N_OUT);
    float *pre = floats(M * N_OUT), *y = floats(M * N_OUT), *want = floats(M * N_OUT);
    fl_weight w = weight_of(data, N_OUT, N_IN);
    RUN(d, linear, .in = in, .w = &w, .bias = VECTOR(bias, N_OUT), .y = plain, .m = M);
    for (int k = 0; k < N_KINDS; k++) {
        RUN(d, linear, .in = in, .w = &w, .bias = VECTOR(bias, N_OUT), .activation = kinds[k],
            .pre = pre, .y = y, .m = M);
        RUN(d, activate, .activation = kinds[k], .in = plain, .y = want, .n = M * N_OUT);
        same_bits("pre", pre, plain, M * N_OUT);
        same_bits("y", y, want, M * N_OUT);
        guard_check(pre, M * N_OUT);
        guard_check(y, M * N_OUT);
    }
    d->ops->weight_release(d, &w);
    free(in);
    free(data);
    free(bias);
    free(plain);
    free(pre);
    free(y);
    free(want);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activate__agrees_with_double),
        cmocka_unit_test(test_activate__tanh_is_precise_near_zero),
        cmocka_unit_test(test_activate__holds_at_the_ends),
        cmocka_unit_test(test_linear__ends_with_the_activation_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
