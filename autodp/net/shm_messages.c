/* Messages of a net through shared memory.
 *
 *     receiver: post ---- credit ---->  sender
 *               data <--- message ----  send: once it has a credit of the message's tag
 *
 * So a message always finds the memory that it goes to, and no message waits in a lane for another
 * one's receive. */
#include "autodp/net/shm_net.h"
#include "device/alloc.h"

#include <stdio.h>
#include <string.h>

/* ---- queues ---- */

static void append(fl_shm_queue *queue, fl_shm_op *op)
{
    op->next = NULL;
    if (queue->last != NULL) {
        queue->last->next = op;
    } else {
        queue->first = op;
    }
    queue->last = op;
}

/* Take out *link, behind which is `previous`, NULL for the first. */
static fl_shm_op *take(fl_shm_queue *queue, fl_shm_op **link, fl_shm_op *previous)
{
    fl_shm_op *op = *link;
    *link = op->next;
    if (queue->last == op) {
        queue->last = previous;
    }
    return op;
}

/* The oldest one of this tag, taken out; NULL: there is none. */
static fl_shm_op *take_tag(fl_shm_queue *queue, uint64_t tag)
{
    fl_shm_op *previous = NULL;
    for (fl_shm_op **link = &queue->first; *link != NULL; link = &(*link)->next) {
        if ((*link)->frame.tag == tag) {
            return take(queue, link, previous);
        }
        previous = *link;
    }
    return NULL;
}

/* ---- operations to use ---- */

enum { N_IN_BLOCK = 256 };

static void give_back(fl_shm_net *net, fl_shm_op *op)
{
    op->next = net->free;
    net->free = op;
}

fl_status fl__shm_reserve(fl_shm_net *net)
{
    fl_shm_op *block = NULL;
    FL_TRY(fl_alloc_array(N_IN_BLOCK, sizeof *block, (void **)&block));
    block[0].next_block = net->blocks;
    net->blocks = block;
    for (int i = N_IN_BLOCK - 1; i >= 0; i--) {
        give_back(net, &block[i]);
    }
    return FL_OK;
}

void fl__shm_drop_ops(fl_shm_net *net)
{
    while (net->blocks != NULL) {
        fl_shm_op *block = net->blocks;
        net->blocks = block->next_block;
        fl_free(block);
    }
}

static fl_status make_op(fl_shm_net *net, fl_shm_buffer *b, const fl_shm_frame *frame,
                         unsigned char *data, fl_shm_op **out)
{
    if (net->free == NULL) {
        FL_TRY(fl__shm_reserve(net));
    }
    fl_shm_op *op = net->free;
    net->free = op->next;
    op->next = NULL;
    op->buffer = b;
    op->frame = *frame;
    op->data = data;
    *out = op;
    return FL_OK;
}

static void finish(fl_shm_net *net, fl_shm_op *op, fl_shm_way way)
{
    if (op->buffer != NULL) {
        op->buffer->ways[way].n_under_way--;
        op->buffer->ways[way].n_done++;
        net->has_moved = true;
    }
    give_back(net, op);
}

/* ---- writing ---- */

static size_t frame_bytes(const fl_shm_op *op)
{
    bool has_data = op->frame.kind == FL_SHM_MESSAGE;
    return sizeof op->frame + (has_data ? (size_t)op->frame.size_bytes : 0);
}

/* Write what fits of the first frame; true once all of it is written. */
static bool write_first(fl_shm_net *net, int peer, fl_shm_peer *p)
{
    const fl_shm_op *op = p->out.first;
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
        finish(net, take(&p->out, &p->out.first, NULL), FL_SHM_SEND);
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
    fl_shm_op *previous = NULL;
    for (fl_shm_op **link = &p->waiting.first; *link != NULL && p->credits.first != NULL;) {
        fl_shm_op *credit = take_tag(&p->credits, (*link)->frame.tag);
        if (credit == NULL) {
            previous = *link;
            link = &previous->next;
            continue;
        }
        if ((*link)->frame.size_bytes > credit->frame.size_bytes) {
            fail_size(net, peer, (*link)->frame.size_bytes, credit->frame.size_bytes);
        }
        give_back(net, credit);
        append(&p->out, take(&p->waiting, link, previous));
    }
}

/* ---- reading ---- */

static void take_credit(fl_shm_net *net, fl_shm_peer *p)
{
    fl_shm_op *credit = NULL;
    if (make_op(net, NULL, &p->in, NULL, &credit) != FL_OK) {
        fl__shm_break(net, FL_ENOMEM, "out of memory");
        return;
    }
    append(&p->credits, credit);
}

/* A frame's head is there. */
static void begin_frame(fl_shm_net *net, int peer, fl_shm_peer *p)
{
    if (p->in.kind == FL_SHM_CREDIT) {
        take_credit(net, p);
        p->in_bytes = 0;
    } else if (p->in.kind == FL_SHM_MESSAGE) {
        p->into = take_tag(&p->posted, p->in.tag);
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

fl_status fl__shm_start(fl_shm_buffer *b, fl_shm_way way, int peer, const fl_shm_frame *message,
                        unsigned char *data)
{
    fl_shm_net *net = fl__shm_of(b->base.net);
    fl_shm_peer *p = &net->peers[peer];
    fl_shm_op *op = NULL, *credit = NULL;
    FL_TRY(make_op(net, b, message, data, &op));
    if (way == FL_SHM_RECEIVE) {
        const fl_shm_frame frame = {FL_SHM_CREDIT, message->tag, message->size_bytes};
        fl_status status = make_op(net, NULL, &frame, NULL, &credit);
        if (status != FL_OK) {
            give_back(net, op);
            return status;
        }
        append(&p->posted, op);
        append(&p->out, credit);
    } else {
        append(&p->waiting, op);
    }
    b->ways[way].peer = peer;
    b->ways[way].n_under_way++;
    serve_peer(net, peer);
    fl__shm_progress(net);
    return FL_OK;
}

static void forget_in(fl_shm_net *net, fl_shm_queue *queue, const fl_shm_buffer *b)
{
    fl_shm_op *previous = NULL;
    for (fl_shm_op **link = &queue->first; *link != NULL;) {
        if ((*link)->buffer == b) {
            give_back(net, take(queue, link, previous));
        } else {
            previous = *link;
            link = &previous->next;
        }
    }
}

void fl__shm_forget(fl_shm_buffer *b)
{
    fl_shm_net *net = fl__shm_of(b->base.net);
    if (b->ways[FL_SHM_RECEIVE].n_under_way > 0) {
        fl_shm_peer *p = &net->peers[b->ways[FL_SHM_RECEIVE].peer];
        forget_in(net, &p->posted, b);
        if (p->into != NULL && p->into->buffer == b) {
            give_back(net, p->into);
            p->into = NULL;
        }
    }
    if (b->ways[FL_SHM_SEND].n_under_way > 0) {
        fl_shm_peer *p = &net->peers[b->ways[FL_SHM_SEND].peer];
        forget_in(net, &p->waiting, b);
        if (p->out.first != NULL && p->out.first->buffer == b && p->out_bytes > 0) {
            /* The reader will never get the rest of this message, nor another one. */
            fl__shm_break(net, FL_EINTERNAL, "a buffer was destroyed in the middle of a message");
        }
        forget_in(net, &p->out, b);
    }
}
