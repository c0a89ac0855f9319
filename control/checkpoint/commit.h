/* Makes a folder of tensors a checkpoint, or removes it, in a thread of its own: what waits for the
 * disk must not keep the controller from its workers.
 *
 *     ① steps.jsonl, events.jsonl and ledger.bin onto the disk
 *     ② once the files of all workers are there: the index of the weights, config.json, then the
 *       manifest, under its name
 *     ③ kept_step: from now on, workers may link to this checkpoint
 *     ④ `best`, a link to the checkpoint of the best evaluation, if that one is whole; else
 *       of the best one before the last step
 *     ⑤ remove older checkpoints, but for the newest `keep` and the best one, and older folders
 *       without a manifest */
#ifndef FL_CONTROL_CHECKPOINT_COMMIT_H
#define FL_CONTROL_CHECKPOINT_COMMIT_H

#include "control/checkpoint/manifest/manifest.h"
#include "pipe/state/checkpoint/checkpoint_store.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct fl_commit {
    /* set before fl_commit_start; borrowed until fl_commit_end */
    const fl_checkpoint_store *store;
    const fl_model *model;
    int run_fd;                /* the run directory */
    fl_checkpoint *checkpoint; /* with all files but the index; NULL: only remove the folder */
    int writer[FL_CHECKPOINT_FILES_MAX]; /* by file of `checkpoint`: 1 + the rank that has written
                                            it; 0: unknown */
    bool renews; /* the folder is a checkpoint, `checkpoint` has all of its files: write only the
                    manifest again, and keep the folder after a failure */
    int64_t step;
    int64_t best_step; /* steps before the best evaluation; 0: the run keeps no best checkpoint */
    int64_t
        best_asked; /* the best one before the last step, whose checkpoint was asked for; 0: none */
    int64_t keep;

    /* the result, after fl_commit_end */
    fl_status status;
    char why[1100];
    int lost_writer; /* 1 + the rank whose file is not there as that worker has written it; 0: none
                      */
    int64_t took_us;
    int64_t best_step_found; /* of the link `best` afterwards; -1: there is none */

    pthread_t thread;
    bool running; /* to be joined */
    atomic_bool done, abandoned;
} fl_commit;

/* Start the thread. FL_ENOMEM if the system has no room for one: nothing was done. */
fl_status fl_commit_start(fl_commit *commit) FL_MUST_CHECK;

/* Whether the thread has finished. Never waits. */
bool fl_commit_is_done(const fl_commit *commit);

/* Wait for the thread; its result is in status, why and took_us. After a failure the folder is
 * gone. */
void fl_commit_end(fl_commit *commit);

/* Wait at most this long for the thread. Returns whether it has ended. */
bool fl_commit_wait(fl_commit *commit, int64_t timeout_ms);

/* Give up a thread that the disk does not let go. It keeps the commit and its checkpoint, which
 * stay in memory until the process ends, and uses nothing that it borrowed any more. */
void fl_commit_abandon(fl_commit *commit);

/* Let workers link to the files of this checkpoint, which is durable. */
void fl_checkpoint_announce(const fl_checkpoint_store *store, const fl_checkpoint *checkpoint);

/* Remove a checkpoint, whole or not, by its step; one that does not exist is fine. Only files of a
 * checkpoint are removed. FL_EFAILED names what is there beside them: that stays, and the folder is
 * no checkpoint any more. */
fl_status fl_checkpoint_remove(int dir_fd, int64_t step) FL_MUST_CHECK;

/* The step of the newest checkpoint in the folder of checkpoints; -1: it has none. */
int64_t fl_checkpoint_newest(int dir_fd);

/* The same among those after at most `most` steps. */
int64_t fl_checkpoint_newest_until(int dir_fd, int64_t most);

/* The step of the checkpoint to which the link `best` leads; -1: none, or it is not whole. */
int64_t fl_checkpoint_best(int dir_fd);

/* Remove folders without a manifest, and the link `best` if nothing whole is there, and those of
 * checkpoints after `newest_step`: they belong to steps that a resumed run takes again. No worker
 * may be writing. */
void fl_checkpoint_tidy(int dir_fd, int64_t newest_step);

#endif
