/* A view shows samples of another data set under numbers of its own. Messages name a sample by the
 * number that the other data set gives to it, because that is the number a user can look up. */
#ifndef FL_DATA_VIEW_H
#define FL_DATA_VIEW_H

#include <frostline/dataset.h>

typedef struct fl_sample_id {
    fl_split split;
    int64_t id;
} fl_sample_id;

/* The first member of a view's state. ops.destroy: fl_view_destroy, which also marks a view.
 * of   the other data set, borrowed
 * own  the sample in the other data set; a pure function */
typedef struct fl_view {
    fl_dataset_ops ops;
    fl_dataset of;
    fl_sample_id (*own)(const void *self, fl_split split, int64_t id);
} fl_view;

/* Frees the state, which must be one allocation. */
void fl_view_destroy(void *self);

/* The split and the number of a sample in the data set itself; unchanged if `dataset` is not a
 * view. Threads: any. */
fl_sample_id fl_view_own(const fl_dataset *dataset, fl_split split, int64_t id);

/* The data set that a view shows; `dataset` itself if it is not a view. Threads: any. */
const fl_dataset *fl_view_of(const fl_dataset *dataset);

enum { FL_SAMPLE_TEXT_BYTES = 48 };

/* "training sample 77", as the data set itself numbers it. Returns text. Threads: any. */
const char *fl_sample_text(const fl_dataset *dataset, fl_split split, int64_t id,
                           char text[FL_SAMPLE_TEXT_BYTES]);

#endif
