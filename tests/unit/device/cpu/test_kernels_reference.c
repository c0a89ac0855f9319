/* Kernels against what PyTorch computes for the same inputs: that a formula is the field's, not
 * only consistent with itself. The file comes from tests/reference/make_kernel_reference.py. */
#include "support/device/kernels.h"
#include "support/device/reference.h"

static const double TOLERANCE = 1e-6;

/* The record "<kernel>/<name>_<what>" against `got`. */
static void compare(const char *kernel, const char *name, const char *what, const float *got,
                    int64_t n)
{
    char record[RECORD_NAME];
    snprintf(record, sizeof record, "%s/%s%s", kernel, name, what);
    assert_close(record, got, stored(record, n), n, TOLERANCE);
    guard_check(got, n);
}

/* Stored values as kernels want them: writable, or whole numbers. */
static float *taken(const char *record, int64_t n)
{
    return copy_of(stored(record, n), n);
}

static void take_ints(const char *record, int32_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = (int32_t)stored(record, n)[i];
    }
}

static void test_reference__activations(void **state)
{
    (void)state;
    enum { N = 241 };
    static const struct {
        const char *name;
        fl_activation kind;
    } forms[] = {{"gelu_tanh", FL_ACT_GELU_TANH},
                 {"gelu_erf", FL_ACT_GELU_ERF},
                 {"tanh", FL_ACT_TANH},
                 {"silu", FL_ACT_SILU}};
    fl_device *d = cpu_with(1);
    float *y = floats(N), *grad = floats(N);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        RUN(d, activate, .activation = forms[i].kind, .in = stored("activation/x", N), .y = y,
            .n = N);
        RUN(d, activate_backward, .activation = forms[i].kind, .grad_y = stored("activation/g", N),
            .pre = stored("activation/x", N), .grad_pre = grad, .n = N);
        compare("activation", forms[i].name, "_y", y, N);
        compare("activation", forms[i].name, "_grad", grad, N);
    }
    free(y);
    free(grad);
    fl_device_destroy(&d);
}

static void test_reference__norms(void **state)
{
    (void)state;
    enum { M = 7, N = 37 };
    fl_device *d = cpu_with(1);
    float *gamma = taken("norm/gamma", N), *beta = taken("norm/beta", N);
    const float *x = stored("norm/x", M * N), *g = stored("norm/g", M * N);
    for (int rms = 0; rms < 2; rms++) {
        float *y = floats(M * N), *mean = floats(M), *rstd = floats(M), *grad = floats(M * N);
        float *grad_gamma = zeros(N), *grad_beta = zeros(N);
        const fl_norm_args forward = {.in = x,
                                      .gamma = VECTOR(gamma, N),
                                      .beta = VECTOR(beta, N),
                                      .epsilon = rms ? 1e-6f : 1e-12f,
                                      .y = y,
                                      .mean = mean,
                                      .rstd = rstd,
                                      .m = M,
                                      .n = N};
        const fl_norm_backward_args backward = {.grad_y = g,
                                                .in = x,
                                                .gamma = VECTOR(gamma, N),
                                                .mean = mean,
                                                .rstd = rstd,
                                                .grad_in = grad,
                                                .grad_gamma = grad_gamma,
                                                .grad_beta = grad_beta,
                                                .m = M,
                                                .n = N};
        const fl_device_ops *ops = d->ops;
        assert_int_equal((rms ? ops->rmsnorm : ops->layernorm)(d, NULL, &forward), FL_OK);
        assert_int_equal(
            (rms ? ops->rmsnorm_backward : ops->layernorm_backward)(d, NULL, &backward), FL_OK);
        compare("norm", rms ? "rms" : "layer", "_y", y, M * N);
        compare("norm", rms ? "rms" : "layer", "_grad0", grad, M * N);
        compare("norm", rms ? "rms" : "layer", "_grad1", grad_gamma, N);
        if (!rms) {
            compare("norm", "layer", "_grad2", grad_beta, N);
        }
        free(y);
        free(mean);
        free(rstd);
        free(grad);
        free(grad_gamma);
        free(grad_beta);
    }
    free(gamma);
    free(beta);
    fl_device_destroy(&d);
}

static void test_reference__attention(void **state)
{
    (void)state;
    enum { TOKENS = 31, HEADS = 3, WIDTH = 30 };
    static const int32_t offsets[] = {0, 5, 6, 23, TOKENS};
    fl_device *d = cpu_with(2);
    float *y = floats(TOKENS * WIDTH), *lse = floats(TOKENS * HEADS);
    float *grad = floats(TOKENS * 3 * WIDTH);
    for (int causal = 0; causal < 2; causal++) {
        const fl_attention_args args = {.qkv = stored("attention/qkv", TOKENS * 3 * WIDTH),
                                        .offsets = offsets_of(offsets, 4),
                                        .heads = HEADS,
                                        .width = WIDTH,
                                        .causal = causal == 1,
                                        .scale = 0.25f,
                                        .y = y,
                                        .lse = lse};
        assert_int_equal(d->ops->attention(d, NULL, &args), FL_OK);
        RUN(d, attention_backward, .forward = args, .grad_y = stored("attention/g", TOKENS * WIDTH),
            .grad_qkv = grad);
        compare("attention", causal ? "causal" : "full", "_y", y, TOKENS * WIDTH);
        compare("attention", causal ? "causal" : "full", "_grad", grad, TOKENS * 3 * WIDTH);
    }
    free(y);
    free(lse);
    free(grad);
    fl_device_destroy(&d);
}

static void test_reference__embedding(void **state)
{
    (void)state;
    enum { TOKENS = 10, ROWS = 11, POSITIONS = 6, WIDTH = 13 };
    static const int32_t offsets[] = {0, 3, 4, TOKENS};
    fl_device *d = cpu_with(2);
    int32_t ids[TOKENS];
    float *y = floats(TOKENS * WIDTH), *token = taken("embedding/token", ROWS * WIDTH);
    float *position = taken("embedding/position", POSITIONS * WIDTH);
    float *grad_token = zeros(ROWS * WIDTH), *grad_position = zeros(POSITIONS * WIDTH);
    fl_weight tokens = weight_of(token, ROWS, WIDTH);
    fl_weight positions = weight_of(position, POSITIONS, WIDTH);
    take_ints("embedding/ids", ids, TOKENS);
    const fl_embed_args args = {
        .offsets = offsets_of(offsets, 3),
        .table = {{.weight = &tokens, .grad = grad_token, .ids = ids, .stride = 1},
                  {.weight = &positions, .grad = grad_position}},
        .n_tables = 2,
        .width = WIDTH,
        .y = y};
    assert_int_equal(d->ops->embed(d, NULL, &args), FL_OK);
    RUN(d, embed_backward, .forward = args, .grad_y = stored("embedding/g", TOKENS * WIDTH));
    compare("embedding", "y", "", y, TOKENS * WIDTH);
    compare("embedding", "grad_token", "", grad_token, ROWS * WIDTH);
    compare("embedding", "grad_position", "", grad_position, POSITIONS * WIDTH);
    free(y);
    free(token);
    free(position);
    free(grad_token);
    free(grad_position);
    fl_device_destroy(&d);
}

static void compare_loss(const char *record, double loss)
{
    double want = (double)stored(record, 1)[0];
    assert_true(fabs(loss - want) <= TOLERANCE * want);
}

static void test_reference__losses(void **state)
{
    (void)state;
    enum { M = 9, N = 21, TOKENS = 31, SPANS = 4 };
    static const int32_t offsets[] = {0, 4, 5, 24, TOKENS};
    fl_device *d = cpu_with(2);
    int32_t targets[M];
    float *grad = floats(M * N), *span_grad = floats(TOKENS * 2);
    double loss = 0.0, span_loss = 0.0, counted = 0.0;
    take_ints("cross_entropy/targets", targets, M);
    RUN(d, cross_entropy, .logits = stored("cross_entropy/logits", M * N), .targets = targets,
        .m = M, .n = N, .grad_scale = 0.5f, .grad = grad, .loss = &loss, .n_counted = &counted);
    compare_loss("cross_entropy/loss", loss);
    compare("cross_entropy", "grad", "", grad, M * N);
    assert_true(counted == 7.0); /* two of the nine are ignored */
    take_ints("span/targets", targets, SPANS * 2);
    RUN(d, span_cross_entropy, .logits = stored("span/logits", TOKENS * 2),
        .offsets = offsets_of(offsets, SPANS), .targets = targets, .columns = 2, .grad_scale = 0.5f,
        .grad = span_grad, .loss = &span_loss);
    compare_loss("span/loss", span_loss);
    compare("span", "grad", "", span_grad, TOKENS * 2);
    free(grad);
    free(span_grad);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference__activations), cmocka_unit_test(test_reference__norms),
        cmocka_unit_test(test_reference__attention),   cmocka_unit_test(test_reference__embedding),
        cmocka_unit_test(test_reference__losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    reference_load("tests/reference/kernel_reference.bin");
    return on_every_isa(run);
}
