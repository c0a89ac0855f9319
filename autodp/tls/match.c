/* Which receive a message goes to, and which send may begin.
 *
 *     receiver   posted: receives in their order        --- credit --->   sender
 *     sender     waiting: sends without a credit        <--- data ----
 *                credits: without a send
 *
 * A message begins only once its receive was posted, so it never waits in front of another one of
 * the same connection, and it is read into the memory where it is wanted. */
#include "autodp/tls/state.h"

#include "device/alloc.h"

enum {
    BLOCK = 64,
    MOST_CREDITS = 1 << 20, /* that a member may give before a send uses one */
};

/* ---- queues and operations ---- */

void fl__tls_push(fl__tls_queue *queue, fl__tls_op *op)
{
    op->next = NULL;
    if (queue->last != NULL) {
        queue->last->next = op;
    } else {
        queue->first = op;
    }
    queue->last = op;
}

/* Take the operation behind `previous` out; NULL: the first one. */
static fl__tls_op *unlink_behind(fl__tls_queue *queue, fl__tls_op *previous)
{
    fl__tls_op *op = previous == NULL ? queue->first : previous->next;
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

fl__tls_op *fl__tls_pop(fl__tls_queue *queue)
{
    return unlink_behind(queue, NULL);
}

fl__tls_op *fl__tls_take_tag(fl__tls_queue *queue, uint64_t tag)
{
    fl__tls_op *previous = NULL;
    for (fl__tls_op *op = queue->first; op != NULL; previous = op, op = op->next) {
        if (op->frame.tag == tag) {
            return unlink_behind(queue, previous);
        }
    }
    return NULL;
}

fl_status fl__tls_ops_reserve(fl__tls_net *net, int n)
{
    for (int done = 0; done < n; done += BLOCK - 1) {
        fl__tls_op *block = NULL;
        FL_TRY(fl_alloc_array(BLOCK, sizeof *block, (void **)&block));
        block->next = net->blocks;
        net->blocks = block;
        for (int i = 1; i < BLOCK; i++) {
            fl__tls_op_give(net, &block[i]);
        }
    }
    return FL_OK;
}

fl_status fl__tls_op_take(fl__tls_net *net, fl__tls_op **out)
{
    if (net->free_ops == NULL) {
        FL_TRY(fl__tls_ops_reserve(net, 1));
    }
    *out = net->free_ops;
    net->free_ops = (*out)->next;
    **out = (fl__tls_op){0};
    return FL_OK;
}

void fl__tls_op_give(fl__tls_net *net, fl__tls_op *op)
{
    op->next = net->free_ops;
    net->free_ops = op;
}

void fl__tls_ops_free(fl__tls_net *net)
{
    while (net->blocks != NULL) {
        fl__tls_op *block = net->blocks;
        net->blocks = block->next;
        fl_free(block);
    }
}

/* ---- sends ---- */

fl_status fl__tls_match_send(fl__tls_net *net, fl__tls_peer *p, fl__tls_op *op)
{
    fl__tls_op *credit = fl__tls_take_tag(&p->credits, op->frame.tag);
    if (credit == NULL) {
        fl__tls_push(&p->waiting, op);
        return FL_OK;
    }
    uint64_t most = credit->frame.size_bytes;
    p->n_credits--;
    fl__tls_op_give(net, credit);
    if (op->frame.size_bytes > most) {
        return fl_fail(FL_EPEER, "%llu bytes for member %d, which receives at most %llu",
                       (unsigned long long)op->frame.size_bytes, p->rank, (unsigned long long)most);
    }
    fl__tls_push(&p->ready, op);
    return FL_OK;
}

fl_status fl__tls_match_credit(fl__tls_net *net, fl__tls_peer *p, const fl__tls_frame *frame)
{
    fl__tls_op *op = fl__tls_take_tag(&p->waiting, frame->tag);
    if (op != NULL) {
        if (op->frame.size_bytes > frame->size_bytes) {
            fl__tls_push(&p->waiting, op);
            return fl_fail(FL_EPEER, "%llu bytes for member %d, which receives at most %llu",
                           (unsigned long long)op->frame.size_bytes, p->rank,
                           (unsigned long long)frame->size_bytes);
        }
        fl__tls_push(&p->ready, op);
        return FL_OK;
    }
    if (p->n_credits == MOST_CREDITS) {
        return fl_fail(FL_EPEER, "member %d waits for %d messages", p->rank, MOST_CREDITS);
    }
    FL_TRY(fl__tls_op_take(net, &op));
    op->frame = *frame;
    p->n_credits++;
    fl__tls_push(&p->credits, op);
    return FL_OK;
}

/* ---- receives ---- */

/* A receive that was withdrawn after its credit had gone; its message has not begun. */
static fl__tls_op *find_withdrawn(const fl__tls_peer *p, const fl__tls_op *like)
{
    fl__tls_op *op = p->posted.first;
    while (op != NULL && (op->buffer != NULL || op->frame.tag != like->frame.tag ||
                          op->frame.size_bytes != like->frame.size_bytes)) {
        op = op->next;
    }
    return op;
}

fl_status fl__tls_match_receive(fl__tls_net *net, fl__tls_peer *p, fl__tls_op *op)
{
    fl__tls_op *credit = NULL, *withdrawn = find_withdrawn(p, op);
    if (withdrawn != NULL) {
        withdrawn->buffer = op->buffer;
        withdrawn->data = op->data;
        fl__tls_op_give(net, op);
        return FL_OK;
    }
    FL_TRY(fl__tls_op_take(net, &credit));
    credit->frame = op->frame;
    credit->frame.kind = FL__TLS_CREDIT;
    fl__tls_push(&p->posted, op);
    fl__tls_push(&p->control, credit);
    return FL_OK;
}

fl__tls_op *fl__tls_match_data(fl__tls_peer *p, const fl__tls_frame *frame)
{
    fl__tls_op *op = fl__tls_take_tag(&p->posted, frame->tag);
    if (op != NULL && frame->size_bytes > op->frame.size_bytes) {
        fl__tls_push(&p->posted, op);
        return NULL;
    }
    return op;
}

/* ---- buffers that go ---- */

static void drop_sends(fl__tls_net *net, fl__tls_queue *queue, const fl__tls_buffer *b)
{
    fl__tls_op *previous = NULL, *op = queue->first;
    while (op != NULL) {
        if (op->buffer == b) {
            fl__tls_op_give(net, unlink_behind(queue, previous));
        } else {
            previous = op;
        }
        op = previous == NULL ? queue->first : previous->next;
    }
}

void fl__tls_withdraw(fl__tls_net *net, fl__tls_peer *p, fl__tls_buffer *b)
{
    for (fl__tls_op *op = p->posted.first; op != NULL; op = op->next) {
        if (op->buffer == b) {
            op->buffer = NULL;
        }
    }
    while (p->in.op != NULL && p->in.op->buffer == b && p->in.busy) {
        pthread_cond_wait(&net->idle, &net->mutex);
    }
    if (p->in.op != NULL && p->in.op->buffer == b) {
        p->in.op->buffer = NULL;
    }
    drop_sends(net, &p->waiting, b);
    drop_sends(net, &p->ready, b);
    while (p->out.current != NULL && p->out.current->buffer == b && p->out.busy) {
        pthread_cond_wait(&net->idle, &net->mutex);
    }
    if (p->out.current != NULL && p->out.current->buffer == b) {
        fl__tls_out_close(net, p); /* what is missing of the message cannot be sent any more */
        fl__tls_lose(net, p, "a message was given up before all of it was sent");
    }
}
