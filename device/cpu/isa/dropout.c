/* Dropout whose mask is a pure function of (key, sample, element). Element e takes word e % 4 of
 * the Philox block with the counter {lo32(e / 4), hi32(e / 4), lo32(sample), hi32(sample)}. */
#include "device/cpu/isa/passes.h"

#include "device/random.h"

void FL_ISA_NAME(dropout)(const float *in, const uint32_t key[2], int64_t sample, int64_t first,
                          float p, float *y, int64_t n)
{
    float scale = 1.0f / (1.0f - p);
    for (int64_t i = 0; i < n; i += 4) {
        uint64_t block = (uint64_t)(first + i) / 4;
        uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)sample,
                               (uint32_t)((uint64_t)sample >> 32)};
        uint32_t word[4];
        fl_philox(counter, key, word);
        for (int64_t j = i; j < n && j < i + 4; j++) {
            y[j] = fl_unit(word[j - i]) >= p ? in[j] * scale : 0.0f;
        }
    }
}
