/* The order of eviction from a full cache: it reaches the hit rate of the optimal policy. */
#include "cache/cache.h"

#include "cache/pool.h"
#include "device/random/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static const uint64_t prints[] = {0, 11};
static const fl_cache_prints all = {.n_levels = 2, .print = prints};

enum { BELADY_KEYS = 400, EPOCHS = 6 };

typedef struct order_of_use {
    int64_t key[EPOCHS * BELADY_KEYS];
} order_of_use;

static int64_t next_in(const void *context, int64_t key, int64_t now)
{
    const order_of_use *o = context;
    for (int64_t t = now; t < EPOCHS * BELADY_KEYS; t++) {
        if (o->key[t] == key) {
            return t;
        }
    }
    return INT64_MAX;
}

static int64_t key_in(const void *context, int64_t time)
{
    return ((const order_of_use *)context)->key[time];
}

static void shuffle(order_of_use *o, uint64_t seed)
{
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t *key = o->key + epoch * BELADY_KEYS;
        for (int64_t i = 0; i < BELADY_KEYS; i++) {
            key[i] = i;
        }
        for (int64_t i = BELADY_KEYS - 1; i > 0; i--) {
            int64_t j =
                (int64_t)(fl_mix64(seed, (uint64_t)(epoch * BELADY_KEYS + i)) % (uint64_t)(i + 1));
            int64_t held = key[i];
            key[i] = key[j];
            key[j] = held;
        }
    }
}

/* The most hits that any policy can have: of what lies there and what comes, what is used last
 * goes. */
static int64_t best_hits(const order_of_use *o, int64_t capacity)
{
    bool there[BELADY_KEYS] = {false};
    int64_t n = 0, hits = 0;
    for (int64_t t = 0; t < EPOCHS * BELADY_KEYS; t++) {
        hits += there[o->key[t]];
        n += !there[o->key[t]];
        there[o->key[t]] = true;
        if (n > capacity) {
            int64_t last = 0, at = -1;
            for (int64_t key = 0; key < BELADY_KEYS; key++) {
                int64_t when = there[key] ? next_in(o, key, t + 1) : -1;
                if (when > at) {
                    at = when;
                    last = key;
                }
            }
            there[last] = false;
            n--;
        }
    }
    return hits;
}

static int64_t our_hits(const order_of_use *o, int64_t capacity, int64_t batch)
{
    fl_cache *c = NULL;
    fl_cache_options options = {.n_keys = BELADY_KEYS,
                                .unit_elements = 16,
                                .value_elements = 16,
                                .dtype = FL_F32,
                                .future = {.context = o, .next_use = next_in, .key_at = key_in}};
    int64_t one = fl_cache_least_bytes(&options);
    int64_t each = 64 + 64 + 16; /* values, and what manages them */
    options.memory_bytes = one + (capacity - 1) * each;
    assert_int_equal(fl_cache_create(&options, &c), FL_OK);
    assert_int_equal(c->n_units, capacity);
    float values[16] = {0}, out[16];
    fl_cache_stats stats;
    int64_t hits = 0, n;
    int level;
    bool missed[BELADY_KEYS];
    for (int64_t t = 0; t < EPOCHS * BELADY_KEYS; t += batch) {
        for (int64_t i = 0; i < batch; i++) {
            int64_t key = o->key[t + i];
            values[0] = (float)key;
            missed[i] = fl_cache_get(c, &all, key, out, 16, &level, &n) == FL_CACHE_MISS;
            hits += !missed[i];
            assert_true(missed[i] || out[0] == (float)key);
        }
        for (int64_t i = 0; i < batch; i++) {
            values[0] = (float)o->key[t + i];
            if (missed[i]) {
                (void)fl_cache_put(c, o->key[t + i], 1, prints[1], values, 16, t + batch);
            }
        }
        fl_cache_get_stats(c, &stats);
        assert_true(stats.memory_bytes <= options.memory_bytes);
    }
    fl_cache_destroy(&c);
    return hits;
}

static void test_cache_order__hits_as_often_as_the_best_policy(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    order_of_use *o = malloc(sizeof *o);
    assert_non_null(o);
    shuffle(o, seed);
    const int64_t shares[] = {10, 50, 90, 100};
    for (int i = 0; i < 4; i++) {
        int64_t capacity = BELADY_KEYS * shares[i] / 100;
        int64_t best = best_hits(o, capacity);
        assert_true(best > 0);
        /* One at a time it is Belady itself; a batch at a time it comes close. */
        assert_int_equal(our_hits(o, capacity, 1), best);
        int64_t ours = our_hits(o, capacity, 8);
        print_message("%lld %%: %lld of %lld hits\n", (long long)shares[i], (long long)ours,
                      (long long)best);
        assert_true((double)ours >= (double)best * 0.98 - 0.002 * (double)(EPOCHS * BELADY_KEYS));
    }
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_order__hits_as_often_as_the_best_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
