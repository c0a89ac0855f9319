/* preprocessor_config.json: how pixels become what a model of images reads. */
#include "launcher/hf/hf_pixels.h"

#include "launcher/hf/hf_family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "preprocessor_config.json"

/* As ViTImageProcessor has them. */
#define MEAN 0.5
#define DEVIATION 0.5
#define BILINEAR 2

/* One number for each channel. */
static fl_status read_numbers(const fl_hf_config *c, const char *key, double initial, double *out)
{
    const json_t *list = json_object_get(c->root, key);
    int64_t n = c->vit.channels;
    char allowed[48];
    bool good = list == NULL || (int64_t)json_array_size(list) == n;
    for (int64_t i = 0; good && i < n; i++) {
        const json_t *number = json_array_get(list, (size_t)i);
        out[i] = list == NULL ? initial : json_number_value(number);
        good = (list == NULL || json_is_number(number)) && isfinite(out[i]);
    }
    snprintf(allowed, sizeof allowed, "%d numbers, one for each channel", (int)n);
    return good ? FL_OK : fl__hf_refuse(c, key, list, allowed);
}

/* The side of what images are resized to: a number, or an object with height and width. */
static fl_status check_size(const fl_hf_config *c)
{
    static const char *const keys[] = {"height", "width", "shortest_edge"};
    const json_t *size = json_object_get(c->root, "size");
    char allowed[64];
    bool good = size == NULL || json_is_object(size) ||
                json_integer_value(size) == (json_int_t)c->vit.height;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *side = json_object_get(size, keys[i]);
        good = good && (side == NULL || json_integer_value(side) == (json_int_t)c->vit.height);
    }
    snprintf(allowed, sizeof allowed, "image_size of config.json, %d", (int)c->vit.height);
    return good ? FL_OK : fl__hf_refuse(c, "size", size, allowed);
}

static fl_status check_variants(const fl_hf_config *c)
{
    static const char *const set[] = {"do_rescale", NULL};
    static const char *const unset[] = {"do_center_crop", NULL};
    const json_t *resample = json_object_get(c->root, "resample");
    const json_t *factor = json_object_get(c->root, "rescale_factor");
    FL_TRY(fl__hf_set(c, set));
    FL_TRY(fl__hf_unset(c, unset));
    if (resample != NULL && json_integer_value(resample) != BILINEAR) {
        return fl__hf_refuse(c, "resample", resample, "2, bilinear");
    }
    return factor == NULL || fabs(json_number_value(factor) * 255 - 1) < 1e-6
               ? FL_OK
               : fl__hf_refuse(c, "rescale_factor", factor, "1/255");
}

static fl_status read_members(const fl_hf_config *file, fl_hf_pixels *out)
{
    const json_t *normalizes = json_object_get(file->root, "do_normalize");
    FL_TRY(check_variants(file));
    FL_TRY(check_size(file));
    FL_TRY(read_numbers(file, "image_mean", MEAN, out->mean));
    FL_TRY(read_numbers(file, "image_std", DEVIATION, out->deviation));
    for (int64_t i = 0; i < file->vit.channels; i++) {
        if (json_is_false(normalizes)) {
            out->mean[i] = 0;
            out->deviation[i] = 1;
        }
        if (!(out->deviation[i] > 0)) {
            return fl__hf_refuse(file, "image_std", json_object_get(file->root, "image_std"),
                                 "numbers above 0");
        }
    }
    return FL_OK;
}

fl_status fl__hf_pixels_read(fl_hf_config *config)
{
    fl_hf_config file = {.vit = config->vit};
    int n = snprintf(file.path, sizeof file.path, "%s/" FILE_NAME, config->folder);
    if (n < 0 || (size_t)n >= sizeof file.path) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", config->folder);
    }
    if (access(file.path, F_OK) == 0) {
        FL_TRY(fl__hf_file_load(&file));
    }
    fl_status status = read_members(&file, &config->pixels);
    fl_hf_config_fini(&file);
    return status;
}
