/* LayerNorm and GELU against double. Catches rows that do not fill vectors, a residual or a sum
 * that is not written, cancellation in the variance, and sums over rows that depend on the threads.
 */
#include "support/device/kernels.h"

typedef struct norm {
    int64_t m, n;
    float *x, *residual, *gamma, *beta, *grad_y;
} norm;

static norm norm_of(int64_t m, int64_t n, uint32_t seed, float offset)
{
    norm c = {m,
              n,
              random_floats(m * n, seed, 2.0f),
              random_floats(m * n, seed + 1, 1.0f),
              random_floats(n, seed + 2, 1.0f),
              random_floats(n, seed + 3, 1.0f),
              random_floats(m * n, seed + 4, 1.0f)};
    for (int64_t i = 0; i < m * n; i++) {
        c.x[i] += offset;
    }
    return c;
}

static void norm_free(norm *c)
{
    free(c->x);
    free(c->residual);
    free(c->gamma);
    free(c->beta);
    free(c->grad_y);
}

static const float eps = 1e-5f;

static void moments(const float *x, int64_t n, double *mean, double *rstd)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t j = 0; j < n; j++) {
        sum += (double)x[j];
    }
    *mean = sum / (double)n;
    for (int64_t j = 0; j < n; j++) {
        squares += ((double)x[j] - *mean) * ((double)x[j] - *mean);
    }
    *rstd = 1.0 / sqrt(squares / (double)n + (double)eps);
}

static double *normalized(const norm *c, const float *x, double *means, double *rstds)
{
    double *y = doubles(c->m * c->n);
    for (int64_t i = 0; i < c->m; i++) {
        moments(x + i * c->n, c->n, &means[i], &rstds[i]);
        for (int64_t j = 0; j < c->n; j++) {
            y[i * c->n + j] =
                ((double)x[i * c->n + j] - means[i]) * rstds[i] * (double)c->gamma[j] +
                (double)c->beta[j];
        }
    }
    return y;
}

static void check_forward(fl_device *d, int64_t m, int64_t n, float offset, double tolerance)
{
    norm c = norm_of(m, n, (uint32_t)(m + n), offset);
    float *sum = floats(m * n), *y = floats(m * n), *mean = floats(m), *rstd = floats(m);
    double *means = doubles(m), *rstds = doubles(m);
    double *want = normalized(&c, c.x, means, rstds);
    RUN_AS(d, layernorm, norm, .in = c.x, .gamma = VECTOR(c.gamma, n), .beta = VECTOR(c.beta, n),
           .epsilon = eps, .y = y, .mean = mean, .rstd = rstd, .m = m, .n = n);
    near_all("y", y, want, m * n, tolerance, 1.0);
    near_all("mean", mean, means, m, 1e-6, 1.0);
    near_all("rstd", rstd, rstds, m, tolerance, 1.0);
    float *in_place = copy_of(c.x, m * n);
    RUN_AS(d, layernorm, norm, .in = in_place, .gamma = VECTOR(c.gamma, n),
           .beta = VECTOR(c.beta, n), .epsilon = eps, .y = in_place, .m = m, .n = n);
    same_bits("in place", in_place, y, m * n);
    RUN_AS(d, layernorm, norm, .in = c.x, .gamma = VECTOR(c.gamma, n), .beta = VECTOR(c.beta, n),
           .epsilon = eps, .sum = sum, .y = y, .mean = mean, .rstd = rstd, .m = m, .n = n);
    same_bits("sum without residual", sum, c.x, m * n);
    free(want);

    RUN_AS(d, layernorm, norm, .in = c.x, .residual = c.residual, .gamma = VECTOR(c.gamma, n),
           .beta = VECTOR(c.beta, n), .epsilon = eps, .sum = sum, .y = y, .mean = mean,
           .rstd = rstd, .m = m, .n = n);
    for (int64_t i = 0; i < m * n; i++) {
        assert_true(sum[i] == c.x[i] + c.residual[i]);
    }
    want = normalized(&c, sum, means, rstds);
    near_all("y of the sum", y, want, m * n, tolerance, 1.0);
    guard_check(sum, m * n);
    memcpy(in_place, c.x, (size_t)(m * n) * sizeof *in_place);
    float *again = floats(m * n);
    RUN_AS(d, layernorm, norm, .in = in_place, .residual = c.residual, .gamma = VECTOR(c.gamma, n),
           .beta = VECTOR(c.beta, n), .epsilon = eps, .sum = in_place, .y = again, .m = m, .n = n);
    same_bits("sum in place", in_place, sum, m * n);
    same_bits("y again", again, y, m * n);
    RUN_AS(d, layernorm, norm, .in = c.x, .residual = c.residual, .gamma = VECTOR(c.gamma, n),
           .beta = VECTOR(c.beta, n), .epsilon = eps, .y = again, .m = m, .n = n);
    same_bits("y without sum", again, y, m * n);
    free(want);
    free(again);
    free(in_place);
    free(sum);
    free(y);
    free(mean);
    free(rstd);
    free(means);
    free(rstds);
    norm_free(&c);
}

static const int64_t sizes[] = {1, 2, 7, 16, 17, 31, 33, 64, 100, 128, 384, 777};
static const int64_t counts[] = {0, 1, 3, 5, 130};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], N_COUNTS = sizeof counts / sizeof counts[0] };

static void test_layernorm__agrees_with_double(void **state)
{
    (void)state;
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (int i = 0; i < N_SIZES; i++) {
            for (int j = 0; j < N_COUNTS; j++) {
                check_forward(d, counts[j], sizes[i], 0.0f, 4e-6);
            }
        }
        fl_device_destroy(&d);
    }
}

/* E[x^2] - E[x]^2 would lose all digits here. */
static void test_layernorm__keeps_its_digits_far_from_zero(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    norm c = norm_of(4, 128, 5, 4096.0f);
    float *y = floats(4 * 128);
    double means[4], rstds[4];
    double *want = normalized(&c, c.x, means, rstds);
    RUN_AS(d, layernorm, norm, .in = c.x, .gamma = VECTOR(c.gamma, 128),
           .beta = VECTOR(c.beta, 128), .epsilon = eps, .y = y, .m = 4, .n = 128);
    near_all("y", y, want, 4 * 128, 1e-3, 1.0); /* the mean itself rounds by 4096 * 2^-24 */
    free(want);
    free(y);
    norm_free(&c);
    fl_device_destroy(&d);
}

static void check_backward(fl_device *d, int64_t m, int64_t n, bool with_residual)
{
    norm c = norm_of(m, n, (uint32_t)(3 * m + n), 0.0f);
    float *y = floats(m * n), *mean = floats(m), *rstd = floats(m), *grad = floats(m * n);
    float *grad_gamma = random_floats(n, 1, 1.0f), *grad_beta = random_floats(n, 2, 1.0f);
    double *want = doubles(m * n), *want_gamma = doubles(n), *want_beta = doubles(n);
    for (int64_t j = 0; j < n; j++) {
        want_gamma[j] = (double)grad_gamma[j];
        want_beta[j] = (double)grad_beta[j];
    }
    for (int64_t i = 0; i < m; i++) {
        double mu, rs, sum_d = 0.0, sum_dh = 0.0;
        const float *x = c.x + i * n, *g = c.grad_y + i * n;
        moments(x, n, &mu, &rs);
        for (int64_t j = 0; j < n; j++) {
            double h = ((double)x[j] - mu) * rs, delta = (double)g[j] * (double)c.gamma[j];
            sum_d += delta;
            sum_dh += delta * h;
            want_gamma[j] += (double)g[j] * h;
            want_beta[j] += (double)g[j];
        }
        for (int64_t j = 0; j < n; j++) {
            double h = ((double)x[j] - mu) * rs, delta = (double)g[j] * (double)c.gamma[j];
            want[i * n + j] = rs * (delta - sum_d / (double)n - h * sum_dh / (double)n) +
                              (with_residual ? (double)c.residual[i * n + j] : 0.0);
        }
    }
    RUN_AS(d, layernorm, norm, .in = c.x, .gamma = VECTOR(c.gamma, n), .beta = VECTOR(c.beta, n),
           .epsilon = eps, .y = y, .mean = mean, .rstd = rstd, .m = m, .n = n);
    const float *residual = with_residual ? c.residual : NULL;
    RUN_AS(d, layernorm_backward, norm_backward, .grad_y = c.grad_y, .in = c.x,
           .gamma = VECTOR(c.gamma, n), .mean = mean, .rstd = rstd, .grad_residual = residual,
           .grad_in = grad, .grad_gamma = grad_gamma, .grad_beta = grad_beta, .m = m, .n = n);
    near_all("grad_in", grad, want, m * n, 1e-5, 1.0);
    near_all("grad_gamma", grad_gamma, want_gamma, n, 4e-6, 1.0);
    near_all("grad_beta", grad_beta, want_beta, n, 2e-6, 1.0);

    float *alone = floats(m * n);
    RUN_AS(d, layernorm_backward, norm_backward, .grad_y = c.grad_y, .in = c.x,
           .gamma = VECTOR(c.gamma, n), .mean = mean, .rstd = rstd, .grad_residual = residual,
           .grad_in = alone, .m = m, .n = n);
    same_bits("grad_in alone", alone, grad, m * n);
    RUN_AS(d, layernorm_backward, norm_backward, .grad_y = c.grad_y, .in = c.x,
           .gamma = VECTOR(c.gamma, n), .mean = mean, .rstd = rstd, .grad_residual = residual,
           .grad_gamma = grad_gamma, .m = m, .n = n);
    memcpy(alone, c.grad_y, (size_t)(m * n) * sizeof *alone);
    RUN_AS(d, layernorm_backward, norm_backward, .grad_y = alone, .in = c.x,
           .gamma = VECTOR(c.gamma, n), .mean = mean, .rstd = rstd, .grad_residual = residual,
           .grad_in = alone, .m = m, .n = n);
    same_bits("grad_in over grad_y", alone, grad, m * n);
    free(alone);
    free(y);
    free(mean);
    free(rstd);
    free(grad);
    free(grad_gamma);
    free(grad_beta);
    free(want);
    free(want_gamma);
    free(want_beta);
    norm_free(&c);
}

static void test_layernorm_backward__agrees_with_double(void **state)
{
    (void)state;
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (int i = 1; i < N_SIZES; i++) {
            for (int j = 0; j < N_COUNTS; j++) {
                check_backward(d, counts[j], sizes[i], (i + j) % 2 == 0);
            }
        }
        fl_device_destroy(&d);
    }
}

static void test_layernorm_backward__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { M = 333, N = 50 };
    norm c = norm_of(M, N, 4, 0.0f);
    float *mean = random_floats(M, 1, 0.1f), *rstd = random_floats(M, 2, 1.0f);
    float *grad[3], *gamma[3], *beta[3];
    for (int i = 0; i < 3; i++) {
        fl_device *d = cpu_with(i + 1);
        grad[i] = floats(M * N);
        gamma[i] = zeros(N);
        beta[i] = zeros(N);
        RUN_AS(d, layernorm_backward, norm_backward, .grad_y = c.grad_y, .in = c.x,
               .gamma = VECTOR(c.gamma, N), .mean = mean, .rstd = rstd, .grad_in = grad[i],
               .grad_gamma = gamma[i], .grad_beta = beta[i], .m = M, .n = N);
        fl_device_destroy(&d);
        same_bits("grad_in", grad[i], grad[0], M * N);
        same_bits("grad_gamma", gamma[i], gamma[0], N);
        same_bits("grad_beta", beta[i], beta[0], N);
    }
    for (int i = 0; i < 3; i++) {
        free(grad[i]);
        free(gamma[i]);
        free(beta[i]);
    }
    free(mean);
    free(rstd);
    norm_free(&c);
}

static double gelu_of(double x)
{
    return 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double slope_of(double x)
{
    double t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
    double u = 0.79788456080286536 * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * u;
}

/* y = gelu(x), through a product with 1. */
static void gelu_all(fl_device *d, const float *x, float *y, int64_t n)
{
    float one = 1.0f;
    fl_weight w = weight_of(&one, 1, 1);
    RUN(d, linear, .in = x, .w = &w, .activation = FL_ACT_GELU_TANH, .y = y, .m = n);
    d->ops->weight_release(d, &w);
}

static void test_gelu__agrees_with_double(void **state)
{
    (void)state;
    enum { N = 40003 };
    fl_device *d = cpu_with(2);
    float *x = floats(N), *y = floats(N), *again = floats(N), *ones = floats(N), *slope = floats(N);
    for (int i = 0; i < N; i++) {
        x[i] = -20.0f + 1e-3f * (float)i;
        ones[i] = 1.0f;
    }
    gelu_all(d, x, y, N);
    RUN(d, activate_backward, .activation = FL_ACT_GELU_TANH, .grad_y = ones, .pre = x,
        .grad_pre = slope, .y = again, .n = N);
    for (int i = 0; i < N; i++) {
        double at = (double)x[i];
        assert_true(fabs((double)y[i] - gelu_of(at)) <= 1e-6 * fmax(1.0, fabs(at)));
        assert_true(fabs((double)slope[i] - slope_of(at)) <= 1e-6);
    }
    same_bits("y on the way back", again, y, N);
    guard_check(slope, N);
    RUN(d, activate_backward, .activation = FL_ACT_GELU_TANH, .grad_y = ones, .pre = x,
        .grad_pre = ones, .n = N);
    same_bits("in place", ones, slope, N);
    free(x);
    free(y);
    free(again);
    free(ones);
    free(slope);
    fl_device_destroy(&d);
}

static void test_gelu__holds_at_the_ends(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    float x[6] = {1e30f, -1e30f, INFINITY, NAN, 0.0f, -100.0f}, y[6], slope[6],
          g[6] = {1, 1, 1, 1, 1, 1};
    gelu_all(d, x, y, 6);
    RUN(d, activate_backward, .activation = FL_ACT_GELU_TANH, .grad_y = g, .pre = x,
        .grad_pre = slope, .n = 6);
    assert_true(y[0] == 1e30f && slope[0] == 1.0f);
    assert_true(fabsf(slope[1]) < 1e-6f);
    assert_true(isinf(y[2]) && slope[2] == 1.0f);
    assert_true(isnan(y[3]) && isnan(slope[3]));
    assert_true(y[4] == 0.0f && slope[4] == 0.5f);
    assert_true(fabsf(y[5]) < 1e-6f && fabsf(slope[5]) < 1e-6f);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm__agrees_with_double),
        cmocka_unit_test(test_layernorm__keeps_its_digits_far_from_zero),
        cmocka_unit_test(test_layernorm_backward__agrees_with_double),
        cmocka_unit_test(test_layernorm_backward__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_gelu__agrees_with_double),
        cmocka_unit_test(test_gelu__holds_at_the_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
