/* The data set of kind images: a folder for each class, JPEG and PNG files. Every file is read once
 * when the data set is opened, on threads of its own, so that one that is no image is refused
 * before a run starts. Images that fit into memory are kept as bytes in the size that the model
 * takes; otherwise each is decoded as it is read, by the threads that read ahead. docs/data.md
 * describes the folders. */
#ifndef FL_DATA_IMAGES_DATASET_H
#define FL_DATA_IMAGES_DATASET_H

#include "data/images/image.h"

#include <frostline/dataset.h>

#include <stdbool.h>

enum { FL_IMAGES_SIZE_MAX = 4096 };

/* All texts are borrowed during the call. */
typedef struct fl_images_options {
    const char *path[2]; /* by fl_split; NULL or "": this split is empty */
    int64_t size;        /* images become size x size pixels */
    int channels;        /* 1 or 3 */
    fl_augment augment;
    int crop_pixels; /* of the resized image */
    /* by channel: a pixel becomes (value / 255 - mean) / deviation */
    double mean[FL_IMAGE_CHANNELS_MAX], deviation[FL_IMAGE_CHANNELS_MAX];
    /* [n_labels] the classes, in their order; NULL: the folders of the training images */
    const char *const *labels;
    int n_labels;
    /* Labels are not needed: images without folders for classes, and other folders, are fine */
    bool loose;
    int64_t keep_bytes; /* images are kept decoded if they take at most this */
    int n_threads;      /* 0: as many as there are processors */
} fl_images_options;

typedef struct fl_images_info {
    fl_idx_info image;         /* channels, height, width, n_classes */
    const char *const *labels; /* [image.n_classes] borrowed from the data set */
    int64_t n[2];              /* images of each split */
    int64_t n_skipped;         /* files of other names */
    bool kept;
    int64_t took_us;
} fl_images_info;

/* Returns  FL_EIO, FL_EFORMAT with the file, what was found and what is allowed; FL_EINVAL for
 *          options; FL_ENOMEM
 * info     may be NULL
 * Threads  any. Nothing changes afterwards, so forked workers share what was decoded. */
fl_status fl_dataset_images_open(const fl_images_options *options, fl_dataset *out,
                                 fl_images_info *info) FL_MUST_CHECK;

/* The file of a sample, borrowed; NULL: the data set is of another kind. */
const char *fl_dataset_images_path(const fl_dataset *dataset, fl_split split, int64_t id);

/* The facts of a data set of this kind, borrowed; NULL for one of another kind. */
const fl_images_info *fl_dataset_images_info(const fl_dataset *dataset);

#endif
