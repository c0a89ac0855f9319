/* A data set: a small vtable and its own state. */
#ifndef FROSTLINE_DATASET_H
#define FROSTLINE_DATASET_H

#include <frostline/status.h>
#include <frostline/tensor.h>
#include <frostline/version.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fl_split { FL_TRAIN = 0, FL_TEST = 1 } fl_split;

/* With what a sample's augmentation is drawn: the same (seed, epoch, id) gives the same sample on
 * whichever worker. `augment` is false in evaluation. */
typedef struct fl_sample_key {
    uint64_t seed;
    int64_t epoch;
    int64_t id;
    bool augment;
} fl_sample_key;

/* Read calls come from several threads and, after a fork, from several processes: a data set does
 * not change after it was made. Ids are 0 .. count - 1 within a split.
 *
 * count      samples of the split; 0 if there is none
 * shape      of one raw sample: what `read` writes and the first layer takes, at least one token;
 *            *n_targets: how many targets it has. Samples may differ in length.
 * Before a run starts, it asks for the shape of every sample that it will use, and sizes all
 *            buffers by the answers: they must always be the same.
 * max_shape  what no sample of either split exceeds, in tokens and in targets; width and dtype are
 *            the same for all samples
 * read       write input [shape.tokens * shape.width] of shape.dtype, host memory
 * targets    write the sample's targets [n_targets], host memory: classes, token ids. NULL for a
 *            data set with targets_f32
 * fingerprint  changes when any sample does
 * destroy    free self. May be NULL.
 * targets_f32  the same for targets that are values, as in regression. NULL for a data set with
 *            targets: a data set has one of the two
 * What fails gives a status with a message (fl_fail); the run ends with it. */
typedef struct fl_dataset_ops {
    fl_table_head head; /* FL_TABLE_HEAD(fl_dataset_ops) */
    const char *kind;
    int64_t (*count)(const void *self, fl_split split);
    fl_status (*shape)(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets);
    fl_status (*max_shape)(const void *self, fl_shape *input, int64_t *n_targets);
    fl_status (*read)(const void *self, fl_split split, const fl_sample_key *key, void *input);
    fl_status (*targets)(const void *self, fl_split split, int64_t id, int32_t *targets);
    uint64_t (*fingerprint)(const void *self);
    void (*destroy)(void *self);
    fl_status (*targets_f32)(const void *self, fl_split split, int64_t id, float *targets);
} fl_dataset_ops;

typedef struct fl_dataset {
    const fl_dataset_ops *ops;
    void *self;
} fl_dataset;

/* The type of its targets: FL_I32 or FL_F32. */
static inline fl_dtype fl_dataset_target_dtype(const fl_dataset *dataset)
{
    return dataset->ops->targets_f32 != NULL ? FL_F32 : FL_I32;
}

/* Free a data set through its own destroy; NULL ops are fine. */
void fl_dataset_destroy(fl_dataset *dataset);

typedef enum fl_augment {
    FL_AUGMENT_NONE = 0,
    FL_AUGMENT_CROP = 1,
    FL_AUGMENT_CROP_FLIP = 2
} fl_augment;

typedef struct fl_idx_info {
    int64_t channels, height, width; /* pixels */
    int64_t n_classes;
} fl_idx_info;

/* Images and labels in the idx format, plain or gzip: the four files train-images-idx3-ubyte,
 * train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (each with or without
 * .gz) of the folder. Pixels become (value / 255 - mean) / deviation, both measured on the training
 * images. Crop pads by `crop_pixels` on each side.
 * Returns FL_EIO (missing, unreadable) or FL_EFORMAT (which file, at which byte, what was found).
 * info may be NULL. The result is the caller's; pixels are shared with all forks. Threads: any. */
fl_status fl_dataset_idx(const char *folder, fl_augment augment, int crop_pixels, fl_dataset *out,
                         fl_idx_info *info) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
