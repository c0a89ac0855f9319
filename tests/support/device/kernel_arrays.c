#include "support/device/kernel_arrays.h"

#include "device/random/random.h"

static const int32_t row_offsets[SAMPLES + 1] = {0, 9, 10, TOKENS};
static const int64_t sample_ids[SAMPLES] = {70, 4, INT64_C(5000000000)};

void *kernel_array(kernel_rig *r, const void *from, size_t size_bytes)
{
    void *memory = NULL;
    if (r->status == FL_OK && r->n_arrays == CASE_ARRAYS_MAX) {
        r->status = fl_fail(FL_EINTERNAL, "a case has more than %d arrays", CASE_ARRAYS_MAX);
    }
    if (r->status == FL_OK) {
        r->status = fl_device_alloc(r->device, size_bytes, "array", &memory);
    }
    if (r->status != FL_OK) {
        return NULL;
    }
    r->array[r->n_arrays].memory = memory;
    r->array[r->n_arrays++].size_bytes = size_bytes;
    r->status = r->device->ops->copy_in(r->device, r->stream, memory, from, size_bytes);
    fl_status waited = r->device->ops->sync(r->device, r->stream);
    r->status = r->status == FL_OK ? waited : r->status;
    return memory;
}

float *kernel_floats(kernel_rig *r, int64_t n)
{
    float host[4096];
    for (int64_t i = 0; i < n && i < 4096; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {(uint32_t)r->n_arrays, 7};
        uint32_t word[4];
        fl_philox(counter, key, word);
        host[i] = (2.0f * fl_unit(word[0]) - 1.0f) * (word[1] % 8 == 0 ? 1e-39f : 1.0f);
    }
    if (r->status == FL_OK && n > 4096) {
        r->status = fl_fail(FL_EINTERNAL, "%lld floats in a case", (long long)n);
    }
    return kernel_array(r, host, (size_t)(n > 4096 ? 0 : n) * sizeof *host);
}

double *kernel_doubles(kernel_rig *r, int64_t n)
{
    double host[8] = {0.5, -0.25, 3.0, 0.0, 1.0, 2.0, -7.0, 0.125};
    return kernel_array(r, host, (size_t)(n > 8 ? 8 : n) * sizeof *host);
}

int32_t *kernel_ints(kernel_rig *r, int64_t n, int32_t below)
{
    int32_t host[64];
    for (int64_t i = 0; i < n && i < 64; i++) {
        host[i] = (int32_t)(i * 5 + 3) % below;
    }
    return kernel_array(r, host, (size_t)(n > 64 ? 64 : n) * sizeof *host);
}

fl_weight kernel_weight(kernel_rig *r, int64_t rows, int64_t cols)
{
    return (fl_weight){
        .data = kernel_floats(r, rows * cols), .rows = rows, .cols = cols, .version = 1};
}

fl_offsets kernel_offsets(kernel_rig *r)
{
    return (fl_offsets){
        .host = row_offsets, .device = kernel_array(r, row_offsets, sizeof row_offsets), SAMPLES};
}

fl_mask kernel_mask(kernel_rig *r)
{
    static const uint64_t epoch_key = 0x123456789abcdef;
    return (fl_mask){.p = 0.3f,
                     .stream = 2,
                     .layer = 5,
                     .sample_ids = sample_ids,
                     .sample_ids_device = kernel_array(r, sample_ids, sizeof sample_ids),
                     .epoch_key_device = kernel_array(r, &epoch_key, sizeof epoch_key)};
}
