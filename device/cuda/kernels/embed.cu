/* Embeddings: rows of tables by ids. */
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/launches.h"

/* A table as a kernel takes it. */
struct table_of_rows {
    const float *weight;
    float *grad;
    const int32_t *ids;
    int64_t stride, skipped; /* skipped: -1: none */
};

struct tables {
    table_of_rows at[FL_EMBED_TABLES];
};

static tables tables_of(const fl_embed_args *a)
{
    tables t = {};
    for (int k = 0; k < a->n_tables; k++) {
        const fl_embed_table *from = &a->table[k];
        t.at[k] = table_of_rows{from->weight->data, from->grad, from->ids, from->stride,
                                from->skips ? from->skipped : -1};
    }
    return t;
}

/* The place of a row within its sample. */
static __device__ int64_t place_of(const int32_t *offsets, int64_t n_samples, int64_t row)
{
    int64_t low = 0, high = n_samples; /* the last sample that begins at or before the row */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (offsets[middle] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return row - offsets[low];
}

static __device__ int64_t id_of(const table_of_rows *t, int64_t row, const int32_t *offsets,
                                int64_t n_samples)
{
    return t->ids == nullptr ? place_of(offsets, n_samples, row) : t->ids[row * t->stride];
}

static unsigned threads_for(int64_t width)
{
    int64_t warps = parts_of(width, WARP);
    return (unsigned)(warps > 8 ? 8 : warps) * WARP;
}

/* ---- forward: a block for each row ---- */

template <typename T>
static __global__ void embed_kernel(tables t, int n_tables, const int32_t *offsets,
                                    int64_t n_samples, int64_t width, T *y)
{
    int64_t row = blockIdx.x;
    const float *from[FL_EMBED_TABLES];
    for (int k = 0; k < n_tables; k++) {
        from[k] = t.at[k].weight + id_of(&t.at[k], row, offsets, n_samples) * width;
    }
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        float sum = 0.0f;
        for (int k = 0; k < n_tables; k++) {
            sum += from[k][i];
        }
        store(y + row * width + i, sum);
    }
}

int fl__cuda_embed(fl__cuda_queue *q, const fl_embed_args *a)
{
    const fl_offsets *o = &a->offsets;
    FOR_DTYPE(a->dtype, return launch(embed_kernel<T>, dim3((unsigned)o->host[o->n_samples]),
                                      threads_for(a->width), q->stream, tables_of(a), a->n_tables,
                                      o->device, o->n_samples, a->width, (T *)a->y));
}

/* ---- backward: no two blocks write to one row of a gradient ---- */

/* Whether a row before `row` has its id: the whole block looks. */
static __device__ bool came_before(const int32_t *ids, int64_t row, int32_t id, int *found)
{
    if (threadIdx.x == 0) {
        *found = 0;
    }
    __syncthreads();
    for (int64_t other = threadIdx.x; other < row; other += blockDim.x) {
        if (ids[other] == id) {
            atomicAdd(found, 1);
            break;
        }
    }
    __syncthreads();
    return *found != 0;
}

/* The block of the first row that has an id adds all rows with it, in their order. ids [n_rows]. */
template <typename T>
static __global__ void embed_backward_kernel(const T *grad_y, const int32_t *ids, int64_t n_rows,
                                             int64_t width, int64_t skipped, float *grad)
{
    FL_SHARED(int, found, [1]);
    int64_t row = blockIdx.x;
    int32_t id = ids[row];
    if (id == skipped || came_before(ids, row, id, found)) {
        return; /* the same for the whole block */
    }
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        float sum = grad[id * width + i];
        for (int64_t other = row; other < n_rows; other++) {
            if (ids[other] == id) {
                sum += load(grad_y + other * width + i);
            }
        }
        grad[id * width + i] = sum;
    }
}

/* The id of each row, as embed_backward_kernel wants them. */
static __global__ void list_ids_kernel(tables t, int table, const int32_t *offsets,
                                       int64_t n_samples, int64_t n_rows, int32_t *ids)
{
    int64_t row = element_here();
    if (row < n_rows) {
        ids[row] = (int32_t)id_of(&t.at[table], row, offsets, n_samples);
    }
}

int fl__cuda_embed_backward(fl__cuda_queue *q, const fl_embed_backward_args *b)
{
    const fl_embed_args *a = &b->forward;
    const fl_offsets *o = &a->offsets;
    int64_t n_rows = o->host[o->n_samples];
    tables t = tables_of(a);
    q->needed_bytes = (size_t)n_rows * sizeof(int32_t);
    if (q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
    int32_t *ids = (int32_t *)q->workspace;
    for (int k = 0; k < a->n_tables; k++) {
        if (t.at[k].grad == nullptr) {
            continue;
        }
        LAUNCH_TRY(launch(list_ids_kernel, blocks_for(n_rows), PASS_THREADS, q->stream, t, k,
                          o->device, o->n_samples, n_rows, ids));
        FOR_DTYPE(a->dtype, LAUNCH_TRY(launch(embed_backward_kernel<T>, dim3((unsigned)n_rows),
                                              threads_for(a->width), q->stream,
                                              (const T *)b->grad_y, (const int32_t *)ids, n_rows,
                                              a->width, t.at[k].skipped, t.at[k].grad)));
    }
    return 0;
}
