/* Writes a snapshot in memory as the files of a checkpoint, in the process that has the memory. No
 * worker is needed: all may have gone. */
#ifndef FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_SAVE_H
#define FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_SAVE_H

#include "pipe/state/snapshot/snapshot.h"

/* A file is on the disk. */
typedef void fl_snapshot_saved(void *context, const fl_checkpoint_file_report *report);

/* Write the layers of a complete slot that nobody fills.
 * plan, parked  of the step of the snapshot: which layers have files (fl_checkpoint_writer_rank)
 * folder_fd     of the checkpoint; files that are there already stay: FL_EBUSY
 * Returns       FL_EIO with the file and the reason, FL_ENOMEM. Takes memory for the largest file.
 */
fl_status fl_snapshot_save(const fl_snapshot_view *view, const fl_plan *plan, const int *parked,
                           int folder_fd, fl_snapshot_saved *saved, void *context) FL_MUST_CHECK;

#endif
