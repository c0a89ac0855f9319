/* One image: from the bytes of a JPEG or PNG file to pixels of 8 bits in the size that is asked
 * for. Pure; any thread. docs/data.md lists which images are taken. */
#ifndef FL_DATA_IMAGES_IMAGE_H
#define FL_DATA_IMAGES_IMAGE_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

enum {
    FL_IMAGE_SIDE_MAX = 16384,         /* pixels */
    FL_IMAGE_PIXELS_MAX = 1 << 26,     /* of one image */
    FL_IMAGE_FILE_BYTES_MAX = 1 << 28, /* of a file */
    FL_IMAGE_CHANNELS_MAX = 3
};

/* Pixels [height, width, channels], owned. A struct of zeros holds nothing. */
typedef struct fl_image {
    int64_t height, width;
    int channels; /* 1: gray, 3: red, green, blue */
    uint8_t *pixels;
} fl_image;

/* Decode a whole file. name: for messages.
 * Returns  FL_EFORMAT with the name, what was found and what is allowed, for bytes that are no
 *          image, damaged or cut short, of a kind that is not read, or beyond the sizes above;
 *          FL_ENOMEM. Nothing is held on failure. */
fl_status fl_image_decode(const char *name, const uint8_t *bytes, size_t n,
                          fl_image *out) FL_MUST_CHECK;
void fl_image_fini(fl_image *image);

/* Resize to side x side pixels of `channels` and write planes, out [channels, side, side]. Gray
 * becomes equal colors, and colors their luma. The result is that of Pillow's resize with BILINEAR,
 * which transformers uses, to the last bit. FL_ENOMEM */
fl_status fl_image_resize(const fl_image *image, int channels, int64_t side,
                          uint8_t *out) FL_MUST_CHECK;

/* The readers of both formats, behind fl_image_decode. */
fl_status fl__jpeg_decode(const char *name, const uint8_t *bytes, size_t n,
                          fl_image *out) FL_MUST_CHECK;
fl_status fl__png_decode(const char *name, const uint8_t *bytes, size_t n,
                         fl_image *out) FL_MUST_CHECK;

/* Check the size that a header states, and take memory for the pixels. */
fl_status fl__image_reserve(const char *name, uint64_t width, uint64_t height, int channels,
                            fl_image *out) FL_MUST_CHECK;

#endif
