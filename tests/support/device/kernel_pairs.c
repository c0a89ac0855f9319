#include "support/device/kernel_pairs.h"

#include "support/device/pair_call.h"

#include <stddef.h>

static const pair_kernel *const groups[] = {pair_products, pair_passes, pair_rows, pair_losses};

/* The entry without a name behind the last. */
static const pair_kernel *kernel_at(int index)
{
    static const pair_kernel none = {NULL, NULL, false};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (const pair_kernel *k = groups[g]; k->name != NULL; k++) {
            if (index-- == 0) {
                return k;
            }
        }
    }
    return &none;
}

const char *pair_kernel_at(int index)
{
    return kernel_at(index)->name;
}

bool pair_kernel_has_shapes(int index)
{
    return !kernel_at(index)->once;
}

const pair_shape *pair_shape_at(int index)
{
    static const pair_shape shapes[] = {
        {"three samples", 3, {0, 9, 10, 21}, 2, 22},
        {"one token", 1, {0, 1}, 1, 1},
        {"no token", 1, {0, 0}, 2, 8},
        {"empty samples", 4, {0, 0, 33, 33, 70}, 1, 64},
        {"a row behind whole tiles", 2, {0, 33, 98}, 3, 96},
        {"a wide head", 1, {0, 37}, 1, 100},
        {NULL, 0, {0}, 0, 0},
    };
    return shapes[index].name == NULL ? NULL : &shapes[index];
}

fl_status pair_run(int index, const pair_shape *shape, fl_dtype dtype, fl_device *got,
                   fl_device *want, double tolerance)
{
    pair_call a = {.device = got, .dtype = dtype, .shape = shape};
    pair_call b = {.device = want, .dtype = FL_F32, .rounded = dtype == FL_BF16, .shape = shape};
    kernel_at(index)->run(&a);
    if (a.status == FL_OK) {
        kernel_at(index)->run(&b);
    }
    fl_status status = a.status == FL_OK ? b.status : a.status;
    status = status == FL_OK ? pair_download(&a) : status;
    status = status == FL_OK ? pair_download(&b) : status;
    for (int i = 0; i < b.n_arrays && status == FL_OK; i++) {
        status = pair_compare(&a, &b, i, tolerance);
    }
    pair_drop(&a);
    pair_drop(&b);
    return status;
}
