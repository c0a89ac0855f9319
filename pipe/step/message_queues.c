#include "pipe/step/message_queues.h"

/* Post the next message that is not empty, if fewer than FL_QUEUE_DEPTH are posted ahead. */
static fl_status post_ahead(fl_recv_queue *queue)
{
    while (queue->posted < queue->n && queue->n_ahead < FL_QUEUE_DEPTH) {
        size_t bytes = queue->bytes[queue->posted];
        if (bytes > 0) {
            FL_TRY(fl_channel_post(queue->channel, bytes));
            queue->n_ahead++;
        }
        queue->posted++;
    }
    return FL_OK;
}

fl_status fl_recv_queue_begin(fl_recv_queue *queue, const size_t *bytes, int n)
{
    if (queue->channel == NULL) {
        return FL_OK;
    }
    queue->bytes = bytes;
    queue->n = n;
    queue->posted = 0;
    queue->taken = 0;
    return post_ahead(queue);
}

fl_status fl_recv_queue_take(fl_recv_queue *queue, fl_stream *stream, void *to, int64_t deadline_us)
{
    size_t bytes = queue->bytes[queue->taken++];
    if (bytes == 0) {
        return FL_OK;
    }
    FL_TRY(fl_channel_receive_to(queue->channel, to, bytes, stream, deadline_us));
    queue->n_ahead--;
    return post_ahead(queue);
}

void *fl_send_queue_place(fl_send_queue *queue)
{
    return queue->channel == NULL ? NULL : fl_channel_place(queue->channel);
}

fl_status fl_send_queue_put(fl_send_queue *queue, fl_stream *stream, const void *from,
                            size_t size_bytes, int64_t deadline_us)
{
    return size_bytes == 0
               ? FL_OK
               : fl_channel_send_from(queue->channel, from, size_bytes, stream, deadline_us);
}
