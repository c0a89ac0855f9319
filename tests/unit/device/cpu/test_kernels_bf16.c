/* Kernels on bf16 values, but for products (test_kernels_linear_bf16.c): each gives the bits of the
 * fp32 kernel on the widened values, narrowed.
 * Catches a block of rows that is left out or written twice, a result that is not rounded, and a
 * kernel that takes bf16 for fp32 where it has no such form. */
#include "support/device/kernels.h"

#include "device/cpu/bf16.h"

enum { M = 333, N = 48 }; /* several blocks of rows for the widest kernels */

/* Random bf16 values and the same in fp32. */
typedef struct pair {
    uint16_t *narrow;
    float *wide;
} pair;

static pair pair_of(int64_t n, uint32_t seed)
{
    pair p = {malloc((size_t)n * sizeof(uint16_t) + 16), random_floats(n, seed, 1.0f)};
    assert_non_null(p.narrow);
    fl_bf16_narrow(p.wide, n, p.narrow);
    fl_bf16_widen(p.narrow, n, p.wide);
    return p;
}

static uint16_t *halves(int64_t n)
{
    uint16_t *p = malloc((size_t)(n + GUARD) * sizeof *p);
    assert_non_null(p);
    memset(p, 0x5A, (size_t)(n + GUARD) * sizeof *p);
    return p;
}

static void pair_free(pair *p)
{
    free(p->narrow);
    free(p->wide);
}

/* At most `apart` steps of bf16 between two values. */
static void check_narrowed(const char *what, const uint16_t *got, const float *want, int64_t n,
                           int apart)
{
    uint16_t *narrow = halves(n);
    fl_bf16_narrow(want, n, narrow);
    for (int64_t i = 0; i < n; i++) {
        if (abs((int)got[i] - (int)narrow[i]) > apart) {
            fail_msg("%s[%lld]: %04x, expected %04x", what, (long long)i, got[i], narrow[i]);
        }
    }
    for (int64_t i = n; i < n + GUARD; i++) {
        assert_int_equal(got[i], 0x5A5A);
    }
    free(narrow);
}

static void same_narrowed(const char *what, const uint16_t *got, const float *want, int64_t n)
{
    check_narrowed(what, got, want, n, 0);
}

static void check_norm(fl_device *d, bool rms, int64_t m)
{
    fl_status (*forward)(fl_device *, fl_stream *, const fl_norm_args *) =
        rms ? d->ops->rmsnorm : d->ops->layernorm;
    fl_status (*backward)(fl_device *, fl_stream *, const fl_norm_backward_args *) =
        rms ? d->ops->rmsnorm_backward : d->ops->layernorm_backward;
    pair in = pair_of(m * N, 1), residual = pair_of(m * N, 2), grad = pair_of(m * N, 3);
    float *gamma = random_floats(N, 4, 1.0f), *beta = random_floats(N, 5, 1.0f);
    float *mean[2] = {floats(m), floats(m)}, *rstd[2] = {floats(m), floats(m)};
    float *sum = floats(m * N), *y = floats(m * N), *grad_gamma[2] = {zeros(N), zeros(N)};
    uint16_t *sum16 = halves(m * N), *y16 = halves(m * N);
    fl_norm_args a = {.in = in.wide,
                      .residual = residual.wide,
                      .gamma = VECTOR(gamma, N),
                      .beta = VECTOR(beta, N),
                      .epsilon = 1e-5f,
                      .sum = sum,
                      .y = y,
                      .mean = mean[0],
                      .rstd = rstd[0],
                      .m = m,
                      .n = N};
    fl_norm_args b = a;
    b.dtype = FL_BF16;
    b.in = in.narrow;
    b.residual = residual.narrow;
    b.sum = sum16;
    b.y = y16;
    b.mean = mean[1];
    b.rstd = rstd[1];
    assert_int_equal(forward(d, NULL, &a), FL_OK);
    assert_int_equal(forward(d, NULL, &b), FL_OK);
    same_narrowed("sum", sum16, sum, m * N);
    same_narrowed("y", y16, y, m * N);
    same_bits("rstd", rstd[1], rstd[0], m);
    fl_norm_backward_args back = {.grad_y = grad.wide,
                                  .in = in.wide,
                                  .gamma = VECTOR(gamma, N),
                                  .mean = rms ? NULL : mean[0],
                                  .rstd = rstd[0],
                                  .grad_residual = residual.wide,
                                  .grad_in = y,
                                  .grad_gamma = grad_gamma[0],
                                  .m = m,
                                  .n = N};
    assert_int_equal(backward(d, NULL, &back), FL_OK);
    back.dtype = FL_BF16;
    back.grad_y = grad.narrow;
    back.in = in.narrow;
    back.grad_residual = residual.narrow;
    back.grad_in = y16;
    back.grad_gamma = grad_gamma[1];
    assert_int_equal(backward(d, NULL, &back), FL_OK);
    /* The compiler may fuse other products and sums there than in fp32. */
    check_narrowed("grad_in", y16, y, m * N, 1);
    for (int i = 0; i < N; i++) {
        assert_true(fabsf(grad_gamma[1][i] - grad_gamma[0][i]) <= 1e-3f);
    }
    for (int i = 0; i < 2; i++) {
        free(mean[i]);
        free(rstd[i]);
        free(grad_gamma[i]);
    }
    pair_free(&in);
    pair_free(&residual);
    pair_free(&grad);
    free(gamma);
    free(beta);
    free(sum);
    free(y);
    free(sum16);
    free(y16);
}

static void test_bf16__norms(void **state)
{
    (void)state;
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (int rms = 0; rms < 2; rms++) {
            check_norm(d, rms == 1, 3);
            check_norm(d, rms == 1, M);
            check_norm(d, rms == 1, 1500);
        }
        fl_device_destroy(&d);
    }
}

static void test_bf16__elementwise(void **state)
{
    (void)state;
    enum { COUNT = 70001 }; /* more than one block */
    fl_device *d = cpu_with(2);
    pair a = pair_of(COUNT, 1), b = pair_of(COUNT, 2);
    float *y = floats(COUNT), *again = floats(COUNT);
    uint16_t *y16 = halves(COUNT), *again16 = halves(COUNT);
    RUN(d, add, .a = a.wide, .b = b.wide, .y = y, .n = COUNT);
    RUN(d, add, .dtype = FL_BF16, .a = a.narrow, .b = b.narrow, .y = y16, .n = COUNT);
    same_narrowed("sum", y16, y, COUNT);
    RUN(d, activate, .activation = FL_ACT_SILU, .in = a.wide, .y = y, .n = COUNT);
    RUN(d, activate, .dtype = FL_BF16, .activation = FL_ACT_SILU, .in = a.narrow, .y = y16,
        .n = COUNT);
    same_narrowed("SiLU", y16, y, COUNT);
    RUN(d, activate_backward, .activation = FL_ACT_TANH, .grad_y = b.wide, .pre = a.wide,
        .grad_pre = y, .y = again, .n = COUNT);
    RUN(d, activate_backward, .dtype = FL_BF16, .activation = FL_ACT_TANH, .grad_y = b.narrow,
        .pre = a.narrow, .grad_pre = y16, .y = again16, .n = COUNT);
    same_narrowed("slope", y16, y, COUNT);
    same_narrowed("again", again16, again, COUNT);
    RUN(d, convert, .in = a.wide, .y = y16, .to = FL_BF16, .n = COUNT);
    same_narrowed("narrowed", y16, a.wide, COUNT);
    RUN(d, convert, .in = a.narrow, .y = y, .from = FL_BF16, .n = COUNT);
    same_bits("widened", y, a.wide, COUNT);
    RUN(d, convert, .in = a.narrow, .y = y16, .from = FL_BF16, .to = FL_BF16, .n = COUNT);
    same_narrowed("copied", y16, a.wide, COUNT);
    pair_free(&a);
    pair_free(&b);
    free(y);
    free(again);
    free(y16);
    free(again16);
    fl_device_destroy(&d);
}

static void test_bf16__rows(void **state)
{
    (void)state;
    enum { ROWS = 9, WIDTH = 21 };
    static const int32_t starts[] = {0, 4, 4, ROWS}, ids[ROWS] = {1, 0, 5, 5, 2, 1, 0, 3, 5};
    static const int64_t samples[] = {4, 8, 15};
    fl_device *d = cpu_with(2);
    pair in = pair_of(ROWS * WIDTH, 1);
    float *y = floats(ROWS * WIDTH), *table = random_floats(6 * WIDTH, 2, 1.0f);
    float *grads[2] = {zeros(6 * WIDTH), zeros(6 * WIDTH)};
    uint16_t *y16 = halves(ROWS * WIDTH);
    const fl_mask mask = {.p = 0.3f, .sample_ids = samples, .sample_ids_device = samples};
    const fl_offsets offsets = offsets_of(starts, 3);
    fl_weight w = weight_of(table, 6, WIDTH);
    RUN(d, dropout, .in = in.wide, .offsets = offsets, .width = WIDTH, .mask = mask, .y = y);
    RUN(d, dropout, .dtype = FL_BF16, .in = in.narrow, .offsets = offsets, .width = WIDTH,
        .mask = mask, .y = y16);
    same_narrowed("dropped", y16, y, ROWS * WIDTH);
    RUN(d, gather_rows, .in = in.wide, .index = ids, .y = y, .n_rows = ROWS, .width = WIDTH);
    RUN(d, gather_rows, .dtype = FL_BF16, .in = in.narrow, .index = ids, .y = y16, .n_rows = ROWS,
        .width = WIDTH);
    same_narrowed("gathered", y16, y, ROWS * WIDTH);
    fl_embed_args embed = {.offsets = offsets,
                           .table = {{.weight = &w, .ids = ids, .stride = 1, .grad = grads[0]}},
                           .n_tables = 1,
                           .width = WIDTH,
                           .y = y};
    assert_int_equal(d->ops->embed(d, NULL, &embed), FL_OK);
    RUN(d, embed_backward, .forward = embed, .grad_y = in.wide);
    embed.dtype = FL_BF16;
    embed.y = y16;
    embed.table[0].grad = grads[1];
    assert_int_equal(d->ops->embed(d, NULL, &embed), FL_OK);
    RUN(d, embed_backward, .forward = embed, .grad_y = in.narrow);
    same_narrowed("embedded", y16, y, ROWS * WIDTH);
    same_bits("the table's gradient", grads[1], grads[0], 6 * WIDTH);
    pair_free(&in);
    free(y);
    free(table);
    free(grads[0]);
    free(grads[1]);
    free(y16);
    fl_device_destroy(&d);
}

/* Samples of several lengths, one of them empty, under every kind of mask. */
static void check_attention(fl_device *d, bool causal, float p)
{
    enum { HEADS = 3, HEAD_DIM = 20, WIDTH = HEADS * HEAD_DIM, ROWS = 62, SAMPLES = 4 };
    static const int32_t starts[] = {0, 17, 17, 18, ROWS};
    static const int64_t ids[SAMPLES] = {4, 8, 15, 16};
    pair qkv = pair_of(ROWS * 3 * WIDTH, 1), grad = pair_of(ROWS * WIDTH, 2);
    float *y = floats(ROWS * WIDTH), *lse[2] = {floats(ROWS * HEADS), floats(ROWS * HEADS)};
    float *back = floats(ROWS * 3 * WIDTH);
    uint16_t *y16 = halves(ROWS * WIDTH), *back16 = halves(ROWS * 3 * WIDTH);
    fl_attention_args a = {.qkv = qkv.wide,
                           .offsets = offsets_of(starts, SAMPLES),
                           .heads = HEADS,
                           .width = WIDTH,
                           .causal = causal,
                           .scale = 0.2f,
                           .mask = {.p = p, .sample_ids = ids, .sample_ids_device = ids},
                           .y = y,
                           .lse = lse[0]};
    fl_attention_args b = a;
    b.dtype = FL_BF16;
    b.qkv = qkv.narrow;
    b.y = y16;
    b.lse = lse[1];
    assert_int_equal(d->ops->attention(d, NULL, &a), FL_OK);
    assert_int_equal(d->ops->attention(d, NULL, &b), FL_OK);
    same_narrowed("y", y16, y, ROWS * WIDTH);
    same_bits("lse", lse[1], lse[0], ROWS * HEADS);
    RUN(d, attention_backward, .forward = a, .grad_y = grad.wide, .grad_qkv = back);
    RUN(d, attention_backward, .forward = b, .grad_y = grad.narrow, .grad_qkv = back16);
    same_narrowed("grad_qkv", back16, back, ROWS * 3 * WIDTH);
    pair_free(&qkv);
    pair_free(&grad);
    free(y);
    free(lse[0]);
    free(lse[1]);
    free(back);
    free(y16);
    free(back16);
}

static void test_bf16__attention(void **state)
{
    (void)state;
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        check_attention(d, false, 0.0f);
        check_attention(d, true, 0.0f);
        check_attention(d, false, 0.2f);
        fl_device_destroy(&d);
    }
}

static void test_bf16__vit_assemble(void **state)
{
    (void)state;
    enum { SAMPLES = 5, PATCHES = 4, DIM = 19, IN = PATCHES * DIM, OUT = IN + DIM };
    fl_device *d = cpu_with(2);
    pair patches = pair_of(SAMPLES * IN, 1), grad = pair_of(SAMPLES * OUT, 2);
    float *cls = random_floats(DIM, 3, 1.0f), *pos = random_floats(OUT, 4, 1.0f);
    float *y = floats(SAMPLES * OUT), *back = floats(SAMPLES * IN);
    float *grad_cls[2] = {zeros(DIM), zeros(DIM)}, *grad_pos[2] = {zeros(OUT), zeros(OUT)};
    uint16_t *y16 = halves(SAMPLES * OUT), *back16 = halves(SAMPLES * IN);
    const fl_weight cls_weight = weight_of(cls, 1, DIM), table = weight_of(pos, PATCHES + 1, DIM);
    RUN(d, vit_assemble, .patches = patches.wide, .cls = &cls_weight, .pos = &table, .y = y,
        .n = SAMPLES, .n_patches = PATCHES, .dim = DIM);
    RUN(d, vit_assemble, .dtype = FL_BF16, .patches = patches.narrow, .cls = &cls_weight,
        .pos = &table, .y = y16, .n = SAMPLES, .n_patches = PATCHES, .dim = DIM);
    same_narrowed("y", y16, y, SAMPLES * OUT);
    RUN(d, vit_assemble_backward, .grad_y = grad.wide, .grad_patches = back,
        .grad_cls = grad_cls[0], .grad_pos = grad_pos[0], .n = SAMPLES, .n_patches = PATCHES,
        .dim = DIM);
    RUN(d, vit_assemble_backward, .dtype = FL_BF16, .grad_y = grad.narrow, .grad_patches = back16,
        .grad_cls = grad_cls[1], .grad_pos = grad_pos[1], .n = SAMPLES, .n_patches = PATCHES,
        .dim = DIM);
    same_narrowed("grad_patches", back16, back, SAMPLES * IN);
    same_bits("grad_cls", grad_cls[1], grad_cls[0], DIM);
    same_bits("grad_pos", grad_pos[1], grad_pos[0], OUT);
    pair_free(&patches);
    pair_free(&grad);
    free(cls);
    free(pos);
    free(y);
    free(back);
    for (int i = 0; i < 2; i++) {
        free(grad_cls[i]);
        free(grad_pos[i]);
    }
    free(y16);
    free(back16);
    fl_device_destroy(&d);
}

/* What has no form for bf16 says so, and writes nothing. */
static void test_bf16__refused_by_name(void **state)
{
    (void)state;
    static const int32_t starts[] = {0, 1};
    fl_device *d = cpu_with(1);
    uint16_t x[48] = {0};
    const fl_cross_entropy_args loss = {.dtype = FL_BF16, .logits = x, .m = 1, .n = 4};
    const fl_span_cross_entropy_args span = {
        .dtype = FL_BF16, .logits = x, .offsets = offsets_of(starts, 1), .columns = 2};
    const fl_squared_error_args error = {.dtype = FL_BF16, .out = x, .n = 4};
    assert_int_equal(d->ops->cross_entropy(d, NULL, &loss), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), "the cpu device has no kernel cross_entropy for bf16");
    assert_int_equal(d->ops->span_cross_entropy(d, NULL, &span), FL_ENOTSUP);
    assert_int_equal(d->ops->squared_error(d, NULL, &error), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), "the cpu device has no kernel squared_error for bf16");
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16__norms),        cmocka_unit_test(test_bf16__attention),
        cmocka_unit_test(test_bf16__vit_assemble), cmocka_unit_test(test_bf16__elementwise),
        cmocka_unit_test(test_bf16__rows),         cmocka_unit_test(test_bf16__refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
