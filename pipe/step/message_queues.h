/* Tensors between neighbouring stages, message by message. */
#ifndef FL_PIPE_STEP_MESSAGE_QUEUES_H
#define FL_PIPE_STEP_MESSAGE_QUEUES_H

#include "autodp/group/group.h"
#include "pipe/cost/memory/memory.h"

/* The receiving end. Within a step the sizes of all messages are known beforehand. */
typedef struct fl_recv_queue {
    fl_channel *channel; /* NULL: nothing comes this way */
    const size_t *bytes; /* [n] of this step's messages; 0: not sent */
    int n;
    int posted, taken; /* within this step, counting the empty ones */
    int n_ahead;       /* posted and not taken */
} fl_recv_queue;

/* Begin a step's messages; posts the first ones. bytes is borrowed until the step's end. */
fl_status fl_recv_queue_begin(fl_recv_queue *queue, const size_t *bytes, int n) FL_MUST_CHECK;

/* Wait for the next message, and post one more. Later work of the stream finds it at `to`. */
fl_status fl_recv_queue_take(fl_recv_queue *queue, fl_stream *stream, void *to,
                             int64_t deadline_us) FL_MUST_CHECK;

/* The sending end. */
typedef struct fl_send_queue {
    fl_channel *channel; /* NULL: nothing leaves this way */
} fl_send_queue;

/* As fl_channel_place. NULL too where nothing leaves. */
void *fl_send_queue_place(fl_send_queue *queue);

/* As fl_channel_send_from; 0 bytes send nothing. */
fl_status fl_send_queue_put(fl_send_queue *queue, fl_stream *stream, const void *from,
                            size_t size_bytes, int64_t deadline_us) FL_MUST_CHECK;

#endif
