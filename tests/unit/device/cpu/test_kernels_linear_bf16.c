/* Products of bf16 numbers. The reference is their definition, written out: weights rounded to
 * bf16, sums in fp32, pair after pair, the second number of a pair first. Catches what
 * test_kernels_linear.c does, a remainder of an odd depth left out or read beyond its row, a sum
 * that is rounded between two blocks of depth, and an instruction set that gives other bits. */
#include "support/device/kernels.h"

#include "device/cpu/bf16.h"

typedef struct shape {
    int64_t m, n_out, n_in;
} shape;

static const shape shapes[] = {
    {1, 1, 1},       {3, 5, 7},      {2, 16, 2},     {17, 33, 31},  {128, 128, 128},
    {136, 384, 128}, {29, 10, 64},   {14, 32, 16},   {15, 31, 257}, {200, 64, 600},
    {257, 65, 49},   {2, 700, 130},  {500, 17, 103}, {7, 70, 1025}, {67, 10, 2051},
    {9, 1100, 70},   {1037, 66, 35}, {40, 20, 1},    {40, 1, 20},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Pairs in a block of depth: gradients of weights get one sum for each. */
enum { BLOCK_PAIRS = 512 };

/* n numbers, and the values that they have as bf16. */
typedef struct numbers {
    uint16_t *half;
    float *value;
    int64_t n;
} numbers;

static numbers some(int64_t n, uint32_t seed)
{
    numbers x = {malloc((size_t)n * sizeof(uint16_t)), random_floats(n, seed, 1.0f), n};
    assert_non_null(x.half);
    fl_bf16_narrow(x.value, n, x.half);
    fl_bf16_widen(x.half, n, x.value);
    return x;
}

static void drop(numbers *x)
{
    free(x->half);
    free(x->value);
}

/* Halves with a guard of ones behind them. */
static uint16_t *halves(int64_t n)
{
    uint16_t *p = malloc((size_t)(n + GUARD) * sizeof *p);
    assert_non_null(p);
    memset(p, 0xFF, (size_t)(n + GUARD) * sizeof *p);
    return p;
}

static void same_halves(const char *what, const uint16_t *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n + GUARD; i++) {
        uint16_t half = 0xFFFF;
        if (i < n) {
            fl_bf16_narrow(want + i, 1, &half);
        }
        if (got[i] != half) {
            fail_msg("%s[%lld] of %lld is %04x, the definition gives %04x", what, (long long)i,
                     (long long)n, got[i], half);
        }
    }
}

/* start + the sum over k < depth of a[k a_step] b[k b_step]. Products are exact in fp32. */
static float sum_of(float start, const float *a, int64_t a_step, const float *b, int64_t b_step,
                    int64_t depth)
{
    volatile float sum = start; /* rounded after each addition */
    for (int64_t k = 0; k < depth; k += 2) {
        if (k + 1 < depth) {
            sum += a[(k + 1) * a_step] * b[(k + 1) * b_step];
        }
        sum += a[k * a_step] * b[k * b_step];
    }
    return sum;
}

static int64_t block_of(int64_t depth)
{
    int64_t pairs = (depth + 1) / 2, blocks = (pairs + BLOCK_PAIRS - 1) / BLOCK_PAIRS;
    return 2 * ((pairs + blocks - 1) / blocks);
}

/* What a call of the kernels gets. */
typedef struct data {
    shape z;
    numbers in, grad, residual, w;
    float *bias;
    fl_weight weight;
} data;

static data data_of(shape z, uint32_t seed)
{
    data c = {.z = z,
              .in = some(z.m * z.n_in, seed),
              .grad = some(z.m * z.n_out, seed + 1),
              .residual = some(z.m * z.n_out, seed + 2),
              .w = some(z.n_out * z.n_in, seed + 3),
              .bias = random_floats(z.n_out, seed + 4, 1.0f)};
    /* fp32 weights between bf16 numbers: the kernel rounds them */
    float *fine = random_floats(z.n_out * z.n_in, seed + 3, 1.0f);
    c.weight = weight_of(fine, z.n_out, z.n_in);
    return c;
}

static void data_free(data *c)
{
    drop(&c->in);
    drop(&c->grad);
    drop(&c->residual);
    drop(&c->w);
    free(c->bias);
    free(c->weight.data);
}

static void check_forward(fl_device *d, data *c)
{
    shape z = c->z;
    int64_t n = z.m * z.n_out;
    float *want = floats(n), *pre = floats(n);
    uint16_t *y = halves(n), *kept = halves(n);
    for (int64_t i = 0; i < n; i++) {
        pre[i] = sum_of(c->bias[i % z.n_out], c->in.value + i / z.n_out * z.n_in, 1,
                        c->w.value + i % z.n_out * z.n_in, 1, z.n_in);
        want[i] = pre[i] + c->residual.value[i];
    }
    RUN(d, linear, .dtype = FL_BF16, .in = c->in.half, .w = &c->weight,
        .bias = VECTOR(c->bias, z.n_out), .y = y, .m = z.m);
    same_halves("y", y, pre, n);
    memcpy(y, c->residual.half, (size_t)n * sizeof *y);
    RUN(d, linear, .dtype = FL_BF16, .in = c->in.half, .w = &c->weight,
        .bias = VECTOR(c->bias, z.n_out), .residual = y, .y = y, .m = z.m);
    same_halves("y + residual", y, want, n);
    RUN(d, linear, .dtype = FL_BF16, .in = c->in.half, .w = &c->weight,
        .bias = VECTOR(c->bias, z.n_out), .activation = FL_ACT_GELU_TANH, .pre = kept, .y = y,
        .m = z.m);
    same_halves("pre", kept, pre, n);
    RUN(d, activate, .activation = FL_ACT_GELU_TANH, .in = pre, .y = want, .n = n);
    same_halves("activated", y, want, n);
    free(want);
    free(pre);
    free(y);
    free(kept);
}

static void check_backward_input(fl_device *d, data *c)
{
    shape z = c->z;
    int64_t n = z.m * z.n_in;
    float *want = floats(n);
    uint16_t *got = halves(n);
    for (int64_t i = 0; i < n; i++) {
        want[i] = sum_of(0.0f, c->grad.value + i / z.n_in * z.n_out, 1, c->w.value + i % z.n_in,
                         z.n_in, z.n_out);
    }
    RUN(d, linear_backward_input, .dtype = FL_BF16, .grad_out = c->grad.half, .w = &c->weight,
        .grad_in = got, .m = z.m);
    same_halves("grad_in", got, want, n);
    free(want);
    free(got);
}

static void check_backward_weights(fl_device *d, data *c)
{
    shape z = c->z;
    int64_t n = z.n_out * z.n_in, block = block_of(z.m);
    float *want = random_floats(n, 77, 1.0f), *got = copy_of(want, n);
    float *want_bias = random_floats(z.n_out, 78, 1.0f), *got_bias = copy_of(want_bias, z.n_out);
    float *alone = copy_of(want_bias, z.n_out);
    for (int64_t k = 0; k < z.m; k += block) {
        int64_t depth = z.m - k < block ? z.m - k : block;
        for (int64_t i = 0; i < n; i++) {
            want[i] += sum_of(0.0f, c->grad.value + k * z.n_out + i / z.n_in, z.n_out,
                              c->in.value + k * z.n_in + i % z.n_in, z.n_in, depth);
        }
    }
    for (int64_t i = 0; i < z.m * z.n_out; i++) {
        want_bias[i % z.n_out] += c->grad.value[i];
    }
    RUN(d, linear_backward_weights, .dtype = FL_BF16, .grad_out = c->grad.half, .in = c->in.half,
        .grad_w = got, .grad_bias = got_bias, .m = z.m, .n_out = z.n_out, .n_in = z.n_in);
    same_bits("grad_w", got, want, n);
    same_bits("grad_bias", got_bias, want_bias, z.n_out);
    RUN(d, linear_backward_weights, .dtype = FL_BF16, .grad_out = c->grad.half, .in = c->in.half,
        .grad_bias = alone, .m = z.m, .n_out = z.n_out, .n_in = z.n_in);
    same_bits("grad_bias alone", alone, want_bias, z.n_out);
    guard_check(got, n);
    guard_check(got_bias, z.n_out);
    free(want);
    free(got);
    free(want_bias);
    free(got_bias);
    free(alone);
}

static void test_linear_bf16__has_the_bits_of_its_definition(void **state)
{
    (void)state;
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (uint32_t i = 0; i < N_SHAPES; i++) {
            data c = data_of(shapes[i], 100 + 10 * i);
            check_forward(d, &c);
            check_backward_input(d, &c);
            check_backward_weights(d, &c);
            data_free(&c);
        }
        fl_device_destroy(&d);
    }
}

/* How far the rounding of weights and results takes a product from that of fp32. */
static void test_linear_bf16__is_near_fp32(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        shape z = shapes[i];
        data c = data_of(z, 500 + 10 * i);
        int64_t n = z.m * z.n_out;
        float *want = floats(n), *got = floats(n);
        double *wide = doubles(n);
        uint16_t *y = halves(n);
        RUN(d, linear, .in = c.in.value, .w = &c.weight, .bias = VECTOR(c.bias, z.n_out), .y = want,
            .m = z.m);
        RUN(d, linear, .dtype = FL_BF16, .in = c.in.half, .w = &c.weight,
            .bias = VECTOR(c.bias, z.n_out), .y = y, .m = z.m);
        fl_bf16_widen(y, n, got);
        for (int64_t j = 0; j < n; j++) {
            wide[j] = (double)want[j];
        }
        near_all("y", got, wide, n, 1e-2, 1.0);
        free(want);
        free(got);
        free(wide);
        free(y);
        data_free(&c);
    }
    fl_device_destroy(&d);
}

/* A row has the same bits alone and among others, also where the depth is cut into blocks. */
static void test_linear_bf16__row_bits_do_not_depend_on_other_rows(void **state)
{
    (void)state;
    static const shape z = {61, 90, 2500};
    fl_device *one = cpu_with(1), *two = cpu_with(2);
    data c = data_of(z, 9);
    uint16_t *all = halves(z.m * z.n_out), *part = halves(z.m * z.n_out);
    RUN(two, linear, .dtype = FL_BF16, .in = c.in.half, .w = &c.weight,
        .bias = VECTOR(c.bias, z.n_out), .y = all, .m = z.m);
    for (int64_t first = 0; first < z.m; first += 13) {
        int64_t m = z.m - first < 9 ? z.m - first : 9;
        RUN(one, linear, .dtype = FL_BF16, .in = c.in.half + first * z.n_in, .w = &c.weight,
            .bias = VECTOR(c.bias, z.n_out), .y = part, .m = m);
        assert_memory_equal(part, all + first * z.n_out, (size_t)(m * z.n_out) * sizeof *part);
    }
    free(all);
    free(part);
    data_free(&c);
    fl_device_destroy(&one);
    fl_device_destroy(&two);
}

/* Neither is lost, nor does it reach another row; a weight that is none reaches its column. */
static void test_linear_bf16__passes_nan_and_infinity_on(void **state)
{
    (void)state;
    enum { M = 3, N = 18, K = 21 };
    fl_device *d = cpu_with(1);
    data c = data_of((shape){M, N, K}, 3);
    uint16_t *y = halves(M * N);
    float *value = floats(M * N);
    c.in.half[K + K - 1] = 0x7FC0; /* the last of an odd row */
    c.weight.data[5 * K + 2] = INFINITY;
    RUN(d, linear, .dtype = FL_BF16, .in = c.in.half, .w = &c.weight, .y = y, .m = M);
    fl_bf16_widen(y, M * N, value);
    for (int i = 0; i < M * N; i++) {
        bool is_nan = i / N == 1, is_infinite = !is_nan && i % N == 5;
        assert_true(is_nan ? isnan(value[i]) : isinf(value[i]) != 0 ? is_infinite : !is_infinite);
    }
    free(y);
    free(value);
    data_free(&c);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_bf16__has_the_bits_of_its_definition),
        cmocka_unit_test(test_linear_bf16__is_near_fp32),
        cmocka_unit_test(test_linear_bf16__row_bits_do_not_depend_on_other_rows),
        cmocka_unit_test(test_linear_bf16__passes_nan_and_infinity_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
