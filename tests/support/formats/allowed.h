/* What messages about a job say is allowed, where several tests read it. */
#ifndef FL_TESTS_SUPPORT_FORMATS_ALLOWED_H
#define FL_TESTS_SUPPORT_FORMATS_ALLOWED_H

#define PERIOD                                                                                     \
    "allowed: a share of the run up to 100%, epochs above 0 and up to 1e6 or steps from 1 to "     \
    "1000000000000, such as 75%, 2 epochs or 40 steps"
#define NAME "allowed: 1 to 64 letters, digits, '_', '-' and '.', the first not '-' or '.'"
#define PATH "allowed: a path of 1 to 255 bytes"
#define FILES PATH ", or {train: PATH, test: PATH}"
#define A90                                                                                        \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

#endif
