/* Softmax with cross-entropy, the sum of squares, AdamW and SGD against double. Catches overflow of
 * large logits, a loss that overwrites instead of adding, elements left out at the end of an array,
 * and sums that depend on the number of threads. */
#include "support/device/kernels.h"

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
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
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

/* A row with a target below 0 counts nowhere, and its neighbours keep their bits. */
static void test_cross_entropy__ignores_rows(void **state)
{
    (void)state;
    enum { M = 5, N = 19 };
    fl_device *d = cpu_with(2);
    float *logits = random_floats(M * N, 1, 3.0f), *all = floats(M * N), *grad = floats(M * N);
    const int32_t targets[M] = {3, -100, 0, -1, 18}, kept[M] = {3, 0, 0, 0, 18};
    double loss = 0.0, correct = 0.0, counted = 0.0, want = 0.0;
    RUN(d, cross_entropy, .logits = logits, .targets = kept, .m = M, .n = N, .grad_scale = 1.0f,
        .grad = all, .loss = &want);
    RUN(d, cross_entropy, .logits = logits, .targets = targets, .m = M, .n = N, .grad_scale = 1.0f,
        .grad = grad, .loss = &loss, .n_correct = &correct, .n_counted = &counted);
    assert_true(counted == 3.0);
    want = 0.0;
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            assert_true(grad[i * N + j] == (targets[i] < 0 ? 0.0f : all[i * N + j]));
        }
        if (targets[i] >= 0) {
            RUN(d, cross_entropy, .logits = logits + i * N, .targets = &targets[i], .m = 1, .n = N,
                .loss = &want);
        }
    }
    assert_true(fabs(loss - want) <= 1e-12 * want);
    guard_check(grad, M * N);
    free(logits);
    free(all);
    free(grad);
    fl_device_destroy(&d);
}

/* Columns of padding, even the largest of all, take no probability, never count as the largest, and
 * have the gradient 0; the gradient may overwrite the logits. */
static void test_cross_entropy__leaves_padding_out(void **state)
{
    (void)state;
    enum { M = 5, N = 24, CLASSES = 19 };
    static const int32_t targets[M] = {3, 18, 0, -1, 7};
    fl_device *d = cpu_with(2);
    float *logits = random_floats(M * N, 1, 3.0f), *narrow = floats(M * CLASSES),
          *want = floats(M * CLASSES);
    double want_sums[3] = {0}, sums[3] = {0};
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            logits[i * N + j] = j < CLASSES ? logits[i * N + j] : j % 2 == 0 ? 1e9f : NAN;
        }
        memcpy(narrow + i * CLASSES, logits + i * N, CLASSES * sizeof *logits);
    }
    RUN(d, cross_entropy, .logits = narrow, .targets = targets, .m = M, .n = CLASSES,
        .grad_scale = 0.5f, .grad = want, .loss = &want_sums[0], .n_correct = &want_sums[1],
        .n_counted = &want_sums[2]);
    RUN(d, cross_entropy, .logits = logits, .targets = targets, .m = M, .n = N,
        .n_classes = CLASSES, .grad_scale = 0.5f, .grad = logits, .loss = &sums[0],
        .n_correct = &sums[1], .n_counted = &sums[2]);
    assert_memory_equal(sums, want_sums, sizeof sums);
    for (int i = 0; i < M; i++) {
        assert_memory_equal(logits + i * N, want + i * CLASSES, CLASSES * sizeof *logits);
        for (int j = CLASSES; j < N; j++) {
            assert_true(logits[i * N + j] == 0.0f);
        }
    }
    free(logits);
    free(narrow);
    free(want);
    fl_device_destroy(&d);
}

/* Of equal logits the first is chosen, ignored rows count nowhere, and one of the sums may be
 * missing. */
static void test_cross_entropy__counts_class_1(void **state)
{
    (void)state;
    enum { M = 200 };
    for (int n = 2; n <= 4; n++) {
        fl_device *d = cpu_with(1 + n % 3);
        float *logits = random_floats((int64_t)M * n, 1, 3.0f);
        int32_t targets[M];
        double positive = 1.0, true_positive = 2.0, alone = 0.0, correct = 0.0, loss = 0.0;
        double want_positive = 1.0, want_true_positive = 2.0, want_correct = 0.0;
        for (int i = 0; i < M; i++) {
            float *row = logits + i * n;
            int best = 0;
            targets[i] = i % (n + 1) - 1;
            row[1] = i % 7 == 0 ? row[0] : row[1];
            row[n - 1] = i % 5 == 0 ? row[1] : row[n - 1];
            for (int k = 1; k < n; k++) {
                best = row[k] > row[best] ? k : best;
            }
            want_positive += targets[i] >= 0 && best == 1;
            want_true_positive += targets[i] == 1 && best == 1;
            want_correct += targets[i] == best;
        }
        RUN(d, cross_entropy, .logits = logits, .targets = targets, .m = M, .n = n, .loss = &loss,
            .n_correct = &correct, .n_positive = &positive, .n_true_positive = &true_positive);
        RUN(d, cross_entropy, .logits = logits, .targets = targets, .m = M, .n = n, .loss = &loss,
            .n_positive = &alone);
        assert_true(want_positive > 20 && want_true_positive > 5);
        assert_true(positive == want_positive && true_positive == want_true_positive);
        assert_true(alone == want_positive - 1.0 && correct == want_correct);
        free(logits);
        fl_device_destroy(&d);
    }
}

enum { SPANS = 5, COLUMNS = 2, TOKENS = 24 };

static const int32_t starts[SPANS + 1] = {0, 3, 3, 4, 21, TOKENS};
static const int32_t span[SPANS * COLUMNS] = {2, 0, -1, -1, 0, 0, 16, -1, 1, 2};

/* Sample s, column c in double: its loss; the gradient is added to grad [TOKENS, COLUMNS]. */
static double span_loss(const float *logits, int s, int c, double *grad, double *correct)
{
    int32_t target = span[s * COLUMNS + c], best = starts[s];
    double sum = 0.0;
    if (target < 0) {
        return 0.0;
    }
    for (int32_t i = starts[s]; i < starts[s + 1]; i++) {
        best = logits[i * COLUMNS + c] > logits[best * COLUMNS + c] ? i : best;
        sum += exp((double)logits[i * COLUMNS + c]);
    }
    for (int32_t i = starts[s]; i < starts[s + 1]; i++) {
        grad[i * COLUMNS + c] =
            0.5 * (exp((double)logits[i * COLUMNS + c]) / sum - (i - starts[s] == target));
    }
    *correct += best - starts[s] == target ? 1.0 : 0.0;
    return log(sum) - (double)logits[(starts[s] + target) * COLUMNS + c];
}

/* Ragged samples, one of them empty and one of a single token, and targets that are ignored. */
static void test_span_cross_entropy__agrees_with_double(void **state)
{
    (void)state;
    float *logits = random_floats(TOKENS * COLUMNS, 1, 4.0f);
    double *want = doubles(TOKENS * COLUMNS), want_loss = 1.0, want_correct = 2.0, first = 0.0;
    for (int i = 0; i < SPANS * COLUMNS; i++) {
        want_loss += span_loss(logits, i / COLUMNS, i % COLUMNS, want, &want_correct);
    }
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        double loss = 1.0, correct = 2.0, counted = 4.0;
        float *grad = floats(TOKENS * COLUMNS);
        RUN(d, span_cross_entropy, .logits = logits, .offsets = offsets_of(starts, SPANS),
            .targets = span, .columns = COLUMNS, .grad_scale = 0.5f, .grad = grad, .loss = &loss,
            .n_correct = &correct, .n_counted = &counted);
        near_all("grad", grad, want, TOKENS * COLUMNS, 1e-6, 0.5);
        assert_true(fabs(loss - want_loss) <= 1e-6 * want_loss);
        assert_true(correct == want_correct && counted == 4.0 + 7.0);
        first = n_threads == 1 ? loss : first;
        assert_true(loss == first);
        RUN(d, span_cross_entropy, .logits = logits, .offsets = offsets_of(starts, 0),
            .targets = span, .columns = COLUMNS, .loss = &loss);
        assert_true(loss == first);
        free(grad);
        fl_device_destroy(&d);
    }
    free(logits);
    free(want);
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

/* Several tensors in a call: each has the bits that it has alone, also empty and small ones. */
static void test_many__tensors_do_not_depend_on_their_neighbours(void **state)
{
    (void)state;
    enum { TENSORS = 5 };
    static const int64_t sizes[TENSORS] = {33000, 0, 7, 100000, 16};
    const fl_adamw_step adamw = {1e-2f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.001f, 0.5f};
    const fl_sgd_step sgd = {0.1f, 0.9f, 2.0f};
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        fl_device *d = cpu_with(n_threads), *one = cpu_with(1);
        fl_update list[TENSORS];
        fl_square_sum squares[TENSORS];
        double sums[TENSORS];
        float *alone[TENSORS][3];
        for (int i = 0; i < TENSORS; i++) {
            uint32_t seed = (uint32_t)(10 * i);
            int64_t n = sizes[i];
            list[i] = (fl_update){random_floats(n, seed, 1.0f),
                                  random_floats(n, seed + 1, 1.0f),
                                  {random_floats(n, seed + 2, 0.1f), zeros(n)},
                                  n,
                                  (float)i * 0.01f,
                                  1.0f / (float)(i + 1)};
            alone[i][0] = copy_of(list[i].w, n);
            alone[i][1] = copy_of(list[i].moment[0], n);
            alone[i][2] = copy_of(list[i].moment[1], n);
            squares[i] = (fl_square_sum){list[i].g, n, &sums[i]};
        }
        assert_int_equal(d->ops->adamw_many(d, NULL, list, TENSORS, &adamw), FL_OK);
        assert_int_equal(d->ops->sgd_many(d, NULL, list, TENSORS, &sgd), FL_OK);
        assert_int_equal(d->ops->sum_squares_many(d, NULL, squares, TENSORS), FL_OK);
        for (int i = 0; i < TENSORS; i++) {
            double sum = -1.0;
            const fl_update u = {
                alone[i][0],          list[i].g,   {alone[i][1], alone[i][2]}, sizes[i],
                list[i].weight_decay, list[i].rate};
            const fl_square_sum square = {list[i].g, sizes[i], &sum};
            assert_int_equal(one->ops->adamw_many(one, NULL, &u, 1, &adamw), FL_OK);
            assert_int_equal(one->ops->sgd_many(one, NULL, &u, 1, &sgd), FL_OK);
            assert_int_equal(one->ops->sum_squares_many(one, NULL, &square, 1), FL_OK);
            assert_true(sums[i] == sum);
            same_bits("w", list[i].w, u.w, sizes[i]);
            same_bits("moment 0", list[i].moment[0], u.moment[0], sizes[i]);
            same_bits("moment 1", list[i].moment[1], u.moment[1], sizes[i]);
            guard_check(list[i].w, sizes[i]);
            guard_check(list[i].moment[0], sizes[i]);
            for (int k = 0; k < 3; k++) {
                free(alone[i][k]);
            }
            free(list[i].w);
            free((void *)(uintptr_t)list[i].g);
            free(list[i].moment[0]);
            free(list[i].moment[1]);
        }
        fl_device_destroy(&d);
        fl_device_destroy(&one);
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
        const fl_update update = {w, g, {m, v}, n, (float)decay, 1.0f};
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
        const fl_update update = {w, g, {momentum, NULL}, n, 0.01f, 1.0f};
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
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            check_adamw(d, sizes[i]);
            check_sgd(d, sizes[i]);
        }
        fl_device_destroy(&d);
    }
}

/* Would catch: sums that overwrite, a gradient that lacks its factor of 2, an element left out
 * where a chunk ends, and sums that depend on the number of threads. */
static void test_squared_error__agrees_with_double_on_any_threads(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 31, 1000, 32767, 32768, 32769, 100000};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        int64_t n = sizes[k];
        float *out = random_floats(n, 1, 2.0f), *targets = random_floats(n, 2, 2.0f);
        float *grad = floats(n);
        double *want = doubles(n), square = 3.0, absolute = 2.0, first[2] = {0};
        for (int64_t i = 0; i < n; i++) {
            double error = (double)out[i] - (double)targets[i];
            want[i] = 0.25 * 2.0 * error;
            square += error * error;
            absolute += fabs(error);
        }
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            fl_device *d = cpu_with(n_threads);
            double sums[2] = {3.0, 2.0}, alone[2] = {3.0, 2.0};
            RUN(d, squared_error, .out = out, .targets = targets, .n = n, .grad_scale = 0.25f,
                .grad = grad, .square_sum = &sums[0], .absolute_sum = &sums[1]);
            RUN(d, squared_error, .out = out, .targets = targets, .n = n, .grad_scale = 0.25f,
                .square_sum = &alone[0], .absolute_sum = &alone[1]);
            fl_device_destroy(&d);
            near_all("grad", grad, want, n, 1e-6, 0.25);
            assert_true(fabs(sums[0] - square) <= 1e-9 * square);
            assert_true(fabs(sums[1] - absolute) <= 1e-9 * absolute);
            assert_true(alone[0] == sums[0] && alone[1] == sums[1]);
            memcpy(first, n_threads == 1 ? sums : first, sizeof first);
            assert_true(sums[0] == first[0] && sums[1] == first[1]);
        }
        free(out);
        free(targets);
        free(grad);
        free(want);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy__agrees_with_double),
        cmocka_unit_test(test_cross_entropy__passes_nan_on),
        cmocka_unit_test(test_cross_entropy__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_squared_error__agrees_with_double_on_any_threads),
        cmocka_unit_test(test_cross_entropy__ignores_rows),
        cmocka_unit_test(test_cross_entropy__leaves_padding_out),
        cmocka_unit_test(test_cross_entropy__counts_class_1),
        cmocka_unit_test(test_span_cross_entropy__agrees_with_double),
        cmocka_unit_test(test_many__tensors_do_not_depend_on_their_neighbours),
        cmocka_unit_test(test_sum_squares__agrees_with_double_on_any_threads),
        cmocka_unit_test(test_optimizers__agree_with_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
