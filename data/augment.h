/* Augmentation of images: the random parameters and their application. Pure; any thread. */
#ifndef FL_DATA_AUGMENT_H
#define FL_DATA_AUGMENT_H

#include <frostline/dataset.h>

/* The image is moved up by dy and left by dx (what comes in from outside is pixel value 0), then
 * mirrored left to right if `flip`. */
typedef struct fl_augment_draw {
    int dy, dx; /* -crop_pixels .. crop_pixels */
    bool flip;
} fl_augment_draw;

/* The augmentation of sample `key`: a function of (seed, epoch, id), and none in evaluation. */
fl_augment_draw fl_augment_draw_at(fl_augment kind, int crop_pixels, const fl_sample_key *key);

/* pixels [channels, height, width]; table [256]: what each pixel value becomes; out: as pixels */
void fl_augment_apply(const fl_augment_draw *draw, const uint8_t *pixels, int64_t channels,
                      int64_t height, int64_t width, const float *table, float *out);

#endif
