/* Which run a folder of checkpoints belongs to. The file `owner` in the folder has the path of that
 * run's directory; while the run trains, its process holds a lock on the file. */
#ifndef FL_LAUNCHER_RUN_RUNS_CHECKPOINT_OWNER_H
#define FL_LAUNCHER_RUN_RUNS_CHECKPOINT_OWNER_H

#include <frostline/status.h>

#include <stdbool.h>

/* Make the folder the run's, until the process ends or closes *held_fd.
 * folder   its path, for messages
 * run_dir  absolute
 * is_new   the run begins: the folder must hold no checkpoint, whole or not
 * Returns  FL_EINVAL if it is another run's, with what was found; FL_EIO. Then nothing is changed.
 */
fl_status fl_checkpoint_owner_take(int folder_fd, const char *folder, const char *run_dir,
                                   bool is_new, int *held_fd) FL_MUST_CHECK;

/* Whether the run may continue with the folder. FL_EINVAL if it is the folder of another run
 * directory, which is there and uses it: run directories that were copied share a folder elsewhere.
 * Changes nothing, and takes no lock. */
fl_status fl_checkpoint_owner_check(int folder_fd, const char *folder,
                                    const char *run_dir) FL_MUST_CHECK;

/* Give a folder without any checkpoint up: the file is removed. Returns whether there is none. */
bool fl_checkpoint_owner_forget(int folder_fd);

#endif
