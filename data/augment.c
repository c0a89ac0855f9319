#include "data/augment.h"

#include "device/random/random.h"

/* Keeps these draws apart from those that others make of the same seed. */
static const uint64_t stream_of_augmentation = 0x6175676D656E7421u;

/* -crop_pixels .. crop_pixels, each as likely as 32 random bits allow. */
static int offset(uint32_t bits, int crop_pixels)
{
    uint64_t span = 2 * (uint64_t)crop_pixels + 1;
    return (int)((bits * span) >> 32) - crop_pixels;
}

fl_augment_draw fl_augment_draw_at(fl_augment kind, int crop_pixels, const fl_sample_key *key)
{
    fl_augment_draw draw = {0};
    if (kind == FL_AUGMENT_NONE || !key->augment) {
        return draw;
    }
    uint64_t mixed = fl_mix64(key->seed, stream_of_augmentation);
    uint64_t id = (uint64_t)key->id, epoch = (uint64_t)key->epoch;
    const uint32_t philox_key[2] = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    const uint32_t counter[4] = {(uint32_t)id, (uint32_t)(id >> 32), (uint32_t)epoch,
                                 (uint32_t)(epoch >> 32)};
    uint32_t bits[4];
    fl_philox(counter, philox_key, bits);
    draw.dy = offset(bits[0], crop_pixels);
    draw.dx = offset(bits[1], crop_pixels);
    draw.flip = kind == FL_AUGMENT_CROP_FLIP && bits[2] >> 31 != 0;
    return draw;
}

static void fill_values(float *out, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = value;
    }
}

static void reverse(float *row, int64_t n)
{
    for (int64_t i = 0, j = n - 1; i < j; i++, j--) {
        float kept = row[i];
        row[i] = row[j];
        row[j] = kept;
    }
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static void apply_row(const uint8_t *row, int64_t width, int64_t dx, const float *table, float *out)
{
    /* out[x] = row[x + dx] for x in [begin, end), the rest lies outside the image */
    int64_t begin = clamp(-dx, 0, width), end = clamp(width - dx, 0, width);
    fill_values(out, begin, table[0]);
    for (int64_t x = begin; x < end; x++) {
        out[x] = table[row[x + dx]];
    }
    if (end < width) {
        fill_values(out + end, width - end, table[0]);
    }
}

void fl_augment_apply(const fl_augment_draw *draw, const uint8_t *pixels, int64_t channels,
                      int64_t height, int64_t width, const float *table, float *out)
{
    for (int64_t c = 0; c < channels; c++, pixels += height * width) {
        for (int64_t y = 0; y < height; y++, out += width) {
            int64_t from = y + draw->dy;
            if (from < 0 || from >= height) {
                fill_values(out, width, table[0]);
                continue;
            }
            apply_row(pixels + from * width, width, draw->dx, table, out);
            if (draw->flip) {
                reverse(out, width);
            }
        }
    }
}
