/* What the record of a run says of it up to the checkpoint that it continues from, and of that
 * checkpoint. What was written after it is cut off, and does not count. */
#ifndef FL_CONTROL_EVENTS_RECORD_SUMS_H
#define FL_CONTROL_EVENTS_RECORD_SUMS_H

#include "control/events/resume_files.h"

typedef struct fl_record_sums {
    int64_t n_written, n_failed; /* checkpoints; that of the place counts as written */
    int64_t bytes, linked_bytes; /* of that one; 0 if its event was never written */
    double seconds;              /* in which it was written; as above */
    double without_training_s;   /* after the last loss; 0 if there was no loss */
} fl_record_sums;

/* Read events.jsonl. Lines that cannot be read do not count, nor does a file that is not there. */
void fl_record_sums_read(int dir_fd, const fl_runfiles_place *place, fl_record_sums *out);

#endif
