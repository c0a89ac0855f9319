/* Job files that are refused, with their messages, for tests. */
#ifndef FL_TESTS_SUPPORT_FORMATS_BROKEN_JOBS_H
#define FL_TESTS_SUPPORT_FORMATS_BROKEN_JOBS_H

#include <stddef.h>

#define EPOCHS "allowed: an integer from 1 to 1000000"
#define LR "allowed: a number above 0 and up to 100"
#define SCRIPT "allowed: none, or a list of at most 256 mappings with step, f, k, r, m; rising step"

typedef struct broken {
    const char *text;
    const char *message;
} broken;

/* The job is refused with this very message, and nothing of it is kept. set: an override, or NULL.
 */
void expect_refusal(const char *text, size_t size, const char *set, const char *message);

#endif
