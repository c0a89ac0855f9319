/* Random inputs for tests of properties, by a seed that is printed, so that a failure can be had
 * again. */
#ifndef FL_TESTS_SUPPORT_DRAW_H
#define FL_TESTS_SUPPORT_DRAW_H

#include <stdint.h>

/* FL_TEST_SEED of the environment, else the time; printed. */
uint64_t drawn_seed(void);

/* Have random(), and so draw, begin by such a seed. */
void seed_random(void);

/* A number from .. to. */
int draw(int from, int to);

#endif
