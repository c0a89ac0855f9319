/* Softmax with cross-entropy, the sum of squares, AdamW and SGD against double. Catches overflow of
 * large logits, a loss that overwrites instead of adding, elements left out at the end of an array,
 * and sums that depend on the number of threads. */
#include "support/kernels.h"

static void check_loss(fl_device *d, int64_t m, int64_t n, float scale)
{
    float *logits = random_floats(m * n, (uint32_t)n, scale), *grad = floats(m * n);
    int32_t *targets = calloc((size_t)m + 1, sizeof *targets);
    double *want = doubles(m * n), loss = 3.0, want_loss = 3.0, correct = 2.0, want_correct = 2.0;
    const float grad_scale = 0.25f;
    for (int64_t i = 0; i < m; i++) {
        const float *row = logits + i * n;
        targets[i] = (int32_t)(i * 7 % n);
        int64_t best = 0;
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++) {
            best = row[j] > row[best] ? j : best;
        }
        for (int64_t j = 0; j < n; j++) {
            sum += exp((double)row[j] - (double)row[best]);
        }
        for (int64_t j = 0; j < n; j++) {
            double p = exp((double)row[j] - (double)row[best]) / sum;
            want[i * n + j] = (double)grad_scale * (p - (j == targets[i] ? 1.0 : 0.0));
        }
        want_loss += log(sum) + (double)row[best] - (double)row[targets[i]];
        want_correct += best == targets[i] ? 1.0 : 0.0;
    }
    RUN(d, cross_entropy, .logits = logits, .targets = targets, .m = m, .n = n,
        .grad_scale = grad_scale, .grad = grad, .loss = &loss, .n_correct = &correct);
    near_all("grad", grad, want, m * n, 1e-6, (double)grad_scale);
    assert_true(fabs(loss - want_loss) <= 1e-6 * fabs(want_loss));
    assert_true(correct == want_correct);
    double loss_alone = 3.0;
    RUN(d, cross_entropy, .logits = logits, .targets = targets, .m = m, .n = n,
        .grad_scale = grad_scale, .loss = &loss_alone, .n_correct = &correct);
    assert_true(loss_alone == loss);
    free(logits);
    free(grad);
    free(targets);
    free(want);
}

static void test_cross_entropy__agrees_with_double(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 10, 16, 17, 100, 1003};
    static const float scales[] = {1.0f, 20.0f, 500.0f};
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (int s = 0; s < 3; s++) {
                check_loss(d, 5, sizes[i], scales[s]);
                check_loss(d, 0, sizes[i], scales[s]);
            }
        }
        fl_device_destroy(&d);
    }
}

/* A diverged model must show in the loss. */
static void test_cross_entropy__passes_nan_on(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    for (int place = 0; place < 20; place++) {
        float *logits = random_floats(20, 1, 1.0f), *grad = floats(20);
        const int32_t target = 3;
        double loss = 0.0, correct = 0.0;
        logits[place] = NAN;
        RUN(d, cross_entropy, .logits = logits, .targets = &target, .m = 1, .n = 20,
            .grad_scale = 1.0f, .grad = grad, .loss = &loss, .n_correct = &correct);
        assert_true(isnan(loss));
        assert_true(isnan(grad[5]));
        free(logits);
        free(grad);
    }
    fl_device_destroy(&d);
}

static void test_cross_entropy__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    float *logits = random_floats(97 * 30, 1, 3.0f);
    int32_t targets[97];
    double loss[3] = {0}, correct[3] = {0};
    for (int i = 0; i < 97; i++) {
        targets[i] = i % 30;
    }
    for (int i = 0; i < 3; i++) {
        fl_device *d = cpu_with(i + 1);
        RUN(d, cross_entropy, .logits = logits, .targets = targets, .m = 97, .n = 30,
            .grad_scale = 1.0f, .loss = &loss[i], .n_correct = &correct[i]);
        fl_device_destroy(&d);
        assert_true(loss[i] == loss[0] && correct[i] == correct[0]);
    }
    free(logits);
}

static void test_sum_squares__agrees_with_double_on_any_threads(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 7, 31, 32, 33, 1000, 32768, 32769, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t n = sizes[i];
        float *g = random_floats(n, (uint32_t)i, 3.0f);
        double want = 0.0, first = 0.0;
        for (int64_t j = 0; j < n; j++) {
            want += (double)g[j] * (double)g[j];
        }
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            double got = -1.0;
            fl_device *d = cpu_with(n_threads);
            const fl_square_sum square = {g, n, &got};
            assert_int_equal(d->ops->sum_squares_many(d, NULL, &square, 1), FL_OK);
            fl_device_destroy(&d);
            assert_true(fabs(got - want) <= 1e-12 * want);
            first = n_threads == 1 ? got : first;
            assert_true(got == first);
        }
        free(g);
    }
}

static void check_adamw(fl_device *d, int64_t n)
{
    float *w = random_floats(n, 1, 1.0f), *m = zeros(n), *v = zeros(n);
    double *want = doubles(n), *want_m = doubles(n), *want_v = doubles(n);
    for (int64_t i = 0; i < n; i++) {
        want[i] = (double)w[i];
    }
    const double lr = 1e-2, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0.1, scale = 0.5;
    for (int t = 1; t <= 3; t++) {
        float *g = random_floats(n, (uint32_t)(10 + t), 1.0f);
        double c1 = 1.0 - pow(beta1, t), c2 = 1.0 - pow(beta2, t);
        const fl_adamw_step step = {(float)lr, (float)beta1, (float)beta2, (float)epsilon,
                                    (float)c1, (float)c2,    (float)scale};
        for (int64_t i = 0; i < n; i++) {
            double gi = (double)g[i] * scale;
            want_m[i] = beta1 * want_m[i] + (1.0 - beta1) * gi;
            want_v[i] = beta2 * want_v[i] + (1.0 - beta2) * gi * gi;
            want[i] -= lr * decay * want[i];
            want[i] -= lr * (want_m[i] / c1) / (sqrt(want_v[i] / c2) + epsilon);
        }
        const fl_update update = {w, g, {m, v}, n, (float)decay};
        assert_int_equal(d->ops->adamw_many(d, NULL, &update, 1, &step), FL_OK);
        guard_check(g, n);
        free(g);
    }
    near_all("w", w, want, n, 1e-6, 1.0);
    near_all("m", m, want_m, n, 1e-6, 0.1);
    near_all("v", v, want_v, n, 1e-4, 1e-4); /* 1 - beta2 rounds to 2^-24 of 1 */
    free(w);
    free(m);
    free(v);
    free(want);
    free(want_m);
    free(want_v);
}

static void check_sgd(fl_device *d, int64_t n)
{
    float *w = random_floats(n, 1, 1.0f), *momentum = zeros(n);
    double *want = doubles(n), *buffer = doubles(n);
    for (int64_t i = 0; i < n; i++) {
        want[i] = (double)w[i];
    }
    for (int t = 1; t <= 3; t++) {
        float *g = random_floats(n, (uint32_t)(10 + t), 1.0f);
        const fl_sgd_step step = {0.1f, 0.9f, 2.0f};
        const fl_update update = {w, g, {momentum, NULL}, n, 0.01f};
        for (int64_t i = 0; i < n; i++) {
            buffer[i] = 0.9 * buffer[i] + (double)g[i] * 2.0 + 0.01 * want[i];
            want[i] -= 0.1 * buffer[i];
        }
        assert_int_equal(d->ops->sgd_many(d, NULL, &update, 1, &step), FL_OK);
        free(g);
    }
    near_all("w", w, want, n, 1e-6, 1.0);
    near_all("momentum", momentum, buffer, n, 1e-6, 1.0);
    free(w);
    free(momentum);
    free(want);
    free(buffer);
}

static void test_optimizers__agree_with_double(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 63, 1000};
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            check_adamw(d, sizes[i]);
            check_sgd(d, sizes[i]);
        }
        fl_device_destroy(&d);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy__agrees_with_double),
        cmocka_unit_test(test_cross_entropy__passes_nan_on),
        cmocka_unit_test(test_cross_entropy__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_sum_squares__agrees_with_double_on_any_threads),
        cmocka_unit_test(test_optimizers__agree_with_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
