#include "autodp/sampler.h"

#include "device/random/random.h"

#include <stdbool.h>
#include <stddef.h>

enum { ROUNDS = 8 };

/* Separates this order from other uses of the same seed. */
static const uint64_t stream_of_order = 0x6F72646572u;

void fl_permutation_init(fl_permutation *p, int64_t n, uint64_t seed, int64_t epoch)
{
    uint64_t last = n > 0 ? (uint64_t)n - 1 : 0;
    p->n = n;
    p->half_bits = 0;
    while (last >> (2 * p->half_bits) != 0) {
        p->half_bits++;
    }
    uint64_t base = fl_mix64(fl_mix64(seed, stream_of_order), (uint64_t)epoch);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        p->key[i] = (uint32_t)(fl_mix64(base, i) >> 32);
    }
}

/* One pass through the network: a permutation of all numbers of 2 * half_bits bits, whatever the
 * round function is. */
static uint64_t feistel(const fl_permutation *p, uint64_t value)
{
    uint64_t mask = (UINT64_C(1) << p->half_bits) - 1;
    uint64_t left = value >> p->half_bits, right = value & mask;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t next = left ^ (fl_mix64(p->key[i], right) >> 32 & mask);
        left = right;
        right = next;
    }
    return left << p->half_bits | right;
}

int64_t fl_permutation_at(const fl_permutation *p, int64_t index)
{
    /* The network's numbers form cycles. From a number below n, the walk along the cycle therefore
     * reaches a number below n again, and distinct starts reach distinct numbers. There are fewer
     * than 4 n numbers, so this takes less than 4 passes on average. */
    uint64_t value = (uint64_t)index;
    do {
        value = feistel(p, value);
    } while (value >= (uint64_t)p->n);
    return (int64_t)value;
}

/* The walks of all indices side by side: a pass is a chain of multiplications, and the processor
 * works on several chains at once. */
void fl_permutation_range(const fl_permutation *p, int64_t first, int64_t n, int64_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = (int64_t)feistel(p, (uint64_t)(first + i));
    }
    for (bool walking = true; walking;) {
        walking = false;
        for (int64_t i = 0; i < n; i++) {
            if (out[i] >= p->n) {
                out[i] = (int64_t)feistel(p, (uint64_t)out[i]);
                walking = true;
            }
        }
    }
}

/* The pass through the network that feistel undoes. */
static uint64_t feistel_back(const fl_permutation *p, uint64_t value)
{
    uint64_t mask = (UINT64_C(1) << p->half_bits) - 1;
    uint64_t left = value >> p->half_bits, right = value & mask;
    for (int i = ROUNDS - 1; i >= 0; i--) {
        uint64_t before = right ^ (fl_mix64(p->key[i], left) >> 32 & mask);
        right = left;
        left = before;
    }
    return left << p->half_bits | right;
}

int64_t fl_permutation_index(const fl_permutation *p, int64_t value)
{
    /* The same cycle, walked backwards. */
    uint64_t index = (uint64_t)value;
    do {
        index = feistel_back(p, index);
    } while (index >= (uint64_t)p->n);
    return (int64_t)index;
}

int64_t fl_sampler_batch(const fl_job *job)
{
    return job->train.accumulate * job->train.batch;
}

int64_t fl_sampler_steps_per_epoch(int64_t n_samples, int64_t batch)
{
    return n_samples / batch + (n_samples % batch != 0);
}

fl_cursor fl_sampler_after(int64_t n_samples, int64_t batch, int64_t steps)
{
    int64_t n = fl_sampler_steps_per_epoch(n_samples, batch);
    return (fl_cursor){.epoch = steps / n, .position = steps % n * batch};
}

void fl_sampler_next(uint64_t seed, int64_t n_samples, int64_t batch, fl_cursor *cursor,
                     int64_t *ids, int64_t *n)
{
    fl_permutation order;
    fl_permutation_init(&order, n_samples, seed, cursor->epoch);
    int64_t left = n_samples - cursor->position;
    *n = batch < left ? batch : left;
    fl_permutation_range(&order, cursor->position, *n, ids);
    cursor->position += *n;
    if (cursor->position >= n_samples) {
        *cursor = (fl_cursor){.epoch = cursor->epoch + 1, .position = 0};
    }
}
