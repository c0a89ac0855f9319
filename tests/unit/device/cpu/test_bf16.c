/* bf16: the nearest value, ties to even, for every upper half and what lies around its tie; the
 * same bits by every instruction set. */
#include "support/device/kernels.h"

#include "device/cpu/bf16.h"

enum { N = 65536 };

/* In units of the kept part: the reference, without a rounding of its own. */
static uint16_t nearest(uint32_t bits)
{
    uint32_t kept = bits >> 16, rest = bits & 0xFFFFu;
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(kept | 0x40u);
    }
    bool up = rest > 0x8000u || (rest == 0x8000u && kept % 2 == 1);
    return (uint16_t)(kept + up);
}

static void test_bf16__is_the_nearest_value_and_ties_go_to_even(void **state)
{
    (void)state;
    static const uint32_t rests[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    static float from[N];
    static uint16_t to[N];
    fl_device *d = cpu_with(1);
    for (size_t r = 0; r < sizeof rests / sizeof *rests; r++) {
        for (uint32_t i = 0; i < N; i++) {
            uint32_t bits = i << 16 | rests[r];
            memcpy(&from[i], &bits, sizeof bits);
        }
        memset(to, 0xA5, sizeof to);
        fl__cpu_of(d)->isa->narrow(from, to, N);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(to[i], nearest(i << 16 | rests[r]));
        }
    }
    fl_device_destroy(&d);
}

static void test_bf16__widens_to_the_same_value(void **state)
{
    (void)state;
    static uint16_t from[N];
    static float to[N];
    fl_device *d = cpu_with(1);
    for (uint32_t i = 0; i < N; i++) {
        from[i] = (uint16_t)i;
    }
    fl__cpu_of(d)->isa->widen(from, to, N);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t bits;
        memcpy(&bits, &to[i], sizeof bits);
        assert_int_equal(bits, i << 16);
    }
    fl_device_destroy(&d);
}

/* Of any length, nothing behind the end is touched; in place, what is to be read is not
 * overwritten.
 */
static void test_bf16__widens_in_place_whatever_the_length(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    const fl__isa *isa = fl__cpu_of(d)->isa;
    for (int64_t n = 0; n < 70; n++) {
        float *from = random_floats(n, (uint32_t)n, 3.0f), *wide = floats(n), *in_place = floats(n);
        uint16_t narrow[70 + 1];
        narrow[n] = 0xBEEF;
        isa->narrow(from, narrow, n);
        assert_int_equal(narrow[n], 0xBEEF);
        isa->widen(narrow, wide, n);
        memcpy((unsigned char *)in_place + 2 * n, narrow, 2 * (size_t)n);
        isa->widen((unsigned char *)in_place + 2 * n, in_place, n);
        assert_memory_equal(in_place, wide, (size_t)n * sizeof *wide);
        for (int64_t i = 0; i < n; i++) {
            assert_true(fabsf(wide[i] - from[i]) <= fabsf(from[i]) / 256.0f);
        }
        guard_check(wide, n);
        guard_check(in_place, n);
        free(from);
        free(wide);
        free(in_place);
    }
    fl_device_destroy(&d);
}

static void test_bf16__is_that_of_the_best_instruction_set(void **state)
{
    (void)state;
    const float from[] = {1.0f, 1.01171875f, -3.14159274f, 3.4e38f, -0.0f, INFINITY};
    const float to[] = {1.0f, 1.015625f, -3.140625f, INFINITY, -0.0f, INFINITY};
    uint16_t narrow[6];
    float wide[6];
    fl_bf16_narrow(from, 6, narrow);
    fl_bf16_widen(narrow, 6, wide);
    assert_memory_equal(wide, to, sizeof to);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16__is_the_nearest_value_and_ties_go_to_even),
        cmocka_unit_test(test_bf16__widens_to_the_same_value),
        cmocka_unit_test(test_bf16__widens_in_place_whatever_the_length),
        cmocka_unit_test(test_bf16__is_that_of_the_best_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
