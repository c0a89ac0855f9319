/* Bars and curves of `frostline top` as cells. Would catch: shares that do not fill their bar. */
#include "launcher/top/draw/top_draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static char shown[1 << 12];

static const char *bar(const double share[FL_TOP_SHARES])
{
    fl_top_cells cells = {0};
    shown[0] = 0;
    assert_int_equal(fl_top_cells_resize(&cells, 12, 1), FL_OK);
    fl_top_shares(&cells, 1, 0, 10, share);
    FILE *out = fmemopen(shown, sizeof shown, "w");
    fl_top_cells_write(&cells, out);
    fclose(out);
    fl_top_cells_fini(&cells);
    return shown;
}

static void test_top_draw__shares_fill_their_bar(void **state)
{
    (void)state;
    assert_string_equal(bar((double[]){0.5, 0.2, 0.1, 0.1, 0.1}), " #####~~=+.\n");
    assert_string_equal(bar((double[]){1.0, 0.0, 0.0, 0.0, 0.0}), " ##########\n");
    assert_string_equal(bar((double[]){0.333, 0.333, 0.334, 0.0, 0.0}), " ###~~~~===\n");
    assert_string_equal(bar((double[]){0.96, 0.01, 0.01, 0.01, 0.01}), " ##########\n");
    assert_string_equal(bar((double[]){0.0, 0.0, 0.0, 0.0, 0.0}), "");
    assert_string_equal(bar((double[]){0.9, 0.9, 0.0, 0.0, 0.0}), " #########~\n");
}

static void test_top_draw__a_curve_goes_from_its_top_to_its_bottom(void **state)
{
    (void)state;
    static fl_top_series series;
    fl_top_cells cells = {0};
    for (int i = 0; i < 10; i++) {
        fl_top_series_add(&series, i, 100.0 - 10.0 * i);
    }
    assert_int_equal(fl_top_cells_resize(&cells, 19, 6), FL_OK);
    fl_top_curve(&cells, (fl_top_box){0, 0, 19, 6}, "down", &series, false);
    FILE *out = fmemopen(shown, sizeof shown, "w");
    fl_top_cells_write(&cells, out);
    fclose(out);
    assert_string_equal(shown, "- down ------------\n"
                               "     100 **\n"
                               "           **\n"
                               "             **\n"
                               "               **\n"
                               "      10         **\n");
    fl_top_cells_clear(&cells);
    fl_top_curve(&cells, (fl_top_box){0, 0, 19, 2}, "no room", &series, false);
    fl_top_cells_fini(&cells);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_draw__shares_fill_their_bar),
        cmocka_unit_test(test_top_draw__a_curve_goes_from_its_top_to_its_bottom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
