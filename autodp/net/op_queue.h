/* The operations of a net whose messages wait for a credit: those that members have started, in
 * queues, and a pool that they are taken from. Used by the nets through shared memory and by TLS,
 * each under its own mutex. */
#ifndef FL_AUTODP_NET_OP_QUEUE_H
#define FL_AUTODP_NET_OP_QUEUE_H

#include "autodp/net/net.h"

/* The head of a message, or of a credit: one message of at most size_bytes may come. The kinds are
 * the net's. */
typedef struct fl_net_frame {
    uint64_t kind, tag, size_bytes;
} fl_net_frame;

/* A started operation, or a frame without a payload. */
typedef struct fl_net_op {
    struct fl_net_op *next;
    fl_net_buffer *buffer; /* whose operation it is; NULL: nobody waits for it any more */
    bool sends;
    unsigned char *data;
    fl_net_frame frame; /* a receive's: size_bytes is the most that may come */
} fl_net_op;

/* The oldest first. A struct of zeros is empty. */
typedef struct fl_net_queue {
    fl_net_op *first, *last;
} fl_net_queue;

void fl__net_push(fl_net_queue *queue, fl_net_op *op);

/* Take out the operation behind `previous`, or the first one if that is NULL. Returns NULL at the
 * end of the queue. */
fl_net_op *fl__net_take_behind(fl_net_queue *queue, fl_net_op *previous);

/* Take out the oldest operation with this tag. Returns NULL if the queue has none. */
fl_net_op *fl__net_take_tag(fl_net_queue *queue, uint64_t tag);

/* Operations to use, of blocks that are allocated as a whole, so that a step allocates nothing. A
 * struct of zeros has none. */
typedef struct fl_net_pool {
    fl_net_op *unused;
    fl_net_op *blocks; /* the first one of each block links to the next block */
} fl_net_pool;

/* At least n more are there. FL_ENOMEM. */
fl_status fl__net_pool_reserve(fl_net_pool *pool, int n) FL_MUST_CHECK;
void fl__net_pool_free(fl_net_pool *pool);

/* Take one, all zeros, and give it back. FL_ENOMEM. */
fl_status fl__net_op_take(fl_net_pool *pool, fl_net_op **out) FL_MUST_CHECK;
void fl__net_op_give(fl_net_pool *pool, fl_net_op *op);

/* Give back all operations of the buffer that wait in the queue. */
void fl__net_queue_drop(fl_net_pool *pool, fl_net_queue *queue, const fl_net_buffer *buffer);

#endif
