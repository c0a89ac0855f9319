/* Matrix products against sums in double. Catches a wrong transposition or leading dimension, a
 * remainder of rows or columns left out, an epilogue applied twice or not at all, and a row whose
 * bits depend on the rows next to it: then the number of micro-batches would change the training.
 */
#include "support/device/kernels.h"

typedef struct shape {
    int64_t m, n_out, n_in;
} shape;

static const shape shapes[] = {
    {1, 1, 1},    {3, 5, 7},     {17, 33, 31},   {128, 128, 128}, {136, 384, 128}, {29, 10, 64},
    {14, 32, 16}, {15, 31, 257}, {200, 64, 600}, {257, 65, 49},   {2, 700, 130},   {500, 17, 1030},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static double gelu_of(double x)
{
    return 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double *product(const float *in, const float *w, const float *bias, const float *residual,
                       shape z)
{
    double *y = doubles(z.m * z.n_out);
    for (int64_t i = 0; i < z.m; i++) {
        for (int64_t j = 0; j < z.n_out; j++) {
            double s = bias == NULL ? 0.0 : (double)bias[j];
            s += residual == NULL ? 0.0 : (double)residual[i * z.n_out + j];
            for (int64_t k = 0; k < z.n_in; k++) {
                s += (double)in[i * z.n_in + k] * (double)w[j * z.n_in + k];
            }
            y[i * z.n_out + j] = s;
        }
    }
    return y;
}

static void check_forward(fl_device *d, shape z, uint32_t seed)
{
    float *in = random_floats(z.m * z.n_in, seed, 1.0f);
    float *data = random_floats(z.n_out * z.n_in, seed + 1, 1.0f);
    float *bias = random_floats(z.n_out, seed + 2, 1.0f);
    float *residual = random_floats(z.m * z.n_out, seed + 3, 1.0f);
    float *y = floats(z.m * z.n_out), *pre = floats(z.m * z.n_out);
    fl_weight w = weight_of(data, z.n_out, z.n_in);
    int64_t n = z.m * z.n_out;

    double *want = product(in, data, NULL, NULL, z);
    RUN(d, linear, .in = in, .w = &w, .y = y, .m = z.m);
    near_all("y", y, want, n, 2e-6, 1.0);
    free(want);

    want = product(in, data, bias, residual, z);
    RUN(d, linear, .in = in, .w = &w, .bias = VECTOR(bias, w.rows), .residual = residual, .y = y,
        .m = z.m);
    near_all("y + residual", y, want, n, 2e-6, 1.0);
    float *in_place = copy_of(residual, n);
    RUN(d, linear, .in = in, .w = &w, .bias = VECTOR(bias, w.rows), .residual = in_place,
        .y = in_place, .m = z.m);
    same_bits("residual in place", in_place, y, n);
    free(in_place);
    free(want);

    want = product(in, data, bias, NULL, z);
    RUN(d, linear, .in = in, .w = &w, .bias = VECTOR(bias, w.rows), .activation = FL_ACT_GELU_TANH,
        .pre = pre, .y = y, .m = z.m);
    near_all("pre", pre, want, n, 2e-6, 1.0);
    for (int64_t i = 0; i < n; i++) {
        want[i] = gelu_of(want[i]);
    }
    near_all("gelu", y, want, n, 2e-6, 1.0);
    float *without_pre = floats(n);
    RUN(d, linear, .in = in, .w = &w, .bias = VECTOR(bias, w.rows), .activation = FL_ACT_GELU_TANH,
        .y = without_pre, .m = z.m);
    same_bits("gelu without pre", without_pre, y, n);
    free(without_pre);
    free(want);

    d->ops->weight_release(d, &w);
    free(in);
    free(data);
    free(bias);
    free(residual);
    free(y);
    free(pre);
}

static void test_linear__agrees_with_double(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        check_forward(d, shapes[i], 100 + 10 * i);
    }
    fl_device_destroy(&d);
}

static void check_backward(fl_device *d, shape z, uint32_t seed)
{
    float *grad_out = random_floats(z.m * z.n_out, seed, 1.0f);
    float *in = random_floats(z.m * z.n_in, seed + 1, 1.0f);
    float *data = random_floats(z.n_out * z.n_in, seed + 2, 1.0f);
    float *grad_in = floats(z.m * z.n_in);
    float *grad_w = random_floats(z.n_out * z.n_in, seed + 3, 1.0f);
    float *grad_bias = random_floats(z.n_out, seed + 4, 1.0f);
    double *want_in = doubles(z.m * z.n_in), *want_w = doubles(z.n_out * z.n_in);
    double *want_bias = doubles(z.n_out);
    for (int64_t j = 0; j < z.n_out; j++) {
        want_bias[j] = (double)grad_bias[j];
        for (int64_t k = 0; k < z.n_in; k++) {
            want_w[j * z.n_in + k] = (double)grad_w[j * z.n_in + k];
        }
    }
    for (int64_t i = 0; i < z.m; i++) {
        for (int64_t j = 0; j < z.n_out; j++) {
            double g = (double)grad_out[i * z.n_out + j];
            want_bias[j] += g;
            for (int64_t k = 0; k < z.n_in; k++) {
                want_in[i * z.n_in + k] += g * (double)data[j * z.n_in + k];
                want_w[j * z.n_in + k] += g * (double)in[i * z.n_in + k];
            }
        }
    }
    fl_weight w = weight_of(data, z.n_out, z.n_in);
    RUN(d, linear_backward_input, .grad_out = grad_out, .w = &w, .grad_in = grad_in, .m = z.m);
    near_all("grad_in", grad_in, want_in, z.m * z.n_in, 2e-6, 1.0);
    RUN(d, linear_backward_weights, .grad_out = grad_out, .in = in, .grad_w = grad_w,
        .grad_bias = grad_bias, .m = z.m, .n_out = z.n_out, .n_in = z.n_in);
    near_all("grad_w", grad_w, want_w, z.n_out * z.n_in, 2e-6, 1.0);
    near_all("grad_bias", grad_bias, want_bias, z.n_out, 2e-6, 1.0);
    d->ops->weight_release(d, &w);
    free(grad_out);
    free(in);
    free(data);
    free(grad_in);
    free(grad_w);
    free(grad_bias);
    free(want_in);
    free(want_w);
    free(want_bias);
}

static void test_linear_backward__agrees_with_double(void **state)
{
    (void)state;
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (uint32_t i = 0; i < N_SHAPES; i++) {
            check_backward(d, shapes[i], 300 + 10 * i);
        }
        fl_device_destroy(&d);
    }
}

/* A weight that changed under the same address must not be met in a stale packed form. */
static void test_linear__sees_a_changed_weight(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    const shape z = {20, 48, 40};
    float *in = random_floats(z.m * z.n_in, 1, 1.0f);
    float *data = random_floats(z.n_out * z.n_in, 2, 1.0f);
    float *y = floats(z.m * z.n_out);
    fl_weight w = weight_of(data, z.n_out, z.n_in);
    RUN(d, linear, .in = in, .w = &w, .y = y, .m = z.m);
    data[5] += 1.0f;
    w.version++;
    double *want = product(in, data, NULL, NULL, z);
    RUN(d, linear, .in = in, .w = &w, .y = y, .m = z.m);
    near_all("y", y, want, z.m * z.n_out, 2e-6, 1.0);
    d->ops->weight_release(d, &w);
    free(in);
    free(data);
    free(y);
    free(want);
    fl_device_destroy(&d);
}

/* Rows [first, first + m) computed alone, on a device of 1 or 2 threads, against all rows at once.
 */
static void check_rows(fl_device *d, shape z, const float *in, const float *all,
                       const float *all_pre, const float *all_back, const float *grad_out,
                       fl_weight *w, float *bias, int64_t first, int64_t m)
{
    float *y = floats(m * z.n_out), *pre = floats(m * z.n_out), *back = floats(m * z.n_in);
    RUN(d, linear, .in = in + first * z.n_in, .w = w, .bias = VECTOR(bias, w->rows),
        .activation = FL_ACT_GELU_TANH, .pre = pre, .y = y, .m = m);
    same_bits("pre", pre, all_pre + first * z.n_out, m * z.n_out);
    same_bits("y", y, all + first * z.n_out, m * z.n_out);
    RUN(d, linear_backward_input, .grad_out = grad_out + first * z.n_out, .w = w, .grad_in = back,
        .m = m);
    same_bits("grad_in", back, all_back + first * z.n_in, m * z.n_in);
    free(y);
    free(pre);
    free(back);
}

static void test_linear__row_bits_do_not_depend_on_other_rows(void **state)
{
    (void)state;
    fl_device *one = cpu_with(1), *two = cpu_with(2);
    static const shape some[] = {
        {128, 384, 128}, {130, 50, 70}, {61, 512, 128}, {40, 128, 512}, {45, 10, 900}};
    static const int64_t starts[] = {0, 1, 13, 37}, counts[] = {1, 2, 3, 7, 14, 15, 20, 3};
    for (uint32_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        shape z = some[i];
        float *in = random_floats(z.m * z.n_in, i, 1.0f);
        float *grad_out = random_floats(z.m * z.n_out, i + 50, 1.0f);
        float *data = random_floats(z.n_out * z.n_in, i + 100, 1.0f);
        float *bias = random_floats(z.n_out, i + 150, 1.0f);
        float *all = floats(z.m * z.n_out), *pre = floats(z.m * z.n_out);
        float *back = floats(z.m * z.n_in);
        fl_weight w = weight_of(data, z.n_out, z.n_in);
        RUN(one, linear, .in = in, .w = &w, .bias = VECTOR(bias, w.rows),
            .activation = FL_ACT_GELU_TANH, .pre = pre, .y = all, .m = z.m);
        RUN(one, linear_backward_input, .grad_out = grad_out, .w = &w, .grad_in = back, .m = z.m);
        for (size_t a = 0; a < sizeof starts / sizeof starts[0]; a++) {
            for (size_t b = 0; b < sizeof counts / sizeof counts[0]; b++) {
                if (starts[a] + counts[b] <= z.m) {
                    check_rows((a + b) % 2 == 0 ? one : two, z, in, all, pre, back, grad_out, &w,
                               bias, starts[a], counts[b]);
                }
            }
        }
        one->ops->weight_release(one, &w);
        free(in);
        free(grad_out);
        free(data);
        free(bias);
        free(all);
        free(pre);
        free(back);
    }
    fl_device_destroy(&one);
    fl_device_destroy(&two);
}

/* The gradient of a weight is the same bits for any number of threads. */
static void test_linear_backward_weights__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    const shape z = {300, 130, 90};
    float *grad_out = random_floats(z.m * z.n_out, 5, 1.0f);
    float *in = random_floats(z.m * z.n_in, 6, 1.0f);
    float *grad_w[2], *grad_bias[2];
    for (int i = 0; i < 2; i++) {
        fl_device *d = cpu_with(i + 1);
        grad_w[i] = zeros(z.n_out * z.n_in);
        grad_bias[i] = zeros(z.n_out);
        RUN(d, linear_backward_weights, .grad_out = grad_out, .in = in, .grad_w = grad_w[i],
            .grad_bias = grad_bias[i], .m = z.m, .n_out = z.n_out, .n_in = z.n_in);
        fl_device_destroy(&d);
    }
    same_bits("grad_w", grad_w[0], grad_w[1], z.n_out * z.n_in);
    same_bits("grad_bias", grad_bias[0], grad_bias[1], z.n_out);
    for (int i = 0; i < 2; i++) {
        free(grad_w[i]);
        free(grad_bias[i]);
    }
    free(grad_out);
    free(in);
}

/* A product of infinities or NaNs must not come out finite: a run that diverged has to notice. */
static void test_linear__passes_nan_on(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    float *in = random_floats(3 * 20, 1, 1.0f), *data = random_floats(18 * 20, 2, 1.0f);
    float *y = floats(3 * 18);
    in[20 + 4] = NAN;
    fl_weight w = weight_of(data, 18, 20);
    RUN(d, linear, .in = in, .w = &w, .activation = FL_ACT_GELU_TANH, .y = y, .m = 3);
    for (int i = 0; i < 18; i++) {
        assert_true(isfinite(y[i]));
        assert_true(isnan(y[18 + i]));
        assert_true(isfinite(y[36 + i]));
    }
    d->ops->weight_release(d, &w);
    free(in);
    free(data);
    free(y);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear__agrees_with_double),
        cmocka_unit_test(test_linear_backward__agrees_with_double),
        cmocka_unit_test(test_linear__sees_a_changed_weight),
        cmocka_unit_test(test_linear__row_bits_do_not_depend_on_other_rows),
        cmocka_unit_test(test_linear_backward_weights__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_linear__passes_nan_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
