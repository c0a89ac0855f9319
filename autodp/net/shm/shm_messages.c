/* Messages of a net through shared memory.
 *
 *     receiver: post ---- credit ---->  sender
 *               data <--- message ----  send: once it has a credit of the message's tag
 *
 * So a message always finds the memory that it goes to, and no message waits in a lane for another
 * one's receive. */
#include "autodp/net/shm/shm_net.h"

#include <stdio.h>

/* ---- operations ---- */

static fl_status make_op(fl_shm_net *net, fl_net_buffer *b, const fl_net_frame *frame,
                         unsigned char *data, fl_net_op **out)
{
    FL_TRY(fl__net_op_take(&net->ops, out));
    (*out)->buffer = b;
    (*out)->frame = *frame;
    (*out)->data = data;
    return FL_OK;
}

static void finish(fl_shm_net *net, fl_net_op *op, fl_shm_way way)
{
    fl_shm_buffer *b = (fl_shm_buffer *)op->buffer;
    if (b != NULL) {
        b->ways[way].n_under_way--;
        b->ways[way].n_done++;
        net->has_moved = true;
    }
    fl__net_op_give(&net->ops, op);
}

/* ---- writing ---- */

static size_t frame_bytes(const fl_net_op *op)
{
    bool has_data = op->frame.kind == FL_SHM_MESSAGE;
    return sizeof op->frame + (has_data ? (size_t)op->frame.size_bytes : 0);
}

/* Write what fits of the first frame; true once all of it is written. */
static bool write_first(fl_shm_net *net, int peer, fl_shm_peer *p)
{
    const fl_net_op *op = p->out.first;
    size_t all = frame_bytes(op), head = sizeof op->frame;
    while (p->out_bytes < all) {
        bool in_head = p->out_bytes < head;
        const unsigned char *from = in_head ? (const unsigned char *)&op->frame + p->out_bytes
                                            : op->data + (p->out_bytes - head);
        size_t want = (in_head ? head : all) - p->out_bytes;
        size_t n = fl_shm_board_put(&net->board, peer, from, want);
        p->out_bytes += n;
        if (n < want) {
            return false;
        }
    }
    return true;
}

static bool write_frames(fl_shm_net *net, int peer, fl_shm_peer *p)
{
    bool wrote = false;
    while (p->out.first != NULL) {
        size_t before = p->out_bytes;
        bool done = write_first(net, peer, p);
        wrote = wrote || p->out_bytes > before;
        if (!done) {
            break;
        }
        p->out_bytes = 0;
        finish(net, fl__net_take_behind(&p->out, NULL), FL_SHM_SEND);
    }
    return wrote;
}

/* ---- which send may begin ---- */

static void fail_size(fl_shm_net *net, int peer, uint64_t bytes, uint64_t most)
{
    char reason[128];
    snprintf(reason, sizeof reason,
             "a message of %llu bytes with member %d, whose receive takes at most %llu",
             (unsigned long long)bytes, peer, (unsigned long long)most);
    fl__shm_break(net, FL_EINTERNAL, reason);
}

static void match_sends(fl_shm_net *net, int peer, fl_shm_peer *p)
{
    fl_net_op *previous = NULL, *op = p->waiting.first;
    while (op != NULL && p->credits.first != NULL) {
        fl_net_op *credit = fl__net_take_tag(&p->credits, op->frame.tag);
        if (credit == NULL) {
            previous = op;
        } else {
            if (op->frame.size_bytes > credit->frame.size_bytes) {
                fail_size(net, peer, op->frame.size_bytes, credit->frame.size_bytes);
            }
            fl__net_op_give(&net->ops, credit);
            fl__net_push(&p->out, fl__net_take_behind(&p->waiting, previous));
        }
        op = previous == NULL ? p->waiting.first : previous->next;
    }
}

/* ---- reading ---- */

static void take_credit(fl_shm_net *net, fl_shm_peer *p)
{
    fl_net_op *credit = NULL;
    if (make_op(net, NULL, &p->in, NULL, &credit) != FL_OK) {
        fl__shm_break(net, FL_ENOMEM, "out of memory");
        return;
    }
    fl__net_push(&p->credits, credit);
}

/* A frame's head is there. */
static void begin_frame(fl_shm_net *net, int peer, fl_shm_peer *p)
{
    if (p->in.kind == FL_SHM_CREDIT) {
        take_credit(net, p);
        p->in_bytes = 0;
    } else if (p->in.kind == FL_SHM_MESSAGE) {
        p->into = fl__net_take_tag(&p->posted, p->in.tag);
        if (p->into != NULL && p->in.size_bytes > p->into->frame.size_bytes) {
            fail_size(net, peer, p->in.size_bytes, p->into->frame.size_bytes);
        }
    } else {
        fl__shm_break(net, FL_EINTERNAL, "a frame of an unknown kind");
    }
}

static void end_message(fl_shm_net *net, fl_shm_peer *p)
{
    p->in_bytes = 0;
    if (p->into != NULL) {
        finish(net, p->into, FL_SHM_RECEIVE);
        p->into = NULL;
    }
}

/* Read bytes of the frame at hand; false: the lane is empty. */
static bool read_some(fl_shm_net *net, int peer, fl_shm_peer *p)
{
    size_t head = sizeof p->in;
    bool in_head = p->in_bytes < head;
    unsigned char *to = in_head           ? (unsigned char *)&p->in + p->in_bytes
                        : p->into != NULL ? p->into->data + (p->in_bytes - head)
                                          : NULL;
    size_t want = (in_head ? head : head + (size_t)p->in.size_bytes) - p->in_bytes;
    size_t n = fl_shm_board_get(&net->board, peer, to, want);
    p->in_bytes += n;
    if (n == want && in_head) {
        begin_frame(net, peer, p);
    }
    if (p->in_bytes > 0 && p->in_bytes == head + (size_t)p->in.size_bytes) {
        end_message(net, p);
    }
    return n == want;
}

/* Everything with this member: read, see which sends may begin, write. */
static void serve_peer(fl_shm_net *net, int peer)
{
    fl_shm_peer *p = &net->peers[peer];
    bool more = true;
    while (more && atomic_load(&net->state) == FL_OK) {
        more = read_some(net, peer, p);
    }
    bool notify = fl_shm_board_room_wanted(&net->board, peer);
    match_sends(net, peer, p);
    if (atomic_load(&net->state) == FL_OK) {
        notify = write_frames(net, peer, p) || notify;
    }
    if (notify) {
        fl_shm_board_notify(&net->board, peer);
    }
}

void fl__shm_progress(fl_shm_net *net)
{
    for (int word = 0; word < fl_shm_board_n_words(&net->board); word++) {
        uint64_t news = fl_shm_board_take_news(&net->board, word);
        while (news != 0 && atomic_load(&net->state) == FL_OK) {
            serve_peer(net, word * 64 + __builtin_ctzll(news));
            news &= news - 1;
        }
    }
    if (net->has_moved) { /* by whichever thread looked first */
        net->has_moved = false;
        fl_shm_board_ring(&net->board, net->base.rank);
    }
}

/* ---- operations ---- */

fl_status fl__shm_start(fl_shm_buffer *b, fl_shm_way way, int peer, const fl_net_frame *message,
                        unsigned char *data)
{
    fl_shm_net *net = fl__shm_of(b->base.net);
    fl_shm_peer *p = &net->peers[peer];
    fl_net_op *op = NULL, *credit = NULL;
    FL_TRY(make_op(net, &b->base, message, data, &op));
    if (way == FL_SHM_RECEIVE) {
        const fl_net_frame frame = {FL_SHM_CREDIT, message->tag, message->size_bytes};
        fl_status status = make_op(net, NULL, &frame, NULL, &credit);
        if (status != FL_OK) {
            fl__net_op_give(&net->ops, op);
            return status;
        }
        fl__net_push(&p->posted, op);
        fl__net_push(&p->out, credit);
    } else {
        fl__net_push(&p->waiting, op);
    }
    b->ways[way].peer = peer;
    b->ways[way].n_under_way++;
    serve_peer(net, peer);
    fl__shm_progress(net);
    return FL_OK;
}

void fl__shm_forget(fl_shm_buffer *b)
{
    fl_shm_net *net = fl__shm_of(b->base.net);
    if (b->ways[FL_SHM_RECEIVE].n_under_way > 0) {
        fl_shm_peer *p = &net->peers[b->ways[FL_SHM_RECEIVE].peer];
        fl__net_queue_drop(&net->ops, &p->posted, &b->base);
        if (p->into != NULL && p->into->buffer == &b->base) {
            fl__net_op_give(&net->ops, p->into);
            p->into = NULL;
        }
    }
    if (b->ways[FL_SHM_SEND].n_under_way > 0) {
        fl_shm_peer *p = &net->peers[b->ways[FL_SHM_SEND].peer];
        fl__net_queue_drop(&net->ops, &p->waiting, &b->base);
        if (p->out.first != NULL && p->out.first->buffer == &b->base && p->out_bytes > 0) {
            /* The reader will never get the rest of this message, nor another one. */
            fl__shm_break(net, FL_EINTERNAL, "a buffer was destroyed in the middle of a message");
        }
        fl__net_queue_drop(&net->ops, &p->out, &b->base);
    }
}
