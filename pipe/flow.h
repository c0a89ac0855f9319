/* Tensors between neighbouring stages, message by message: posted ahead on the way in, copied and
 * let go on the way out. */
#ifndef FL_PIPE_FLOW_H
#define FL_PIPE_FLOW_H

#include "autodp/group.h"
#include "device/device.h"

enum { FL_FLOW_DEPTH = 2 }; /* messages under way at once in each direction */

/* The receiving end. Within a step the sizes of all messages are known beforehand. */
typedef struct fl_inflow {
    fl_channel *channel; /* NULL: nothing comes this way */
    const size_t *bytes; /* [n] of this step's messages; 0: not sent */
    int n;
    int posted, taken;         /* within this step, counting the empty ones */
    int64_t n_posted, n_taken; /* messages since the channel was opened */
} fl_inflow;

/* Begin a step's messages; posts the first ones. bytes is borrowed until the step's end. */
fl_status fl_inflow_begin(fl_inflow *flow, const size_t *bytes, int n) FL_MUST_CHECK;

/* Wait for the next message, copy it to `to` on the device, and post one more. */
fl_status fl_inflow_take(fl_inflow *flow, fl_device *device, fl_stream *stream, void *to,
                         int64_t deadline_us) FL_MUST_CHECK;

/* The sending end. */
typedef struct fl_outflow {
    fl_channel *channel; /* NULL: nothing leaves this way */
    int64_t n_sent;
} fl_outflow;

/* Copy `size_bytes` from the device and send them; 0 bytes send nothing. Waits only while
 * FL_FLOW_DEPTH messages are still under way. */
fl_status fl_outflow_put(fl_outflow *flow, fl_device *device, fl_stream *stream, const void *from,
                         size_t size_bytes, int64_t deadline_us) FL_MUST_CHECK;

#endif
