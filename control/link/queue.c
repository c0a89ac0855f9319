#include "control/link/queue.h"

#include "device/system/alloc.h"

fl_status fl_queue_init(fl_queue *queue, size_t start_bytes, size_t limit_bytes)
{
    *queue = (fl_queue){.limit_bytes = limit_bytes,
                        .filling_capacity = start_bytes,
                        .draining_capacity = start_bytes};
    FL_TRY(fl_alloc(start_bytes, (void **)&queue->filling));
    fl_status status = fl_alloc(start_bytes, (void **)&queue->draining);
    if (status != FL_OK) {
        fl_free(queue->filling);
        return status;
    }
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->room, NULL);
    return FL_OK;
}

void fl_queue_fini(fl_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->room);
    fl_free(queue->filling);
    fl_free(queue->draining);
    queue->filling = queue->draining = NULL;
}

/* Grow the filling buffer by `size_bytes`. False when the limit or the memory forbids it. */
static bool grow(fl_queue *queue, size_t size_bytes)
{
    size_t needed = queue->n_filling + size_bytes, capacity = queue->filling_capacity;
    if (needed > queue->limit_bytes) {
        return false;
    }
    while (capacity < needed) {
        capacity *= 2;
    }
    void *larger = queue->filling;
    if (fl_realloc(&larger, queue->n_filling, capacity) != FL_OK) {
        return false;
    }
    queue->filling = (unsigned char *)larger;
    queue->filling_capacity = capacity;
    return true;
}

fl_status fl_queue_put(fl_queue *queue, const fl_wire_message *frame)
{
    size_t size_bytes = fl_wire_size(frame);
    bool fits = true;
    pthread_mutex_lock(&queue->lock);
    while (!queue->closed && queue->filling_capacity - queue->n_filling < size_bytes &&
           !grow(queue, size_bytes)) {
        if (queue->n_filling == 0) {
            fits = false;
            break;
        }
        pthread_cond_wait(&queue->room, &queue->lock);
    }
    if (fits && !queue->closed) {
        fl_wire_put(frame, queue->filling + queue->n_filling);
        queue->n_filling += size_bytes;
    }
    pthread_mutex_unlock(&queue->lock);
    if (!fits) {
        return fl_fail(FL_ENOMEM, "no room for a report of %zu bytes", size_bytes);
    }
    return FL_OK;
}

const unsigned char *fl_queue_take(fl_queue *queue, size_t *size_bytes)
{
    pthread_mutex_lock(&queue->lock);
    unsigned char *bytes = queue->filling;
    size_t capacity = queue->filling_capacity;
    *size_bytes = queue->n_filling;
    queue->filling = queue->draining;
    queue->filling_capacity = queue->draining_capacity;
    queue->draining = bytes;
    queue->draining_capacity = capacity;
    queue->n_filling = 0;
    pthread_cond_broadcast(&queue->room);
    pthread_mutex_unlock(&queue->lock);
    return bytes;
}

void fl_queue_close(fl_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->room);
    pthread_mutex_unlock(&queue->lock);
}
