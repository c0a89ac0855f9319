#include "autodp/net/op_queue.h"

#include "device/system/alloc.h"

enum { BLOCK = 64 };

/* ---- queues ---- */

void fl__net_push(fl_net_queue *queue, fl_net_op *op)
{
    op->next = NULL;
    if (queue->last != NULL) {
        queue->last->next = op;
    } else {
        queue->first = op;
    }
    queue->last = op;
}

fl_net_op *fl__net_take_behind(fl_net_queue *queue, fl_net_op *previous)
{
    fl_net_op *op = previous == NULL ? queue->first : previous->next;
    if (op == NULL) {
        return NULL;
    }
    if (previous == NULL) {
        queue->first = op->next;
    } else {
        previous->next = op->next;
    }
    if (queue->last == op) {
        queue->last = previous;
    }
    return op;
}

fl_net_op *fl__net_take_tag(fl_net_queue *queue, uint64_t tag)
{
    fl_net_op *previous = NULL;
    for (fl_net_op *op = queue->first; op != NULL; previous = op, op = op->next) {
        if (op->frame.tag == tag) {
            return fl__net_take_behind(queue, previous);
        }
    }
    return NULL;
}

void fl__net_queue_drop(fl_net_pool *pool, fl_net_queue *queue, const fl_net_buffer *buffer)
{
    fl_net_op *previous = NULL, *op = queue->first;
    while (op != NULL) {
        if (op->buffer == buffer) {
            fl__net_op_give(pool, fl__net_take_behind(queue, previous));
        } else {
            previous = op;
        }
        op = previous == NULL ? queue->first : previous->next;
    }
}

/* ---- the pool ---- */

fl_status fl__net_pool_reserve(fl_net_pool *pool, int n)
{
    for (int done = 0; done < n; done += BLOCK - 1) {
        fl_net_op *block = NULL;
        FL_TRY(fl_alloc_array(BLOCK, sizeof *block, (void **)&block));
        block->next = pool->blocks;
        pool->blocks = block;
        for (int i = 1; i < BLOCK; i++) {
            fl__net_op_give(pool, &block[i]);
        }
    }
    return FL_OK;
}

void fl__net_pool_free(fl_net_pool *pool)
{
    while (pool->blocks != NULL) {
        fl_net_op *block = pool->blocks;
        pool->blocks = block->next;
        fl_free(block);
    }
    pool->unused = NULL;
}

fl_status fl__net_op_take(fl_net_pool *pool, fl_net_op **out)
{
    if (pool->unused == NULL) {
        FL_TRY(fl__net_pool_reserve(pool, 1));
    }
    *out = pool->unused;
    pool->unused = (*out)->next;
    **out = (fl_net_op){0};
    return FL_OK;
}

void fl__net_op_give(fl_net_pool *pool, fl_net_op *op)
{
    op->next = pool->unused;
    pool->unused = op;
}
