/* Parameter lists and starting values. */
#include "device/system/alloc.h"
#include "nn/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static fl_status add(fl_param_list *list, const char *name, int64_t rows, int64_t cols)
{
    return fl_param_list_add(list, name, rows, cols, FL_INIT_NORMAL, 0.5f, true);
}

static void test_param__keeps_what_was_added_in_order(void **state)
{
    (void)state;
    fl_param_list list = {0};
    char name[8] = "p0";
    for (int i = 0; i < 9; i++) {
        name[1] = (char)('0' + i);
        assert_int_equal(fl_param_list_add(&list, name, i + 1, 2, FL_INIT_UNIFORM, 0.25f, i % 2),
                         FL_OK);
    }
    assert_int_equal(list.n, 9);
    assert_string_equal(list.spec[8].name, "p8");
    assert_string_equal(list.spec[0].name, "p0");
    assert_int_equal(list.spec[8].rows, 9);
    assert_int_equal(list.spec[8].cols, 2);
    assert_int_equal(list.spec[8].init, FL_INIT_UNIFORM);
    assert_true(list.spec[7].decay);
    assert_false(list.spec[8].decay);
    fl_free(list.spec);
}

static void test_param__refuses_bad_ones_and_changes_nothing(void **state)
{
    (void)state;
    fl_param_list list = {0};
    char long_name[FL_PARAM_NAME_MAX + 1];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(add(&list, "w", 2, 3), FL_OK);
    assert_int_equal(add(&list, "w", 2, 3), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "parameter 'w' is there twice");
    assert_int_equal(add(&list, "b", 0, 3), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "parameter 'b': impossible shape [0, 3]");
    assert_int_equal(add(&list, "b", 2, -1), FL_EINVAL);
    assert_int_equal(add(&list, "b", INT64_MAX, INT64_MAX), FL_EINVAL);
    assert_int_equal(add(&list, "", 1, 1), FL_EINVAL);
    assert_int_equal(add(&list, long_name, 1, 1), FL_EINVAL);
    assert_int_equal(add(&list, long_name + 1, 1, 1), FL_OK); /* 47 bytes are allowed */
    assert_string_equal(list.spec[1].name, long_name + 1);
    fl_alloc_fail_at(1);
    fl_status status = FL_OK;
    for (int i = 0; status == FL_OK && i < 26; i++) {
        status = add(&list, (char[]){(char)('a' + i), '_', '\0'}, 1, 1);
    }
    fl_alloc_fail_at(0);
    assert_int_equal(status, FL_ENOMEM);
    assert_int_equal(list.n, 8);
    assert_string_equal(list.spec[0].name, "w");
    fl_free(list.spec);
}

/* Mean, deviation and largest magnitude of n elements. */
typedef struct moments {
    double mean, deviation, skew, kurtosis, largest;
} moments;

static moments measure(const float *v, int64_t n)
{
    moments m = {0};
    double sum2 = 0, sum3 = 0, sum4 = 0;
    for (int64_t i = 0; i < n; i++) {
        m.mean += (double)v[i] / (double)n;
        m.largest = fmax(m.largest, fabs((double)v[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        double d = (double)v[i] - m.mean;
        sum2 += d * d;
        sum3 += d * d * d;
        sum4 += d * d * d * d;
    }
    m.deviation = sqrt(sum2 / (double)n);
    m.skew = sum3 / (double)n / pow(m.deviation, 3);
    m.kurtosis = sum4 / (double)n / pow(m.deviation, 4);
    return m;
}

enum { N = 100 * 1001 };

/* Catches a wrong scale, a clipped tail, or pairs that are not independent of each other. */
static void test_param__normal_is_normal(void **state)
{
    (void)state;
    static float v[N];
    const fl_param_spec spec = {.rows = 100, .cols = 1001, .init = FL_INIT_NORMAL, .scale = 0.02f};
    fl_param_init(&spec, 42, 3, 1, v);
    moments m = measure(v, N);
    double tolerance = 4.0 / sqrt(N); /* four standard errors */
    assert_true(fabs(m.mean / 0.02) < tolerance);
    assert_true(fabs(m.deviation / 0.02 - 1.0) < tolerance);
    assert_true(fabs(m.skew) < 3.0 * tolerance);
    assert_true(fabs(m.kurtosis - 3.0) < 5.0 * tolerance);
    for (int lag = 1; lag <= 4; lag++) {
        double product = 0;
        for (int i = lag; i < N; i++) {
            product += (double)v[i] * (double)v[i - lag] / (0.02 * 0.02 * N);
        }
        assert_true(fabs(product) < tolerance);
    }
}

static void test_param__uniform_fills_its_range(void **state)
{
    (void)state;
    static float v[N];
    const fl_param_spec spec = {.rows = N, .cols = 1, .init = FL_INIT_UNIFORM, .scale = 0.5f};
    fl_param_init(&spec, 42, 3, 1, v);
    moments m = measure(v, N);
    assert_true(fabs(m.mean) < 0.5 * 4.0 / sqrt(N));
    assert_true(fabs(m.deviation - 0.5 / sqrt(3.0)) < 0.5 * 4.0 / sqrt(N));
    assert_true(m.largest <= 0.5 && m.largest > 0.4995);
}

/* Catches values that depend on whoever draws them: the length, the neighbours, the order. */
static void test_param__an_element_depends_on_its_key_only(void **state)
{
    (void)state;
    float a[10], b[7], c[10];
    for (fl_init init = FL_INIT_NORMAL; init <= FL_INIT_UNIFORM; init++) {
        const fl_param_spec ten = {.rows = 2, .cols = 5, .init = init, .scale = 1.0f};
        const fl_param_spec seven = {.rows = 7, .cols = 1, .init = init, .scale = 1.0f};
        fl_param_init(&ten, 1, 2, 3, a);
        fl_param_init(&seven, 1, 2, 3, b);
        assert_memory_equal(a, b, sizeof b);
        const struct {
            uint64_t seed;
            int layer, index;
        } others[] = {{2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {1, 3, 2}, {(uint64_t)1 << 40, 2, 3}};
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            fl_param_init(&ten, others[k].seed, others[k].layer, others[k].index, c);
            for (int i = 0; i < 10; i++) {
                assert_true(a[i] != c[i]);
            }
        }
    }
}

static void test_param__constants_are_constant(void **state)
{
    (void)state;
    float v[3] = {9, 9, 9};
    fl_param_init(&(fl_param_spec){.rows = 3, .cols = 1, .init = FL_INIT_ZEROS}, 1, 2, 3, v);
    assert_true(v[0] == 0.0f && v[1] == 0.0f && v[2] == 0.0f);
    fl_param_init(&(fl_param_spec){.rows = 3, .cols = 1, .init = FL_INIT_ONES}, 1, 2, 3, v);
    assert_true(v[0] == 1.0f && v[1] == 1.0f && v[2] == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_param__keeps_what_was_added_in_order),
        cmocka_unit_test(test_param__refuses_bad_ones_and_changes_nothing),
        cmocka_unit_test(test_param__normal_is_normal),
        cmocka_unit_test(test_param__uniform_fills_its_range),
        cmocka_unit_test(test_param__an_element_depends_on_its_key_only),
        cmocka_unit_test(test_param__constants_are_constant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
