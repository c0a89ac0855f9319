/* Philox against the known answers that its authors give out (Random123, kat_vectors, philox4x32
 * with 10 rounds), and the mixing of keys. A wrong round would still look random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/random/random.h"

typedef struct known_answer {
    uint32_t counter[4], key[2], out[4];
} known_answer;

static const known_answer known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void test_philox__gives_the_known_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        fl_philox(known[i].counter, known[i].key, out);
        for (int w = 0; w < 4; w++) {
            assert_int_equal(out[w], known[i].out[w]);
        }
    }
}

/* SplitMix64 from the seed 0: the first outputs of its published implementation. */
static void test_mix64__is_splitmix(void **state)
{
    (void)state;
    assert_true(fl_mix64(0, 0) == 0xe220a8397b1dcdafu);
    assert_true(fl_mix64(0, 1) == 0x6e789e6aa1b965f4u);
    assert_true(fl_mix64(0, 2) == 0x06c45d188009454fu);
    assert_true(fl_mix64(1, 2) != fl_mix64(2, 1));
}

static void test_unit__is_in_the_half_open_interval(void **state)
{
    (void)state;
    assert_true(fl_unit(0) == 0.0f);
    assert_true(fl_unit(0xff) == 0.0f);
    assert_true(fl_unit(0x80000000u) == 0.5f);
    assert_true(fl_unit(0xffffffffu) < 1.0f);
    assert_true(fl_unit(0xffffffffu) == 1.0f - 0x1p-24f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox__gives_the_known_answers),
        cmocka_unit_test(test_mix64__is_splitmix),
        cmocka_unit_test(test_unit__is_in_the_half_open_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
