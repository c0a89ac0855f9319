#include "support/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

uint64_t drawn_seed(void)
{
    const char *given = getenv("FL_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu (set FL_TEST_SEED to repeat)\n", (unsigned long long)seed);
    return seed;
}

void seed_random(void)
{
    srandom((unsigned)drawn_seed());
}

int draw(int from, int to)
{
    return from + (int)(random() % (to - from + 1));
}
