/* Dropout's mask, element by element, against its definition. Catches a mask that depends on the
 * place of a sample in its micro-batch or on the batch's cut: plans would then train differently.
 */
#include "support/device/kernels.h"

static const fl_mask key = {.seed = 0x1234567890abcdefu, .epoch = 3, .layer = 5, .stream = 1};

static fl_mask mask_of(const fl_mask *k, float p, const int64_t *sample_ids)
{
    fl_mask mask = *k;
    mask.p = p;
    mask.sample_ids = mask.sample_ids_device = sample_ids;
    return mask;
}

/* The definition, as frostline/kernels.h has it. */
static bool kept(const fl_mask *k, int64_t sample, int64_t element, float p)
{
    uint64_t place = (uint64_t)(uint32_t)k->layer << 32 | (uint32_t)k->stream;
    uint64_t mixed = fl_mix64(fl_mix64(k->seed, (uint64_t)k->epoch), place);
    const uint32_t words[2] = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    uint64_t e = (uint64_t)element, block = 4 * (e / 32) + e % 16 / 4;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)sample,
                                 (uint32_t)((uint64_t)sample >> 32)};
    uint32_t out[4];
    fl_philox(counter, words, out);
    uint32_t bits = e / 16 % 2 == 0 ? out[e % 4] & 0xFFFFu : out[e % 4] >> 16;
    return bits >= (uint32_t)lround((double)p * 65536.0);
}

static void test_dropout__draws_the_mask_that_is_defined(void **state)
{
    (void)state;
    static const int32_t offsets[] = {0, 3, 3, 4, 9};
    static const int64_t ids[] = {7, 1, 0x1234567890, 0};
    static const int64_t widths[] = {1, 3, 16, 17, 37, 64, 100};
    for (int n_threads = FEWEST_THREADS; n_threads <= 2; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
            int64_t width = widths[i];
            const float p = 0.3f, scale = 65536.0f / (65536.0f - roundf(p * 65536.0f));
            float *in = random_floats(9 * width, 1, 1.0f), *y = floats(9 * width);
            RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 4), .width = width,
                .mask = mask_of(&key, p, ids), .y = y);
            for (int s = 0; s < 4; s++) {
                for (int64_t e = 0; e < (offsets[s + 1] - offsets[s]) * width; e++) {
                    int64_t at = offsets[s] * width + e;
                    float want = kept(&key, ids[s], e, p) ? in[at] * scale : 0.0f;
                    assert_true(fabsf(y[at] - want) <= 1e-6f);
                    assert_true((y[at] == 0.0f) == (want == 0.0f));
                }
            }
            guard_check(y, 9 * width);
            RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 4), .width = width,
                .mask = mask_of(&key, p, ids), .y = in);
            same_bits("in place", in, y, 9 * width);
            free(in);
            free(y);
        }
        fl_device_destroy(&d);
    }
}

static void test_dropout__does_not_depend_on_the_cut(void **state)
{
    (void)state;
    enum { SAMPLES = 8, ROWS = 3, WIDTH = 21 };
    fl_device *d = cpu_with(1);
    int32_t offsets[SAMPLES + 1];
    int64_t ids[SAMPLES];
    for (int i = 0; i <= SAMPLES; i++) {
        offsets[i] = i * ROWS;
        if (i < SAMPLES) {
            ids[i] = 1000 - 13 * i;
        }
    }
    float *in = random_floats(SAMPLES * ROWS * WIDTH, 1, 1.0f);
    float *whole = floats(SAMPLES * ROWS * WIDTH), *part = floats(SAMPLES * ROWS * WIDTH);
    RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, SAMPLES), .width = WIDTH,
        .mask = mask_of(&key, 0.5f, ids), .y = whole);
    for (int i = 0; i < SAMPLES; i += 2) {
        int64_t at = (int64_t)offsets[i] * WIDTH;
        RUN(d, dropout, .in = in + at, .offsets = offsets_of(offsets, 2), .width = WIDTH,
            .mask = mask_of(&key, 0.5f, ids + i), .y = part + at);
    }
    same_bits("y", part, whole, SAMPLES * ROWS * WIDTH);
    free(in);
    free(whole);
    free(part);
    fl_device_destroy(&d);
}

/* Every part of the key makes another mask, and the share that is kept is 1 - p. */
static void test_dropout__each_part_of_the_key_counts(void **state)
{
    (void)state;
    enum { N = 40000 };
    fl_device *d = cpu_with(1);
    fl_mask keys[5] = {key, key, key, key, key};
    keys[1].seed++;
    keys[2].epoch++;
    keys[3].layer++;
    keys[4].stream++;
    const int32_t offsets[] = {0, 1};
    const int64_t id = 4;
    float *in = floats(N), *y[5];
    for (int i = 0; i < N; i++) {
        in[i] = 1.0f;
    }
    for (int k = 0; k < 5; k++) {
        y[k] = floats(N);
        RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 1), .width = N,
            .mask = mask_of(&keys[k], 0.25f, &id), .y = y[k]);
        int n_kept = 0, n_same = 0;
        for (int i = 0; i < N; i++) {
            n_kept += y[k][i] != 0.0f;
            n_same += (y[k][i] != 0.0f) == (y[0][i] != 0.0f);
        }
        assert_true(abs(n_kept - N * 3 / 4) < 500); /* 5.8 standard deviations */
        assert_true(k == 0 || abs(n_same - N * 5 / 8) < 600);
    }
    for (int k = 0; k < 5; k++) {
        free(y[k]);
    }
    free(in);
    fl_device_destroy(&d);
}

/* Work that was captured once must draw the masks of the epoch in which it is launched. */
static void test_dropout__draws_from_the_epoch_in_device_memory(void **state)
{
    (void)state;
    enum { N = 1000 };
    fl_device *d = cpu_with(1);
    const int32_t offsets[] = {0, 1};
    const int64_t id = 4;
    float *in = random_floats(N, 1, 1.0f), *by_value = floats(N), *from_memory = floats(N);
    fl_mask mask = mask_of(&key, 0.25f, &id);
    const uint64_t epoch_key = fl_mix64(key.seed, (uint64_t)key.epoch);
    RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 1), .width = N, .mask = mask,
        .y = by_value);
    mask.epoch++;
    mask.epoch_key_device = &epoch_key;
    RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 1), .width = N, .mask = mask,
        .y = from_memory);
    same_bits("y", from_memory, by_value, N);
    free(in);
    free(by_value);
    free(from_memory);
    fl_device_destroy(&d);
}

/* A rate that rounds to 1 must not divide by nothing, nor one that rounds to 0 drop anything. */
static void test_dropout__rates_at_the_ends(void **state)
{
    (void)state;
    enum { N = 5000 };
    fl_device *d = cpu_with(1);
    const int32_t offsets[] = {0, 1};
    const int64_t id = 4;
    float *in = random_floats(N, 1, 1.0f), *y = floats(N);
    RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 1), .width = N,
        .mask = mask_of(&key, 0.999999f, &id), .y = y);
    for (int i = 0; i < N; i++) {
        assert_true(y[i] == 0.0f || fabsf(y[i] - 65536.0f * in[i]) <= 1e-6f * fabsf(y[i]));
    }
    RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 1), .width = N,
        .mask = mask_of(&key, 1e-6f, &id), .y = y);
    same_bits("y", y, in, N);
    free(in);
    free(y);
    fl_device_destroy(&d);
}

static void test_dropout__of_nothing_copies(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    const int32_t offsets[] = {0, 4}, none[] = {0};
    const int64_t id = 4;
    float *in = random_floats(4 * 9, 1, 1.0f), *y = floats(4 * 9);
    RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 1), .width = 9,
        .mask = mask_of(&key, 0.0f, &id), .y = y);
    same_bits("y", y, in, 4 * 9);
    RUN(d, dropout, .in = in, .offsets = offsets_of(offsets, 1), .width = 9,
        .mask = mask_of(&key, 0.0f, &id), .y = in);
    same_bits("in place", y, in, 4 * 9);
    RUN(d, dropout, .in = in, .offsets = offsets_of(none, 0), .width = 9,
        .mask = mask_of(&key, 0.5f, &id), .y = y);
    same_bits("no sample", y, in, 4 * 9);
    free(in);
    free(y);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout__draws_the_mask_that_is_defined),
        cmocka_unit_test(test_dropout__does_not_depend_on_the_cut),
        cmocka_unit_test(test_dropout__each_part_of_the_key_counts),
        cmocka_unit_test(test_dropout__draws_from_the_epoch_in_device_memory),
        cmocka_unit_test(test_dropout__rates_at_the_ends),
        cmocka_unit_test(test_dropout__of_nothing_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
