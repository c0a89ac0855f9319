/* PNG by libpng, of every kind, as 8 bits gray or RGB: a palette becomes its colors, 16 bits their
 * upper 8, and transparency is left out. Of an animated PNG, the first image is read. */
#include "data/images/image.h"

#include "device/system/alloc.h"

#include <png.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE = 128 };

typedef struct png_reader {
    const uint8_t *bytes;
    size_t n, at;
    char message[MESSAGE];
    png_structp png;
    png_infop info;
    uint8_t **rows; /* owned */
} png_reader;

static void leave(png_structp png, png_const_charp message)
{
    png_reader *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", message);
    png_longjmp(png, 1);
}

/* What libpng warns of does not change pixels, as a broken text or color profile. */
static void pass_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    png_reader *r = png_get_io_ptr(png);
    if (n > r->n - r->at) {
        png_error(png, "the file ends too early");
    }
    memcpy(to, r->bytes + r->at, n);
    r->at += n;
}

/* Whatever the file holds, rows become gray or RGB of 8 bits. */
static void set_transforms(png_structp png)
{
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    (void)png_set_interlace_handling(png);
}

static fl_status read_image(png_reader *r, const char *name, fl_image *out)
{
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, FL_IMAGE_SIDE_MAX, FL_IMAGE_SIDE_MAX);
    png_read_info(r->png, r->info);
    set_transforms(r->png);
    png_read_update_info(r->png, r->info);
    const png_uint_32 height = png_get_image_height(r->png, r->info);
    FL_TRY(fl__image_reserve(name, png_get_image_width(r->png, r->info), height,
                             png_get_channels(r->png, r->info), out));
    size_t row_bytes = png_get_rowbytes(r->png, r->info);
    FL_TRY(fl_alloc_array(height, sizeof *r->rows, (void **)&r->rows));
    for (png_uint_32 y = 0; y < height; y++) {
        r->rows[y] = out->pixels + y * row_bytes;
    }
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
    return FL_OK;
}

static void close_reader(png_reader *r)
{
    png_destroy_read_struct(&r->png, &r->info, NULL);
    fl_free(r->rows);
}

static fl_status open_reader(png_reader *r)
{
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, leave, pass_warning);
    r->info = r->png == NULL ? NULL : png_create_info_struct(r->png);
    return r->info != NULL ? FL_OK : fl_fail(FL_ENOMEM, "no memory for libpng");
}

fl_status fl__png_decode(const char *name, const uint8_t *bytes, size_t n, fl_image *out)
{
    png_reader *r = NULL;
    FL_TRY(fl_alloc(sizeof *r, (void **)&r));
    r->bytes = bytes;
    r->n = n;
    fl_status status = open_reader(r);
    if (status == FL_OK) {
        status = setjmp(png_jmpbuf(r->png)) == 0
                     ? read_image(r, name, out)
                     : fl_fail(FL_EFORMAT, "%s: a damaged PNG: %s", name, r->message);
    }
    close_reader(r);
    fl_free(r);
    return status;
}
