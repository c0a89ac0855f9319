#include "device/random.h"

enum { ROUNDS = 10 };

static void multiply(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low)
{
    uint64_t product = (uint64_t)a * b;
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}

void fl_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    /* Multipliers and Weyl constants of Philox 4x32, from the paper's table 2. */
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t high0, low0, high1, low1;
        multiply(0xD2511F53u, c0, &high0, &low0);
        multiply(0xCD9E8D57u, c2, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t fl_mix64(uint64_t a, uint64_t b)
{
    uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
