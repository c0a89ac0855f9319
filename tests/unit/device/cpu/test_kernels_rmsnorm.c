/* RMSNorm against double. Catches rows that do not fill vectors, a residual or a sum that is not
 * written, a mean that is taken off, and sums over rows that depend on the threads. */
#include "support/device/kernels.h"

static const float eps = 1e-6f;

typedef struct norm {
    int64_t m, n;
    float *x, *residual, *gamma, *grad_y;
} norm;

static norm norm_of(int64_t m, int64_t n, uint32_t seed)
{
    norm c = {m,
              n,
              random_floats(m * n, seed, 2.0f),
              random_floats(m * n, seed + 1, 1.0f),
              random_floats(n, seed + 2, 1.0f),
              random_floats(m * n, seed + 3, 1.0f)};
    for (int64_t i = 0; i < m * n; i++) {
        c.x[i] += 0.5f; /* a mean other than 0 */
    }
    return c;
}

static void norm_free(norm *c)
{
    free(c->x);
    free(c->residual);
    free(c->gamma);
    free(c->grad_y);
}

static double rstd_of(const float *x, int64_t n)
{
    double squares = 0.0;
    for (int64_t j = 0; j < n; j++) {
        squares += (double)x[j] * (double)x[j];
    }
    return 1.0 / sqrt(squares / (double)n + (double)eps);
}

static double *normalized(const norm *c, const float *x, double *rstds)
{
    double *y = doubles(c->m * c->n);
    for (int64_t i = 0; i < c->m; i++) {
        rstds[i] = rstd_of(x + i * c->n, c->n);
        for (int64_t j = 0; j < c->n; j++) {
            y[i * c->n + j] = (double)x[i * c->n + j] * rstds[i] * (double)c->gamma[j];
        }
    }
    return y;
}

static void check_forward(fl_device *d, int64_t m, int64_t n)
{
    norm c = norm_of(m, n, (uint32_t)(m + n));
    float *sum = floats(m * n), *y = floats(m * n), *rstd = floats(m);
    double *rstds = doubles(m), *want = normalized(&c, c.x, rstds);
    RUN_AS(d, rmsnorm, norm, .in = c.x, .gamma = VECTOR(c.gamma, n), .epsilon = eps, .y = y,
           .rstd = rstd, .m = m, .n = n);
    near_all("y", y, want, m * n, 4e-6, 1.0);
    near_all("rstd", rstd, rstds, m, 4e-6, 1.0);
    float *in_place = copy_of(c.x, m * n);
    RUN_AS(d, rmsnorm, norm, .in = in_place, .gamma = VECTOR(c.gamma, n), .epsilon = eps,
           .y = in_place, .m = m, .n = n);
    same_bits("in place", in_place, y, m * n);
    free(want);

    RUN_AS(d, rmsnorm, norm, .in = c.x, .residual = c.residual, .gamma = VECTOR(c.gamma, n),
           .epsilon = eps, .sum = sum, .y = y, .m = m, .n = n);
    for (int64_t i = 0; i < m * n; i++) {
        assert_true(sum[i] == c.x[i] + c.residual[i]);
    }
    want = normalized(&c, sum, rstds);
    near_all("y of the sum", y, want, m * n, 4e-6, 1.0);
    guard_check(sum, m * n);
    free(want);
    free(in_place);
    free(sum);
    free(y);
    free(rstd);
    free(rstds);
    norm_free(&c);
}

/* grad_x = rstd (d - h mean(d h)) with d = grad_y gamma and h = x rstd. */
static void check_backward(fl_device *d, int64_t m, int64_t n, bool with_residual)
{
    norm c = norm_of(m, n, (uint32_t)(3 * m + n));
    float *y = floats(m * n), *rstd = floats(m), *grad = floats(m * n);
    float *grad_gamma = random_floats(n, 1, 1.0f);
    double *want = doubles(m * n), *want_gamma = doubles(n);
    for (int64_t j = 0; j < n; j++) {
        want_gamma[j] = (double)grad_gamma[j];
    }
    for (int64_t i = 0; i < m; i++) {
        const float *x = c.x + i * n, *gy = c.grad_y + i * n;
        double r = rstd_of(x, n), dh = 0.0;
        for (int64_t j = 0; j < n; j++) {
            dh += (double)gy[j] * (double)c.gamma[j] * (double)x[j] * r / (double)n;
            want_gamma[j] += (double)gy[j] * (double)x[j] * r;
        }
        for (int64_t j = 0; j < n; j++) {
            want[i * n + j] = r * ((double)gy[j] * (double)c.gamma[j] - (double)x[j] * r * dh) +
                              (with_residual ? (double)c.residual[i * n + j] : 0.0);
        }
    }
    RUN_AS(d, rmsnorm, norm, .in = c.x, .gamma = VECTOR(c.gamma, n), .epsilon = eps, .y = y,
           .rstd = rstd, .m = m, .n = n);
    RUN_AS(d, rmsnorm_backward, norm_backward, .grad_y = c.grad_y, .in = c.x,
           .gamma = VECTOR(c.gamma, n), .rstd = rstd,
           .grad_residual = with_residual ? c.residual : NULL, .grad_in = grad,
           .grad_gamma = grad_gamma, .m = m, .n = n);
    near_all("grad_in", grad, want, m * n, 1e-5, 1.0);
    near_all("grad_gamma", grad_gamma, want_gamma, n, 4e-6, 1.0);
    RUN_AS(d, rmsnorm_backward, norm_backward, .grad_y = c.grad_y, .in = c.x,
           .gamma = VECTOR(c.gamma, n), .rstd = rstd, .m = m, .n = n);
    free(y);
    free(rstd);
    free(grad);
    free(grad_gamma);
    free(want);
    free(want_gamma);
    norm_free(&c);
}

static void test_rmsnorm__agrees_with_double(void **state)
{
    (void)state;
    static const int64_t sizes[] = {2, 7, 16, 17, 31, 33, 64, 100, 384, 777};
    static const int64_t counts[] = {0, 1, 3, 130};
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
                check_forward(d, counts[j], sizes[i]);
                check_backward(d, counts[j], sizes[i], (i + j) % 2 == 0);
            }
        }
        fl_device_destroy(&d);
    }
}

static void test_rmsnorm_backward__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { M = 333, N = 50 };
    norm c = norm_of(M, N, 4);
    float *rstd = random_floats(M, 2, 1.0f), *grad[3], *gamma[3];
    for (int i = 0; i < 3; i++) {
        fl_device *d = cpu_with(i + 1);
        grad[i] = floats(M * N);
        gamma[i] = zeros(N);
        RUN_AS(d, rmsnorm_backward, norm_backward, .grad_y = c.grad_y, .in = c.x,
               .gamma = VECTOR(c.gamma, N), .rstd = rstd, .grad_in = grad[i],
               .grad_gamma = gamma[i], .m = M, .n = N);
        fl_device_destroy(&d);
        same_bits("grad_in", grad[i], grad[0], M * N);
        same_bits("grad_gamma", gamma[i], gamma[0], N);
    }
    for (int i = 0; i < 3; i++) {
        free(grad[i]);
        free(gamma[i]);
    }
    free(rstd);
    norm_free(&c);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm__agrees_with_double),
        cmocka_unit_test(test_rmsnorm_backward__bits_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
