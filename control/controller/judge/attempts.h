/* A change of the plan that is asked for again after it was not taken, as one with a worker whose
 * host others cannot reach. Attempts become rarer, so that they leave time for other changes: only
 * one is prepared at a time, and one that nobody answers takes fault.deadline. */
#ifndef FL_CONTROL_CONTROLLER_JUDGE_ATTEMPTS_H
#define FL_CONTROL_CONTROLLER_JUDGE_ATTEMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: none so far. */
typedef struct fl_attempts {
    int n;            /* that have failed, one after the other */
    int64_t begun_us; /* the last one */
} fl_attempts;

/* An attempt begins. */
void fl_attempts_begin(fl_attempts *a, int64_t now_us);

/* It has failed. Returns when the next one is due: after 1, 2, 4 ... 60 s, and not before four
 * times as long as this one took. */
int64_t fl_attempts_failed(fl_attempts *a, int64_t now_us);

/* Whether the user is told of this failure: of the first one, the second, the fourth ... If so,
 * `text` says which it is: "; attempt 4, the next one in 8 s". */
bool fl_attempts_tell(const fl_attempts *a, int64_t due_us, int64_t now_us, char *text,
                      size_t size_bytes);

#endif
