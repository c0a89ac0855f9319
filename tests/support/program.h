/* frostline as a user calls it, in a folder of the test, and what it left there. */
#ifndef FL_TESTS_PROGRAM_H
#define FL_TESTS_PROGRAM_H

#include "support/shell.h"

/* Of the last call. */
extern output program_result;

/* Run frostline with these arguments in the folder; the exit code must be this. */
void program_run(const char *folder, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Run a command of the shell there; it must succeed. */
void program_shell(const char *folder, const char *command);

/* Both hold the same tensors, to the last bit. Paths of models, below the folder if relative. */
void program_same_tensors(const char *folder, const char *a, const char *b);

/* What became of `start` in a step: `a` is `wanted` within the tolerance, relative to the largest
 * change of the tensor. Paths as above. */
void program_same_step(const char *folder, const char *start, const char *a, const char *wanted,
                       double tolerance);

#endif
