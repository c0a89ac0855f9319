/* Rows moved about: gather and scatter, patches, and the sequence that a ViT starts from. */
#include "device/cpu/cpu.h"

#include <string.h>

fl_status fl__cpu_gather_rows(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, const float *in,
                              const int32_t *index, int64_t n_rows, int64_t width, float *y)
{
    for (int64_t i = 0; i < n_rows; i++) {
        memcpy(y + i * width, in + index[i] * width, (size_t)width * sizeof *y);
    }
    return FL_OK;
}

fl_status fl__cpu_scatter_rows(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, const float *in,
                               const int32_t *index, int64_t n_rows, int64_t width, float *y,
                               int64_t total_rows)
{
    memset(y, 0, (size_t)(total_rows * width) * sizeof *y);
    for (int64_t i = 0; i < n_rows; i++) {
        memcpy(y + index[i] * width, in + i * width, (size_t)width * sizeof *y);
    }
    return FL_OK;
}

/* One patch: its rows of every channel, one after another. */
static void cut_patch(const float *image, int64_t channels, int64_t height, int64_t width,
                      int64_t patch, float *y)
{
    for (int64_t channel = 0; channel < channels; channel++) {
        for (int64_t row = 0; row < patch; row++) {
            memcpy(y, image + (channel * height + row) * width, (size_t)patch * sizeof *y);
            y += patch;
        }
    }
}

fl_status fl__cpu_patchify(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, const float *images,
                           int64_t n, int64_t channels, int64_t height, int64_t width,
                           int64_t patch, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        const float *image = images + i * channels * height * width;
        for (int64_t top = 0; top < height; top += patch) {
            for (int64_t left = 0; left < width; left += patch) {
                cut_patch(image + top * width + left, channels, height, width, patch, y);
                y += channels * patch * patch;
            }
        }
    }
    return FL_OK;
}

fl_status fl__cpu_vit_assemble(fl_device *d, FL__UNUSED fl_stream *s, const float *patches,
                               const float *cls, const float *pos, int64_t n, int64_t n_patches,
                               int64_t dim, float *y)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    for (int64_t i = 0; i < n; i++) {
        cpu->isa->add(cls, pos, y, dim);
        cpu->isa->add(patches + i * n_patches * dim, pos + dim, y + dim, n_patches * dim);
        y += (n_patches + 1) * dim;
    }
    return FL_OK;
}

fl_status fl__cpu_vit_assemble_backward(fl_device *d, FL__UNUSED fl_stream *s, const float *grad_y,
                                        int64_t n, int64_t n_patches, int64_t dim,
                                        float *grad_patches, float *grad_cls, float *grad_pos)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    int64_t row_size = (n_patches + 1) * dim;
    if (grad_patches != NULL) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(grad_patches + i * n_patches * dim, grad_y + i * row_size + dim,
                   (size_t)(n_patches * dim) * sizeof *grad_y);
        }
    }
    if (grad_cls != NULL) {
        cpu->isa->column_sums(grad_y, row_size, grad_cls, n, dim);
    }
    if (grad_pos != NULL) {
        cpu->isa->column_sums(grad_y, row_size, grad_pos, n, row_size);
    }
    return FL_OK;
}
