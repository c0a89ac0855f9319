/* Tensors between neighbouring stages, message by message: posted ahead on the way in, copied and
 * let go on the way out. */
#ifndef FL_PIPE_STEP_MESSAGE_QUEUES_H
#define FL_PIPE_STEP_MESSAGE_QUEUES_H

#include "autodp/group/group.h"
#include "device/device.h"
#include "pipe/cost/memory.h"

/* The receiving end. Within a step the sizes of all messages are known beforehand. */
typedef struct fl_recv_queue {
    fl_channel *channel; /* NULL: nothing comes this way */
    const size_t *bytes; /* [n] of this step's messages; 0: not sent */
    int n;
    int posted, taken;         /* within this step, counting the empty ones */
    int64_t n_posted, n_taken; /* messages since the channel was opened */
} fl_recv_queue;

/* Begin a step's messages; posts the first ones. bytes is borrowed until the step's end. */
fl_status fl_recv_queue_begin(fl_recv_queue *flow, const size_t *bytes, int n) FL_MUST_CHECK;

/* Wait for the next message, copy it to `to` on the device, and post one more. */
fl_status fl_recv_queue_take(fl_recv_queue *flow, fl_device *device, fl_stream *stream, void *to,
                             int64_t deadline_us) FL_MUST_CHECK;

/* The sending end. */
typedef struct fl_send_queue {
    fl_channel *channel; /* NULL: nothing leaves this way */
    int64_t n_sent;
} fl_send_queue;

/* Copy `size_bytes` from the device and send them; 0 bytes send nothing. Waits only while
 * FL_QUEUE_DEPTH messages are still under way. */
fl_status fl_send_queue_put(fl_send_queue *flow, fl_device *device, fl_stream *stream,
                            const void *from, size_t size_bytes, int64_t deadline_us) FL_MUST_CHECK;

#endif
