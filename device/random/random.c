#include "device/random/random.h"

#include "device/random/philox.h"

#include <string.h>

void fl_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    fl__four_words words =
        fl__philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
    memcpy(out, words.word, sizeof words.word);
}

uint64_t fl_mix64(uint64_t a, uint64_t b)
{
    return fl__mix64(a, b);
}
