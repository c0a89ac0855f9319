/* A tier of a worker's own, on the asynchronous test device: what comes back has the bits that went
 * in, the byte budget holds, and what is used last is evicted. Catches units that are mixed up, a
 * value that is found under other weights, and memory that is lost after a failure. */
#include "cache/tier.h"
#include "device/async/async.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 12, UNIT = 24, LONGEST = 60, PRINT = 77 };

/* Key k is used at time k, then at KEYS + k, and so on. */
static int64_t next_use(const void *context, int64_t key, int64_t now)
{
    (void)context;
    return now + (key - now % KEYS + KEYS) % KEYS;
}

static int64_t key_at(const void *context, int64_t time)
{
    (void)context;
    return time % KEYS;
}

static const fl_cache_options like = {.n_keys = KEYS,
                                      .unit_elements = UNIT,
                                      .value_elements = LONGEST,
                                      .values = FL_F32,
                                      .dtype = FL_BF16, /* of the store alone */
                                      .memory_bytes = 1 << 20,
                                      .disk_bytes = 1 << 20,
                                      .future = {.next_use = next_use, .key_at = key_at}};

static fl_device *device;
static float *memory; /* of the device: [2][LONGEST] */

static int open_device(void **state)
{
    const fl_async_options options = {.n_threads = 1, .budget_bytes = 1 << 16, .max_delay_us = 20};
    (void)state;
    return fl_device_async_create(&options, &device) != FL_OK ||
           fl_device_alloc(device, 2 * LONGEST * sizeof(float), "a test", (void **)&memory) !=
               FL_OK;
}

static int close_device(void **state)
{
    (void)state;
    fl_device_free(device, memory, 2 * LONGEST * sizeof(float));
    fl_device_destroy(&device);
    return 0;
}

static fl_cache_tier *tier_of(fl_cache_tier_kind kind, int64_t budget_bytes)
{
    const fl_cache_tier_options options = {
        .kind = kind, .device = device, .budget_bytes = budget_bytes, .like = &like};
    fl_cache_tier *tier = NULL;
    assert_int_equal(fl_cache_tier_create(&options, &tier), FL_OK);
    return tier;
}

/* Values of a key have a length of their own. */
static int64_t length_of(int64_t key)
{
    return LONGEST - 5 * key;
}

static float element_of(int64_t key, int64_t i)
{
    return (float)(1000 * key + i) + 0.123f;
}

static bool keep(fl_cache_tier *tier, int64_t key, uint64_t print, int64_t now)
{
    float host[LONGEST];
    bool kept = false;
    for (int64_t i = 0; i < LONGEST; i++) {
        host[i] = element_of(key, i);
    }
    assert_int_equal(device->ops->copy_in(device, NULL, memory, host, sizeof host), FL_OK);
    assert_int_equal(fl_cache_tier_keep(tier, NULL, key, print, memory, length_of(key), now, &kept),
                     FL_OK);
    assert_int_equal(device->ops->sync(device, NULL), FL_OK);
    return kept;
}

static bool comes_back(fl_cache_tier *tier, int64_t key)
{
    float host[LONGEST];
    int64_t n = -1;
    assert_int_equal(fl_cache_tier_fetch(tier, NULL, key, PRINT, memory + LONGEST, LONGEST, &n),
                     FL_OK);
    assert_int_equal(fl_cache_tier_has(tier, key, PRINT), n > 0);
    if (n == 0) {
        return false;
    }
    assert_int_equal(n, length_of(key));
    assert_int_equal(
        device->ops->copy_out(device, NULL, host, memory + LONGEST, (size_t)n * sizeof *host),
        FL_OK);
    assert_int_equal(device->ops->sync(device, NULL), FL_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_true(host[i] == element_of(key, i));
    }
    return true;
}

static const fl_cache_tier_kind kinds[] = {FL_CACHE_TIER_PINNED, FL_CACHE_TIER_DEVICE};

static void test_cache_tier__gives_back_what_it_got(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        size_t before = device->used_bytes;
        fl_cache_tier *tier = tier_of(kinds[k], 1 << 14);
        assert_int_equal(device->used_bytes - before,
                         kinds[k] == FL_CACHE_TIER_DEVICE ? fl_cache_tier_bytes(tier) : 0);
        for (int64_t key = 0; key < KEYS; key++) {
            assert_true(keep(tier, key, PRINT, key));
            assert_true(keep(tier, key, PRINT, key)); /* it has it already */
        }
        for (int64_t key = 0; key < KEYS; key++) {
            assert_true(comes_back(tier, key));
            assert_false(fl_cache_tier_has(tier, key, PRINT + 1));
        }
        int64_t n = 0;
        assert_int_equal(fl_cache_tier_fetch(tier, NULL, 0, PRINT, memory, LONGEST - 1, &n), FL_OK);
        assert_int_equal(n, 0); /* longer than the caller's room */
        fl_cache_tier_destroy(&tier);
        assert_int_equal(device->used_bytes, before);
    }
}

/* Room for twelve units, the first values take three: the budget is never exceeded, and of more
 * values those stay that are used first. */
static void test_cache_tier__evicts_what_is_used_last(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const int64_t budget = (int64_t)(12 * 128 + 100);
        fl_cache_tier *tier = tier_of(kinds[k], budget);
        assert_int_equal(fl_cache_tier_bytes(tier), 12 * 128);
        for (int64_t key = 11; key >= 0; key--) {
            assert_true(keep(tier, key, PRINT, 0)); /* each is used before those that are there */
            assert_true(fl_cache_tier_used_bytes(tier) <= budget);
        }
        assert_true(comes_back(tier, 0) && comes_back(tier, 1) && comes_back(tier, 2));
        assert_false(comes_back(tier, 11));
        assert_false(keep(tier, 4, PRINT, 0));
        assert_true(keep(tier, 4, PRINT, 4)); /* now the others are used in the next round */
        assert_true(comes_back(tier, 4));
        fl_cache_tier_destroy(&tier);
    }
}

static void test_cache_tier__drops_values_of_other_weights(void **state)
{
    (void)state;
    fl_cache_tier *tier = tier_of(FL_CACHE_TIER_DEVICE, 1 << 14);
    assert_true(keep(tier, 1, PRINT + 1, 0) && keep(tier, 2, PRINT, 0));
    assert_false(comes_back(tier, 1));
    assert_true(keep(tier, 1, PRINT, 0)); /* takes the place of the old one */
    assert_true(comes_back(tier, 1) && !fl_cache_tier_has(tier, 1, PRINT + 1));
    fl_cache_tier_drop_others(tier, PRINT + 1);
    assert_int_equal(fl_cache_tier_used_bytes(tier), 0);
    assert_false(comes_back(tier, 1) || comes_back(tier, 2));
    fl_cache_tier_destroy(&tier);
}

static void test_cache_tier__refuses_what_there_is_no_room_for(void **state)
{
    (void)state;
    fl_cache_tier *tier = NULL;
    fl_cache_tier_options o = {
        .kind = FL_CACHE_TIER_DEVICE, .device = device, .budget_bytes = 3 * 128 - 1, .like = &like};
    assert_int_equal(fl_cache_tier_create(&o, &tier), FL_EBUDGET);
    assert_string_equal(fl_errmsg(), "383 bytes found, at least 384 are needed for one sample");
    size_t room = device->budget_bytes;
    device->budget_bytes = 1024;
    o.budget_bytes = 1 << 12;
    assert_int_equal(fl_cache_tier_create(&o, &tier), FL_EBUDGET); /* the device has less */
    device->budget_bytes = room;
    const fl_async_fault fault = {.entry = "host_take", .n = 1};
    assert_int_equal(fl_device_async_fail(device, &fault), FL_OK);
    o.kind = FL_CACHE_TIER_PINNED;
    assert_int_not_equal(fl_cache_tier_create(&o, &tier), FL_OK);
    assert_null(tier);
}

/* Would catch: a value that is found, though the copy that should have brought it failed. */
static void test_cache_tier__keeps_nothing_when_a_copy_fails(void **state)
{
    (void)state;
    fl_cache_tier *tier = tier_of(FL_CACHE_TIER_DEVICE, 1 << 14);
    const fl_async_fault fault = {.entry = "copy", .n = 2};
    bool kept = true;
    /* Units of 24 elements do not fill their 128 bytes: three copies. */
    assert_int_equal(fl_device_async_fail(device, &fault), FL_OK);
    assert_int_not_equal(fl_cache_tier_keep(tier, NULL, 0, PRINT, memory, length_of(0), 0, &kept),
                         FL_OK);
    assert_false(kept || fl_cache_tier_has(tier, 0, PRINT));
    assert_int_equal(fl_cache_tier_used_bytes(tier), 0);
    assert_int_equal(device->ops->sync(device, NULL), FL_OK);
    fl_cache_tier_destroy(&tier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_tier__gives_back_what_it_got),
        cmocka_unit_test(test_cache_tier__evicts_what_is_used_last),
        cmocka_unit_test(test_cache_tier__drops_values_of_other_weights),
        cmocka_unit_test(test_cache_tier__refuses_what_there_is_no_room_for),
        cmocka_unit_test(test_cache_tier__keeps_nothing_when_a_copy_fails),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
