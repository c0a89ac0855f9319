/* Checkpoints as saved models: which one has the weights of a run that left no model. */
#ifndef FL_LAUNCHER_RUN_SAVED_SAVED_CHECKPOINT_H
#define FL_LAUNCHER_RUN_SAVED_SAVED_CHECKPOINT_H

#include <frostline/status.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FL_SAVED_NOTE_MAX = 2048,
    FL_SAVED_TRIES_MAX = 5 /* of a run that deletes a checkpoint while it is read */
};

/* FL_OK if the folder is a checkpoint whose weights are whole; a folder without a manifest is taken
 * for one of weights, and not checked, unless it has the name of a checkpoint. Moments are not
 * read. *step: how many steps were finished; -1: unknown. Returns FL_EFORMAT, FL_ENOTSUP or FL_EIO
 * with the file and what is wrong with it. */
fl_status fl_saved_checkpoint_check(const char *folder, int64_t *step) FL_MUST_CHECK;

/* Whether the folder is not there, or has no manifest. */
bool fl_saved_checkpoint_is_gone(const char *folder);

/* Find the newest checkpoint of a run whose weights are whole. Where a live run deletes one while
 * it is read, the run's checkpoints are looked at again, a few times.
 * path      "": the run has no such checkpoint
 * step      how many steps were finished
 * note      a line, with a newline at its end, is appended for each newer one, with the reason why
 *           it is not used */
fl_status fl_saved_checkpoint_find(const char *run, char path[PATH_MAX], int64_t *step,
                                   char note[FL_SAVED_NOTE_MAX]) FL_MUST_CHECK;

/* The folder of the run's checkpoint after that number of steps, or of the one named "best".
 * FL_EINVAL, with those that the run has, if it has no such one; FL_EIO. */
fl_status fl_saved_checkpoint_named(const char *run, const char *name,
                                    char path[PATH_MAX]) FL_MUST_CHECK;

#endif
