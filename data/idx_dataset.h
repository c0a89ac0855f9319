/* What the data set of kind idx offers beyond the public interface: a saved model must see pixels
 * as they were when it was trained, whatever the folder that it is used on holds. */
#ifndef FL_DATA_IDX_DATASET_H
#define FL_DATA_IDX_DATASET_H

#include <frostline/dataset.h>

#include <stdbool.h>

/* A pixel enters the model as (value / 255 - mean) / deviation. */
typedef struct fl_idx_normalization {
    double mean, deviation;
} fl_idx_normalization;

typedef struct fl_idx_options {
    const char *folder;
    fl_augment augment;
    int crop_pixels;
    const fl_idx_normalization *normalization; /* NULL: measured on the training images */
    bool one_split; /* read only the files of `split`; the other split is empty. Needs
                       `normalization` */
    fl_split split;
    bool labels_optional; /* without a file of labels, every label is -1 */
    /* [n_classes] use only the images of these classes; classes[i] of the files becomes class i,
     * and ids count the images that remain. FL_EINVAL for a class that occurs twice or has no
     * image. n_classes 0: all, as in the files. Images without labels are all used */
    const int *classes;
    int n_classes;
} fl_idx_options;

/* As fl_dataset_idx. info->n_classes is that of the files that were read; 1 without labels. */
fl_status fl_dataset_idx_open(const fl_idx_options *options, fl_dataset *out,
                              fl_idx_info *info) FL_MUST_CHECK;

/* The facts of a data set of this kind, borrowed; NULL for one of another kind. */
const fl_idx_info *fl_dataset_idx_info(const fl_dataset *dataset,
                                       fl_idx_normalization *normalization);

#endif
