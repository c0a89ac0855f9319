#include "support/device/pair_call.h"

#include "device/cpu/bf16.h"
#include "device/random/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sample_ids[] = {70, 4, INT64_C(5000000000), 9, 11};

static size_t size_of(const pair_call *r, pair_element e)
{
    static const size_t sizes[] = {0, sizeof(float), sizeof(double), sizeof(int32_t),
                                   sizeof(int64_t)};
    return e == PAIR_VALUES ? fl_dtype_size(r->dtype) : sizes[e];
}

static size_t bytes_of(const pair_call *r, int array)
{
    return (size_t)r->array[array].n * size_of(r, r->array[array].element);
}

void *pair_array(pair_call *r, pair_element e, int64_t n)
{
    void *memory = NULL, *host = NULL;
    if (r->status == FL_OK && r->n_arrays == PAIR_ARRAYS_MAX) {
        r->status = fl_fail(FL_EINTERNAL, "a case has more than %d arrays", PAIR_ARRAYS_MAX);
    }
    if (r->status == FL_OK) {
        r->status = fl_device_alloc(r->device, (size_t)n * size_of(r, e), "array", &memory);
    }
    if (r->status == FL_OK) {
        host = calloc((size_t)n + 1, sizeof(double));
        r->array[r->n_arrays].memory = memory;
        r->array[r->n_arrays].host = host;
        r->array[r->n_arrays].n = n;
        r->array[r->n_arrays++].element = e;
        r->status = host == NULL ? fl_fail(FL_ENOMEM, "no memory") : FL_OK;
    }
    return host;
}

void *pair_upload(pair_call *r)
{
    const fl_device_ops *ops = r->device->ops;
    int last = r->n_arrays - 1;
    if (r->status == FL_OK) {
        r->status = ops->copy_in(r->device, NULL, r->array[last].memory, r->array[last].host,
                                 bytes_of(r, last));
    }
    if (r->status == FL_OK) {
        r->status = ops->sync(r->device, NULL);
    }
    return r->status == FL_OK ? r->array[last].memory : NULL;
}

/* Uniform in [-1, 1), a function of the array's number and the place. */
static float drawn(const pair_call *r, int64_t i)
{
    const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {(uint32_t)r->n_arrays, 7};
    uint32_t word[4];
    fl_philox(counter, key, word);
    return 2.0f * fl_unit(word[0]) - 1.0f;
}

float *pair_floats(pair_call *r, int64_t n)
{
    float *x = pair_array(r, PAIR_FLOATS, n);
    for (int64_t i = 0; i < n && x != NULL; i++) {
        x[i] = drawn(r, i);
    }
    return pair_upload(r);
}

void *pair_values(pair_call *r, int64_t n)
{
    void *memory = pair_array(r, PAIR_VALUES, n);
    for (int64_t i = 0; i < n && memory != NULL; i++) {
        float x = drawn(r, i);
        uint16_t half;
        fl_bf16_narrow(&x, 1, &half);
        if (r->dtype == FL_BF16) {
            ((uint16_t *)memory)[i] = half;
        } else if (r->rounded) {
            fl_bf16_widen(&half, 1, (float *)memory + i);
        } else {
            ((float *)memory)[i] = x;
        }
    }
    return pair_upload(r);
}

double *pair_doubles(pair_call *r, int64_t n)
{
    double *x = pair_array(r, PAIR_DOUBLES, n);
    for (int64_t i = 0; i < n && x != NULL; i++) {
        x[i] = 0.5;
    }
    return pair_upload(r);
}

int32_t *pair_ints(pair_call *r, int64_t n, int64_t below, bool ignored)
{
    int32_t *x = pair_array(r, PAIR_INTS, n);
    for (int64_t i = 0; i < n && x != NULL; i++) {
        x[i] = ignored && i % 7 == 3 ? -1 : (int32_t)((i * 5 + 3) % below);
    }
    return pair_upload(r);
}

fl_weight *pair_weight(pair_call *r, int64_t rows, int64_t cols)
{
    fl_weight *w = &r->weights[r->n_weights++];
    *w = (fl_weight){.data = pair_floats(r, rows * cols), .rows = rows, .cols = cols, .version = 1};
    return w;
}

int64_t pair_tokens(const pair_call *r)
{
    return r->shape->offsets[r->shape->n_samples];
}

int64_t pair_size(const pair_call *r)
{
    return pair_tokens(r) * r->shape->width;
}

fl_offsets pair_offsets(pair_call *r)
{
    int64_t n = r->shape->n_samples + 1;
    int32_t *copy = pair_array(r, PAIR_INTS, n);
    if (copy != NULL) {
        memcpy(copy, r->shape->offsets, (size_t)n * sizeof *copy);
    }
    return (fl_offsets){.host = r->shape->offsets, .device = pair_upload(r), .n_samples = n - 1};
}

fl_mask pair_mask(pair_call *r)
{
    int64_t n = r->shape->n_samples;
    int64_t *copy = pair_array(r, PAIR_LONGS, n);
    if (copy != NULL) {
        memcpy(copy, sample_ids, (size_t)n * sizeof *copy);
    }
    const int64_t *ids_device = pair_upload(r);
    int64_t *epoch_key = pair_array(r, PAIR_LONGS, 1);
    if (epoch_key != NULL) {
        *epoch_key = 0x123456789abcdef;
    }
    return (fl_mask){.p = 0.3f,
                     .stream = 2,
                     .layer = 5,
                     .sample_ids = sample_ids,
                     .sample_ids_device = ids_device,
                     .epoch_key_device = pair_upload(r)};
}

fl_status pair_download(const pair_call *r)
{
    const fl_device_ops *ops = r->device->ops;
    for (int i = 0; i < r->n_arrays; i++) {
        FL_TRY(
            ops->copy_out(r->device, NULL, r->array[i].host, r->array[i].memory, bytes_of(r, i)));
    }
    return ops->sync(r->device, NULL);
}

static double value_at(const pair_call *r, int array, int64_t i)
{
    const void *memory = r->array[array].host;
    float wide = 0.0f;
    switch (r->array[array].element) {
    case PAIR_VALUES:
        if (r->dtype == FL_BF16) {
            fl_bf16_widen((const uint16_t *)memory + i, 1, &wide);
            return wide;
        }
        return ((const float *)memory)[i];
    case PAIR_FLOATS:
        return ((const float *)memory)[i];
    case PAIR_DOUBLES:
        return ((const double *)memory)[i];
    case PAIR_INTS:
        return ((const int32_t *)memory)[i];
    case PAIR_LONGS:
        return (double)((const int64_t *)memory)[i];
    }
    return 0.0;
}

fl_status pair_compare(const pair_call *got, const pair_call *want, int array, double tolerance)
{
    int64_t n = want->array[array].n;
    double largest = 1.0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(value_at(want, array, i)));
    }
    for (int64_t i = 0; i < n; i++) {
        double x = value_at(got, array, i), y = value_at(want, array, i);
        if (!(fabs(x - y) <= tolerance * largest)) {
            return fl_fail(FL_EINTERNAL, "array %d, element %lld of %lld: %.9g, wanted %.9g", array,
                           (long long)i, (long long)n, x, y);
        }
    }
    return FL_OK;
}

void pair_drop(pair_call *r)
{
    for (int i = 0; i < r->n_weights; i++) {
        r->device->ops->weight_release(r->device, &r->weights[i]);
    }
    for (int i = 0; i < r->n_arrays; i++) {
        free(r->array[i].host);
        fl_device_free(r->device, r->array[i].memory, bytes_of(r, i));
    }
}
