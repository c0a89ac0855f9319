/* The checkpoints that a run has left. */
#ifndef FL_TESTS_SUPPORT_RUNS_RUN_CHECKPOINTS_H
#define FL_TESTS_SUPPORT_RUNS_RUN_CHECKPOINTS_H

#include "control/checkpoint/manifest/manifest.h"

/* Of the runs that write them. */
enum { N_SAMPLES = 200, PER_EPOCH = 20 };

#define TRAINING                                                                                   \
    "train.batch", "10", "train.lr", "1e-4", "autodp.bucket", "16KiB", "run.save_model", "false",  \
        "pipe.m", "2"

void run_file_path(char path[512], const char *dir, const char *name);

/* The checkpoints of a run, the newest first; free *folders. Each folder that looks like one is
 * whole, agrees with its manifest in every byte, and is what the model can be loaded from. */
int check_all_checkpoints(const char *dir, fl_checkpoint_folder **folders);

#endif
