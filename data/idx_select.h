/* A part of an idx data set: the images of some classes, under new labels. */
#ifndef FL_DATA_IDX_SELECT_H
#define FL_DATA_IDX_SELECT_H

#include "data/idx.h"

enum { FL_IDX_LABELS = 256, FL_IDX_NOT_SELECTED = -1 };

/* The new label of each label of the files: the place in `classes`. Returns FL_EINVAL for a class
 * that is not 0 .. 255, or that occurs twice,
 * and for more than FL_IDX_LABELS classes.
 * classes    [n]
 * new_label  out: FL_IDX_NOT_SELECTED for the labels of other classes */
fl_status fl_idx_select_table(const int *classes, int n,
                              int new_label[FL_IDX_LABELS]) FL_MUST_CHECK;

/* Remove the images whose label the table does not select, and give the others their new labels.
 * The order of the images stays. Returns FL_EINVAL, and changes nothing, if a selected class has no
 * image, or the images have no labels.
 * pixels     [count, height, width]
 * labels     [count] */
fl_status fl_idx_select(fl_idx *pixels, fl_idx *labels,
                        const int new_label[FL_IDX_LABELS]) FL_MUST_CHECK;

#endif
