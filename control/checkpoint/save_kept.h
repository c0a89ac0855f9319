/* Makes the newest snapshot in memory a checkpoint, when the run has ended before it could go back
 * to it: its workers have gone, and its controller, too. */
#ifndef FL_CONTROL_CHECKPOINT_SAVE_KEPT_H
#define FL_CONTROL_CHECKPOINT_SAVE_KEPT_H

#include "control/checkpoint/snapshots.h"

/* kept     has a snapshot, which was compared with its hashes (fl_kept_snapshot_check)
 * store    the folder of the run's checkpoints, which has none of that step
 * run_fd   the run directory, whose files have the steps before the snapshot
 * keep     how many checkpoints stay
 * Returns  FL_EIO with the file and the reason, FL_ENOMEM. Then no checkpoint is there. */
fl_status fl_kept_snapshot_save(fl_kept_snapshot *kept, const fl_checkpoint_store *store,
                                int run_fd, int64_t keep) FL_MUST_CHECK;

#endif
