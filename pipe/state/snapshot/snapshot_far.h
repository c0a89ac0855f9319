/* Layers that go between the head and the other hosts while all workers wait: what they begin with
 * when a run goes back to a snapshot, which the head has, or continues a checkpoint that the others
 * cannot read; and the weights of the trained model. What goes to the head while training continues
 * is in pipe/state/snapshot/snapshot_writer.h.
 *
 *     deliver:  the slot ──> a worker of the head ──layers──> worker of another host
 *     collect:  worker of another host ──weights──> a worker of the head
 *
 * The layers are divided among the head's workers. All members call each function at the same
 * place, because they all know the plan from which the list of transfers follows. */
#ifndef FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_FAR_H
#define FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_FAR_H

#include "autodp/message.h"
#include "pipe/state/snapshot/snapshot.h"

typedef struct fl_snapshot_far {
    const fl_snapshot *snapshot; /* on the head: the run's. Elsewhere: this worker's own, of which
                                    slot 0 is used. Borrowed, as all of this */
    int rank, n_head;            /* ranks below n_head are on the head */
    fl_message_group *messages;
    fl_device *device;
    const fl_plan *plan;
    const int *parked; /* [layers] as in fl_parked */
} fl_snapshot_far;

/* On the head: send from this slot what workers of other hosts need under the plan. Elsewhere:
 * receive it into slot 0, from which fl_snapshot_source reads it; slot is not used. */
fl_status fl_snapshot_deliver(const fl_snapshot_far *far, int slot,
                              int64_t deadline_us) FL_MUST_CHECK;

/* The weights alone, into slot 0 of each worker's own memory, on the head, too: of the layers for
 * which fl_snapshot_is_kept. */
fl_status fl_snapshot_collect_weights(const fl_snapshot_far *far, const fl_checkpoint_state *state,
                                      int64_t deadline_us) FL_MUST_CHECK;

/* Whether this worker, of the head, takes the weights of the layer from another host. Pure. */
bool fl_snapshot_is_kept(const fl_snapshot_far *far, int layer);

/* Its weights in slot 0, one parameter after the other. Borrowed. */
const float *fl_snapshot_weights(const fl_snapshot_far *far, int layer);

/* Fill slot 0 with what other hosts need of the layers that this worker of the head sends. */
fl_status fl_snapshot_fill(const fl_snapshot_far *far, const fl_state_source *source) FL_MUST_CHECK;

#endif
