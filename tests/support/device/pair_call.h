/* One call of a kernel on one device, with the arrays that it takes: kernel_pairs makes the same
 * call on two. */
#ifndef FL_TESTS_SUPPORT_DEVICE_PAIR_CALL_H
#define FL_TESTS_SUPPORT_DEVICE_PAIR_CALL_H

#include "support/device/kernel_pairs.h"

enum { PAIR_ARRAYS_MAX = 24 };

typedef enum pair_element {
    PAIR_VALUES,
    PAIR_FLOATS,
    PAIR_DOUBLES,
    PAIR_INTS,
    PAIR_LONGS
} pair_element;

/* The arrays of a call on one device. PAIR_VALUES are of `dtype`. */
typedef struct pair_call {
    fl_device *device;
    fl_dtype dtype;
    bool rounded; /* values are rounded to bf16, whatever their type is */
    const pair_shape *shape;
    fl_weight weights[8];
    int n_weights, n_arrays;
    struct {
        void *memory; /* of the device */
        void *host;   /* what is copied there, and back from there in the end */
        int64_t n;
        pair_element element;
    } array[PAIR_ARRAYS_MAX];
    fl_status status; /* of the first failure */
} pair_call;

/* The arrays below are filled, and on the device; NULL after a failure, which stays in `status`. */

/* Exactly n elements, so that an access beyond the end shows. Returns the host's copy, for
 * pair_upload. */
void *pair_array(pair_call *r, pair_element e, int64_t n);

/* The last array, as the host has filled it. Returns the device's memory. */
void *pair_upload(pair_call *r);

/* Uniform in [-1, 1), a function of the array's number and the place: floats, and activations. */
float *pair_floats(pair_call *r, int64_t n);
void *pair_values(pair_call *r, int64_t n);
double *pair_doubles(pair_call *r, int64_t n);

/* In 0 .. below - 1, every seventh ignored (-1) if `ignored`. */
int32_t *pair_ints(pair_call *r, int64_t n, int64_t below, bool ignored);

fl_weight *pair_weight(pair_call *r, int64_t rows, int64_t cols);

/* Of the shape. */
int64_t pair_tokens(const pair_call *r);
int64_t pair_size(const pair_call *r);
fl_offsets pair_offsets(pair_call *r);
fl_mask pair_mask(pair_call *r);

/* After the call: all arrays to the host; they must agree within `tolerance`; the end of them. */
fl_status pair_download(const pair_call *r) FL_MUST_CHECK;
fl_status pair_compare(const pair_call *got, const pair_call *want, int array,
                       double tolerance) FL_MUST_CHECK;
void pair_drop(pair_call *r);

/* Run a kernel of the table once its arrays are there. */
#define PAIR_RUN(kernel, ...)                                                                      \
    if (r->status == FL_OK) {                                                                      \
        r->status = r->device->ops->kernel(r->device, NULL, __VA_ARGS__);                          \
    }

typedef struct pair_kernel {
    const char *name;
    void (*run)(pair_call *r);
    bool once; /* its call depends on no shape */
} pair_kernel;

/* Each ends with a name of NULL. */
extern const pair_kernel pair_products[], pair_passes[], pair_rows[], pair_losses[];

#endif
