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

/* ---- backward: no two blocks write to one row of a gradient ----
 *
 *   1. list_ids: the id of each row.
 *   2. count, fill: rows sorted into buckets by id, in their order within a bucket. A block for
 * each bucket looks at all ids.
 *   3. add: the block of the first row of an id adds all rows with it, which are in its bucket. */

/* ROWS_EACH: rows of a bucket, if no id comes often. AHEAD: rows that are read before the first of
 * them is added. */
enum { SORT_THREADS = 256, SORT_WARPS = SORT_THREADS / WARP, ROWS_EACH = 32, BUCKETS_MAX = 1024 };
enum { AHEAD = 8 };

/* In the workspace. */
struct buckets {
    int n_buckets, n_rows;
    int32_t *ids;               /* [n_rows] */
    int32_t *count, *begin;     /* [n_buckets] */
    int32_t *rows, *sorted_ids; /* [n_rows] by bucket: the row, and its id */
};

static int buckets_for(int64_t n_rows)
{
    int64_t n = parts_of(n_rows, ROWS_EACH);
    return n > BUCKETS_MAX ? (int)BUCKETS_MAX : (int)n;
}

static size_t buckets_bytes(int64_t n_rows)
{
    return (size_t)(3 * n_rows + 2 * buckets_for(n_rows)) * sizeof(int32_t);
}

static buckets buckets_in(void *workspace, int64_t n_rows)
{
    buckets b;
    b.n_buckets = buckets_for(n_rows);
    b.n_rows = (int)n_rows;
    b.ids = (int32_t *)workspace;
    b.rows = b.ids + n_rows;
    b.sorted_ids = b.rows + n_rows;
    b.count = b.sorted_ids + n_rows;
    b.begin = b.count + b.n_buckets;
    return b;
}

static __device__ __forceinline__ int bucket_of(const buckets &b, int32_t id)
{
    return (int)((uint32_t)id % (uint32_t)b.n_buckets);
}

static __global__ void list_ids_kernel(tables t, int table, const int32_t *offsets,
                                       int64_t n_samples, buckets b)
{
    int64_t row = element_here();
    if (row < b.n_rows) {
        b.ids[row] = (int32_t)id_of(&t.at[table], row, offsets, n_samples);
    }
}

static __global__ void count_kernel(buckets b)
{
    FL_SHARED(int, part, [WARP]);
    int mine = (int)blockIdx.x, n = 0;
    for (int row = (int)threadIdx.x; row < b.n_rows; row += SORT_THREADS) {
        n += bucket_of(b, b.ids[row]) == mine ? 1 : 0;
    }
    n = block_sum(n, part);
    if (threadIdx.x == 0) {
        b.count[mine] = n;
    }
}

/* How many threads of the block before this one have `flag`; *total: how many in all. */
static __device__ int count_before(bool flag, int *warps, int *total)
{
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned votes = __ballot_sync(ALL_LANES, flag);
    if (lane == 0) {
        warps[warp] = __popc(votes);
    }
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1u));
    *total = 0;
    for (unsigned w = 0; w < SORT_WARPS; w++) {
        before += w < warp ? warps[w] : 0;
        *total += warps[w];
    }
    __syncthreads();
    return before;
}

static __global__ void fill_kernel(buckets b)
{
    FL_SHARED(int, part, [WARP]);
    int mine = (int)blockIdx.x, at = 0, total;
    for (int other = (int)threadIdx.x; other < mine; other += SORT_THREADS) {
        at += b.count[other];
    }
    at = block_sum(at, part);
    if (threadIdx.x == 0) {
        b.begin[mine] = at;
    }
    for (int first = 0; first < b.n_rows; first += SORT_THREADS) {
        int row = first + (int)threadIdx.x;
        int32_t id = row < b.n_rows ? b.ids[row] : 0;
        bool here = row < b.n_rows && bucket_of(b, id) == mine;
        int place = at + count_before(here, part, &total);
        if (here) {
            b.rows[place] = row;
            b.sorted_ids[place] = id;
        }
        at += total;
    }
}

/* Whether one of the places begin .. at - 1 has the id: the whole block looks. */
static __device__ bool came_before(const int32_t *ids, int begin, int at, int32_t id, int *found)
{
    if (threadIdx.x == 0) {
        *found = 0;
    }
    __syncthreads();
    for (int other = begin + (int)threadIdx.x; other < at; other += (int)blockDim.x) {
        if (ids[other] == id) {
            atomicAdd(found, 1);
            break;
        }
    }
    __syncthreads();
    return *found != 0;
}

/* sum plus column `column` of the rows at places at .. end - 1 that have the id, in their order. */
template <typename T>
static __device__ __forceinline__ float add_rows(const buckets &b, const T *column, int64_t width,
                                                 int at, int end, int32_t id, float sum)
{
    for (; at < end; at += AHEAD) {
        float x[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            bool here = at + i < end && b.sorted_ids[at + i] == id;
            x[i] = here ? load(column + b.rows[at + i] * width) : 0.0f;
        }
        for (int i = 0; i < AHEAD; i++) {
            sum += x[i];
        }
    }
    return sum;
}

template <typename T>
static __global__ void add_kernel(const T *grad_y, buckets b, int64_t width, int64_t skipped,
                                  float *grad)
{
    FL_SHARED(int, found, [1]);
    int at = (int)blockIdx.x;
    int32_t id = b.sorted_ids[at];
    int bucket = bucket_of(b, id), begin = b.begin[bucket], end = begin + b.count[bucket];
    if (id == skipped || came_before(b.sorted_ids, begin, at, id, found)) {
        return; /* the same for the whole block */
    }
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        float *sum = grad + id * width + i;
        *sum = add_rows(b, grad_y + i, width, at, end, id, *sum);
    }
}

/* The gradient of one table. */
template <typename T>
static int add_to_table(const fl__cuda_queue *q, const fl_embed_backward_args *a, const tables &t,
                        int table, const buckets &b)
{
    const fl_offsets *o = &a->forward.offsets;
    LAUNCH_TRY(launch(list_ids_kernel, blocks_for(b.n_rows), PASS_THREADS, q->stream, t, table,
                      o->device, o->n_samples, b));
    LAUNCH_TRY(launch(count_kernel, dim3((unsigned)b.n_buckets), SORT_THREADS, q->stream, b));
    LAUNCH_TRY(launch(fill_kernel, dim3((unsigned)b.n_buckets), SORT_THREADS, q->stream, b));
    return launch(add_kernel<T>, dim3((unsigned)b.n_rows), threads_for(a->forward.width), q->stream,
                  (const T *)a->grad_y, b, a->forward.width, t.at[table].skipped, t.at[table].grad);
}

int fl__cuda_embed_backward(fl__cuda_queue *q, const fl_embed_backward_args *a)
{
    const fl_offsets *o = &a->forward.offsets;
    int64_t n_rows = o->host[o->n_samples];
    tables t = tables_of(&a->forward);
    q->needed_bytes = buckets_bytes(n_rows);
    if (q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
    buckets b = buckets_in(q->workspace, n_rows);
    for (int k = 0; k < a->forward.n_tables; k++) {
        if (t.at[k].grad != nullptr) {
            FOR_DTYPE(a->forward.dtype, LAUNCH_TRY(add_to_table<T>(q, a, t, k, b)));
        }
    }
    return 0;
}
