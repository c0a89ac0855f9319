/* Where a run's checkpoints go: checkpoints/ in the run directory, or a folder of the run's name
 * below checkpoint.dir, to which checkpoints/ is then a link. */
#ifndef FL_LAUNCHER_RUN_CHECKPOINT_FOLDER_H
#define FL_LAUNCHER_RUN_CHECKPOINT_FOLDER_H

#include "pipe/state/checkpoint_store.h"

#include <frostline/job.h>

/* Open it, and make it if it is not there. run_dir: absolute; dir_fd: the same, open. FL_EIO with
 * the field or the path. Close the store, which is zeroed before, after a failure, too. */
fl_status fl_checkpoint_folder_open(const fl_job *job, const char *run_dir, int dir_fd,
                                    fl_checkpoint_store *out) FL_MUST_CHECK;

/* Close it. A folder in the run directory that has stayed empty is removed. */
void fl_checkpoint_folder_close(int dir_fd, fl_checkpoint_store *store);

/* Every field of the job as text, for the checkpoints: free it with free. */
fl_status fl_checkpoint_job_text(const fl_job *job, char **text) FL_MUST_CHECK;

#endif
