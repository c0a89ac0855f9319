/* Ticks, bins and escaped text of a report's page. */
#include "launcher/report/draw/html.h"
#include "launcher/report/draw/scale.h"

#include "device/random/random.h"
#include "device/system/alloc.h"
#include "device/text/size_text.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANDOM_AXES = 20000, RANDOM_TEXTS = 20000, POINTS = 100000, BINS = 300 };

typedef struct draws {
    uint64_t seed, n;
} draws;

static draws seeded(uint64_t seed)
{
    print_message("seed %llu\n", (unsigned long long)seed);
    return (draws){seed, 0};
}

static uint32_t below(draws *random, uint32_t limit)
{
    return (uint32_t)(fl_mix64(random->seed, random->n++) % limit);
}

static void near(double value, double expected, double by)
{
    if (!(fabs(value - expected) <= by)) {
        fail_msg("%g, expected %g", value, expected);
    }
}

/* ---- ticks ---- */

static void test_scale__ticks_are_round(void **state)
{
    (void)state;
    static const struct {
        double low, high;
        int n;
        bool round, whole;
        double step, first, last;
        int digits;
    } cases[] = {
        {0, 9380, 8, false, true, 2000, 0, 8000, 0},
        {0.12, 2.4, 5, true, false, 0.5, 0, 2.5, 1},
        {65.3, 81.7, 4, true, false, 5, 65, 85, 0},
        {0, 1, 2, true, true, 1, 0, 1, 0},
        {0, 3, 10, true, true, 1, 0, 3, 0},
        {-0.002, 0.0031, 5, true, false, 0.002, -0.002, 0.004, 3},
        {7, 7, 4, false, false, 2, 4, 10, 0},
        {3, 1, 4, false, false, 0.5, 1, 3, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_axis a =
            fl_axis_fit(cases[i].low, cases[i].high, cases[i].n, cases[i].round, cases[i].whole);
        int n = fl_axis_n_ticks(&a);
        near(a.step, cases[i].step, cases[i].step * 1e-9);
        near(fl_axis_tick(&a, 0), cases[i].first, 1e-9);
        near(fl_axis_tick(&a, n - 1), cases[i].last, 1e-9);
        assert_int_equal(a.digits, cases[i].digits);
    }
}

static double any_double(draws *random)
{
    static const double odd[] = {0, -0.0, NAN, INFINITY, -INFINITY, DBL_MAX, -DBL_MAX, DBL_MIN, 1};
    uint32_t which = below(random, 16);
    if (which < 9) {
        return odd[which];
    }
    return ldexp((double)below(random, 1 << 20) - (1 << 19), (int)below(random, 1200) - 600);
}

/* Would catch: a value from a broken file that makes a drawing endless, or a coordinate no number.
 */
static void test_scale__whatever_the_range_is_an_axis_comes_of_it(void **state)
{
    (void)state;
    draws random = seeded(20261121);
    for (int i = 0; i < RANDOM_AXES; i++) {
        double low = any_double(&random), high = any_double(&random), value = any_double(&random);
        fl_axis a = fl_axis_fit(low, high, 2 + i % 9, i % 2 == 0, i % 3 == 0);
        int n = fl_axis_n_ticks(&a);
        if (!(a.low < a.high) || !isfinite(a.high - a.low) || !(a.step > 0) || n > 100) {
            fail_msg("%g .. %g: an axis from %g to %g by %g", low, high, a.low, a.high, a.step);
        }
        double at = fl_axis_at(&a, value, 40, 800);
        assert_true(at >= 40 && at <= 800);
        for (int t = 0; t < n; t++) {
            char text[FL_NUMBER_BYTES];
            assert_true(isfinite(fl_axis_tick(&a, t)));
            assert_true(strlen(fl_axis_text(&a, fl_axis_tick(&a, t), text)) < FL_NUMBER_BYTES);
        }
    }
}

/* Would catch: two lines of a grid that bear the same number. */
static void test_scale__no_two_ticks_read_the_same(void **state)
{
    (void)state;
    draws random = seeded(7);
    for (int i = 0; i < RANDOM_AXES; i++) {
        double low = (double)below(&random, 1000) / 37;
        double high = low + ldexp(1 + (double)below(&random, 100), i % 40 - 16);
        fl_axis a = fl_axis_fit(low, high, 5, true, false);
        for (int t = 1; t < fl_axis_n_ticks(&a); t++) {
            char one[FL_NUMBER_BYTES], two[FL_NUMBER_BYTES];
            fl_axis_text(&a, fl_axis_tick(&a, t - 1), one);
            fl_axis_text(&a, fl_axis_tick(&a, t), two);
            if (strcmp(one, two) == 0 && a.step > 1e-6) {
                fail_msg("%g .. %g has two ticks %s", low, high, one);
            }
        }
    }
}

/* ---- bins ---- */

static fl_point wave(const void *context, int64_t i)
{
    (void)context;
    double y = i % 1000 == 0 ? (double)NAN : (double)(i % 7) - 3;
    return (fl_point){(double)i, y, 1};
}

/* Would catch: 100,000 steps drawn as 100,000 points, or a spike that binning hides. */
static void test_bins__hold_the_extremes_and_the_mean_of_their_points(void **state)
{
    (void)state;
    fl_bin bins[BINS];
    int n = fl_bins_make(wave, NULL, POINTS, 0, POINTS, BINS, bins);
    assert_int_equal(n, BINS);
    double before = -1;
    for (int i = 0; i < n; i++) {
        assert_true(bins[i].x > before && bins[i].x < POINTS);
        near(bins[i].low, -3, 0);
        near(bins[i].high, 3, 0);
        near(bins[i].mean, 0, 0.05);
        before = bins[i].x;
    }
}

static fl_point speed(const void *context, int64_t i)
{
    (void)context;
    static const fl_point of[] = {{1, 100, 9}, {2, 1000, 1}, {3, 5, 0}, {4, 7, 0}, {9, 1, -1}};
    return of[i];
}

static void test_bins__weigh_as_they_are_told(void **state)
{
    (void)state;
    fl_bin bins[2];
    assert_int_equal(fl_bins_make(speed, NULL, 5, 0, 6, 2, bins), 2);
    near(bins[0].mean, 190, 1e-9); /* (9 x 100 + 1 x 1000) / 10 */
    near(bins[1].mean, 6, 1e-9);   /* no weight at all: the plain mean */
    assert_int_equal(fl_bins_make(speed, NULL, 0, 0, 6, 2, bins), 0);
    assert_int_equal(fl_bins_make(speed, NULL, 5, 3, 3, 2, bins), 1);
}

static void test_bins__one_spike_does_not_squeeze_the_rest(void **state)
{
    (void)state;
    const fl_bin bins[] = {{0, 1, 2, 3}, {1, 1, 3, 1e9}, {2, 2, 2, 2}};
    double low = 0, high = 0;
    assert_true(fl_bins_range(bins, 3, &low, &high));
    assert_true(low >= 1 && low <= 2);
    assert_true(high >= 3 && high < 10);
    assert_false(fl_bins_range(bins, 0, &low, &high));
}

/* ---- text ---- */

static void test_html__escapes_what_comes_from_outside(void **state)
{
    (void)state;
    fl_html html = {0};
    fl_html_add(&html, "<p a=\"%s\">%d %lld %.2f %.*f %%</p>", "\"><script>&'\x01\xE2\x80\xAE\xFF",
                -3, (long long)INT64_MIN, 1.005, 0, NAN);
    fl_html_add(&html, "%s", "");
    assert_int_equal(html.n, strlen("<p a=\"&quot;&gt;&lt;script&gt;&amp;&#39;\uFFFD\uFFFD\uFFFD\">"
                                    "-3 -9223372036854775808 1.00 - %</p>"));
    assert_memory_equal(html.text,
                        "<p a=\"&quot;&gt;&lt;script&gt;&amp;&#39;\uFFFD\uFFFD\uFFFD\">"
                        "-3 -9223372036854775808 1.00 - %</p>",
                        html.n);
    fl_html_fini(&html);
}

static void test_html__no_text_brings_markup_in(void **state)
{
    (void)state;
    static const char *const pieces[] = {"<", ">", "&", "\"", "'", "\xC3", "\xA9", "\xE2\x80", "a"};
    draws random = seeded(99);
    for (int i = 0; i < RANDOM_TEXTS; i++) {
        char text[64];
        size_t n = 0;
        fl_html html = {0};
        for (int p = 0; p < 12; p++) {
            const char *piece = pieces[below(&random, 9)];
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", piece);
        }
        fl_html_text(&html, text, n);
        for (size_t b = 0; b < html.n; b++) {
            assert_null(memchr("<>\"'", html.text[b], 4));
        }
        fl_html_fini(&html);
    }
}

static void test_html__is_broken_when_memory_runs_out(void **state)
{
    (void)state;
    fl_html html = {0};
    fl_alloc_fail_at(1);
    fl_html_add(&html, "<p>");
    fl_alloc_fail_at(0);
    assert_true(html.broken);
    fl_html_add(&html, "more");
    assert_int_equal(html.n, 0);
    fl_html_fini(&html);
}

static void test_html__numbers_read_well(void **state)
{
    (void)state;
    char text[FL_NUMBER_BYTES];
    assert_string_equal(fl_html_number(1234567, 0, text), "1,234,567");
    assert_string_equal(fl_html_number(-123456.5, 1, text), "-123,456.5");
    assert_string_equal(fl_html_number(999, 0, text), "999");
    assert_string_equal(fl_html_number(NAN, 0, text), "-");
    assert_string_equal(fl_html_number(1e300, 2, text), "-");
    assert_string_equal(fl_size_text(7 * 1024 * 1024, text), "7.0 MiB");
    assert_string_equal(fl_size_text(0, text), "0 B");
    assert_string_equal(fl_size_text(1000, text), "1.0 KiB");
    assert_string_equal(fl_size_text(123.4 * 1024, text), "123 KiB");
    assert_string_equal(fl_size_text(99.96 * 1024, text), "100 KiB");
    assert_string_equal(fl_size_text((double)NAN, text), "-");
    assert_string_equal(fl_html_duration(742.6, text), "12:23 min");
    assert_string_equal(fl_html_duration(7384, text), "2:03 h");
    assert_string_equal(fl_html_duration(0.0031, text), "3.1 ms");
    assert_string_equal(fl_html_duration(NAN, text), "-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale__ticks_are_round),
        cmocka_unit_test(test_scale__whatever_the_range_is_an_axis_comes_of_it),
        cmocka_unit_test(test_scale__no_two_ticks_read_the_same),
        cmocka_unit_test(test_bins__hold_the_extremes_and_the_mean_of_their_points),
        cmocka_unit_test(test_bins__weigh_as_they_are_told),
        cmocka_unit_test(test_bins__one_spike_does_not_squeeze_the_rest),
        cmocka_unit_test(test_html__escapes_what_comes_from_outside),
        cmocka_unit_test(test_html__no_text_brings_markup_in),
        cmocka_unit_test(test_html__is_broken_when_memory_runs_out),
        cmocka_unit_test(test_html__numbers_read_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
