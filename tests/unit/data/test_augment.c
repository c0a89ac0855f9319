#include "data/augment.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { C = 2, H = 5, W = 7, PIXELS = C * H * W };

static uint8_t pixels[PIXELS];
static float table[256];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < PIXELS; i++) {
        pixels[i] = (uint8_t)(i + 1);
    }
    for (int v = 0; v < 256; v++) {
        table[v] = (float)v - 1000.0f;
    }
    return 0;
}

/* What apply promises, written the slow way: look up each output pixel from its place. */
static float expected(const fl_augment_draw *draw, int64_t c, int64_t y, int64_t x)
{
    int64_t from_x = (draw->flip ? W - 1 - x : x) + draw->dx, from_y = y + draw->dy;
    bool inside = from_x >= 0 && from_x < W && from_y >= 0 && from_y < H;
    return table[inside ? pixels[(c * H + from_y) * W + from_x] : 0];
}

/* All offsets, also such that nothing of the image is left; the guard behind `out` would catch a
 * row that is written too long. */
static void test_apply__moves_and_mirrors(void **state)
{
    (void)state;
    float out[PIXELS + W];
    for (int dy = -H - 1; dy <= H + 1; dy++) {
        for (int dx = -W - 1; dx <= W + 1; dx++) {
            for (int flip = 0; flip < 2; flip++) {
                fl_augment_draw draw = {.dy = dy, .dx = dx, .flip = flip != 0};
                for (int i = 0; i < PIXELS + W; i++) {
                    out[i] = 12345.0f;
                }
                fl_augment_apply(&draw, pixels, C, H, W, table, out);
                for (int i = 0; i < PIXELS; i++) {
                    assert_true(out[i] == expected(&draw, i / (H * W), i / W % H, i % W));
                }
                for (int i = PIXELS; i < PIXELS + W; i++) {
                    assert_true(out[i] == 12345.0f);
                }
            }
        }
    }
}

static fl_sample_key key_of(uint64_t seed, int64_t epoch, int64_t id)
{
    return (fl_sample_key){.seed = seed, .epoch = epoch, .id = id, .augment = true};
}

static bool same(const fl_augment_draw *a, const fl_augment_draw *b)
{
    return a->dy == b->dy && a->dx == b->dx && a->flip == b->flip;
}

/* The draw of a sample may depend on nothing but its key: neither on earlier draws, nor
 * on the caller. */
static void test_draw__is_a_function_of_the_key(void **state)
{
    (void)state;
    fl_augment_draw first[64];
    for (int i = 0; i < 64; i++) {
        fl_sample_key key = key_of(3, 1, i);
        first[i] = fl_augment_draw_at(FL_AUGMENT_CROP_FLIP, 4, &key);
    }
    for (int i = 63; i >= 0; i--) {
        fl_sample_key key = key_of(3, 1, i);
        fl_augment_draw again = fl_augment_draw_at(FL_AUGMENT_CROP_FLIP, 4, &key);
        assert_true(same(&first[i], &again));
    }
}

/* Would catch a part of the key that is left out. 1 draw in 162 agrees by chance. */
static void test_draw__differs_by_seed_epoch_and_sample(void **state)
{
    (void)state;
    enum { N = 2000 };
    int n_same[5] = {0};
    for (int i = 0; i < N; i++) {
        fl_sample_key keys[] = {key_of(3, 1, i),
                                key_of(4, 1, i),
                                key_of(3, 2, i),
                                key_of(3, 1, i + 1),
                                key_of(3, 1, i | INT64_C(1) << 40),
                                key_of(3 | UINT64_C(1) << 40, 1, i)};
        fl_augment_draw base = fl_augment_draw_at(FL_AUGMENT_CROP_FLIP, 4, &keys[0]);
        for (int k = 0; k < 5; k++) {
            fl_augment_draw other = fl_augment_draw_at(FL_AUGMENT_CROP_FLIP, 4, &keys[k + 1]);
            n_same[k] += same(&base, &other);
        }
    }
    for (int k = 0; k < 5; k++) {
        assert_true(n_same[k] < 40);
    }
}

/* Every offset within the bounds comes, none beyond, all about as often; so does the flip. Eight
 * degrees of freedom exceed 31.8 once in 10,000. */
static void test_draw__is_uniform_within_its_bounds(void **state)
{
    (void)state;
    enum { CROP = 4, SPAN = 2 * CROP + 1, N = 90000 };
    int64_t dy[SPAN] = {0}, dx[SPAN] = {0}, flips = 0, moved_and_flipped = 0;
    for (int i = 0; i < N; i++) {
        fl_sample_key key = key_of(1, 0, i);
        fl_augment_draw draw = fl_augment_draw_at(FL_AUGMENT_CROP_FLIP, CROP, &key);
        assert_in_range(draw.dy + CROP, 0, SPAN - 1);
        assert_in_range(draw.dx + CROP, 0, SPAN - 1);
        dy[draw.dy + CROP]++;
        dx[draw.dx + CROP]++;
        flips += draw.flip;
        moved_and_flipped += draw.flip && draw.dx > 0;
    }
    double chi_y = 0, chi_x = 0, each = (double)N / SPAN;
    for (int i = 0; i < SPAN; i++) {
        chi_y += ((double)dy[i] - each) * ((double)dy[i] - each) / each;
        chi_x += ((double)dx[i] - each) * ((double)dx[i] - each) / each;
    }
    assert_true(chi_y < 31.8);
    assert_true(chi_x < 31.8);
    /* Four standard deviations: 4 sqrt(N p (1 - p)). */
    assert_true(fabs((double)flips - N / 2.0) < 600);
    assert_true(fabs((double)moved_and_flipped - N / 2.0 * CROP / SPAN) < 500);
}

/* Evaluation sees the image as it is, and crop alone never mirrors. */
static void test_draw__is_nothing_where_nothing_is_asked(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        fl_sample_key key = key_of(1, 0, i);
        fl_augment_draw none = fl_augment_draw_at(FL_AUGMENT_NONE, 4, &key);
        fl_augment_draw crop = fl_augment_draw_at(FL_AUGMENT_CROP, 4, &key);
        fl_augment_draw flip = fl_augment_draw_at(FL_AUGMENT_CROP_FLIP, 0, &key);
        key.augment = false;
        fl_augment_draw evaluation = fl_augment_draw_at(FL_AUGMENT_CROP_FLIP, 4, &key);
        assert_true(none.dy == 0 && none.dx == 0 && !none.flip);
        assert_true(evaluation.dy == 0 && evaluation.dx == 0 && !evaluation.flip);
        assert_false(crop.flip);
        assert_true(flip.dy == 0 && flip.dx == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apply__moves_and_mirrors),
        cmocka_unit_test(test_draw__is_a_function_of_the_key),
        cmocka_unit_test(test_draw__differs_by_seed_epoch_and_sample),
        cmocka_unit_test(test_draw__is_uniform_within_its_bounds),
        cmocka_unit_test(test_draw__is_nothing_where_nothing_is_asked),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
