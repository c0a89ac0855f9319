/* A toy model, two states of it, and a store of checkpoints in a folder, which runs save to. */
#ifndef FL_TESTS_SUPPORT_DATA_SAVED_RIG_H
#define FL_TESTS_SUPPORT_DATA_SAVED_RIG_H

#include "support/data/saved_state.h"
#include "support/folder.h"

typedef struct saved_rig_state {
    fl_model *model;
    fl_device *cpu;
    char folder[FOLDER_SIZE];
    int folder_fd;
    fl_checkpoint_store store; /* in the folder */
    saved_run run;             /* large */
    saved_truth first_truth, second_truth;
    fl_state_source first, second; /* states of the model that differ */
} saved_rig_state;

extern saved_rig_state saved_rig;

/* Of the group of tests: the model, the device and the states. Of each test: the folder. */
int saved_rig_set_up_all(void **state);
int saved_rig_tear_down_all(void **state);
int saved_rig_set_up(void **state);
int saved_rig_tear_down(void **state);

/* A run on n_workers whose state is `from` after `step` steps. */
void saved_rig_open(int F, int K, int R, int n_workers, int64_t step, const fl_state_source *from);

/* How many files this process has open. */
int saved_rig_n_files(void);

#endif
