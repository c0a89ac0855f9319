/* The folder of a run's checkpoints, and what the controller tells all workers about it in shared
 * memory. The controller's process opens it before it forks the workers. */
#ifndef FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_STORE_H
#define FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_STORE_H

#include "pipe/state/checkpoint/checkpoint_files.h"

#include <stdatomic.h>

/* A file as the newest durable checkpoint's manifest has it; bytes 0: it has no such file. */
typedef struct fl_checkpoint_kept_file {
    _Atomic int64_t bytes;
    _Atomic uint64_t xxh64;
} fl_checkpoint_kept_file;

/* A struct of zeros holds nothing. */
typedef struct fl_checkpoint_store {
    int dir_fd;                 /* the folder of the checkpoints */
    const char *config;         /* text of config.json, which each checkpoint gets; borrowed; NULL:
                                   none */
    _Atomic int64_t *kept_step; /* shared with forked processes. The step of the newest durable
                                   checkpoint in the folder that this run wrote or began with, -1:
                                   none. The controller alone sets it; a worker links files that
                                   have not changed since to that checkpoint's */
    fl_checkpoint_kept_file *kept; /* [FL_CHECKPOINT_PARTS * FL_MAX_LAYERS] its files; shared. A
                                   file that may be linked has the same contents in each checkpoint
                                   since its layer was frozen: an older value is right, too */
} fl_checkpoint_store;

/* Open the folder `path`, relative to base_fd, and make it if only its last part is missing.
 * kept_step begins as -1. Returns FL_EIO with the path and the reason, FL_ENOMEM; holds nothing on
 * failure. */
fl_status fl_checkpoint_store_open(int base_fd, const char *path,
                                   fl_checkpoint_store *out) FL_MUST_CHECK;

fl_checkpoint_kept_file *fl_checkpoint_kept(const fl_checkpoint_store *store,
                                            fl_checkpoint_part part, int layer);

void fl_checkpoint_store_close(fl_checkpoint_store *store);

#endif
