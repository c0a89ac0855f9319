/* Shapes and ragged tensors. */
#ifndef FROSTLINE_TENSOR_H
#define FROSTLINE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a worker computes on. FL_DEVICE_ASYNC_TEST is for tests of Frostline and of plugins: it
 * computes what a CPU does, but its memory is its own and its work is asynchronous, as with a GPU.
 */
typedef enum fl_device_kind {
    FL_DEVICE_CPU = 0,
    FL_DEVICE_ASYNC_TEST = 1,
    FL_DEVICE_CUDA = 2
} fl_device_kind;

typedef enum fl_dtype { FL_F32 = 0, FL_I32 = 1, FL_BF16 = 2 } fl_dtype;

/* Bytes of one element. */
size_t fl_dtype_size(fl_dtype dtype);

/* "fp32", "int32" or "bf16"; static. */
const char *fl_dtype_name(fl_dtype dtype);

/* The shape of one sample at a boundary between layers: `tokens` rows of `width` elements.
 * An image of 28 x 28 pixels enters as 1 row of 784 and is 17 rows of C after patch embedding.
 * n_ids: for FL_I32, a data set promises that every element is 0 .. n_ids - 1; 0: nothing promised
 */
typedef struct fl_shape {
    int64_t tokens;
    int64_t width;
    fl_dtype dtype;
    int32_t n_ids;
} fl_shape;

/* A ragged batch: the rows of all samples one after another, never padded.
 * data     [n_tokens, width], row-major, on the device that computes
 * offsets  [n_samples + 1]: sample s has the rows offsets[s] .. offsets[s + 1] - 1; offsets[0] = 0
 *          and offsets[n_samples] = n_tokens. Host memory
 * offsets_device  the same in device memory: what kernels read. Where the device computes in host
 *          memory, both are one pointer
 * A tensor borrows all three; n_samples and n_tokens may be 0. */
typedef struct fl_tensor {
    void *data;
    const int32_t *offsets;
    const int32_t *offsets_device;
    int64_t n_samples;
    int64_t n_tokens;
    int64_t width;
    fl_dtype dtype;
} fl_tensor;

/* The elements of an FL_F32 tensor. */
static inline float *fl_f32(const fl_tensor *t)
{
    return (float *)t->data;
}

/* The elements of an FL_I32 tensor. */
static inline int32_t *fl_i32(const fl_tensor *t)
{
    return (int32_t *)t->data;
}

/* One layer parameter on its device. `version` goes up whenever `data` changes, and `pack` is the
 * device's own: a device may keep a packed copy there. No device does so yet. */
typedef struct fl_weight {
    float *data; /* [rows, cols] */
    int64_t rows;
    int64_t cols;
    uint64_t version;
    void *pack;
} fl_weight;

#ifdef __cplusplus
}
#endif
#endif
