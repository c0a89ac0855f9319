/* The cache in one process: what is put comes back or is missed, never anything else; the budget
 * holds; the value that will be used last is evicted first. */
#include "cache/cache.h"

#include "cache/file.h"
#include "cache/pool.h"
#include "device/system/alloc.h"
#include "support/folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

enum { N_KEYS = 60, UNIT = 100, MAX_VALUE = 350 };

static const uint64_t prints[] = {0, 11, 22, 33};
static const fl_cache_prints all = {.n_levels = 4, .print = prints};

/* Every key once a round, in the order of the keys: the next use is easy to know. */
static int64_t in_turn(const void *context, int64_t key, int64_t now)
{
    (void)context;
    int64_t round = now / N_KEYS, at = round * N_KEYS + key;
    return at >= now ? at : at + N_KEYS;
}

static int64_t key_in_turn(const void *context, int64_t time)
{
    (void)context;
    return time % N_KEYS;
}

static fl_cache_options options_of(fl_dtype dtype, int64_t memory_bytes, int64_t disk_bytes)
{
    return (fl_cache_options){.n_keys = N_KEYS,
                              .unit_elements = UNIT,
                              .value_elements = MAX_VALUE,
                              .dtype = dtype,
                              .memory_bytes = memory_bytes,
                              .disk_bytes = disk_bytes,
                              .path = temporary(),
                              .future = {.next_use = in_turn, .key_at = key_in_turn}};
}

static fl_cache *create(fl_dtype dtype, int64_t memory_bytes, int64_t disk_bytes)
{
    fl_cache *c = NULL;
    fl_cache_options o = options_of(dtype, memory_bytes, disk_bytes);
    assert_int_equal(fl_cache_create(&o, &c), FL_OK);
    return c;
}

static int64_t length_of(int64_t key)
{
    return 1 + (key * 37) % MAX_VALUE;
}

static float element(int64_t key, int level, int64_t i)
{
    return (float)((key * 131 + level * 17 + i) % 251) - 125.0f; /* exact in bf16, too */
}

static bool put(fl_cache *c, int64_t key, int level, int64_t now)
{
    float values[MAX_VALUE];
    int64_t n = length_of(key);
    for (int64_t i = 0; i < n; i++) {
        values[i] = element(key, level, i);
    }
    return fl_cache_put(c, key, level, prints[level], values, n, now);
}

/* The level that was found, 0: none. What is found must be right. */
static int get(fl_cache *c, int64_t key, fl_cache_found *where)
{
    float out[MAX_VALUE];
    int level = 0;
    int64_t n = 0;
    fl_cache_found found = fl_cache_get(c, &all, key, out, MAX_VALUE, &level, &n);
    if (where != NULL) {
        *where = found;
    }
    if (found == FL_CACHE_MISS) {
        return 0;
    }
    assert_int_equal(n, length_of(key));
    for (int64_t i = 0; i < n; i++) {
        assert_true(out[i] == element(key, level, i));
    }
    return level;
}

static fl_cache_stats stats_of(const fl_cache *c)
{
    fl_cache_stats s;
    fl_cache_get_stats(c, &s);
    return s;
}

static void test_cache__gives_back_what_was_put(void **state)
{
    (void)state;
    const fl_dtype dtypes[] = {FL_F32, FL_BF16};
    for (int t = 0; t < 2; t++) {
        fl_cache *c = create(dtypes[t], 1 << 20, 0);
        for (int64_t key = 0; key < N_KEYS; key++) {
            assert_int_equal(get(c, key, NULL), 0);
            assert_true(put(c, key, 1 + (int)key % 3, 0));
        }
        for (int64_t key = 0; key < N_KEYS; key++) {
            fl_cache_found where;
            assert_int_equal(get(c, key, &where), 1 + key % 3);
            assert_int_equal(where, FL_CACHE_MEMORY);
        }
        assert_int_equal(stats_of(c).n_values, N_KEYS);
        fl_cache_destroy(&c);
        assert_null(c);
    }
}

/* Values that are bf16 already: half the bytes, unchanged, in units and through the disk. */
static void test_cache__keeps_bf16_as_it_is(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        fl_cache *c = NULL;
        fl_cache_options o = options_of(FL_BF16, t == 0 ? 1 << 20 : 32 << 10, t == 0 ? 0 : 1 << 20);
        o.values = FL_BF16;
        assert_int_equal(fl_cache_create(&o, &c), FL_OK);
        for (int64_t key = 0; key < N_KEYS; key++) {
            uint16_t values[MAX_VALUE];
            for (int i = 0; i < MAX_VALUE; i++) {
                values[i] = (uint16_t)(key * 977 + i * 31); /* NaN, infinities and denormals, too */
            }
            assert_true(fl_cache_put(c, key, 1, prints[1], values, length_of(key), 0));
        }
        for (int64_t key = 0; key < N_KEYS; key++) {
            uint16_t out[MAX_VALUE + 1];
            int level = 0;
            int64_t n = 0;
            memset(out, 0x5A, sizeof out);
            fl_cache_found found = fl_cache_get(c, &all, key, out, MAX_VALUE, &level, &n);
            assert_int_not_equal(found, FL_CACHE_MISS);
            assert_int_equal(n, length_of(key));
            for (int64_t i = 0; i < n; i++) {
                assert_int_equal(out[i], (uint16_t)(key * 977 + i * 31));
            }
            assert_int_equal(out[n], 0x5A5A);
        }
        fl_cache_destroy(&c);
    }
    fl_cache_options o = options_of(FL_F32, 1 << 20, 0);
    fl_cache *c = NULL;
    o.values = FL_BF16; /* nothing is gained by storing it wider */
    assert_int_equal(fl_cache_create(&o, &c), FL_EINVAL);
}

static void test_cache__keeps_the_rest_on_disk(void **state)
{
    (void)state;
    const fl_dtype dtypes[] = {FL_F32, FL_BF16};
    for (int t = 0; t < 2; t++) {
        fl_cache *c = create(dtypes[t], 48 << 10, 1 << 20);
        int n_memory = 0, n_disk = 0;
        for (int64_t key = 0; key < N_KEYS; key++) {
            assert_true(put(c, key, 2, 0));
        }
        for (int64_t key = 0; key < N_KEYS; key++) {
            fl_cache_found where;
            assert_int_equal(get(c, key, &where), 2);
            n_memory += where == FL_CACHE_MEMORY;
            n_disk += where == FL_CACHE_DISK;
        }
        assert_true(n_memory > 0 && n_disk > 0);
        assert_true(stats_of(c).memory_bytes <= 48 << 10);
        assert_true(stats_of(c).disk_bytes <= 1 << 20);
        fl_cache_destroy(&c);
    }
}

static void test_cache__never_gives_what_other_weights_made(void **state)
{
    (void)state;
    float out[MAX_VALUE];
    int level;
    int64_t n;
    fl_cache *c = create(FL_F32, 1 << 20, 0);
    assert_true(put(c, 5, 2, 0));
    const uint64_t changed[] = {0, 11, 99, 33}, lower[] = {0, 11};
    fl_cache_prints other = {.n_levels = 4, .print = changed};
    fl_cache_prints less = {.n_levels = 2, .print = lower};
    assert_int_equal(fl_cache_get(c, &other, 5, out, MAX_VALUE, &level, &n), FL_CACHE_MISS);
    assert_int_equal(fl_cache_get(c, &less, 5, out, MAX_VALUE, &level, &n), FL_CACHE_MISS);
    assert_int_equal(get(c, 5, NULL), 2); /* it lies there for whoever accepts it */
    fl_cache_keep(c, &other);
    assert_int_equal(get(c, 5, NULL), 0);
    assert_int_equal(stats_of(c).used_bytes, 0);
    fl_cache_destroy(&c);
}

static void test_cache__replaces_a_lower_level(void **state)
{
    (void)state;
    fl_cache *c = create(FL_F32, 1 << 20, 0);
    assert_true(put(c, 7, 1, 0));
    assert_int_equal(get(c, 7, NULL), 1);
    assert_true(put(c, 7, 3, 0));
    assert_int_equal(get(c, 7, NULL), 3);
    assert_int_equal(stats_of(c).n_values, 1);
    fl_cache_destroy(&c);
}

static void test_cache__a_hit_allocates_nothing(void **state)
{
    (void)state;
    fl_cache *c = create(FL_BF16, 32 << 10, 1 << 20);
    for (int64_t key = 0; key < N_KEYS; key++) {
        assert_true(put(c, key, 1, 0));
    }
    uint64_t before = fl_alloc_count();
    for (int64_t key = 0; key < N_KEYS; key++) {
        assert_int_equal(get(c, key, NULL), 1);
    }
    assert_int_equal(fl_alloc_count(), before);
    fl_cache_destroy(&c);
}

/* More than two chunks, in no order, some of them twice: from memory, from the disk, whether or not
 * the page cache has it, and what is missing or damaged; and nobody's buffer but its own. */
static void get_all(fl_cache *c, const bool *there)
{
    enum { N_WANTS = 150 };
    static float out[N_WANTS][MAX_VALUE];
    fl_cache_want wants[N_WANTS];
    for (int64_t i = 0; i < N_WANTS; i++) {
        wants[i] =
            (fl_cache_want){.key = i * 37 % N_KEYS, .out = out[i], .max_elements = MAX_VALUE};
    }
    uint64_t before = fl_alloc_count();
    fl_cache_get_all(c, &all, wants, N_WANTS);
    assert_int_equal(fl_alloc_count(), before);
    for (int64_t i = 0; i < N_WANTS; i++) {
        int64_t key = wants[i].key;
        assert_int_equal(wants[i].found != FL_CACHE_MISS, there[key]);
        if (there[key]) {
            assert_int_equal(wants[i].level, 1 + key % 3);
            assert_int_equal(wants[i].n, length_of(key));
            assert_int_equal(wants[i].found == FL_CACHE_DISK, fl_pool_find(c, key) >= c->n_memory);
        }
        for (int64_t j = 0; there[key] && j < length_of(key); j++) {
            assert_true(out[i][j] == element(key, 1 + (int)key % 3, j));
        }
    }
}

static void test_cache__gets_many_as_it_gets_one(void **state)
{
    (void)state;
    const fl_dtype dtypes[] = {FL_F32, FL_BF16};
    for (int t = 0; t < 2; t++) {
        bool there[N_KEYS];
        fl_cache *c = create(dtypes[t], t == 0 ? 48 << 10 : 28 << 10, 1 << 20);
        fl_cache_attach(c);
        for (int64_t key = 0; key < N_KEYS; key++) {
            there[key] = key % 5 != 0 && put(c, key, 1 + (int)key % 3, 0);
        }
        get_all(c, there);
        assert_int_equal(fdatasync(c->fd), 0);
        assert_int_equal(posix_fadvise(c->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        get_all(c, there);
        int n_disk = 0;
        for (int64_t key = 1; key < N_KEYS; key += 7) {
            uint32_t head = fl_pool_find(c, key);
            if (there[key] && head < c->n_memory) {
                c->memory[(size_t)head * c->unit_bytes] ^= 1;
                there[key] = false;
            }
            n_disk += head != FL_POOL_NONE && head >= c->n_memory;
        }
        assert_true(n_disk > 0);
        get_all(c, there);
        assert_int_equal(ftruncate(c->fd, 0), 0);
        for (int64_t key = 0; key < N_KEYS; key++) {
            there[key] = there[key] && fl_pool_find(c, key) < c->n_memory;
        }
        get_all(c, there);
        fl_cache_destroy(&c);
    }
}

static void test_cache__refuses_a_budget_that_holds_nothing(void **state)
{
    (void)state;
    fl_cache *c = NULL;
    fl_cache_options o = options_of(FL_F32, 0, 0);
    o.memory_bytes = fl_cache_least_bytes(&o) - 1;
    assert_int_equal(fl_cache_create(&o, &c), FL_EBUDGET);
    assert_null(c);
    assert_non_null(strstr(fl_errmsg(), "cache.memory"));
    o.memory_bytes++;
    assert_int_equal(fl_cache_create(&o, &c), FL_OK);
    assert_true(put(c, 3, 1, 0));
    assert_int_equal(get(c, 3, NULL), 1);
    assert_true(stats_of(c).memory_bytes <= o.memory_bytes);
    fl_cache_destroy(&c);
}

static void test_cache__survives_every_failing_allocation(void **state)
{
    (void)state;
    fl_cache_options o = options_of(FL_F32, 32 << 10, 1 << 20);
    fl_status status = FL_ENOMEM;
    for (uint64_t i = 1; status != FL_OK; i++) {
        fl_cache *c = NULL;
        fl_alloc_fail_at(i);
        status = fl_cache_create(&o, &c);
        fl_alloc_fail_at(0);
        assert_true((status == FL_OK) == (c != NULL));
        fl_cache_destroy(&c);
    }
}

/* ---- damage ---- */

static void test_cache__damaged_memory_is_a_miss(void **state)
{
    (void)state;
    fl_cache *c = create(FL_F32, 1 << 20, 0);
    for (int64_t key = 0; key < N_KEYS; key++) {
        assert_true(put(c, key, 1, 0));
    }
    for (int64_t key = 0; key < N_KEYS; key++) {
        uint32_t head = fl_pool_find(c, key);
        unsigned char *bytes = c->memory + (size_t)head * c->unit_bytes;
        bytes[(size_t)key % 4] ^= (unsigned char)(1u << key % 8);
        assert_int_equal(get(c, key, NULL), 0);
    }
    assert_int_equal(stats_of(c).n_damaged, N_KEYS);
    assert_int_equal(stats_of(c).n_values, 0);
    assert_true(put(c, 4, 1, 0)); /* and then it is right again */
    assert_int_equal(get(c, 4, NULL), 1);
    fl_cache_destroy(&c);
}

static void test_cache__flipped_bytes_in_the_file_are_a_miss(void **state)
{
    (void)state;
    fl_cache *c = create(FL_BF16, 16 << 10, 1 << 20);
    int n_on_disk = 0;
    for (int64_t key = 0; key < N_KEYS; key++) {
        assert_true(put(c, key, 1, 0));
    }
    for (int64_t key = 0; key < N_KEYS; key++) {
        uint32_t head = fl_pool_find(c, key);
        if (head >= c->n_memory) {
            unsigned char byte;
            int64_t at = (int64_t)(head - c->n_memory) * (int64_t)c->unit_bytes + key % 2;
            assert_true(fl_cache_file_read(c->fd, &byte, 1, at));
            byte ^= (unsigned char)(1u << key % 8);
            assert_true(fl_cache_file_write(c->fd, &byte, 1, at));
            assert_int_equal(get(c, key, NULL), 0);
            n_on_disk++;
        }
    }
    assert_true(n_on_disk > 10);
    assert_int_equal(stats_of(c).n_damaged, n_on_disk);
    fl_cache_destroy(&c);
}

static void test_cache__a_file_cut_short_is_a_miss(void **state)
{
    (void)state;
    fl_cache *c = create(FL_F32, 16 << 10, 1 << 20);
    int n_missed = 0;
    for (int64_t key = 0; key < N_KEYS; key++) {
        assert_true(put(c, key, 1, 0));
    }
    assert_int_equal(ftruncate(c->fd, (off_t)c->unit_bytes * 10 + 3), 0);
    for (int64_t key = 0; key < N_KEYS; key++) {
        n_missed += get(c, key, NULL) == 0;
    }
    assert_true(n_missed > 10 && n_missed < N_KEYS);
    assert_true(stats_of(c).n_disk_errors > 0);
    fl_cache_destroy(&c);
}

/* No file may grow: what a full disk answers. */
static void test_cache__a_full_disk_keeps_less(void **state)
{
    (void)state;
    struct rlimit before, none = {.rlim_cur = 0};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    fl_cache *c = create(FL_F32, 48 << 10, 1 << 20);
    assert_int_equal(ftruncate(c->fd, 0), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int n_kept = 0, n_found = 0;
    for (int64_t key = 0; key < N_KEYS; key++) {
        n_kept += put(c, key, 1, 0);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (int64_t key = 0; key < N_KEYS; key++) {
        n_found += get(c, key, NULL) != 0;
    }
    assert_true(n_kept > 0 && n_kept < N_KEYS);
    assert_int_equal(n_found, n_kept);
    fl_cache_destroy(&c);
}

static void test_cache__a_disk_too_small_is_refused(void **state)
{
    (void)state;
    fl_cache *c = NULL;
    fl_cache_options o = options_of(FL_F32, 16 << 10, INT64_C(1) << 20);
    o.path = "/proc/self";
    assert_int_equal(fl_cache_create(&o, &c), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "cache.path"));
    assert_non_null(strstr(fl_errmsg(), "/proc/self"));
    struct rlimit before, small = {.rlim_cur = 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    o.path = temporary();
    fl_status status = fl_cache_create(&o, &c);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "cache.disk"));
    assert_null(c);
}

/* The index of the disk lies in cache.memory. Would catch: "cache.disk: 1 MiB" that silently
 * becomes a few kilobytes. */
static void test_create__warns_that_memory_limits_the_disk(void **state)
{
    (void)state;
    char text[1024] = "";
    int out[2], before = dup(STDERR_FILENO);
    fl_cache *cache = NULL;
    fl_cache_options o = options_of(FL_F32, 0, INT64_C(64) << 20);
    o.n_keys = 20000;
    o.memory_bytes = fl_cache_least_bytes(&o) + 20000;
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    dup2(out[1], STDERR_FILENO);
    fl_status status = fl_cache_create(&o, &cache);
    dup2(before, STDERR_FILENO);
    close(before);
    close(out[1]);
    ssize_t n = read(out[0], text, sizeof text - 1);
    close(out[0]);
    assert_int_equal(status, FL_OK);
    assert_true(n > 0);
    assert_non_null(strstr(text, "MiB can be used: cache.memory, "));
    assert_non_null(strstr(text, "MiB would manage all of it"));
    fl_cache_destroy(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache__gives_back_what_was_put),
        cmocka_unit_test(test_cache__keeps_bf16_as_it_is),
        cmocka_unit_test(test_cache__keeps_the_rest_on_disk),
        cmocka_unit_test(test_cache__never_gives_what_other_weights_made),
        cmocka_unit_test(test_cache__replaces_a_lower_level),
        cmocka_unit_test(test_cache__a_hit_allocates_nothing),
        cmocka_unit_test(test_cache__gets_many_as_it_gets_one),
        cmocka_unit_test(test_cache__refuses_a_budget_that_holds_nothing),
        cmocka_unit_test(test_cache__survives_every_failing_allocation),
        cmocka_unit_test(test_cache__damaged_memory_is_a_miss),
        cmocka_unit_test(test_cache__flipped_bytes_in_the_file_are_a_miss),
        cmocka_unit_test(test_cache__a_file_cut_short_is_a_miss),
        cmocka_unit_test(test_cache__a_full_disk_keeps_less),
        cmocka_unit_test(test_cache__a_disk_too_small_is_refused),
        cmocka_unit_test(test_create__warns_that_memory_limits_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
