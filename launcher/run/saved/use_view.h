/* The samples that a saved model is used on, as a data set whose two splits are both these samples,
 * numbered from 0: workers go over its test split, and a plan is sized by it. */
#ifndef FL_LAUNCHER_RUN_SAVED_USE_VIEW_H
#define FL_LAUNCHER_RUN_SAVED_USE_VIEW_H

#include "data/view.h"

/* The samples ids [n] of a split of `inner` (borrowed). Its own memory: free with
 * fl_dataset_destroy. FL_ENOMEM. */
fl_status fl_use_view_create(const fl_dataset *inner, fl_split split, const int64_t *ids, int64_t n,
                             fl_dataset *out) FL_MUST_CHECK;

#endif
