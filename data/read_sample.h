/* Raw samples as they are read everywhere in a run. */
#ifndef FL_DATA_READ_SAMPLE_H
#define FL_DATA_READ_SAMPLE_H

#include <frostline/dataset.h>

/* Read a sample, and check the ids of an FL_I32 one against the range that its shape promises: no
 * kernel sees an id that no table has. shape: the sample's own; input: host memory for all of it.
 * Returns FL_EINVAL with the sample, the place and the id, and what the data set gives. */
fl_status fl_read_sample(const fl_dataset *dataset, fl_split split, const fl_sample_key *key,
                         const fl_shape *shape, void *input) FL_MUST_CHECK;

/* FL_EINVAL: a split of n_samples has no sample `id`. What data sets begin with. */
fl_status fl__sample_check_id(int64_t id, int64_t n_samples) FL_MUST_CHECK;

#endif
