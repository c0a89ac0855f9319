/* A copy of every layer's weights and moments in memory that the run's processes share: what a run
 * goes back to when a lost worker had layers that no other one has. There are two slots: while one
 * is filled, the other holds the last snapshot that is complete.
 *
 *     slot:  layer 0 [weights | moments], layer 1 [weights | moments], ...
 *
 * each as the layer has it on its device (pipe/cost/layout.h). The memory belongs to no worker: it
 * is there as long as one process of the host has it, and goes with the last one. Each part of a
 * layer has a seal, the hash of what was copied: a slot that was overwritten by a defect, or is
 * torn because a copy was late, is not taken for a state of the run. */
#ifndef FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_H
#define FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_H

#include "pipe/state/checkpoint/checkpoint_writer.h"
#include "pipe/state/state_source.h"

#include <stdatomic.h>

enum { FL_SNAPSHOT_SLOTS = 2 };

/* What is to be filled now. A worker may find an older request in its list, long after that one was
 * given up: it must not write then. */
typedef struct fl_snapshot_wanted {
    _Atomic int64_t serial; /* of the request; 0: nothing is to be filled */
    _Atomic int slot;
} fl_snapshot_wanted;

/* Of a layer's weights or moments in a slot. */
typedef struct fl_snapshot_seal {
    int64_t serial; /* of the request that filled them; 0: nobody has */
    uint64_t hash;  /* XXH3 */
} fl_snapshot_seal;

enum { FL_SNAPSHOT_PARTS = 2 }; /* weights, moments */

/* A struct of zeros holds nothing. */
typedef struct fl_snapshot {
    const fl_model *model; /* borrowed */
    int n_moments;         /* of the optimizer */
    int64_t *layer_at;     /* [layers + 1] elements of a slot before each layer */
    void *memory;          /* shared with forked processes: */
    fl_snapshot_wanted *wanted;
    fl_snapshot_seal *seals; /* [FL_SNAPSHOT_SLOTS][layers][FL_SNAPSHOT_PARTS] */
    float *slots;            /* [FL_SNAPSHOT_SLOTS][layer_at[layers]] */
} fl_snapshot;

/* Memory that all slots take once each has been filled. */
int64_t fl_snapshot_bytes(const fl_model *model, int n_moments);

/* Call it before the processes are forked that are to share it. FL_ENOMEM. */
fl_status fl_snapshot_open(const fl_model *model, int n_moments, fl_snapshot *out) FL_MUST_CHECK;
void fl_snapshot_close(fl_snapshot *snapshot);

/* For the controller: requests with this serial number fill this slot from now on, no other ones.
 * What the slot had is gone. serial 0: none does, and all slots stay as they are. */
void fl_snapshot_want(const fl_snapshot *snapshot, int64_t serial, int slot);

/* Copy the layers that `rank` has to write (fl_checkpoint_writer_rank) into the slot of the
 * request. *bytes: how much. Returns FL_ESTALE, without a message, if it is not wanted any more;
 * what the device returns. */
fl_status fl_snapshot_put(const fl_snapshot *snapshot, int64_t serial,
                          const fl_checkpoint_state *state, int rank, int64_t *bytes) FL_MUST_CHECK;

/* Whether every part of the slot is what a worker copied there. Parts that nobody had, such as
 * moments that were lost with a worker, are not looked at. Returns FL_EFORMAT, naming the first one
 * that differs. Threads: while nobody fills the slot. */
fl_status fl_snapshot_check(const fl_snapshot *snapshot, int slot) FL_MUST_CHECK;

/* One slot, to be read. */
typedef struct fl_snapshot_view {
    const fl_snapshot *snapshot;
    int slot;
} fl_snapshot_view;

/* Borrows *view. */
fl_state_source fl_snapshot_source(const fl_snapshot_view *view);

#endif
