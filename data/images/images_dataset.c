/* The data set of kind images:
 *
 *     ① folders -> classes and files     fl_image_folder_list
 *     ② every file, on threads           fl__images_load
 *     ③ read: id -> bytes, kept or decoded now -> draw of (seed, epoch, id) -> table -> floats */
#include "data/images/images_dataset.h"

#include "data/augment.h"
#include "data/images/folder.h"
#include "data/images/load.h"
#include "data/read_sample.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { N_SPLITS = 2, N_VALUES = 256 };

typedef struct images_dataset {
    fl_image_folder folder[N_SPLITS];
    uint8_t *pixels[N_SPLITS]; /* [n, channels, size, size]; NULL: decoded as they are read */
    char **label;              /* [n_labels] owned */
    int n_labels;
    fl_augment augment;
    int crop_pixels;
    float table[FL_IMAGE_CHANNELS_MAX][N_VALUES]; /* a byte's normalized value */
    uint64_t fingerprint;
    fl_images_info info;
} images_dataset;

static int64_t bytes_of_image(const images_dataset *d)
{
    return d->info.image.channels * d->info.image.height * d->info.image.width;
}

/* ---- the table of functions ---- */

static int64_t count_samples(const void *self, fl_split split)
{
    const images_dataset *d = self;
    return d->folder[split].n;
}

static fl_status check_id(const images_dataset *d, fl_split split, int64_t id)
{
    return fl__sample_check_id(id, d->folder[split].n);
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    *input = (fl_shape){.tokens = 1, .width = bytes_of_image(self), .dtype = FL_F32};
    *n_targets = 1;
    return FL_OK;
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    FL_TRY(check_id(self, split, id));
    return max_shape(self, input, n_targets);
}

/* ③ */
static void fill_input(const images_dataset *d, const fl_sample_key *key, const uint8_t *pixels,
                       float *input)
{
    const fl_augment_draw draw = fl_augment_draw_at(d->augment, d->crop_pixels, key);
    const int64_t side = d->info.image.height;
    for (int64_t c = 0; c < d->info.image.channels; c++) {
        fl_augment_apply(&draw, pixels + c * side * side, 1, side, side, d->table[c],
                         input + c * side * side);
    }
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    const images_dataset *d = self;
    uint8_t *decoded = NULL;
    FL_TRY(check_id(d, split, key->id));
    if (d->pixels[split] != NULL) {
        fill_input(d, key, d->pixels[split] + key->id * bytes_of_image(d), input);
        return FL_OK;
    }
    FL_TRY(fl_alloc_untouched((size_t)bytes_of_image(d), (void **)&decoded));
    fl_status status = fl__image_load(d->folder[split].path[key->id], (int)d->info.image.channels,
                                      d->info.image.height, decoded, NULL);
    if (status == FL_OK) {
        fill_input(d, key, decoded, input);
    }
    fl_free(decoded);
    return status;
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    const images_dataset *d = self;
    FL_TRY(check_id(d, split, id));
    *out = d->folder[split].label[id];
    return FL_OK;
}

static uint64_t fingerprint(const void *self)
{
    const images_dataset *d = self;
    return d->fingerprint;
}

static void destroy(void *self)
{
    images_dataset *d = self;
    for (int s = 0; s < N_SPLITS; s++) {
        fl_image_folder_fini(&d->folder[s]);
        fl_free(d->pixels[s]);
    }
    for (int i = 0; i < d->n_labels; i++) {
        fl_free(d->label[i]);
    }
    fl_free(d->label);
    fl_free(d);
}

static const fl_dataset_ops images_ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops),
    .kind = "images",
    .count = count_samples,
    .shape = shape,
    .max_shape = max_shape,
    .read = read_sample,
    .targets = targets,
    .fingerprint = fingerprint,
    .destroy = destroy,
};

/* ---- ① ---- */

static bool has_folder(const fl_images_options *o, int split)
{
    return o->path[split] != NULL && o->path[split][0] != '\0';
}

static fl_status copy_labels(images_dataset *d, const char *const *labels, int n)
{
    FL_TRY(fl_alloc_array((size_t)n + 1, sizeof *d->label, (void **)&d->label));
    for (; d->n_labels < n; d->n_labels++) {
        FL_TRY(fl_strdup(labels[d->n_labels], &d->label[d->n_labels]));
    }
    return FL_OK;
}

static int find_label(const images_dataset *d, const char *name)
{
    for (int i = 0; i < d->n_labels; i++) {
        if (strcmp(d->label[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

/* The classes of a folder are numbered in its own order; the data set has one for all.
 * loose  a folder that is no class of the data set has the label -1 */
static fl_status renumber(const images_dataset *d, const char *path, bool loose,
                          fl_image_folder *folder)
{
    int *number = NULL;
    FL_TRY(fl_alloc_array((size_t)folder->n_classes, sizeof *number, (void **)&number));
    for (int i = 0; i < folder->n_classes; i++) {
        number[i] = find_label(d, folder->name[i]);
        if (number[i] < 0 && !loose) {
            fl_free(number);
            return fl_fail(FL_EFORMAT,
                           "%s: the class %.64s found, allowed: one of the %d classes that the "
                           "model has",
                           path, folder->name[i], d->n_labels);
        }
    }
    for (int64_t i = 0; i < folder->n; i++) {
        folder->label[i] = number[folder->label[i]];
    }
    fl_free(number);
    return FL_OK;
}

static fl_status list_split(const fl_images_options *o, int split, fl_image_folder *out)
{
    bool found = false;
    if (o->loose) {
        FL_TRY(fl_image_folder_list_loose(o->path[split], out, &found));
    }
    return found ? FL_OK : fl_image_folder_list(o->path[split], out);
}

static fl_status list_files(const fl_images_options *o, images_dataset *d)
{
    for (int s = 0; s < N_SPLITS; s++) {
        if (has_folder(o, s)) {
            FL_TRY(list_split(o, s, &d->folder[s]));
        }
    }
    const fl_image_folder *train = &d->folder[FL_TRAIN];
    const bool given = o->labels != NULL;
    FL_TRY(copy_labels(d, given ? o->labels : (const char *const *)train->name,
                       given ? o->n_labels : train->n_classes));
    for (int s = 0; s < N_SPLITS; s++) {
        if (d->folder[s].n_classes > 0) {
            FL_TRY(renumber(d, o->path[s], o->loose, &d->folder[s]));
        }
        d->info.n[s] = d->folder[s].n;
        d->info.n_skipped += d->folder[s].n_skipped;
    }
    return FL_OK;
}

/* ---- ② ---- */

static fl_status load_split(const fl_images_options *o, images_dataset *d, int split,
                            uint64_t *hash)
{
    const fl_image_folder *folder = &d->folder[split];
    uint64_t *of_file = NULL;
    if (folder->n == 0) {
        return FL_OK;
    }
    if (d->info.kept) {
        FL_TRY(fl_alloc_untouched((size_t)(folder->n * bytes_of_image(d)),
                                  (void **)&d->pixels[split]));
    }
    FL_TRY(fl_alloc_array((size_t)folder->n, sizeof *of_file, (void **)&of_file));
    fl_status status =
        fl__images_load(folder, o->channels, o->size, d->pixels[split], of_file, o->n_threads);
    *hash = XXH3_64bits_withSeed(of_file, (size_t)folder->n * sizeof *of_file, *hash);
    *hash = XXH3_64bits_withSeed(folder->label, (size_t)folder->n * sizeof *folder->label, *hash);
    fl_free(of_file);
    return status;
}

static void fill_tables(const fl_images_options *o, images_dataset *d)
{
    for (int c = 0; c < o->channels; c++) {
        for (int v = 0; v < N_VALUES; v++) {
            d->table[c][v] = (float)((v / 255.0 - o->mean[c]) / o->deviation[c]);
        }
    }
}

static fl_status fill_dataset(const fl_images_options *o, images_dataset *d)
{
    const int64_t begin_us = fl_now_us();
    FL_TRY(list_files(o, d));
    d->info.image = (fl_idx_info){
        .channels = o->channels, .height = o->size, .width = o->size, .n_classes = d->n_labels};
    d->info.labels = (const char *const *)d->label;
    d->info.kept = d->info.n[0] + d->info.n[1] <= o->keep_bytes / bytes_of_image(d);
    fill_tables(o, d);
    const int64_t facts[] = {o->size, o->channels, (int64_t)o->augment, d->crop_pixels};
    uint64_t hash = XXH3_64bits(facts, sizeof facts);
    hash = XXH3_64bits_withSeed(d->table, sizeof d->table, hash);
    for (int s = 0; s < N_SPLITS; s++) {
        FL_TRY(load_split(o, d, s, &hash));
    }
    d->fingerprint = hash;
    d->info.took_us = fl_now_us() - begin_us;
    return FL_OK;
}

/* ---- opening ---- */

static fl_status check_options(const fl_images_options *o)
{
    if (!has_folder(o, FL_TRAIN) && !has_folder(o, FL_TEST)) {
        return fl_fail(FL_EINVAL, "no folder of images found, at least one allowed");
    }
    if (o->labels == NULL && !has_folder(o, FL_TRAIN)) {
        return fl_fail(FL_EINVAL, "no classes found: they are those of the training images");
    }
    if (o->size < 1 || o->size > FL_IMAGES_SIZE_MAX || (o->channels != 1 && o->channels != 3)) {
        return fl_fail(FL_EINVAL,
                       "images of %" PRId64 " pixels in %d channels found, allowed: 1 to %d pixels "
                       "in 1 or 3",
                       o->size, o->channels, FL_IMAGES_SIZE_MAX);
    }
    if (o->augment != FL_AUGMENT_NONE && (o->crop_pixels < 0 || o->crop_pixels >= o->size)) {
        return fl_fail(FL_EINVAL, "a crop of %d pixels found, 0 to %" PRId64 " allowed",
                       o->crop_pixels, o->size - 1);
    }
    for (int c = 0; c < o->channels; c++) {
        if (!isfinite(o->mean[c]) || !(o->deviation[c] > 0)) {
            return fl_fail(FL_EINVAL,
                           "a mean of %g and a deviation of %g found, allowed: numbers, "
                           "the deviation above 0",
                           o->mean[c], o->deviation[c]);
        }
    }
    return FL_OK;
}

fl_status fl_dataset_images_open(const fl_images_options *options, fl_dataset *out,
                                 fl_images_info *info)
{
    images_dataset *d = NULL;
    FL_TRY(check_options(options));
    FL_TRY(fl_alloc(sizeof *d, (void **)&d));
    d->augment = options->augment;
    d->crop_pixels = options->augment == FL_AUGMENT_NONE ? 0 : options->crop_pixels;
    fl_status status = fill_dataset(options, d);
    if (status != FL_OK) {
        destroy(d);
        return status;
    }
    *out = (fl_dataset){.ops = &images_ops, .self = d};
    if (info != NULL) {
        *info = d->info;
    }
    return FL_OK;
}

const fl_images_info *fl_dataset_images_info(const fl_dataset *dataset)
{
    const images_dataset *d = dataset->self;
    return dataset->ops == &images_ops ? &d->info : NULL;
}

const char *fl_dataset_images_path(const fl_dataset *dataset, fl_split split, int64_t id)
{
    const images_dataset *d = dataset->self;
    return dataset->ops == &images_ops ? d->folder[split].path[id] : NULL;
}
