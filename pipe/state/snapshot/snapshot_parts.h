/* The parts of a snapshot, for the files of pipe/state/snapshot/ that fill and read it. */
#ifndef FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_PARTS_H
#define FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_PARTS_H

#include "pipe/state/snapshot/snapshot.h"

/* A layer's weights, part 0, or moments, part 1: where they lie in the slot, and *n, how many. */
float *fl__snapshot_part(const fl_snapshot *snapshot, int slot, int layer, int part, int64_t *n);

/* Record the hash of what lies there now. */
void fl__snapshot_seal(const fl_snapshot *snapshot, int slot, int64_t serial, int layer, int part);

/* The rank that has the part to copy it; -1: there is none. */
int fl__snapshot_writer(const fl_snapshot *snapshot, const fl_plan *plan, const int *parked,
                        int layer, int part);

/* Copy what `rank` has to write into the slot, and add its elements to *n. The copies are complete
 * when this returns. */
fl_status fl__snapshot_copy(const fl_snapshot *snapshot, int slot, const fl_checkpoint_state *state,
                            int rank, int64_t *n) FL_MUST_CHECK;

/* Read one part of a layer's state (pipe/state/state_source.h) into the slot. */
fl_status fl__snapshot_read(const fl_snapshot *snapshot, int slot, const fl_state_source *source,
                            int layer, int part) FL_MUST_CHECK;

#endif
