/* A matrix from one place to another, tile by tile, as it is or transposed: between a parameter and
 * the file that holds it the other way round. */
#ifndef FL_NN_SAFETENSORS_TENSOR_COPY_H
#define FL_NN_SAFETENSORS_TENSOR_COPY_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    FL_TENSOR_TILE = 256 * 1024,        /* elements at once */
    FL_TENSOR_ROOM = 2 * FL_TENSOR_TILE /* what a copy needs */
};

/* Elements first .. first + n - 1, at most FL_TENSOR_TILE of them. */
typedef struct fl_tensor_ends {
    fl_status (*read)(void *self, int64_t first, int64_t n, float *to);
    fl_status (*write)(void *self, int64_t first, int64_t n, const float *from);
    void *self;
} fl_tensor_ends;

/* Read the elements of [rows, cols], each once and in their order, and write them as [rows, cols],
 * or where `transposed` as [cols, rows].
 * room     [FL_TENSOR_ROOM]; of a copy that is not transposed, [FL_TENSOR_TILE] is enough
 * Returns  what `read` and `write` return */
fl_status fl_tensor_copy(int64_t rows, int64_t cols, bool transposed, const fl_tensor_ends *ends,
                         float *room) FL_MUST_CHECK;

#endif
