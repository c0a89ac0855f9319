/* One worker's part of each snapshot in memory (pipe/state/snapshot/snapshot.h):
 *
 *     training thread  ① copy this worker's layers, and report that                   begin
 *                        on the head: into the slot of the request, and seal them
 *                        elsewhere: into memory of this worker
 *     its own thread   ② send them from there to the head, part by part; there, a     move_parts
 *                        worker receives each into the slot, and seals it
 *                      ③ report the end of the part
 *
 * Training stands still for ① only. In a run on one host, and for a worker that neither sends nor
 * receives, the part ends there. Before each part, the receiver tells the sender whether it still
 * wants it: a request that the controller has given up, or a message group that is to be closed,
 * ends ② with the part that is on its way.
 *
 * All snapshots are on the head, which no run outlives. So a run can go back, whichever other
 * hosts it loses together, and nobody has to ask around for parts. The layers of other hosts are
 * divided among the head's workers (fl_head_keeper). All members list the parts in one order, so
 * that no two wait for each other. */
#ifndef FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_WRITER_H
#define FL_PIPE_STATE_SNAPSHOT_SNAPSHOT_WRITER_H

#include "autodp/message.h"
#include "pipe/state/snapshot/snapshot.h"

typedef struct fl_snapshot_writer fl_snapshot_writer;

typedef struct fl_snapshot_writer_options {
    const fl_snapshot *snapshot; /* on the head: the run's; NULL: it makes none. Elsewhere: NULL */
    const fl_model *model;       /* borrowed, as everything here */
    int n_moments;               /* of the optimizer */
    int rank;
    int n_head; /* ranks below it are on the head; 0: the run has one host */
    /* The layers are copied (report->moves: and have still to be moved), or the part has ended. By
     * the writer's thread, or by the training thread. */
    void (*on_report)(void *context, const fl_snapshot_report *report);
    void *context;
} fl_snapshot_writer_options;

typedef struct fl_snapshot_request {
    int64_t step;     /* finished steps */
    int64_t serial;   /* of the controller's request */
    int64_t begun_us; /* since when training stands still for it */
    const fl_checkpoint_state *state;
    fl_message_group *messages; /* until fl_snapshot_writer_leave_messages; NULL with one host */
    int64_t deadline_ms;        /* for each piece of a part */
} fl_snapshot_request;

fl_status fl_snapshot_writer_create(const fl_snapshot_writer_options *options,
                                    fl_snapshot_writer **out) FL_MUST_CHECK;

/* What is on its way is given up, without a report. *writer becomes NULL; NULL is fine. */
void fl_snapshot_writer_destroy(fl_snapshot_writer **writer);

/* Whether it can begin: the part before has ended, and on the head the request is wanted. On
 * several hosts, all members begin or none does. */
bool fl_snapshot_writer_is_ready(fl_snapshot_writer *writer, const fl_plan *plan, int64_t serial);

/* ①; ② and ③ follow where parts move. Reports FL_ESTALE if the request is not wanted any more.
 * Fails with the device, or with FL_ENOMEM if others then wait for this worker's parts. */
fl_status fl_snapshot_writer_begin(fl_snapshot_writer *writer,
                                   const fl_snapshot_request *request) FL_MUST_CHECK;

/* Before the message group is closed, on all members: wait until the writer does not use it. What
 * is still to be sent is dropped. give_up: the message group is aborted first. */
void fl_snapshot_writer_leave_messages(fl_snapshot_writer *writer, bool give_up);

/* Wait until the part has ended: FL_EDEADLINE. */
fl_status fl_snapshot_writer_wait(fl_snapshot_writer *writer, int64_t deadline_us) FL_MUST_CHECK;

#endif
