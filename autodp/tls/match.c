/* Which receive a message goes to, and which send may begin.
 *
 *     receiver   posted: receives in their order        --- credit --->   sender
 *     sender     waiting: sends without a credit        <--- data ----
 *                credits: without a send
 *
 * A message begins only once its receive was posted, so it never waits in front of another one of
 * the same connection, and it is read into the memory where it is wanted. */
#include "autodp/tls/state.h"

enum { MOST_CREDITS = 1 << 20 }; /* that a member may give before a send uses one */

/* ---- sends ---- */

fl_status fl__tls_match_send(fl__tls_net *net, fl__tls_peer *p, fl_net_op *op)
{
    fl_net_op *credit = fl__net_take_tag(&p->credits, op->frame.tag);
    if (credit == NULL) {
        fl__net_push(&p->waiting, op);
        return FL_OK;
    }
    uint64_t most = credit->frame.size_bytes;
    p->n_credits--;
    fl__net_op_give(&net->ops, credit);
    if (op->frame.size_bytes > most) {
        return fl_fail(FL_EPEER, "%llu bytes for member %d, which receives at most %llu",
                       (unsigned long long)op->frame.size_bytes, p->rank, (unsigned long long)most);
    }
    fl__net_push(&p->ready, op);
    return FL_OK;
}

fl_status fl__tls_match_credit(fl__tls_net *net, fl__tls_peer *p, const fl_net_frame *frame)
{
    fl_net_op *op = fl__net_take_tag(&p->waiting, frame->tag);
    if (op != NULL) {
        if (op->frame.size_bytes > frame->size_bytes) {
            fl__net_push(&p->waiting, op);
            return fl_fail(FL_EPEER, "%llu bytes for member %d, which receives at most %llu",
                           (unsigned long long)op->frame.size_bytes, p->rank,
                           (unsigned long long)frame->size_bytes);
        }
        fl__net_push(&p->ready, op);
        return FL_OK;
    }
    if (p->n_credits == MOST_CREDITS) {
        return fl_fail(FL_EPEER, "member %d waits for %d messages", p->rank, MOST_CREDITS);
    }
    FL_TRY(fl__net_op_take(&net->ops, &op));
    op->frame = *frame;
    p->n_credits++;
    fl__net_push(&p->credits, op);
    return FL_OK;
}

/* ---- receives ---- */

/* A receive that was withdrawn after its credit had gone; its message has not begun. */
static fl_net_op *find_withdrawn(const fl__tls_peer *p, const fl_net_op *like)
{
    fl_net_op *op = p->posted.first;
    while (op != NULL && (op->buffer != NULL || op->frame.tag != like->frame.tag ||
                          op->frame.size_bytes != like->frame.size_bytes)) {
        op = op->next;
    }
    return op;
}

fl_status fl__tls_match_receive(fl__tls_net *net, fl__tls_peer *p, fl_net_op *op)
{
    fl_net_op *credit = NULL, *withdrawn = find_withdrawn(p, op);
    if (withdrawn != NULL) {
        withdrawn->buffer = op->buffer;
        withdrawn->data = op->data;
        fl__net_op_give(&net->ops, op);
        return FL_OK;
    }
    FL_TRY(fl__net_op_take(&net->ops, &credit));
    credit->frame = op->frame;
    credit->frame.kind = FL__TLS_CREDIT;
    fl__net_push(&p->posted, op);
    fl__net_push(&p->control, credit);
    return FL_OK;
}

fl_net_op *fl__tls_match_data(fl__tls_peer *p, const fl_net_frame *frame)
{
    fl_net_op *op = fl__net_take_tag(&p->posted, frame->tag);
    if (op != NULL && frame->size_bytes > op->frame.size_bytes) {
        fl__net_push(&p->posted, op);
        return NULL;
    }
    return op;
}

/* ---- buffers that go ---- */

void fl__tls_withdraw(fl__tls_net *net, fl__tls_peer *p, fl__tls_buffer *b)
{
    for (fl_net_op *op = p->posted.first; op != NULL; op = op->next) {
        if (op->buffer == &b->base) {
            op->buffer = NULL;
        }
    }
    while (p->in.op != NULL && p->in.op->buffer == &b->base && p->in.busy) {
        pthread_cond_wait(&net->idle, &net->mutex);
    }
    if (p->in.op != NULL && p->in.op->buffer == &b->base) {
        p->in.op->buffer = NULL;
    }
    fl__net_queue_drop(&net->ops, &p->waiting, &b->base);
    fl__net_queue_drop(&net->ops, &p->ready, &b->base);
    while (p->out.current != NULL && p->out.current->buffer == &b->base && p->out.busy) {
        pthread_cond_wait(&net->idle, &net->mutex);
    }
    if (p->out.current != NULL && p->out.current->buffer == &b->base) {
        fl__tls_out_close(net, p); /* what is missing of the message cannot be sent any more */
        fl__tls_lose(net, p, "a message was given up before all of it was sent");
    }
}
