/* The data set of kind idx: pixels stay bytes in memory and become floats as they are read.
 *
 *     four headers ① agree with each other? ② fit into memory? ──> ③ bytes of both splits
 *     ──> ④ mean, deviation ──> table [256] ──> ⑤ the selected classes
 *     read: id ──> draw of (seed, epoch, id) ──> byte ──> table ──> float */
#include "data/idx_dataset.h"

#include "data/augment.h"
#include "data/idx.h"
#include "data/idx_select.h"
#include "data/read_sample.h"
#include "device/machine/host_limits.h"
#include "device/system/alloc.h"

#include <frostline/dataset.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { N_SPLITS = 2, N_VALUES = 256, N_LANES = 8, PATH_BYTES = 4096, MAX_SIDE = 4096 };

typedef struct images {
    fl_idx pixels; /* [count, height, width] */
    fl_idx labels; /* [count] */
} images;

/* A file whose header was read. */
typedef struct opened {
    char path[PATH_BYTES];
    fl_idx_file file;
} opened;

/* Of one split. */
typedef struct opened_split {
    opened pixels, labels;
} opened_split;

typedef struct idx_dataset {
    images split[N_SPLITS];
    fl_idx_info info;
    int64_t n_pixels; /* of one image, all channels */
    fl_augment augment;
    int crop_pixels;
    fl_idx_normalization normalization;
    float table[N_VALUES]; /* a byte's normalized value */
    uint64_t fingerprint;
} idx_dataset;

static int64_t count_samples(const void *self, fl_split split)
{
    const idx_dataset *d = self;
    return d->split[split].pixels.dims[0];
}

static fl_status check_id(const idx_dataset *d, fl_split split, int64_t id)
{
    return fl__sample_check_id(id, count_samples(d, split));
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const idx_dataset *d = self;
    *input = (fl_shape){.tokens = 1, .width = d->n_pixels, .dtype = FL_F32};
    *n_targets = 1;
    return FL_OK;
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    FL_TRY(check_id(self, split, id));
    return max_shape(self, input, n_targets);
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    const idx_dataset *d = self;
    FL_TRY(check_id(d, split, key->id));
    fl_augment_draw draw = fl_augment_draw_at(d->augment, d->crop_pixels, key);
    fl_augment_apply(&draw, d->split[split].pixels.bytes + key->id * d->n_pixels, d->info.channels,
                     d->info.height, d->info.width, d->table, input);
    return FL_OK;
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    const idx_dataset *d = self;
    FL_TRY(check_id(d, split, id));
    const uint8_t *labels = d->split[split].labels.bytes;
    *out = labels == NULL ? -1 : labels[id];
    return FL_OK;
}

static uint64_t fingerprint(const void *self)
{
    const idx_dataset *d = self;
    return d->fingerprint;
}

static void destroy(void *self)
{
    idx_dataset *d = self;
    for (int s = 0; s < N_SPLITS; s++) {
        fl_idx_fini(&d->split[s].pixels);
        fl_idx_fini(&d->split[s].labels);
    }
    fl_free(d);
}

static const fl_dataset_ops idx_ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops),
    .kind = "idx",
    .count = count_samples,
    .shape = shape,
    .max_shape = max_shape,
    .read = read_sample,
    .targets = targets,
    .fingerprint = fingerprint,
    .destroy = destroy,
};

/* The path of folder/name or folder/name.gz; *found: one of them is there. */
static fl_status find_array(const char *folder, const char *name, char path[PATH_BYTES],
                            bool *found)
{
    static const char *const endings[] = {"", ".gz"};
    struct stat st;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (snprintf(path, PATH_BYTES, "%s/%s%s", folder, name, endings[i]) >= PATH_BYTES) {
            return fl_fail(FL_EIO, "%s: a path of more than %d bytes", folder, PATH_BYTES - 1);
        }
        *found = stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
        if (*found) {
            return FL_OK;
        }
    }
    return FL_OK;
}

/* optional: the file need not be there; out->path is then "". */
static fl_status open_array(const char *folder, const char *name, int rank, bool optional,
                            opened *out)
{
    bool found = false;
    FL_TRY(find_array(folder, name, out->path, &found));
    if (found) {
        return fl_idx_open(out->path, rank, &out->file);
    }
    out->path[0] = '\0';
    return optional ? FL_OK : fl_fail(FL_EIO, "%s: neither %s nor %s.gz found", folder, name, name);
}

static const char *unpacked(const fl_idx *idx)
{
    return idx->packed ? " of the unpacked data" : "";
}

/* `like`: images that these must have the size of; NULL: none. */
static fl_status check_image_size(const char *path, const fl_idx *pixels, const fl_idx *like)
{
    for (int i = 1; i <= 2; i++) {
        if (pixels->dims[i] > MAX_SIDE) {
            return fl_fail(FL_EFORMAT,
                           "%s: byte %d%s: %lld pixels of %s found, at most %d expected", path,
                           4 + 4 * i, unpacked(pixels), (long long)pixels->dims[i],
                           i == 1 ? "height" : "width", MAX_SIDE);
        }
    }
    if (like != NULL && (pixels->dims[1] != like->dims[1] || pixels->dims[2] != like->dims[2])) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 8%s: images of %lld x %lld pixels found, %lld x %lld expected, as "
                       "in the training images",
                       path, unpacked(pixels), (long long)pixels->dims[1],
                       (long long)pixels->dims[2], (long long)like->dims[1],
                       (long long)like->dims[2]);
    }
    return FL_OK;
}

/* ① The two files of a split agree with each other and with the training images. */
static fl_status open_split(const fl_idx_options *o, const char *prefix, const fl_idx *like,
                            opened_split *out)
{
    char name[64];
    const fl_idx *pixels = &out->pixels.file.idx, *labels = &out->labels.file.idx;
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    FL_TRY(open_array(o->folder, name, 3, false, &out->pixels));
    FL_TRY(check_image_size(out->pixels.path, pixels, like));
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    FL_TRY(open_array(o->folder, name, 1, o->labels_optional, &out->labels));
    if (out->labels.path[0] != '\0' && labels->dims[0] != pixels->dims[0]) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 4%s: %lld labels found, %lld expected, as many as %s has images",
                       out->labels.path, unpacked(labels), (long long)labels->dims[0],
                       (long long)pixels->dims[0], out->pixels.path);
    }
    return FL_OK;
}

/* ② */
static fl_status check_memory(const char *folder, const opened_split *split)
{
    int64_t needed = 0;
    fl_host_limits machine;
    fl_host_limits_read("", &machine);
    for (int s = 0; s < N_SPLITS; s++) {
        needed += (int64_t)split[s].pixels.file.idx.size_bytes;
        needed += (int64_t)split[s].labels.file.idx.size_bytes;
    }
    if (machine.available_bytes > 0 && needed > machine.available_bytes) {
        return fl_fail(FL_EFORMAT,
                       "%s: the headers of the files state %" PRId64 " bytes in all, at most "
                       "%" PRId64 " expected: the memory that this machine has available",
                       folder, needed, machine.available_bytes);
    }
    return FL_OK;
}

static bool is_wanted(const fl_idx_options *o, int split)
{
    return !o->one_split || (int)o->split == split;
}

static fl_status open_all(const fl_idx_options *o, opened_split *split)
{
    static const char *const prefix[N_SPLITS] = {[FL_TRAIN] = "train", [FL_TEST] = "t10k"};
    for (int s = 0; s < N_SPLITS; s++) {
        const fl_idx *like =
            o->one_split || s == FL_TRAIN ? NULL : &split[FL_TRAIN].pixels.file.idx;
        if (is_wanted(o, s)) {
            FL_TRY(open_split(o, prefix[s], like, &split[s]));
        }
    }
    return check_memory(o->folder, split);
}

/* ③ */
static fl_status load_all(opened_split *split, images *out)
{
    for (int s = 0; s < N_SPLITS; s++) {
        if (split[s].pixels.path[0] != '\0') {
            FL_TRY(fl_idx_load(&split[s].pixels.file, &out[s].pixels));
        }
        if (split[s].labels.path[0] != '\0') {
            FL_TRY(fl_idx_load(&split[s].labels.file, &out[s].labels));
        }
    }
    return FL_OK;
}

static fl_status read_files(const fl_idx_options *o, images *out)
{
    opened_split split[N_SPLITS] = {0};
    fl_status status = open_all(o, split);
    if (status == FL_OK) {
        status = load_all(split, out);
    }
    for (int s = 0; s < N_SPLITS; s++) {
        fl_idx_close(&split[s].pixels.file);
        fl_idx_close(&split[s].labels.file);
    }
    return status;
}

static fl_idx_info describe_files(const fl_idx_options *o, const idx_dataset *d)
{
    const fl_idx *pixels = &d->split[o->one_split ? o->split : FL_TRAIN].pixels;
    int last_label = 0;
    for (int s = 0; s < N_SPLITS; s++) {
        const fl_idx *labels = &d->split[s].labels;
        for (size_t i = 0; i < labels->size_bytes; i++) {
            last_label = labels->bytes[i] > last_label ? labels->bytes[i] : last_label;
        }
    }
    return (fl_idx_info){.channels = 1,
                         .height = pixels->dims[1],
                         .width = pixels->dims[2],
                         .n_classes = last_label + 1};
}

/* How often each value occurs. Neighbours often have one value: counting them apart spares the
 * processor to wait for the count before. Around what an image shows, all of them are zero. */
static void count_values(const fl_idx *pixels, int64_t occurs[N_VALUES])
{
    int64_t lane[N_LANES][N_VALUES] = {0};
    size_t i = 0;
    for (; i + N_LANES <= pixels->size_bytes; i += N_LANES) {
        uint64_t values; /* N_LANES of them */
        memcpy(&values, pixels->bytes + i, sizeof values);
        if (values == 0) {
            lane[0][0] += N_LANES;
            continue;
        }
        for (int k = 0; k < N_LANES; k++) {
            lane[k][values >> 8 * k & 0xFF]++;
        }
    }
    for (; i < pixels->size_bytes; i++) {
        lane[0][pixels->bytes[i]]++;
    }
    for (int v = 0; v < N_VALUES; v++) {
        occurs[v] = 0;
        for (int k = 0; k < N_LANES; k++) {
            occurs[v] += lane[k][v];
        }
    }
}

/* ④ From counts, so that the result is exact and the same everywhere. */
static fl_idx_normalization measure_pixels(const fl_idx *pixels)
{
    int64_t occurs[N_VALUES];
    count_values(pixels, occurs);
    double n = (double)pixels->size_bytes, mean = 0, variance = 0;
    for (int v = 0; v < N_VALUES; v++) {
        mean += (double)occurs[v] * v / 255 / n;
    }
    for (int v = 0; v < N_VALUES; v++) {
        variance += (double)occurs[v] * (v / 255.0 - mean) * (v / 255.0 - mean) / n;
    }
    /* Images of one value everywhere have no deviation; they become zeros. */
    return (fl_idx_normalization){.mean = mean, .deviation = variance > 0 ? sqrt(variance) : 1};
}

static void fill_table(const fl_idx_normalization *by, float *table)
{
    for (int v = 0; v < N_VALUES; v++) {
        table[v] = (float)((v / 255.0 - by->mean) / by->deviation);
    }
}

static uint64_t measure_fingerprint(const idx_dataset *d)
{
    const int64_t facts[] = {d->info.height, d->info.width, (int64_t)d->augment, d->crop_pixels};
    uint64_t hash = XXH64(facts, sizeof facts, 0);
    for (int s = 0; s < N_SPLITS; s++) {
        const images *split = &d->split[s];
        hash = XXH64(split->pixels.bytes, split->pixels.size_bytes, hash);
        hash = XXH64(split->labels.bytes, split->labels.size_bytes, hash);
    }
    return hash;
}

/* ⑤ After the pixels were measured: two tasks on one data set then see the same pixels, and the
 * lower layers of a model serve both. */
static fl_status select_classes(const fl_idx_options *o, images *split)
{
    static const char *const names[N_SPLITS] = {[FL_TRAIN] = "training", [FL_TEST] = "test"};
    int new_label[FL_IDX_LABELS];
    if (o->n_classes == 0) {
        return FL_OK;
    }
    FL_TRY(fl_idx_select_table(o->classes, o->n_classes, new_label));
    for (int s = 0; s < N_SPLITS; s++) {
        bool unlabeled = o->labels_optional && split[s].labels.bytes == NULL;
        if (is_wanted(o, s) && !unlabeled) {
            fl_status status = fl_idx_select(&split[s].pixels, &split[s].labels, new_label);
            if (status != FL_OK) {
                return fl_within(status, "%s images", names[s]);
            }
        }
    }
    return FL_OK;
}

static fl_status fill_dataset(const fl_idx_options *o, idx_dataset *d)
{
    FL_TRY(read_files(o, d->split));
    d->normalization =
        o->normalization != NULL ? *o->normalization : measure_pixels(&d->split[FL_TRAIN].pixels);
    FL_TRY(select_classes(o, d->split));
    d->info = describe_files(o, d);
    d->n_pixels = d->info.channels * d->info.height * d->info.width;
    int64_t side = d->info.height < d->info.width ? d->info.height : d->info.width;
    if (d->crop_pixels < 0 || d->crop_pixels >= side) {
        return fl_fail(FL_EINVAL,
                       "a crop of %d pixels found, 0 to %lld allowed: images have %lld x %lld",
                       d->crop_pixels, (long long)(side - 1), (long long)d->info.height,
                       (long long)d->info.width);
    }
    fill_table(&d->normalization, d->table);
    d->fingerprint = measure_fingerprint(d);
    return FL_OK;
}

fl_status fl_dataset_idx_open(const fl_idx_options *options, fl_dataset *out, fl_idx_info *info)
{
    void *memory = NULL;
    assert(!options->one_split || options->normalization != NULL);
    FL_TRY(fl_alloc(sizeof(idx_dataset), &memory));
    idx_dataset *d = memory;
    d->augment = options->augment;
    d->crop_pixels = options->augment == FL_AUGMENT_NONE ? 0 : options->crop_pixels;
    fl_status status = fill_dataset(options, d);
    if (status != FL_OK) {
        destroy(d);
        return status;
    }
    *out = (fl_dataset){.ops = &idx_ops, .self = d};
    if (info != NULL) {
        *info = d->info;
    }
    return FL_OK;
}

fl_status fl_dataset_idx(const char *folder, fl_augment augment, int crop_pixels, fl_dataset *out,
                         fl_idx_info *info)
{
    const fl_idx_options options = {
        .folder = folder, .augment = augment, .crop_pixels = crop_pixels};
    return fl_dataset_idx_open(&options, out, info);
}

const fl_idx_info *fl_dataset_idx_info(const fl_dataset *dataset,
                                       fl_idx_normalization *normalization)
{
    if (dataset->ops != &idx_ops) {
        return NULL;
    }
    const idx_dataset *d = dataset->self;
    *normalization = d->normalization;
    return &d->info;
}
