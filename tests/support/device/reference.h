/* Records of stored results of PyTorch: name [48 bytes, zero-padded], count [int32], values [count
 * float32], little-endian, until the end of the file. */
#ifndef FL_TESTS_SUPPORT_DEVICE_REFERENCE_H
#define FL_TESTS_SUPPORT_DEVICE_REFERENCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RECORD_NAME = 48, REFERENCE_MAX = 200 * 1024 };

static unsigned char reference_file[REFERENCE_MAX];
static size_t reference_bytes;

/* path: below the source directory. */
static inline void reference_load(const char *path)
{
    char at[4096];
    snprintf(at, sizeof at, "%s/%s", FL_SOURCE_DIR, path);
    FILE *f = fopen(at, "rb");
    assert_non_null(f);
    reference_bytes = fread(reference_file, 1, sizeof reference_file, f);
    assert_true(reference_bytes > 0 && reference_bytes < sizeof reference_file);
    fclose(f);
}

/* The values of the record `name`, which must be `n`. */
static inline const float *stored(const char *name, int64_t n)
{
    for (size_t at = 0; at < reference_bytes;) {
        int32_t count;
        memcpy(&count, reference_file + at + RECORD_NAME, sizeof count);
        size_t values = at + RECORD_NAME + sizeof count;
        assert_true(values + (size_t)count * sizeof(float) <= reference_bytes);
        if (strncmp((const char *)reference_file + at, name, RECORD_NAME) == 0) {
            assert_int_equal(count, n);
            return (const float *)(const void *)(reference_file + values);
        }
        at = values + (size_t)count * sizeof(float);
    }
    fail_msg("the reference has no '%s'", name);
    return NULL;
}

/* |a - b| / |b| over the whole tensor. */
static inline void assert_close(const char *name, const float *a, const float *b, int64_t n,
                                double tolerance)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        norm += (double)b[i] * (double)b[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm))) {
        fail_msg("%s: relative difference %.3g over %lld elements of norm %.4g", name,
                 sqrt(difference / norm), (long long)n, sqrt(norm));
    }
}

#endif
