/* A strict reader of the text format of metrics (Prometheus, version 0.0.4). What
 * the format or its conventions do not allow fails the test, with the line. */
#ifndef FL_TESTS_SUPPORT_FORMATS_EXPOSITION_H
#define FL_TESTS_SUPPORT_FORMATS_EXPOSITION_H

#include <stddef.h>

enum { EXPOSITION_FAMILIES = 128, EXPOSITION_SAMPLES = 4096, EXPOSITION_NAME = 128 };

typedef struct exposition_family {
    char name[EXPOSITION_NAME], type[16], help[256];
} exposition_family;

typedef struct exposition_sample {
    char name[EXPOSITION_NAME];
    char labels[512]; /* as they stand between the braces */
    double value;
} exposition_sample;

typedef struct exposition {
    int n_families, n_samples;
    exposition_family family[EXPOSITION_FAMILIES];
    exposition_sample sample[EXPOSITION_SAMPLES];
} exposition;

/* Read it into memory that the caller frees with free(). */
exposition *exposition_read(const char *text);

/* The value of one sample, which must be there. labels: as they stand; "": none. */
double exposition_value(const exposition *e, const char *name, const char *labels);

/* NULL: there is none. */
const exposition_sample *exposition_find(const exposition *e, const char *name, const char *labels);

#endif
