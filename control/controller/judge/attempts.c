#include "control/controller/judge/attempts.h"

#include <stdio.h>

enum { SECOND_US = 1000 * 1000, LONGEST_S = 60, SHARE = 4, DOUBLINGS = 6 };

void fl_attempts_begin(fl_attempts *a, int64_t now_us)
{
    a->begun_us = now_us;
}

int64_t fl_attempts_failed(fl_attempts *a, int64_t now_us)
{
    int64_t took_us = now_us - a->begun_us;
    int64_t pause_s = a->n < DOUBLINGS ? INT64_C(1) << a->n : LONGEST_S;
    int64_t pause_us = pause_s * SECOND_US;
    a->n++;
    return now_us + (pause_us > SHARE * took_us ? pause_us : SHARE * took_us);
}

bool fl_attempts_tell(const fl_attempts *a, int64_t due_us, int64_t now_us, char *text,
                      size_t size_bytes)
{
    snprintf(text, size_bytes, "; attempt %d, the next one in %.0f s", a->n,
             (double)(due_us - now_us) * 1e-6);
    return (a->n & (a->n - 1)) == 0;
}
