#include "data/images/image.h"

#include "device/system/alloc.h"

#include <inttypes.h>
#include <string.h>

void fl_image_fini(fl_image *image)
{
    fl_free(image->pixels);
    *image = (fl_image){0};
}

fl_status fl__image_reserve(const char *name, uint64_t width, uint64_t height, int channels,
                            fl_image *out)
{
    if (width < 1 || height < 1 || width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX ||
        width * height > FL_IMAGE_PIXELS_MAX) {
        return fl_fail(FL_EFORMAT,
                       "%s: %" PRIu64 " x %" PRIu64 " pixels found, allowed: sides of at most %d, "
                       "%d in all",
                       name, width, height, FL_IMAGE_SIDE_MAX, FL_IMAGE_PIXELS_MAX);
    }
    *out = (fl_image){.height = (int64_t)height, .width = (int64_t)width, .channels = channels};
    return fl_alloc_array((size_t)(width * height), (size_t)channels, (void **)&out->pixels);
}

/* What a file begins with, and how it is called where it cannot be read. */
static const struct {
    const char *name;
    uint8_t bytes[8];
    size_t n;
    fl_status (*decode)(const char *name, const uint8_t *bytes, size_t n, fl_image *out);
} formats[] = {
    {"JPEG", {0xFF, 0xD8, 0xFF}, 3, fl__jpeg_decode},
    {"PNG", {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}, 8, fl__png_decode},
    {"GIF", {'G', 'I', 'F', '8'}, 4, NULL},
    {"BMP", {'B', 'M'}, 2, NULL},
    {"WebP or another RIFF", {'R', 'I', 'F', 'F'}, 4, NULL},
    {"TIFF", {'I', 'I', '*', 0}, 4, NULL},
    {"TIFF", {'M', 'M', 0, '*'}, 4, NULL},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

fl_status fl_image_decode(const char *name, const uint8_t *bytes, size_t n, fl_image *out)
{
    const char *found = n == 0 ? "an empty file" : "another";
    *out = (fl_image){0};
    for (int i = 0; i < N_FORMATS; i++) {
        if (n < formats[i].n || memcmp(bytes, formats[i].bytes, formats[i].n) != 0) {
            continue;
        }
        if (formats[i].decode == NULL) {
            found = formats[i].name;
            break;
        }
        fl_status status = formats[i].decode(name, bytes, n, out);
        if (status != FL_OK) {
            fl_image_fini(out);
        }
        return status;
    }
    return fl_fail(FL_EFORMAT, "%s: %s found, allowed: a JPEG or PNG file", name, found);
}
