/* Rows moved about: gather and scatter, patches, and the sequence that a ViT starts from. A thread
 * moves one element. */
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/launches.h"

/* ---- gather and scatter ---- */

template <typename T>
static __global__ void gather_kernel(const T *in, const int32_t *index, T *y, int64_t n,
                                     int64_t width)
{
    int64_t i = element_here();
    if (i < n) {
        y[i] = in[index[i / width] * width + i % width];
    }
}

int fl__cuda_gather_rows(fl__cuda_queue *q, const fl_gather_rows_args *a)
{
    int64_t n = a->n_rows * a->width;
    FOR_DTYPE(a->dtype, return launch(gather_kernel<T>, blocks_for(n), PASS_THREADS, q->stream,
                                      (const T *)a->in, a->index, (T *)a->y, n, a->width));
}

template <typename T> static __global__ void clear_kernel(T *y, int64_t n)
{
    int64_t i = element_here();
    if (i < n) {
        store(y + i, 0.0f);
    }
}

template <typename T>
static __global__ void scatter_kernel(const T *in, const int32_t *index, T *y, int64_t n,
                                      int64_t width)
{
    int64_t i = element_here();
    if (i < n) {
        y[index[i / width] * width + i % width] = in[i];
    }
}

template <typename T> static int scatter(const fl__cuda_queue *q, const fl_scatter_rows_args *a)
{
    int64_t all = a->total_rows * a->width, n = a->n_rows * a->width;
    LAUNCH_TRY(launch(clear_kernel<T>, blocks_for(all), PASS_THREADS, q->stream, (T *)a->y, all));
    return launch(scatter_kernel<T>, blocks_for(n), PASS_THREADS, q->stream, (const T *)a->in,
                  a->index, (T *)a->y, n, a->width);
}

int fl__cuda_scatter_rows(fl__cuda_queue *q, const fl_scatter_rows_args *a)
{
    FOR_DTYPE(a->dtype, return scatter<T>(q, a));
}

/* ---- patches ---- */

/* The pixel of element i of the patches. */
static __device__ int64_t pixel_of(const fl_patchify_args *a, int64_t i)
{
    int64_t x = i % a->patch, y = i / a->patch % a->patch;
    int64_t channel = i / (a->patch * a->patch) % a->channels;
    int64_t patch = i / (a->patch * a->patch * a->channels), across = a->width / a->patch;
    int64_t down = a->height / a->patch, image = patch / (across * down);
    int64_t row = patch / across % down * a->patch + y, column = patch % across * a->patch + x;
    return ((image * a->channels + channel) * a->height + row) * a->width + column;
}

template <typename T>
static __global__ void patchify_kernel(fl_patchify_args a, bool back, int64_t n)
{
    T *images = (T *)a.images, *patches = (T *)a.patches;
    int64_t i = element_here();
    if (i < n) {
        int64_t pixel = pixel_of(&a, i);
        if (back) {
            images[pixel] = patches[i];
        } else {
            patches[i] = images[pixel];
        }
    }
}

static int move_patches(const fl__cuda_queue *q, const fl_patchify_args *a, bool back)
{
    int64_t n = a->n * a->channels * a->height * a->width;
    FOR_DTYPE(a->dtype, return launch(patchify_kernel<T>, blocks_for(n), PASS_THREADS, q->stream,
                                      *a, back, n));
}

int fl__cuda_patchify(fl__cuda_queue *q, const fl_patchify_args *a)
{
    return move_patches(q, a, false);
}

int fl__cuda_patchify_backward(fl__cuda_queue *q, const fl_patchify_args *a)
{
    return move_patches(q, a, true);
}

/* ---- ViT ---- */

/* size: elements of one sample of y, [n_patches + 1, dim] */
template <typename T>
static __global__ void vit_assemble_kernel(const T *patches, const float *cls, const float *pos,
                                           T *y, int64_t n, int64_t size, int64_t dim)
{
    int64_t i = element_here();
    if (i < n) {
        int64_t sample = i / size, at = i % size;
        float x = at < dim ? cls[at] : load(patches + sample * (size - dim) + at - dim);
        store(y + i, x + pos[at]);
    }
}

int fl__cuda_vit_assemble(fl__cuda_queue *q, const fl_vit_assemble_args *a)
{
    int64_t size = (a->n_patches + 1) * a->dim, n = a->n * size;
    FOR_DTYPE(a->dtype, return launch(vit_assemble_kernel<T>, blocks_for(n), PASS_THREADS,
                                      q->stream, (const T *)a->patches, (const float *)a->cls->data,
                                      (const float *)a->pos->data, (T *)a->y, n, size, a->dim));
}

/* A thread takes one place of all samples, one after another: a sum in one order. */
template <typename T>
static __global__ void vit_backward_kernel(const T *grad_y, T *grad_patches, float *grad_cls,
                                           float *grad_pos, int64_t samples, int64_t size,
                                           int64_t dim)
{
    int64_t at = element_here();
    if (at >= size) {
        return;
    }
    float pos = grad_pos == nullptr ? 0.0f : grad_pos[at];
    float cls = grad_cls == nullptr || at >= dim ? 0.0f : grad_cls[at];
    for (int64_t sample = 0; sample < samples; sample++) {
        float grad = load(grad_y + sample * size + at);
        pos += grad;
        cls += grad;
        if (grad_patches != nullptr && at >= dim) {
            store(grad_patches + sample * (size - dim) + at - dim, grad);
        }
    }
    if (grad_pos != nullptr) {
        grad_pos[at] = pos;
    }
    if (grad_cls != nullptr && at < dim) {
        grad_cls[at] = cls;
    }
}

int fl__cuda_vit_assemble_backward(fl__cuda_queue *q, const fl_vit_assemble_backward_args *a)
{
    int64_t size = (a->n_patches + 1) * a->dim;
    FOR_DTYPE(a->dtype, return launch(vit_backward_kernel<T>, blocks_for(size), PASS_THREADS,
                                      q->stream, (const T *)a->grad_y, (T *)a->grad_patches,
                                      a->grad_cls, a->grad_pos, a->n, size, a->dim));
}
