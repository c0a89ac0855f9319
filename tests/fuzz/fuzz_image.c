/* libFuzzer over the decoders of images and the resizing behind them. The first byte chooses the
 * size and the channels of the result. libpng checks a CRC of every chunk, which the fuzzer would
 * not find; what it changes in a JPEG reaches the decoder. */
#include "data/images/image.h"

#include <stdlib.h>

enum { FILE_MAX = 1 << 16, SIDE_MAX = 16, PIXELS_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every pixel is there to read. */
static void check(const fl_image *image)
{
    unsigned sum = 0;
    const int64_t n = image->height * image->width * image->channels;
    if (image->height < 1 || image->width < 1 || (image->channels != 1 && image->channels != 3)) {
        abort();
    }
    for (int64_t i = 0; i < n; i++) {
        sum += image->pixels[i];
    }
    if (sum > 255 * (uint64_t)n) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t out[3 * SIDE_MAX * SIDE_MAX];
    fl_image image = {0};
    if (size < 1 || size > FILE_MAX) {
        return 0;
    }
    const int64_t side = 1 + (data[0] & 15);
    const int channels = (data[0] & 16) != 0 ? 3 : 1;
    if (fl_image_decode("fuzz", data + 1, size - 1, &image) != FL_OK) {
        if (image.pixels != NULL) {
            abort();
        }
        return 0;
    }
    check(&image);
    if (image.height * image.width <= PIXELS_MAX &&
        fl_image_resize(&image, channels, side, out) != FL_OK) {
        abort();
    }
    fl_image_fini(&image);
    return 0;
}
