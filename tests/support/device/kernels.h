/* What the kernel tests share: a device, random arrays, and comparison with a reference that is
 * computed in double. */
#ifndef FL_TESTS_SUPPORT_DEVICE_KERNELS_H
#define FL_TESTS_SUPPORT_DEVICE_KERNELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "device/device.h"
#include "device/random/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAYBE_UNUSED __attribute__((unused))

/* The instruction set that the tests are running on. */
MAYBE_UNUSED static const char *isa_now;

/* Where tests repeat their cases for each number of threads, they begin with this one.
 * ThreadSanitizer's build defines 2: a kernel on one thread has no race, and takes as long as on
 * two. */
#ifndef FEWEST_THREADS
#define FEWEST_THREADS 1
#endif

MAYBE_UNUSED static fl_device *cpu_with(int n_threads)
{
    fl_device *device = NULL;
    assert_int_equal(fl_device_cpu_create(n_threads, NULL, SIZE_MAX, &device), FL_OK);
    assert_int_equal(fl__cpu_isa_set(device, isa_now), FL_OK);
    return device;
}

/* n floats with a guard behind them that guard_check looks at: the address sanitizer does not see a
 * vector that reads or writes beyond its row into the next array. */
enum { GUARD = 16 };
#define GUARD_VALUE 12345.0f

MAYBE_UNUSED static float *floats(int64_t n)
{
    float *p = malloc((size_t)(n + GUARD) * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n + GUARD; i++) {
        p[i] = i < n ? (float)NAN : GUARD_VALUE;
    }
    return p;
}

MAYBE_UNUSED static void guard_check(const float *p, int64_t n)
{
    for (int64_t i = n; i < n + GUARD; i++) {
        assert_true(p[i] == GUARD_VALUE);
    }
}

/* Uniform in [-scale, scale), a function of (seed, place). */
MAYBE_UNUSED static float *random_floats(int64_t n, uint32_t seed, float scale)
{
    float *p = floats(n);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {seed, 7};
        uint32_t word[4];
        fl_philox(counter, key, word);
        p[i] = (2.0f * fl_unit(word[0]) - 1.0f) * scale;
    }
    return p;
}

MAYBE_UNUSED static float *zeros(int64_t n)
{
    float *p = floats(n);
    memset(p, 0, (size_t)n * sizeof *p);
    return p;
}

MAYBE_UNUSED static float *copy_of(const float *from, int64_t n)
{
    float *p = floats(n);
    memcpy(p, from, (size_t)n * sizeof *p);
    return p;
}

MAYBE_UNUSED static double *doubles(int64_t n)
{
    double *p = calloc(n < 1 ? 1 : (size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Each element within `tolerance` of the reference, relative to the largest of the reference (or
 * to `floor_size`, if that is more): the sums in a kernel round relative to their largest terms. */
MAYBE_UNUSED static void near_all(const char *what, const float *got, const double *want, int64_t n,
                                  double tolerance, double floor_size)
{
    double size = floor_size;
    for (int64_t i = 0; i < n; i++) {
        size = fabs(want[i]) > size ? fabs(want[i]) : size;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= tolerance * size)) {
            fail_msg("%s[%lld] is %.9g, the reference %.9g (of %lld, largest %.3g)", what,
                     (long long)i, (double)got[i], want[i], (long long)n, size);
        }
    }
    guard_check(got, n);
}

MAYBE_UNUSED static void same_bits(const char *what, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        if (x != y) {
            fail_msg("%s[%lld]: %.9g and %.9g differ in their bits", what, (long long)i,
                     (double)a[i], (double)b[i]);
        }
    }
}

MAYBE_UNUSED static fl_weight weight_of(float *data, int64_t rows, int64_t cols)
{
    return (fl_weight){.data = data, .rows = rows, .cols = cols, .version = 1};
}

/* Run the tests once for each instruction set that this processor has. */
MAYBE_UNUSED static int on_every_isa(int (*run)(void))
{
    static const char *const names[] = {"baseline", "avx2", "avx512", "avx512bf16"};
    int failed = 0, n_run = 0;
    fl_device *probe = NULL;
    if (fl_device_cpu_create(1, NULL, SIZE_MAX, &probe) != FL_OK) {
        return 1;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (fl__cpu_isa_set(probe, names[i]) == FL_OK) {
            fprintf(stderr, "instruction set %s\n", names[i]);
            isa_now = names[i];
            failed += run();
            n_run++;
        }
    }
    fl_device_destroy(&probe);
    return n_run == 0 ? 1 : failed;
}

/* Run a kernel with the fields of its arguments; AS: whose struct has another name. */
#define RUN(device, kernel, ...) RUN_AS(device, kernel, kernel, __VA_ARGS__)
#define RUN_AS(device, kernel, name, ...)                                                          \
    assert_int_equal((device)->ops->kernel(device, NULL, &(fl_##name##_args){__VA_ARGS__}), FL_OK)

/* A parameter of one column. */
#define VECTOR(values, n) (&(fl_weight){.data = (values), .rows = (n), .cols = 1})

MAYBE_UNUSED static fl_offsets offsets_of(const int32_t *offsets, int64_t n_samples)
{
    return (fl_offsets){.host = offsets, .device = offsets, .n_samples = n_samples};
}

#endif
