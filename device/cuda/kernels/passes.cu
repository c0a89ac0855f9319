/* Passes over memory that treat each element by itself: PASS_ELEMENTS of them in a thread. */
#include "device/cuda/kernels/activation.cuh"
#include "device/cuda/kernels/mask.cuh"
#include "device/cuda/launches.h"
#include "device/offsets.h"

/* ---- activations ---- */

template <typename T>
static __global__ void activate_kernel(fl_activation kind, const T *in, T *y, int64_t n)
{
    int64_t first = element_here() * PASS_ELEMENTS;
    int m = count_here<PASS_ELEMENTS>(first, n);
    float x[PASS_ELEMENTS] = {};
    load_pack(in + first, m, x);
    FL_UNROLL
    for (int i = 0; i < PASS_ELEMENTS; i++) {
        x[i] = activation_of(kind, x[i]).y;
    }
    store_pack(y + first, m, x);
}

int fl__cuda_activate(fl__cuda_queue *q, const fl_activate_args *a)
{
    FOR_DTYPE(a->dtype, return launch(activate_kernel<T>, blocks_of_passes(a->n), PASS_THREADS, q->stream,
                                      a->activation, (const T *)a->in, (T *)a->y, a->n));
}

template <typename T>
static __global__ void activate_backward_kernel(fl_activation kind, const T *grad_y, const T *pre,
                                                T *grad_pre, T *y, int64_t n)
{
    int64_t first = element_here() * PASS_ELEMENTS;
    int m = count_here<PASS_ELEMENTS>(first, n);
    float x[PASS_ELEMENTS] = {}, grad[PASS_ELEMENTS] = {};
    load_pack(pre + first, m, x);
    load_pack(grad_y + first, m, grad);
    FL_UNROLL
    for (int i = 0; i < PASS_ELEMENTS; i++) {
        activated f = activation_of(kind, x[i]);
        grad[i] *= f.slope;
        x[i] = f.y;
    }
    store_pack(grad_pre + first, m, grad);
    if (y != nullptr) {
        store_pack(y + first, m, x);
    }
}

int fl__cuda_activate_backward(fl__cuda_queue *q, const fl_activate_backward_args *a)
{
    FOR_DTYPE(a->dtype, return launch(activate_backward_kernel<T>, blocks_of_passes(a->n), PASS_THREADS,
                                      q->stream, a->activation, (const T *)a->grad_y,
                                      (const T *)a->pre, (T *)a->grad_pre, (T *)a->y, a->n));
}

/* ---- sums and conversions ---- */

template <typename T> static __global__ void add_kernel(const T *a, const T *b, T *y, int64_t n)
{
    int64_t first = element_here() * PASS_ELEMENTS;
    int m = count_here<PASS_ELEMENTS>(first, n);
    float x[PASS_ELEMENTS] = {}, other[PASS_ELEMENTS] = {};
    load_pack(a + first, m, x);
    load_pack(b + first, m, other);
    FL_UNROLL
    for (int i = 0; i < PASS_ELEMENTS; i++) {
        x[i] += other[i];
    }
    store_pack(y + first, m, x);
}

int fl__cuda_add(fl__cuda_queue *q, const fl_add_args *a)
{
    FOR_DTYPE(a->dtype, return launch(add_kernel<T>, blocks_of_passes(a->n), PASS_THREADS, q->stream,
                                      (const T *)a->a, (const T *)a->b, (T *)a->y, a->n));
}

template <typename From, typename To>
static __global__ void convert_kernel(const From *in, To *y, int64_t n)
{
    int64_t first = element_here() * PASS_ELEMENTS;
    int m = count_here<PASS_ELEMENTS>(first, n);
    float x[PASS_ELEMENTS] = {};
    load_pack(in + first, m, x);
    store_pack(y + first, m, x);
}

template <typename From> static int convert_from(const fl__cuda_queue *q, const fl_convert_args *a)
{
    FOR_DTYPE(a->to, return launch(convert_kernel<From, T>, blocks_of_passes(a->n), PASS_THREADS,
                                   q->stream, (const From *)a->in, (T *)a->y, a->n));
}

int fl__cuda_convert(fl__cuda_queue *q, const fl_convert_args *a)
{
    FOR_DTYPE(a->from, return convert_from<T>(q, a));
}

static __global__ void add_to_sum_kernel(double value, double *sum)
{
    if (threadIdx.x == 0) {
        *sum += value;
    }
}

int fl__cuda_add_to_sum(fl__cuda_queue *q, double value, double *sum)
{
    return launch(add_to_sum_kernel, dim3(1), WARP, q->stream, value, sum);
}

/* ---- dropout: the bits of fl_mask, which the CPU draws as well ---- */

/* A block takes part of one sample. The 64 elements that begin at 64 k need Philox blocks 8 k to
 * 8 k + 7; a thread draws one of them, whose words have the bits of 8 elements. */
template <typename T>
static __global__ void dropout_kernel(const T *in, const int32_t *offsets,
                                      const int64_t *sample_ids, int64_t width, mask_source mask,
                                      int32_t threshold, float scale, T *y)
{
    int64_t begin = offsets[blockIdx.y] * width, n = offsets[blockIdx.y + 1] * width - begin;
    int64_t block = element_here(), first = block / 4 * 32 + block % 4 * 4;
    if (first >= n) {
        return;
    }
    uint64_t sample = (uint64_t)sample_ids[blockIdx.y], key = key_of(mask);
    fl__four_words drawn =
        fl__philox((uint32_t)block, (uint32_t)((uint64_t)block >> 32), (uint32_t)sample,
                   (uint32_t)(sample >> 32), (uint32_t)key, (uint32_t)(key >> 32));
    for (int e = 0; e < 8; e++) {
        int64_t at = first + e % 4 + e / 4 * 16;
        uint32_t word = drawn.word[e % 4], bits = e < 4 ? word & 0xFFFFu : word >> 16;
        if (at < n) {
            store(y + begin + at,
                  (int32_t)bits >= threshold ? load(in + begin + at) * scale : 0.0f);
        }
    }
}

template <typename T> static int drop(const fl__cuda_queue *q, const fl_dropout_args *a)
{
    const fl_offsets *o = &a->offsets;
    const fl_mask *m = &a->mask;
    mask_rate rate = mask_rate_of(m->p);
    dim3 grid = blocks_for(parts_of(fl__longest_sample(o) * a->width, 32) * 4);
    grid.y = (unsigned)o->n_samples;
    return launch(dropout_kernel<T>, grid, PASS_THREADS, q->stream, (const T *)a->in, o->device,
                  m->sample_ids_device, a->width, mask_source_of(m), rate.threshold, rate.scale,
                  (T *)a->y);
}

int fl__cuda_dropout(fl__cuda_queue *q, const fl_dropout_args *a)
{
    if (a->mask.p > 0.0f) {
        FOR_DTYPE(a->dtype, return drop<T>(q, a));
    }
    const fl_convert_args copy = {a->in, a->y, a->dtype, a->dtype,
                                  a->offsets.host[a->offsets.n_samples] * a->width};
    return a->y == a->in ? 0 : fl__cuda_convert(q, &copy);
}
