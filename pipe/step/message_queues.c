#include "pipe/step/message_queues.h"

/* Post the next message that is not empty, if fewer than FL_QUEUE_DEPTH are posted ahead. */
static fl_status post_ahead(fl_recv_queue *flow)
{
    while (flow->posted < flow->n && flow->n_posted - flow->n_taken < FL_QUEUE_DEPTH) {
        size_t bytes = flow->bytes[flow->posted];
        if (bytes > 0) {
            FL_TRY(fl_channel_post(flow->channel, flow->n_posted, bytes));
            flow->n_posted++;
        }
        flow->posted++;
    }
    return FL_OK;
}

fl_status fl_recv_queue_begin(fl_recv_queue *flow, const size_t *bytes, int n)
{
    if (flow->channel == NULL) {
        return FL_OK;
    }
    flow->bytes = bytes;
    flow->n = n;
    flow->posted = 0;
    flow->taken = 0;
    return post_ahead(flow);
}

fl_status fl_recv_queue_take(fl_recv_queue *flow, fl_device *device, fl_stream *stream, void *to,
                             int64_t deadline_us)
{
    size_t bytes = flow->bytes[flow->taken++];
    if (bytes == 0) {
        return FL_OK;
    }
    FL_TRY(fl_channel_wait(flow->channel, flow->n_taken, deadline_us));
    FL_TRY(device->ops->copy_in(device, stream, to, fl_channel_buffer(flow->channel, flow->n_taken),
                                bytes));
    FL_TRY(device->ops->sync(device, stream));
    fl_channel_release(flow->channel, flow->n_taken);
    flow->n_taken++;
    return post_ahead(flow);
}

fl_status fl_send_queue_put(fl_send_queue *flow, fl_device *device, fl_stream *stream,
                            const void *from, size_t size_bytes, int64_t deadline_us)
{
    if (size_bytes == 0) {
        return FL_OK;
    }
    FL_TRY(fl_channel_reuse(flow->channel, flow->n_sent, deadline_us));
    FL_TRY(device->ops->copy_out(device, stream, fl_channel_buffer(flow->channel, flow->n_sent),
                                 from, size_bytes));
    FL_TRY(device->ops->sync(device, stream));
    FL_TRY(fl_channel_send(flow->channel, flow->n_sent, size_bytes));
    flow->n_sent++;
    return FL_OK;
}
