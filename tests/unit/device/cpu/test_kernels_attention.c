/* Attention against sums in double, over ragged samples. Catches a head or a sample that reads its
 * neighbour's columns, a block edge of queries or keys handled wrongly, causal masks off by one,
 * head sizes that do not fill vectors, and results that depend on which samples are computed
 * together. */
#include "support/device/kernels.h"

static fl_attention_args args_of(const float *qkv, const int32_t *offsets, int64_t n_samples,
                                 int64_t heads, int64_t width, bool causal, float *y, float *lse)
{
    const int64_t head_dim = width / heads;
    return (fl_attention_args){.qkv = qkv,
                               .offsets = offsets_of(offsets, n_samples),
                               .heads = heads,
                               .width = width,
                               .causal = causal,
                               .scale = 1.0f / sqrtf((float)head_dim),
                               .y = y,
                               .lse = lse};
}

static void run_forward(fl_device *d, fl_attention_args args)
{
    assert_int_equal(d->ops->attention(d, NULL, &args), FL_OK);
}

static void run_backward(fl_device *d, fl_attention_args forward, const float *grad_y,
                         float *grad_qkv)
{
    RUN(d, attention_backward, .forward = forward, .grad_y = grad_y, .grad_qkv = grad_qkv);
}

typedef struct problem {
    int64_t n_samples, heads, head_dim;
    bool causal;
    const int32_t *lengths; /* [n_samples] */
    float drop;             /* of the probabilities; sample s has the id 7 - 3 s */
    float scale;            /* of the scores; 0: 1 / sqrt(head_dim) */
} problem;

enum { MOST_SAMPLES = 16 };

static int64_t ids[MOST_SAMPLES];

static fl_mask mask_of(const problem *p)
{
    for (int i = 0; i < MOST_SAMPLES; i++) {
        ids[i] = 7 - 3 * i;
    }
    return (fl_mask){.p = p->drop,
                     .stream = 2,
                     .layer = 5,
                     .epoch = 3,
                     .seed = 0x1234567890abcdefu,
                     .sample_ids = ids,
                     .sample_ids_device = ids};
}

/* What the probability of (query i, key j) is multiplied by, as frostline/kernels.h defines it. */
static double mask_at(const problem *p, int64_t sample, int64_t head, int64_t i, int64_t j)
{
    const fl_mask m = mask_of(p);
    uint64_t place = (uint64_t)(uint32_t)m.layer << 32 | (uint32_t)m.stream;
    uint64_t k = fl_mix64(fl_mix64(m.seed, (uint64_t)m.epoch), place);
    uint64_t key = fl_mix64(k, (uint64_t)head), id = (uint64_t)ids[sample];
    const uint32_t words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    const uint32_t counter[4] = {(uint32_t)(j / 8), (uint32_t)i, (uint32_t)id,
                                 (uint32_t)(id >> 32)};
    uint32_t out[4];
    double threshold = round((double)p->drop * 65536.0);
    fl_philox(counter, words, out);
    uint32_t bits = j % 2 == 0 ? out[j % 8 / 2] & 0xFFFFu : out[j % 8 / 2] >> 16;
    return p->drop == 0.0f ? 1.0 : (double)bits < threshold ? 0.0 : 65536.0 / (65536.0 - threshold);
}

static double scale_of(const problem *p)
{
    return p->scale == 0.0f ? 1.0 / sqrt((double)p->head_dim) : (double)p->scale;
}

static int32_t *make_offsets(const problem *p)
{
    int32_t *offsets = calloc((size_t)p->n_samples + 1, sizeof *offsets);
    assert_non_null(offsets);
    for (int64_t i = 0; i < p->n_samples; i++) {
        offsets[i + 1] = offsets[i] + p->lengths[i];
    }
    return offsets;
}

/* One (sample, head) in double: y, lse and the gradient of qkv. */
typedef struct reference {
    double *y, *lse, *grad;
} reference;

static double *probabilities(const problem *p, const float *qkv, int32_t first, int64_t n,
                             int64_t head, const reference *r)
{
    int64_t D = p->head_dim, width = p->heads * D, row = 3 * width;
    const float *q = qkv + first * row + head * D, *k = q + width;
    double *P = doubles(n * n);
    for (int64_t i = 0; i < n; i++) {
        int64_t seen = p->causal ? i + 1 : n;
        double top = -INFINITY, sum = 0.0;
        for (int64_t j = 0; j < seen; j++) {
            double s = 0.0;
            for (int64_t c = 0; c < D; c++) {
                s += (double)q[i * row + c] * (double)k[j * row + c];
            }
            P[i * n + j] = s * scale_of(p);
            top = fmax(top, P[i * n + j]);
        }
        for (int64_t j = 0; j < seen; j++) {
            P[i * n + j] = exp(P[i * n + j] - top);
            sum += P[i * n + j];
        }
        for (int64_t j = 0; j < seen; j++) {
            P[i * n + j] /= sum;
        }
        r->lse[(first + i) * p->heads + head] = top + log(sum);
    }
    return P;
}

static void reference_head(const problem *p, const float *qkv, const float *grad_y, int64_t sample,
                           int32_t first, int64_t head, const reference *r)
{
    int64_t n = p->lengths[sample];
    int64_t D = p->head_dim, width = p->heads * D, row = 3 * width;
    const float *q = qkv + first * row + head * D, *k = q + width, *v = k + width;
    double *gq = r->grad + first * row + head * D, *gk = gq + width, *gv = gk + width;
    double *P = probabilities(p, qkv, first, n, head, r), *dP = doubles(n);
    for (int64_t i = 0; i < n; i++) {
        const float *g = grad_y + (first + i) * width + head * D;
        double delta = 0.0;
        for (int64_t j = 0; j < n; j++) {
            dP[j] = 0.0;
            double kept = mask_at(p, sample, head, i, j), weight = P[i * n + j] * kept;
            for (int64_t c = 0; c < D; c++) {
                r->y[(first + i) * width + head * D + c] += weight * (double)v[j * row + c];
                dP[j] += (double)g[c] * (double)v[j * row + c] * kept;
                gv[j * row + c] += weight * (double)g[c];
            }
            delta += P[i * n + j] * dP[j];
        }
        for (int64_t j = 0; j < n; j++) {
            double dS = P[i * n + j] * (dP[j] - delta) * scale_of(p);
            for (int64_t c = 0; c < D; c++) {
                gq[i * row + c] += dS * (double)k[j * row + c];
                gk[j * row + c] += dS * (double)q[i * row + c];
            }
        }
    }
    free(P);
    free(dP);
}

static reference reference_of(const problem *p, const float *qkv, const float *grad_y,
                              const int32_t *offsets)
{
    int64_t m = offsets[p->n_samples], width = p->heads * p->head_dim;
    reference r = {doubles(m * width), doubles(m * p->heads), doubles(m * 3 * width)};
    for (int64_t i = 0; i < p->n_samples; i++) {
        for (int64_t head = 0; head < p->heads; head++) {
            reference_head(p, qkv, grad_y, i, offsets[i], head, &r);
        }
    }
    return r;
}

static void check(fl_device *d, const problem *p, uint32_t seed, float scale)
{
    int32_t *offsets = make_offsets(p);
    int64_t m = offsets[p->n_samples], width = p->heads * p->head_dim;
    float *qkv = random_floats(m * 3 * width, seed, scale);
    float *grad_y = random_floats(m * width, seed + 1, 1.0f);
    float *y = floats(m * width), *lse = floats(m * p->heads), *grad = floats(m * 3 * width);
    float *y_again = floats(m * width);
    reference r = reference_of(p, qkv, grad_y, offsets);
    fl_attention_args args =
        args_of(qkv, offsets, p->n_samples, p->heads, width, p->causal, y, lse);
    args.scale = (float)scale_of(p);
    args.mask = mask_of(p);
    run_forward(d, args);
    near_all("y", y, r.y, m * width, 2e-6, 0.1);
    near_all("lse", lse, r.lse, m * p->heads, 1e-6, 1.0);
    run_backward(d, args, grad_y, grad);
    args.lse = NULL;
    args.y = y_again;
    run_forward(d, args);
    same_bits("y without lse", y_again, y, m * width);
    near_all("grad", grad, r.grad, m * 3 * width, 4e-6, 0.1);
    free(offsets);
    free(qkv);
    free(grad_y);
    free(y);
    free(y_again);
    free(lse);
    free(grad);
    free(r.y);
    free(r.lse);
    free(r.grad);
}

static void test_attention__agrees_with_double(void **state)
{
    (void)state;
    static const int32_t ragged[] = {17, 1, 0, 33, 5, 32, 16, 31, 64, 70};
    static const int64_t head_dims[] = {8, 12, 16, 17, 24, 32, 48, 50, 64};
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (uint32_t i = 0; i < sizeof head_dims / sizeof head_dims[0]; i++) {
            for (int causal = 0; causal < 2; causal++) {
                const problem p = {10, 1 + i % 3, head_dims[i], causal == 1, ragged, 0.0f, 0.0f};
                check(d, &p, 40 + i, 1.5f);
            }
        }
        fl_device_destroy(&d);
    }
}

/* Dropout of probabilities, and scores scaled by something else. */
static void test_attention__drops_the_probabilities_that_are_defined(void **state)
{
    (void)state;
    static const int32_t ragged[] = {17, 1, 0, 33, 5, 32, 70};
    static const int64_t head_dims[] = {8, 17, 32};
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (uint32_t i = 0; i < sizeof head_dims / sizeof head_dims[0]; i++) {
            for (int causal = 0; causal < 2; causal++) {
                problem p = {7, 3, head_dims[i], causal == 1, ragged, 0.3f, 0.0f};
                check(d, &p, 90 + i, 1.5f);
                p.drop = 0.0f;
                p.scale = 0.125f * (float)(i + 1);
                check(d, &p, 95 + i, 1.0f);
            }
        }
        fl_device_destroy(&d);
    }
}

/* A sample's mask depends on its id, not on its place among others: plans would differ. */
static void test_attention__a_mask_does_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const int32_t lengths[] = {17, 40, 3, 9};
    const problem p = {4, 2, 16, false, lengths, 0.5f, 0.0f};
    int32_t *offsets = make_offsets(&p);
    int64_t m = offsets[4], width = 32;
    fl_device *d = cpu_with(2);
    float *qkv = random_floats(m * 3 * width, 9, 1.0f), *y = floats(m * width);
    float *grad_y = random_floats(m * width, 8, 1.0f), *grad = floats(m * 3 * width);
    float *lse = floats(m * 2);
    fl_attention_args args = args_of(qkv, offsets, 4, 2, width, false, y, lse);
    args.mask = mask_of(&p);
    run_forward(d, args);
    run_backward(d, args, grad_y, grad);
    for (int i = 0; i < 4; i++) {
        const int32_t alone[] = {0, lengths[i]};
        int64_t n = lengths[i], first = offsets[i];
        float *y1 = floats(n * width), *lse1 = floats(n * 2), *grad1 = floats(n * 3 * width);
        args = args_of(qkv + first * 3 * width, alone, 1, 2, width, false, y1, lse1);
        args.mask = mask_of(&p);
        args.mask.sample_ids = args.mask.sample_ids_device = ids + i;
        run_forward(d, args);
        run_backward(d, args, grad_y + first * width, grad1);
        same_bits("y", y1, y + first * width, n * width);
        same_bits("grad", grad1, grad + first * 3 * width, n * 3 * width);
        free(y1);
        free(lse1);
        free(grad1);
    }
    free(offsets);
    free(qkv);
    free(y);
    free(grad_y);
    free(grad);
    free(lse);
    fl_device_destroy(&d);
}

static void test_attention__long_sequences(void **state)
{
    (void)state;
    static const int32_t lengths[] = {300, 129};
    fl_device *d = cpu_with(1);
    for (int causal = 0; causal < 2; causal++) {
        const problem p = {2, 2, 20, causal == 1, lengths, 0.0f, 0.0f};
        check(d, &p, 70, 1.0f);
    }
    fl_device_destroy(&d);
}

/* Scores of some hundreds: without the largest taken off, powers overflow. */
static void test_attention__large_scores(void **state)
{
    (void)state;
    static const int32_t lengths[] = {20, 40};
    fl_device *d = cpu_with(1);
    int32_t *offsets = calloc(3, sizeof *offsets);
    offsets[1] = 20;
    offsets[2] = 60;
    float *qkv = random_floats(60 * 3 * 32, 3, 30.0f), *y = floats(60 * 32), *lse = floats(60 * 2);
    float *grad_y = random_floats(60 * 32, 4, 1.0f);
    run_forward(d, args_of(qkv, offsets, 2, 2, 32, false, y, lse));
    const problem p = {2, 2, 16, false, lengths, 0.0f, 0.0f};
    reference r = reference_of(&p, qkv, grad_y, offsets);
    near_all("lse", lse, r.lse, 60 * 2, 1e-6, 1.0);
    near_all("y", y, r.y, 60 * 32, 1e-4, 1.0); /* a score of 1000 rounds by 6e-5 */
    free(offsets);
    free(qkv);
    free(grad_y);
    free(y);
    free(lse);
    free(r.y);
    free(r.lse);
    free(r.grad);
    fl_device_destroy(&d);
}

static void test_attention__nothing_to_do(void **state)
{
    (void)state;
    fl_device *d = cpu_with(2);
    const int32_t none[] = {0}, empty[] = {0, 0, 0};
    float *qkv = floats(0), *y = floats(0), *lse = floats(0), *grad = floats(0);
    run_forward(d, args_of(qkv, none, 0, 2, 16, false, y, lse));
    run_backward(d, args_of(qkv, none, 0, 2, 16, false, y, lse), y, grad);
    run_forward(d, args_of(qkv, empty, 2, 2, 16, true, y, lse));
    run_backward(d, args_of(qkv, empty, 2, 2, 16, true, y, lse), y, grad);
    guard_check(y, 0);
    guard_check(lse, 0);
    guard_check(grad, 0);
    free(qkv);
    free(y);
    free(lse);
    free(grad);
    fl_device_destroy(&d);
}

/* A sample alone has the bits it has among others. */
static void test_attention__bits_of_a_sample_do_not_depend_on_others(void **state)
{
    (void)state;
    static const int32_t lengths[] = {17, 40, 3, 17};
    const problem p = {4, 3, 24, true, lengths, 0.0f, 0.0f};
    int64_t width = p.heads * p.head_dim;
    int32_t *offsets = make_offsets(&p);
    int64_t m = offsets[4];
    fl_device *one = cpu_with(1), *two = cpu_with(2);
    float *qkv = random_floats(m * 3 * width, 9, 1.0f), *grad_y = random_floats(m * width, 8, 1.0f);
    float *y = floats(m * width), *lse = floats(m * p.heads), *grad = floats(m * 3 * width);
    run_forward(two, args_of(qkv, offsets, 4, p.heads, width, true, y, lse));
    run_backward(two, args_of(qkv, offsets, 4, p.heads, width, true, y, lse), grad_y, grad);
    for (int i = 0; i < 4; i++) {
        const int32_t alone[] = {0, lengths[i]};
        int64_t n = lengths[i], first = offsets[i];
        float *y1 = floats(n * width), *lse1 = floats(n * p.heads), *grad1 = floats(n * 3 * width);
        run_forward(one,
                    args_of(qkv + first * 3 * width, alone, 1, p.heads, width, true, y1, lse1));
        run_backward(one,
                     args_of(qkv + first * 3 * width, alone, 1, p.heads, width, true, y1, lse1),
                     grad_y + first * width, grad1);
        same_bits("y", y1, y + first * width, n * width);
        same_bits("lse", lse1, lse + first * p.heads, n * p.heads);
        same_bits("grad", grad1, grad + first * 3 * width, n * 3 * width);
        free(y1);
        free(lse1);
        free(grad1);
    }
    free(offsets);
    free(qkv);
    free(grad_y);
    free(y);
    free(lse);
    free(grad);
    fl_device_destroy(&one);
    fl_device_destroy(&two);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention__agrees_with_double),
        cmocka_unit_test(test_attention__drops_the_probabilities_that_are_defined),
        cmocka_unit_test(test_attention__a_mask_does_not_depend_on_the_cut),
        cmocka_unit_test(test_attention__long_sequences),
        cmocka_unit_test(test_attention__large_scores),
        cmocka_unit_test(test_attention__nothing_to_do),
        cmocka_unit_test(test_attention__bits_of_a_sample_do_not_depend_on_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
