/* How far the cache is filled after the frost line moves. */
#include "pipe/cost/time/cache_warmup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { EPOCH = 100 };

static void test_cache_warmup__lasts_for_one_epoch(void **state)
{
    (void)state;
    fl_cache_warmup w = {0};
    assert_true(fl_cache_warmup_share(&w, EPOCH, 0, 50) == 0.0); /* nothing is frozen */
    fl_cache_warmup_move(&w, 3, 250, EPOCH);
    assert_int_equal(w.kept, 0);
    assert_true(fl_cache_warmup_share(&w, EPOCH, 250, 300) == 1.0);
    assert_true(fl_cache_warmup_share(&w, EPOCH, 250, 450) == 0.5);
    assert_true(fl_cache_warmup_share(&w, EPOCH, 250, 1250) == 0.1);
    assert_true(fl_cache_warmup_share(&w, EPOCH, 330, 370) == 0.5);
    assert_true(fl_cache_warmup_share(&w, EPOCH, 350, 1250) == 0.0);
    assert_true(fl_cache_warmup_share(&w, EPOCH, 200, 300) == 0.5);
    assert_true(fl_cache_warmup_share(&w, EPOCH, 300, 300) == 0.0);
}

/* What lies there for all samples feeds the blocks above; what lies there for some does not count.
 */
static void test_cache_warmup__a_higher_frost_line_is_fed_by_the_old_one(void **state)
{
    (void)state;
    fl_cache_warmup w = {0};
    fl_cache_warmup_move(&w, 2, 0, EPOCH);
    fl_cache_warmup_move(&w, 2, 40, EPOCH); /* the same: it goes on */
    assert_int_equal(w.since, 0);
    fl_cache_warmup_move(&w, 4, 100, EPOCH);
    assert_int_equal(w.kept, 2);
    assert_int_equal(w.since, 100);
    fl_cache_warmup_move(&w, 5, 150, EPOCH); /* before all have 4 */
    assert_int_equal(w.kept, 2);
    fl_cache_warmup_move(&w, 3, 900, EPOCH); /* a thaw: other weights */
    assert_int_equal(w.kept, 0);
    assert_int_equal(w.F, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_warmup__lasts_for_one_epoch),
        cmocka_unit_test(test_cache_warmup__a_higher_frost_line_is_fed_by_the_old_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
