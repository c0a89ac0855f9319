/* What the workers report of one checkpoint, until every worker has finished its part. No I/O. */
#ifndef FL_CONTROL_CHECKPOINT_COLLECTION_H
#define FL_CONTROL_CHECKPOINT_COLLECTION_H

#include "control/checkpoint/manifest/manifest.h"
#include "control/link/link.h"

/* Tens of kilobytes. Zeroed: no report has arrived. */
typedef struct fl_collection {
    int64_t step;
    int64_t serial;      /* of the request; 0: nobody asked for it */
    uint32_t generation; /* of the plan whose state it is; holds once a part is reported */
    int n_parts;
    bool reported[FL_MAX_WORKERS]; /* by rank: its part is finished */
    int n_files;
    fl_checkpoint_entry file[FL_CHECKPOINT_FILES_MAX];
    bool linked[FL_CHECKPOINT_FILES_MAX]; /* the bytes and the hash are not known yet */
    int writer[FL_CHECKPOINT_FILES_MAX];  /* the rank that has written or linked it */
    int64_t bytes;                        /* written, without links */
    int64_t copy_us, write_us;            /* the longest of any worker */
    fl_status status;                     /* of the first part that failed, */
    int failed_rank;                      /* and whose part that is */
    char why[1100];
} fl_collection;

/* Begin with the first report of `step`, for the request `serial`. */
void fl_collection_begin(fl_collection *collection, int64_t step, int64_t serial);

/* Add a report of this step. A report that contradicts another one makes the collection fail. */
void fl_collection_file(fl_collection *collection, int rank,
                        const fl_checkpoint_file_report *report);
void fl_collection_part(fl_collection *collection, int rank,
                        const fl_checkpoint_part_report *report);

/* All parts are reported: fill checkpoint->file with the files. What is said of linked ones comes
 * from `before`, the checkpoint that they are linked to (NULL: none). Returns FL_EFAILED, with the
 * reason, if a part failed, or if a linked file is not one of `before`. */
fl_status fl_collection_finish(const fl_collection *collection, const fl_checkpoint *before,
                               fl_checkpoint *checkpoint) FL_MUST_CHECK;

/* The bytes of linked files, after a good finish. */
int64_t fl_collection_linked_bytes(const fl_collection *collection,
                                   const fl_checkpoint *checkpoint);

#endif
