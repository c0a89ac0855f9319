/* The queue from the training thread to the link thread: encoded frames in two byte buffers that
 * change places. The only lock is held while one frame is copied or two pointers are swapped, so
 * neither thread waits for the other's work. */
#ifndef FL_CONTROL_LINK_QUEUE_H
#define FL_CONTROL_LINK_QUEUE_H

#include "control/link/wire/wire.h"

#include <pthread.h>

typedef struct fl_queue {
    pthread_mutex_t lock;
    pthread_cond_t room;
    unsigned char *filling, *draining;
    size_t n_filling; /* bytes */
    size_t filling_capacity, draining_capacity;
    size_t limit_bytes; /* a buffer does not grow past this */
    bool closed;
} fl_queue;

/* Both buffers start with start_bytes. */
fl_status fl_queue_init(fl_queue *queue, size_t start_bytes, size_t limit_bytes) FL_MUST_CHECK;
void fl_queue_fini(fl_queue *queue);

/* Append a frame. Allocates only when the queue holds more than ever before. At the limit (the
 * controller has been stopped for a long time) it waits until there is room again or the queue is
 * closed. Returns FL_ENOMEM for a frame larger than any buffer. Threads: any. */
fl_status fl_queue_put(fl_queue *queue, const fl_wire_message *frame) FL_MUST_CHECK;

/* Take every frame that was put since the last take, oldest first; valid until the next take.
 * Threads: one. */
const unsigned char *fl_queue_take(fl_queue *queue, size_t *size_bytes);

/* End the queue: later puts are dropped, and callers that wait for room return. Threads: any. */
void fl_queue_close(fl_queue *queue);

#endif
