/* Two hosts that share no files, as ranks: rank 0 is on the head, rank 1 on another host. Each has
 * the state of all workers of a small model, of which it uses its own, and the message group. */
#ifndef FL_TESTS_SUPPORT_RANKS_FAR_RANKS_H
#define FL_TESTS_SUPPORT_RANKS_FAR_RANKS_H

#include "support/data/saved_state.h"
#include "support/ranks/ranks.h"

enum { FAR_BLOCKS = 4, FAR_PATIENCE_MS = 60000, FAR_GENERATION = 3 };

typedef struct far_rank {
    const rank_env *env;
    fl_model *model;
    fl_device *cpu;
    int folder_fd;
    fl_checkpoint_store store;
    saved_truth truth;
    fl_state_source source;
    fl_message_group *messages;
    fl_checkpoint_far far;
    fl_checkpoint_state state; /* of this rank's worker */
    saved_run *run;            /* borrowed: it is large */
} far_rank;

/* folder: for checkpoints. *s must stay where it is. The rank ends if something fails. */
void far_rank_open(const rank_env *env, const char *folder, saved_run *run, far_rank *s);
void far_rank_close(far_rank *s);

/* Exchange a byte with the other rank. */
fl_status far_rank_meet(const far_rank *s);

#endif
