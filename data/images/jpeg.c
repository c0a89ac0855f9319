/* JPEG by libjpeg-turbo. The library calls back on an error and jumps from there; a warning, of a
 * file that is cut short or damaged, is an error here: half an image is not trained on. */
#include "data/images/image.h"

#include "device/system/alloc.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>
/* its message codes */
#include <jerror.h>

typedef struct jpeg_reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
} jpeg_reader;

static void leave(j_common_ptr info)
{
    jpeg_reader *r = info->client_data;
    info->err->format_message(info, r->message);
    longjmp(r->failed, 1);
}

/* level below 0: a warning. Bytes between markers and odd headers cost no pixels. */
static void note_message(j_common_ptr info, int level)
{
    const int code = info->err->msg_code;
    bool harmless =
        code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
    if (level < 0 && !harmless) {
        leave(info);
    }
}

static fl_status check_colors(const jpeg_reader *r, const char *name)
{
    const J_COLOR_SPACE space = r->info.jpeg_color_space;
    if (space == JCS_CMYK || space == JCS_YCCK) {
        return fl_fail(FL_EFORMAT, "%s: a JPEG in CMYK found, allowed: gray or RGB", name);
    }
    return space == JCS_UNKNOWN
               ? fl_fail(FL_EFORMAT,
                         "%s: a JPEG of %d unknown components found, allowed: gray or "
                         "RGB",
                         name, r->info.num_components)
               : FL_OK;
}

static fl_status read_rows(jpeg_reader *r, fl_image *out)
{
    size_t row_bytes = (size_t)out->width * (size_t)out->channels;
    while (r->info.output_scanline < r->info.output_height) {
        JSAMPROW row = out->pixels + r->info.output_scanline * row_bytes;
        (void)jpeg_read_scanlines(&r->info, &row, 1);
    }
    (void)jpeg_finish_decompress(&r->info);
    return FL_OK;
}

static fl_status read_image(jpeg_reader *r, const char *name, const uint8_t *bytes, size_t n,
                            fl_image *out)
{
    jpeg_mem_src(&r->info, bytes, (unsigned long)n);
    (void)jpeg_read_header(&r->info, TRUE);
    FL_TRY(check_colors(r, name));
    bool gray = r->info.jpeg_color_space == JCS_GRAYSCALE;
    FL_TRY(fl__image_reserve(name, r->info.image_width, r->info.image_height, gray ? 1 : 3, out));
    r->info.out_color_space = gray ? JCS_GRAYSCALE : JCS_RGB;
    (void)jpeg_start_decompress(&r->info);
    return read_rows(r, out);
}

/* On the heap: what changes between setjmp and longjmp must not be in a register. */
fl_status fl__jpeg_decode(const char *name, const uint8_t *bytes, size_t n, fl_image *out)
{
    jpeg_reader *r = NULL;
    fl_status status;
    FL_TRY(fl_alloc(sizeof *r, (void **)&r));
    r->info.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = leave;
    r->errors.emit_message = note_message;
    r->info.client_data = r;
    if (setjmp(r->failed) == 0) {
        jpeg_create_decompress(&r->info);
        status = read_image(r, name, bytes, n, out);
    } else {
        status = fl_fail(FL_EFORMAT, "%s: a damaged JPEG: %s", name, r->message);
    }
    jpeg_destroy_decompress(&r->info);
    fl_free(r);
    return status;
}
