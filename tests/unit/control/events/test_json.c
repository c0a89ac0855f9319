/* The writer of JSON lines, read back by jansson. */
#include "control/events/json.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

enum { NUMBERS = 20000 };

static json_t *parsed(fl_json *json)
{
    fl_json_close(json, '}');
    fl_json_newline(json);
    assert_false(json->broken);
    assert_int_equal(json->text[json->n - 1], '\n');
    json->text[json->n - 1] = 0;
    json_t *tree = json_loads(json->text, 0, NULL);
    if (tree == NULL) {
        fail_msg("not JSON: %s", json->text);
    }
    return tree;
}

static void test_json__nests_and_separates(void **state)
{
    (void)state;
    fl_json json = {0};
    fl_json_object(&json, NULL);
    fl_json_array(&json, "a");
    fl_json_close(&json, ']');
    fl_json_array(&json, "b");
    fl_json_integer(&json, NULL, INT64_MIN);
    fl_json_object(&json, NULL);
    fl_json_bool(&json, "x", true);
    fl_json_real(&json, "y", (double)NAN);
    fl_json_close(&json, '}');
    fl_json_close(&json, ']');
    fl_json_text(&json, "c", "d");
    json_decref(parsed(&json));
    assert_string_equal(json.text, "{\"a\": [], \"b\": [-9223372036854775808, {\"x\": true, \"y\": "
                                   "null}], \"c\": \"d\"}");
    fl_json_fini(&json);
}

/* Would catch: text that breaks a line or the encoding. */
static void test_json__escapes_any_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *back;
    } cases[] = {
        {"a \"quoted\" \\ back\nslash\t\x01\x7f", "a \"quoted\" \\ back\nslash\t\x01\x7f"},
        {"grüße €  \xf0\x9f\x90\xa7", "grüße €  \xf0\x9f\x90\xa7"},
        {"\xff", "\xef\xbf\xbd"},                                 /* no start of a character */
        {"a\xc3", "a\xef\xbf\xbd"},                               /* cut at the end */
        {"\xe2\x82 ", "\xef\xbf\xbd\xef\xbf\xbd "},               /* cut in the middle */
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_json json = {0};
        fl_json_object(&json, NULL);
        fl_json_text(&json, "t", cases[i].text);
        json_t *tree = parsed(&json);
        assert_null(strchr(json.text, '\n'));
        assert_string_equal(json_string_value(json_object_get(tree, "t")), cases[i].back);
        json_decref(tree);
        fl_json_fini(&json);
    }
}

static void check_number(double value)
{
    fl_json json = {0};
    fl_json_real(&json, NULL, value);
    fl_json_newline(&json);
    char *end;
    assert_true(strtod(json.text, &end) == value);
    assert_int_equal(*end, '\n');
    fl_json_fini(&json);
}

/* Would catch: a loss that reads back as a different double. */
static void test_json__writes_exact_numbers(void **state)
{
    (void)state;
    const uint32_t key[2] = {42, 43};
    printf("seed %u %u\n", key[0], key[1]);
    check_number(0.1);
    check_number(-0.0);
    check_number(5e-324);
    check_number(1.7976931348623157e308);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        uint32_t r[4];
        uint64_t bits;
        double value;
        fl_philox((uint32_t[4]){i, 0, 0, 0}, key, r);
        bits = (uint64_t)r[0] << 32 | r[1];
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            check_number(value);
        }
    }
}

/* Would catch: a wrong carry in rounding, trailing zeros, a lost sign, and numbers with more digits
 * than a double has. */
static void test_json__rounds_to_so_many_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {
        {12.3456789, 3, "12.346\n"}, {-12.3456789, 1, "-12.3\n"}, {0.9996, 3, "1\n"},
        {100.0, 3, "100\n"},         {0.05, 3, "0.05\n"},         {-0.0004, 3, "0\n"},
        {1234567.0, 0, "1234567\n"}, {0.1 + 0.2, 6, "0.3\n"},     {1e22, 0, "1e+22\n"},
        {(double)NAN, 3, "null\n"},  {-HUGE_VAL, 3, "null\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_json json = {0};
        fl_json_rounded(&json, NULL, cases[i].value, cases[i].digits);
        fl_json_newline(&json);
        assert_int_equal(json.n, strlen(cases[i].text));
        assert_memory_equal(json.text, cases[i].text, json.n);
        fl_json_fini(&json);
    }
}

/* Would catch: "0,5" in a program that sets its user's locale. */
static void test_json__ignores_the_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "nl_NL.UTF-8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && set == NULL; i++) {
        set = setlocale(LC_NUMERIC, names[i]);
    }
    if (set == NULL) {
        printf("no locale with another decimal point is installed\n");
        skip();
    }
    fl_json json = {0};
    fl_json_real(&json, NULL, 0.5);
    fl_json_newline(&json);
    setlocale(LC_NUMERIC, "C");
    assert_memory_equal(json.text, "0.5\n", 4);
    fl_json_fini(&json);
}

/* Would catch: a half line, or a crash, when memory runs out. */
static void test_json__breaks_when_memory_runs_out(void **state)
{
    (void)state;
    fl_json json = {0};
    fl_alloc_fail_at(1);
    fl_json_text(&json, NULL, "lost");
    fl_alloc_fail_at(0);
    assert_true(json.broken);
    fl_json_reset(&json);
    fl_json_text(&json, NULL, "found");
    fl_json_newline(&json);
    assert_false(json.broken);
    assert_memory_equal(json.text, "\"found\"\n", 8);
    fl_json_fini(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json__nests_and_separates),
        cmocka_unit_test(test_json__escapes_any_bytes),
        cmocka_unit_test(test_json__writes_exact_numbers),
        cmocka_unit_test(test_json__rounds_to_so_many_digits),
        cmocka_unit_test(test_json__ignores_the_locale),
        cmocka_unit_test(test_json__breaks_when_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
