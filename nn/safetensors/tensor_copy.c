#include "nn/safetensors/tensor_copy.h"

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

static fl_status copy_straight(int64_t n, const fl_tensor_ends *ends, float *room)
{
    for (int64_t done = 0; done < n; done += FL_TENSOR_TILE) {
        int64_t now = at_most(n - done, FL_TENSOR_TILE);
        FL_TRY(ends->read(ends->self, done, now, room));
        FL_TRY(ends->write(ends->self, done, now, room));
    }
    return FL_OK;
}

/* A tile is whole rows, or a part of one row, so that it is read at once. Each of its columns is a
 * part of a row of the target. */
typedef struct tile {
    int64_t row, col, n_rows, n_cols;
} tile;

static fl_status copy_tile(int64_t rows, int64_t cols, const tile *t, const fl_tensor_ends *ends,
                           float *room)
{
    float *turned = room + FL_TENSOR_TILE;
    FL_TRY(ends->read(ends->self, t->row * cols + t->col, t->n_rows * t->n_cols, room));
    for (int64_t c = 0; c < t->n_cols; c++) {
        for (int64_t r = 0; r < t->n_rows; r++) {
            turned[c * t->n_rows + r] = room[r * t->n_cols + c];
        }
        FL_TRY(ends->write(ends->self, (t->col + c) * rows + t->row, t->n_rows,
                           turned + c * t->n_rows));
    }
    return FL_OK;
}

fl_status fl_tensor_copy(int64_t rows, int64_t cols, bool transposed, const fl_tensor_ends *ends,
                         float *room)
{
    if (!transposed) {
        return copy_straight(rows * cols, ends, room);
    }
    const int64_t n_cols = at_most(cols, FL_TENSOR_TILE), n_rows = FL_TENSOR_TILE / n_cols;
    for (int64_t row = 0; row < rows; row += n_rows) {
        for (int64_t col = 0; col < cols; col += n_cols) {
            const tile t = {row, col, at_most(rows - row, n_rows), at_most(cols - col, n_cols)};
            FL_TRY(copy_tile(rows, cols, &t, ends, room));
        }
    }
    return FL_OK;
}
