/* Resize in two passes, columns first, each with a triangle as wide as a pixel of the smaller
 * image:
 *
 *     center = (i + 0.5) scale, scale = from / to, support = max(scale, 1)
 *     weight of j = 1 - |j + 0.5 - center| / support, for j within the support; the sum is 1
 *
 * in integers with 22 bits behind the point, as Pillow computes: the result is the same to the last
 * bit. Source: Pillow, src/libImaging/Resample.c */
#include "data/images/image.h"

#include "device/system/alloc.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { PRECISION = 22 };

/* The pixels that one of the result is made of, and their weights. */
typedef struct filter {
    int64_t n;       /* the result's pixels */
    int64_t most;    /* weights of a pixel */
    int64_t *first;  /* [n] */
    int64_t *count;  /* [n] */
    int32_t *weight; /* [n, most] */
} filter;

static void fini_filter(filter *f)
{
    fl_free(f->first);
    fl_free(f->count);
    fl_free(f->weight);
}

static double triangle(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* weight [most] is written from doubles that add up to 1. */
static void set_weights(filter *f, int64_t i, int64_t from, double scale, double *exact)
{
    const double support = scale < 1 ? 1 : scale, center = ((double)i + 0.5) * scale;
    const double step = 1 / support;
    int64_t first = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
    double sum = 0;
    first = first < 0 ? 0 : first;
    end = end > from ? from : end;
    for (int64_t j = first; j < end; j++) {
        exact[j - first] = triangle(((double)j - center + 0.5) * step);
        sum += exact[j - first];
    }
    for (int64_t k = 0; k < end - first; k++) {
        double w = sum == 0 ? 0 : exact[k] / sum;
        f->weight[i * f->most + k] = (int32_t)(0.5 + w * (1 << PRECISION));
    }
    f->first[i] = first;
    f->count[i] = end - first;
}

static fl_status make_filter(int64_t from, int64_t to, filter *f)
{
    const double scale = (double)from / (double)to;
    double *exact = NULL;
    *f = (filter){.n = to, .most = (int64_t)ceil(scale < 1 ? 1 : scale) * 2 + 1};
    FL_TRY(fl_alloc_array((size_t)to, sizeof *f->first, (void **)&f->first));
    FL_TRY(fl_alloc_array((size_t)to, sizeof *f->count, (void **)&f->count));
    FL_TRY(fl_alloc_array((size_t)(to * f->most), sizeof *f->weight, (void **)&f->weight));
    FL_TRY(fl_alloc_array((size_t)f->most, sizeof *exact, (void **)&exact));
    for (int64_t i = 0; i < to; i++) {
        set_weights(f, i, from, scale, exact);
    }
    fl_free(exact);
    return FL_OK;
}

static uint8_t clip(int64_t sum)
{
    int64_t value = sum >> PRECISION;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One pass over a line: element j of it is line[j * stride]. */
static void resize_line(const filter *f, const uint8_t *line, int64_t stride, uint8_t *out,
                        int64_t out_stride)
{
    for (int64_t i = 0; i < f->n; i++) {
        const uint8_t *from = line + f->first[i] * stride;
        int64_t sum = 1 << (PRECISION - 1);
        for (int64_t k = 0; k < f->count[i]; k++) {
            sum += (int64_t)from[k * stride] * f->weight[i * f->most + k];
        }
        out[i * out_stride] = clip(sum);
    }
}

/* A plane of the image, [height, width]. channels 1 of 3: the luma, as ITU-R 601-2 has it. */
static void take_plane(const fl_image *image, int channels, int c, uint8_t *plane)
{
    const int64_t n = image->height * image->width;
    const uint8_t *p = image->pixels;
    const int own = image->channels;
    for (int64_t i = 0; i < n; i++, p += own) {
        plane[i] = own == 1 ? p[0]
                   : channels == 3
                       ? p[c]
                       : (uint8_t)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
    }
}

static void resize_plane(const fl_image *image, const filter *x, const filter *y,
                         const uint8_t *plane, uint8_t *narrow, uint8_t *out)
{
    for (int64_t row = 0; row < image->height; row++) {
        resize_line(x, plane + row * image->width, 1, narrow + row * x->n, 1);
    }
    for (int64_t col = 0; col < x->n; col++) {
        resize_line(y, narrow + col, x->n, out + col, x->n);
    }
}

static fl_status resize_planes(const fl_image *image, int channels, int64_t side, const filter *x,
                               const filter *y, uint8_t *out)
{
    uint8_t *plane = NULL, *narrow = NULL;
    FL_TRY(fl_alloc_array((size_t)image->height, (size_t)image->width, (void **)&plane));
    fl_status status = fl_alloc_array((size_t)image->height, (size_t)side, (void **)&narrow);
    for (int c = 0; status == FL_OK && c < channels; c++) {
        take_plane(image, channels, c, plane);
        resize_plane(image, x, y, plane, narrow, out + c * side * side);
    }
    fl_free(plane);
    fl_free(narrow);
    return status;
}

fl_status fl_image_resize(const fl_image *image, int channels, int64_t side, uint8_t *out)
{
    filter x = {0}, y = {0};
    if (image->width == side && image->height == side) {
        for (int c = 0; c < channels; c++) {
            take_plane(image, channels, c, out + c * side * side);
        }
        return FL_OK;
    }
    fl_status status = make_filter(image->width, side, &x);
    if (status == FL_OK) {
        status = make_filter(image->height, side, &y);
    }
    if (status == FL_OK) {
        status = resize_planes(image, channels, side, &x, &y, out);
    }
    fini_filter(&x);
    fini_filter(&y);
    return status;
}
