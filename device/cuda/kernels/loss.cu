/* Losses. A block takes one row and leaves what it found in the workspace; one more block adds the
 * rows up in an order that depends on their number alone. */
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/launches.h"

#include <math.h>

/* ---- one row ---- */

/* What one row of logits gives. */
struct row_result {
    double loss, correct, counted, positive, true_positive;
};

/* The largest logit and where it first stands. */
struct peak {
    float value;
    int64_t at;
};

static __device__ __forceinline__ peak higher(peak a, peak b)
{
    return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
}

/* Shared memory of a block for its peaks and sums. */
struct row_room {
    peak peaks[WARP];
    float sums[WARP];
};

static __device__ peak block_peak(peak p, peak *part)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
        peak other;
        other.value = __shfl_xor_sync(ALL_LANES, p.value, lanes);
        other.at = __shfl_xor_sync(ALL_LANES, p.at, lanes);
        p = higher(p, other);
    }
    if (threadIdx.x % WARP == 0) {
        part[threadIdx.x / WARP] = p;
    }
    __syncthreads();
    p = part[0];
    for (unsigned i = 1; i < blockDim.x / WARP; i++) {
        p = higher(p, part[i]);
    }
    return p;
}

/* Rows of n logits, `stride` apart, against `target`: grad may be logits. Every thread reads the
 * target's logit before the barrier of the sum, behind which the gradient is written. */
template <typename T>
static __device__ void classify_row(const T *logits, int64_t stride, int64_t n, int32_t target,
                                    float grad_scale, T *grad, row_room *room, row_result *result)
{
    peak top = {-INFINITY, 0};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        top = higher(top, peak{load(logits + i * stride), i});
    }
    top = block_peak(top, room->peaks);
    float of_target = load(logits + target * stride), sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        sum += expf(load(logits + i * stride) - top.value);
    }
    double total = (double)block_sum(sum, room->sums);
    if (grad != nullptr) {
        float scale = (float)((double)grad_scale / total);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            float share = expf(load(logits + i * stride) - top.value) * scale;
            store(grad + i * stride, i == target ? share - grad_scale : share);
        }
    }
    if (threadIdx.x == 0) {
        double positive = top.at == 1 ? 1.0 : 0.0, correct = top.at == target ? 1.0 : 0.0;
        *result = row_result{log(total) - ((double)of_target - (double)top.value), correct, 1.0,
                             positive, positive * correct};
    }
}

template <typename T>
static __device__ void clear_row(T *grad, int64_t stride, int64_t first, int64_t n)
{
    for (int64_t i = first + threadIdx.x; grad != nullptr && i < n; i += blockDim.x) {
        store(grad + i * stride, 0.0f);
    }
}

/* A row of n logits, or one that is ignored. */
template <typename T>
static __device__ void lose_row(const T *logits, int64_t stride, int64_t n, int32_t target,
                                float grad_scale, T *grad, row_result *result)
{
    FL_SHARED(row_room, room, [1]);
    if (target < 0 || n == 0) { /* the same for the whole block */
        clear_row(grad, stride, 0, n);
        if (threadIdx.x == 0) {
            *result = row_result{0.0, 0.0, 0.0, 0.0, 0.0};
        }
    } else {
        classify_row(logits, stride, n, target, grad_scale, grad, room, result);
    }
}

/* ---- all rows ---- */

enum { SUM_THREADS = 256 };

static __device__ void add_total(double value, double *part, double *sum)
{
    double total = block_sum(value, part);
    if (threadIdx.x == 0 && sum != nullptr) {
        *sum += total;
    }
}

/* Where the sums over rows go; each may be NULL. */
struct loss_sums {
    double *loss, *correct, *counted, *positive, *true_positive;
};

static __global__ void add_rows_kernel(const row_result *rows, int64_t m, loss_sums to)
{
    FL_SHARED(double, part, [WARP]);
    row_result total = {0.0, 0.0, 0.0, 0.0, 0.0};
    for (int64_t i = threadIdx.x; i < m; i += SUM_THREADS) {
        total.loss += rows[i].loss;
        total.correct += rows[i].correct;
        total.counted += rows[i].counted;
        total.positive += rows[i].positive;
        total.true_positive += rows[i].true_positive;
    }
    add_total(total.loss, part, to.loss);
    add_total(total.correct, part, to.correct);
    add_total(total.counted, part, to.counted);
    add_total(total.positive, part, to.positive);
    add_total(total.true_positive, part, to.true_positive);
}

/* Room for a result of each row; NULL: q->needed_bytes are missing. */
static row_result *take_rows(fl__cuda_queue *q, int64_t m)
{
    q->needed_bytes = (size_t)(m < 1 ? 1 : m) * sizeof(row_result);
    return q->workspace_bytes < q->needed_bytes ? nullptr : (row_result *)q->workspace;
}

static int add_rows(const fl__cuda_queue *q, int64_t m, loss_sums to)
{
    return launch(add_rows_kernel, dim3(1), SUM_THREADS, q->stream,
                  (const row_result *)q->workspace, m, to);
}

/* Whole warps for n columns, at most 256 threads. */
static unsigned threads_for(int64_t n)
{
    int64_t warps = parts_of(n, WARP);
    return (unsigned)(warps < 1 ? 1 : warps > 8 ? 8 : warps) * WARP;
}

/* ---- cross-entropy of rows ---- */

template <typename T>
static __global__ void cross_entropy_kernel(const T *logits, const int32_t *targets, int64_t n,
                                            int64_t n_classes, float grad_scale, T *grad,
                                            row_result *rows)
{
    int64_t at = blockIdx.x * n;
    T *grad_row = grad == nullptr ? nullptr : grad + at;
    lose_row(logits + at, 1, n_classes, targets[blockIdx.x], grad_scale, grad_row,
             rows + blockIdx.x);
    clear_row(grad_row, 1, n_classes, n);
}

int fl__cuda_cross_entropy(fl__cuda_queue *q, const fl_cross_entropy_args *a)
{
    int64_t n_classes = a->n_classes > 0 ? a->n_classes : a->n;
    row_result *rows = take_rows(q, a->m);
    if (rows == nullptr) {
        return FL__CUDA_MORE;
    }
    FOR_DTYPE(a->dtype,
              LAUNCH_TRY(launch(cross_entropy_kernel<T>, dim3((unsigned)a->m), threads_for(a->n),
                                q->stream, (const T *)a->logits, a->targets, a->n, n_classes,
                                a->grad_scale, (T *)a->grad, rows)));
    return add_rows(
        q, a->m, loss_sums{a->loss, a->n_correct, a->n_counted, a->n_positive, a->n_true_positive});
}

/* ---- cross-entropy over the tokens of a sample, for each column ---- */

template <typename T>
static __global__ void span_kernel(const T *logits, const int32_t *offsets, const int32_t *targets,
                                   int64_t columns, float grad_scale, T *grad, row_result *rows)
{
    int64_t sample = blockIdx.x / columns, column = blockIdx.x % columns;
    int64_t first = offsets[sample], n = offsets[sample + 1] - first;
    int64_t at = first * columns + column;
    lose_row(logits + at, columns, n, targets[blockIdx.x], grad_scale,
             grad == nullptr ? nullptr : grad + at, rows + blockIdx.x);
}

int fl__cuda_span_cross_entropy(fl__cuda_queue *q, const fl_span_cross_entropy_args *a)
{
    int64_t m = a->offsets.n_samples * a->columns;
    row_result *rows = take_rows(q, m);
    if (rows == nullptr) {
        return FL__CUDA_MORE;
    }
    FOR_DTYPE(a->dtype, LAUNCH_TRY(launch(span_kernel<T>, dim3((unsigned)m), 4 * WARP, q->stream,
                                          (const T *)a->logits, a->offsets.device, a->targets,
                                          a->columns, a->grad_scale, (T *)a->grad, rows)));
    return add_rows(q, m, loss_sums{a->loss, a->n_correct, a->n_counted, nullptr, nullptr});
}

/* ---- squared error ---- */

/* Elements of a block, whose errors are one result: its loss is the sum of squares, its `correct`
 * the sum of sizes. */
enum { ERRORS = 4096 };

template <typename T>
static __global__ void squared_error_kernel(const T *out, const float *targets, float grad_scale,
                                            T *grad, int64_t n, row_result *parts)
{
    FL_SHARED(double, part, [WARP]);
    int64_t first = (int64_t)blockIdx.x * ERRORS, end = first + ERRORS < n ? first + ERRORS : n;
    double square = 0.0, absolute = 0.0;
    for (int64_t i = first + threadIdx.x; i < end; i += SUM_THREADS) {
        double error = (double)load(out + i) - (double)targets[i];
        square += error * error;
        absolute += fabs(error);
        if (grad != nullptr) {
            store(grad + i, 2.0f * grad_scale * (float)error);
        }
    }
    square = block_sum(square, part);
    absolute = block_sum(absolute, part);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = row_result{square, absolute, 0.0, 0.0, 0.0};
    }
}

int fl__cuda_squared_error(fl__cuda_queue *q, const fl_squared_error_args *a)
{
    int64_t n_parts = parts_of(a->n, ERRORS);
    row_result *parts = take_rows(q, n_parts);
    if (parts == nullptr) {
        return FL__CUDA_MORE;
    }
    FOR_DTYPE(a->dtype, LAUNCH_TRY(launch(squared_error_kernel<T>, dim3((unsigned)n_parts),
                                          SUM_THREADS, q->stream, (const T *)a->out, a->targets,
                                          a->grad_scale, (T *)a->grad, a->n, parts)));
    return add_rows(q, n_parts,
                    loss_sums{a->square_sum, a->absolute_sum, nullptr, nullptr, nullptr});
}
