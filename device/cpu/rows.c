/* Rows moved about: gather and scatter, patches, and the sequence that a ViT starts from. */
#include "device/cpu/wide.h"

#include <string.h>

fl_status fl__cpu_gather_rows(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s,
                              const fl_gather_rows_args *a)
{
    size_t row = (size_t)a->width * fl_dtype_size(a->dtype);
    for (int64_t i = 0; i < a->n_rows; i++) {
        memcpy((char *)a->y + (size_t)i * row, (const char *)a->in + (size_t)a->index[i] * row,
               row);
    }
    return FL_OK;
}

fl_status fl__cpu_scatter_rows(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s,
                               const fl_scatter_rows_args *a)
{
    size_t row = (size_t)a->width * fl_dtype_size(a->dtype);
    memset(a->y, 0, (size_t)a->total_rows * row);
    for (int64_t i = 0; i < a->n_rows; i++) {
        memcpy((char *)a->y + (size_t)a->index[i] * row, (const char *)a->in + (size_t)i * row,
               row);
    }
    return FL_OK;
}

/* One patch of an image: its rows of every channel, one after another. */
static void move_patch(const fl_patchify_args *a, char *image, char *patch, bool back)
{
    size_t element = fl_dtype_size(a->dtype), run = (size_t)a->patch * element;
    for (int64_t channel = 0; channel < a->channels; channel++) {
        for (int64_t row = 0; row < a->patch; row++) {
            char *pixels = image + (size_t)((channel * a->height + row) * a->width) * element;
            memcpy(back ? pixels : patch, back ? patch : pixels, run);
            patch += run;
        }
    }
}

static void move_patches(const fl_patchify_args *a, bool back)
{
    size_t element = fl_dtype_size(a->dtype);
    size_t size = (size_t)(a->channels * a->patch * a->patch) * element;
    char *patch = a->patches;
    for (int64_t i = 0; i < a->n; i++) {
        char *image =
            (char *)a->images + (size_t)(i * a->channels * a->height * a->width) * element;
        for (int64_t top = 0; top < a->height; top += a->patch) {
            for (int64_t left = 0; left < a->width; left += a->patch) {
                move_patch(a, image + (size_t)(top * a->width + left) * element, patch, back);
                patch += size;
            }
        }
    }
}

fl_status fl__cpu_patchify(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s,
                           const fl_patchify_args *a)
{
    move_patches(a, false);
    return FL_OK;
}

fl_status fl__cpu_patchify_backward(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s,
                                    const fl_patchify_args *a)
{
    move_patches(a, true);
    return FL_OK;
}

/* One sample, in fp32. */
static void assemble_sample(const fl__cpu *cpu, const fl_vit_assemble_args *a, const float *patches,
                            float *y)
{
    const float *pos = a->pos->data;
    cpu->isa->add(a->cls->data, pos, y, a->dim);
    cpu->isa->add(patches, pos + a->dim, y + a->dim, a->n_patches * a->dim);
}

fl_status fl__cpu_vit_assemble(fl_device *d, FL__UNUSED fl_stream *s, const fl_vit_assemble_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t n_in = a->n_patches * a->dim, n_out = n_in + a->dim;
    if (a->dtype == FL_BF16) {
        FL_TRY(fl__cpu_reserve(cpu, (size_t)n_out * sizeof(float)));
    }
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->n, 1, d->n_threads, t);
        for (int64_t i = r.begin; i < r.end; i++) {
            const void *patches = fl__in_at(a->dtype, a->patches, i * n_in);
            void *y = fl__out_at(a->dtype, a->y, i * n_out);
            if (a->dtype == FL_BF16) {
                float *wide = fl__cpu_scratch(cpu, t);
                cpu->isa->widen(patches, wide + a->dim, n_in);
                assemble_sample(cpu, a, wide + a->dim, wide);
                cpu->isa->narrow(wide, y, n_out);
            } else {
                assemble_sample(cpu, a, patches, y);
            }
        }
    }
    return FL_OK;
}

static fl_status assemble_backward_fp32(fl_device *d, const void *args)
{
    const fl_vit_assemble_backward_args *a = args;
    const fl__cpu *cpu = fl__cpu_of(d);
    const float *grad_y = a->grad_y;
    int64_t patches_size = a->n_patches * a->dim, row_size = patches_size + a->dim;
    for (int64_t i = 0; i < a->n && a->grad_patches != NULL; i++) {
        memcpy((float *)a->grad_patches + i * patches_size, grad_y + i * row_size + a->dim,
               (size_t)patches_size * sizeof *grad_y);
    }
    if (a->grad_cls != NULL) {
        cpu->isa->column_sums(grad_y, row_size, a->grad_cls, a->n, a->dim);
    }
    if (a->grad_pos != NULL) {
        cpu->isa->column_sums(grad_y, row_size, a->grad_pos, a->n, row_size);
    }
    return FL_OK;
}

fl_status fl__cpu_vit_assemble_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                        const fl_vit_assemble_backward_args *a)
{
    if (a->dtype == FL_F32) {
        return assemble_backward_fp32(d, a);
    }
    int64_t patches_size = a->n_patches * a->dim;
    fl_vit_assemble_backward_args part = *a;
    part.dtype = FL_F32;
    const fl__wide_call call = {.args = &part,
                                .rows = &part.n,
                                .field = {{&part.grad_y, patches_size + a->dim, FL__WIDE_READ},
                                          {&part.grad_patches, patches_size, FL__WIDE_WRITE}},
                                .run = assemble_backward_fp32};
    return fl__cpu_run_wide(d, &call);
}
