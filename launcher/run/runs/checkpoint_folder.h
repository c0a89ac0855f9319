/* Where a run's checkpoints go: checkpoints/ in the run directory, or a folder of the run's name
 * below checkpoint.dir, to which checkpoints/ is then a link. */
#ifndef FL_LAUNCHER_RUN_RUNS_CHECKPOINT_FOLDER_H
#define FL_LAUNCHER_RUN_RUNS_CHECKPOINT_FOLDER_H

#include "pipe/state/checkpoint/checkpoint_store.h"

#include <frostline/job.h>

#include <limits.h>

/* Open it, make it if it is not there, and make it this run's (checkpoint_owner.h).
 * run_dir    absolute; dir_fd: the same, open
 * continues  NULL: the run begins; else the folder that fl_checkpoint_folder_find gave, to which
 *            the link in the run directory is changed if it is another
 * *owner_fd  the caller closes it with fl_checkpoint_folder_close
 * Returns    FL_EINVAL if it is another run's; FL_EIO; with the field or the path. Close the store,
 *            which is zeroed before, after a failure, too. */
fl_status fl_checkpoint_folder_open(const fl_job *job, const char *run_dir, int dir_fd,
                                    const char *continues, fl_checkpoint_store *out,
                                    int *owner_fd) FL_MUST_CHECK;

/* Close it. A folder that has stayed empty is removed, and so is the link to it. */
void fl_checkpoint_folder_close(int dir_fd, fl_checkpoint_store *store, int owner_fd);

/* Where the checkpoints of a run that continues are: path. They may have been moved to the place
 * that the job names now. FL_EINVAL if that place is another one than theirs, or if the folder is
 * another run's. Changes nothing. */
fl_status fl_checkpoint_folder_find(const fl_job *before, const fl_job *now, const char *run_dir,
                                    char path[PATH_MAX]) FL_MUST_CHECK;

/* Where the link `checkpoints` of a run directory leads, if nothing is there; else "". */
void fl_checkpoint_folder_missing(const char *run_dir, char target[PATH_MAX]);

/* Every field of the job as text, for the checkpoints: free it with free. */
fl_status fl_checkpoint_job_text(const fl_job *job, char **text) FL_MUST_CHECK;

#endif
