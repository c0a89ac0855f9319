/* The end of a step: the norm of the gradient and the optimizers, over lists of tensors. A list
 * travels in the parameters of the launch, which have room for LIST_MAX tensors; a longer one takes
 * several launches. */
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/launches.h"

/* Parameters of a launch may have 32,764 bytes, from CUDA 12.1 on. */
enum { LIST_MAX = 448, CHUNK = 4096, UPDATES = 4 /* elements that a thread updates at once */ };

/* The part of a tensor that a block takes: entry number `entry`, chunk `chunk` of it. */
struct piece {
    int entry;
    int64_t chunk;
};

/* first[i]: the block of the list's i-th entry's first chunk; first[n]: all blocks. */
struct block_list {
    int n;
    int first[LIST_MAX + 1];
};

static __device__ piece piece_of(const block_list *list, int block)
{
    int low = 0, high = list->n;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (list->first[middle] <= block) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return piece{low, block - list->first[low]};
}

/* The elements of a piece of a tensor of n. */
static __device__ __forceinline__ int64_t end_of(const piece *p, int64_t n)
{
    int64_t end = (p->chunk + 1) * CHUNK;
    return end < n ? end : n;
}

/* ---- optimizers ---- */

struct update_list {
    block_list blocks;
    fl_update entry[LIST_MAX];
};

static_assert(sizeof(update_list) + sizeof(fl_adamw_step) <= 32764, "more than a launch takes");

static __global__ void adamw_kernel(const __grid_constant__ update_list list, fl_adamw_step step)
{
    piece p = piece_of(&list.blocks, (int)blockIdx.x);
    const fl_update *u = &list.entry[p.entry];
    float *w = u->w, *m = u->moment[0], *v = u->moment[1];
    const float lr = step.lr * u->rate, keep = 1.0f - lr * u->weight_decay;
    const float rate = lr / step.correction1;
    const float root_correction2 = 1.0f / sqrtf(step.correction2);
    int64_t end = end_of(&p, u->n);
    for (int64_t i = p.chunk * CHUNK + threadIdx.x * UPDATES; i < end;
         i += PASS_THREADS * UPDATES) {
        int n = count_here<UPDATES>(i, end);
        float g[UPDATES] = {}, wi[UPDATES] = {}, mi[UPDATES] = {}, vi[UPDATES] = {};
        load_pack(u->g + i, n, g);
        load_pack(w + i, n, wi);
        load_pack(m + i, n, mi);
        load_pack(v + i, n, vi);
        FL_UNROLL
        for (int k = 0; k < UPDATES; k++) {
            float gk = g[k] * step.grad_scale;
            mi[k] = mi[k] * step.beta1 + gk * (1.0f - step.beta1);
            vi[k] = vi[k] * step.beta2 + gk * gk * (1.0f - step.beta2);
            wi[k] = wi[k] * keep - mi[k] / (sqrtf(vi[k]) * root_correction2 + step.epsilon) * rate;
        }
        store_pack(m + i, n, mi);
        store_pack(v + i, n, vi);
        store_pack(w + i, n, wi);
    }
}

static __global__ void sgd_kernel(const __grid_constant__ update_list list, fl_sgd_step step)
{
    piece p = piece_of(&list.blocks, (int)blockIdx.x);
    const fl_update *u = &list.entry[p.entry];
    float *w = u->w, *momentum = u->moment[0];
    int64_t end = end_of(&p, u->n);
    for (int64_t i = p.chunk * CHUNK + threadIdx.x; i < end; i += PASS_THREADS) {
        float g = u->g[i] * step.grad_scale + w[i] * u->weight_decay;
        float mi = momentum[i] * step.momentum + g;
        momentum[i] = mi;
        w[i] -= mi * (step.lr * u->rate);
    }
}

/* The entries from list[0] on that one launch takes. */
template <typename Entry, typename List> static int fill_list(List *out, const Entry *list, int n)
{
    out->blocks.n = n < LIST_MAX ? n : LIST_MAX;
    int blocks = 0;
    for (int i = 0; i < out->blocks.n; i++) {
        out->blocks.first[i] = blocks;
        out->entry[i] = list[i];
        blocks += (int)parts_of(list[i].n, CHUNK);
    }
    out->blocks.first[out->blocks.n] = blocks;
    return out->blocks.n;
}

template <typename Step>
static int update_all(const fl__cuda_queue *q, void (*kernel)(update_list, Step),
                      const fl_update *list, int n, const Step *step)
{
    update_list part;
    for (int done = 0; done < n;) {
        done += fill_list(&part, list + done, n - done);
        LAUNCH_TRY(launch(kernel, dim3((unsigned)part.blocks.first[part.blocks.n]), PASS_THREADS,
                          q->stream, part, *step));
    }
    return 0;
}

int fl__cuda_adamw_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_adamw_step *step)
{
    return update_all(q, adamw_kernel, list, n, step);
}

int fl__cuda_sgd_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_sgd_step *step)
{
    return update_all(q, sgd_kernel, list, n, step);
}

/* ---- sums of squares: those of the chunks, then of each tensor's chunks in their order ---- */

struct square_list {
    block_list blocks;
    fl_square_sum entry[LIST_MAX];
};

static __global__ void chunk_squares_kernel(const __grid_constant__ square_list list,
                                            double *chunks)
{
    FL_SHARED(double, part, [WARP]);
    piece p = piece_of(&list.blocks, (int)blockIdx.x);
    const fl_square_sum *s = &list.entry[p.entry];
    int64_t end = end_of(&p, s->n);
    double sum = 0.0;
    for (int64_t i = p.chunk * CHUNK + threadIdx.x; i < end; i += PASS_THREADS) {
        sum += (double)s->x[i] * (double)s->x[i];
    }
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) {
        chunks[blockIdx.x] = sum;
    }
}

/* A block for each tensor. */
static __global__ void tensor_squares_kernel(const __grid_constant__ square_list list,
                                             const double *chunks)
{
    FL_SHARED(double, part, [WARP]);
    const int *first = &list.blocks.first[blockIdx.x];
    double sum = 0.0;
    for (int i = first[0] + (int)threadIdx.x; i < first[1]; i += PASS_THREADS) {
        sum += chunks[i];
    }
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) {
        *list.entry[blockIdx.x].out = sum;
    }
}

int fl__cuda_sum_squares_many(fl__cuda_queue *q, const fl_square_sum *list, int n)
{
    square_list part;
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        most += parts_of(list[i].n, CHUNK);
    }
    q->needed_bytes = (size_t)most * sizeof(double);
    if (q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
    double *chunks = (double *)q->workspace;
    for (int done = 0; done < n;) {
        done += fill_list(&part, list + done, n - done);
        LAUNCH_TRY(launch(chunk_squares_kernel, dim3((unsigned)part.blocks.first[part.blocks.n]),
                          PASS_THREADS, q->stream, part, chunks));
        LAUNCH_TRY(launch(tensor_squares_kernel, dim3((unsigned)part.blocks.n), PASS_THREADS,
                          q->stream, part, (const double *)chunks));
    }
    return 0;
}
