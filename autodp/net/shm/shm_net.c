/* The net of workers that are all on one host: messages through shared memory, without a thread and
 * without a connection.
 *
 * 1. open (shm_open.c): member 0 makes a board (shm_board.h) and names it in the store; all others
 * map it. 2. data (shm_messages.c): operations move on whenever a thread of their member starts
 * one, waits for one, or asks for the state of the net, which every wait for something else does
 * now and then; a waiter sleeps until its member's bell rings. 3. watch (shm_open.c): the same
 * threads look which members have left and which processes have ended.
 * 4. close: the board says that this member has left, or that its net was broken. */
#include "autodp/net/shm/shm_net.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <stdio.h>

/* Between two looks at the other members. */
enum { LOOK_US = 20 * 1000, SLEEP_US = 50 * 1000 };

/* ---- the state; the mutex is held ---- */

static fl_status refused(fl_shm_net *net)
{
    return fl_fail((fl_status)atomic_load(&net->state), "net %s, member %d: %s", net->base.name,
                   net->base.rank, net->reason);
}

static bool is_broken(fl_shm_net *net)
{
    return atomic_load(&net->state) != FL_OK;
}

static void wake_all(fl_shm_net *net)
{
    if (net->board.memory != NULL) {
        fl_shm_board_ring(&net->board, net->base.rank);
    }
}

void fl__shm_break(fl_shm_net *net, fl_status why, const char *reason)
{
    if (!is_broken(net)) {
        snprintf(net->reason, sizeof net->reason, "%s", reason);
        atomic_store(&net->state, (int)why);
        wake_all(net);
    }
}

void fl__shm_lose(fl_shm_net *net, int peer, const char *reason)
{
    fl_shm_peer *p = &net->peers[peer];
    if (!p->spare) {
        fl__shm_break(net, FL_EPEER, reason);
    } else if (!p->lost) {
        p->lost = true;
        wake_all(net);
    }
}

static fl_status failed_with(fl_shm_net *net, int peer)
{
    return is_broken(net) ? refused(net)
                          : fl_fail(FL_EPEER, "net %s: member %d was lost", net->base.name, peer);
}

/* ---- the table ---- */

static void lock(fl_shm_net *net)
{
    pthread_mutex_lock(&net->mutex);
}

static fl_status unlock(fl_shm_net *net, fl_status status)
{
    pthread_mutex_unlock(&net->mutex);
    return status;
}

/* Move what can be moved, and look at the other members if nobody has for a while. The mutex is
 * held. */
static void look(fl_shm_net *net)
{
    int64_t now_us = fl_now_us();
    if (net->board.memory == NULL || is_broken(net)) {
        return;
    }
    fl__shm_progress(net);
    if (now_us - net->looked_us >= LOOK_US) {
        fl__shm_look(net, now_us);
    }
}

static void abort_net(fl_net *base, fl_status why)
{
    fl_shm_net *net = fl__shm_of(base);
    char reason[96];
    snprintf(reason, sizeof reason, "aborted: %s", fl_status_text(why));
    lock(net);
    fl__shm_break(net, why, reason);
    pthread_mutex_unlock(&net->mutex);
}

static fl_status state_of(fl_net *base)
{
    fl_shm_net *net = fl__shm_of(base);
    lock(net);
    look(net);
    return unlock(net, is_broken(net) ? refused(net) : FL_OK);
}

static fl_status set_expendable(fl_net *base, int peer, bool spare)
{
    fl_shm_net *net = fl__shm_of(base);
    lock(net);
    net->peers[peer].spare = spare;
    bool lost = net->peers[peer].lost;
    return unlock(net, spare || !lost
                           ? FL_OK
                           : fl_fail(FL_EPEER, "net %s: member %d was lost", base->name, peer));
}

static bool is_lost(fl_net *base, int peer)
{
    fl_shm_net *net = fl__shm_of(base);
    lock(net);
    look(net);
    bool lost = net->peers[peer].lost;
    pthread_mutex_unlock(&net->mutex);
    return lost;
}

static fl_status expect(fl_net *base, int peer)
{
    fl_shm_net *net = fl__shm_of(base);
    lock(net);
    look(net);
    const fl_shm_peer *p = &net->peers[peer];
    fl_status status =
        is_broken(net) ? refused(net)
        : p->lost      ? failed_with(net, peer)
        : p->left || (peer != base->rank && fl_shm_board_presence(&net->board, peer) == FL_SHM_LEFT)
            ? fl_fail(FL_EPEER, "net %s: member %d has left", base->name, peer)
            : FL_OK;
    return unlock(net, status);
}

static fl_status late(fl_net *base, int peer, int64_t waited_ms)
{
    fl_shm_net *net = fl__shm_of(base);
    char reason[96];
    fl_net_late_text(reason, sizeof reason, "waiting for", peer, waited_ms);
    lock(net);
    fl__shm_break(net, FL_EDEADLINE, reason);
    return unlock(net, refused(net));
}

static fl_status buffer_create(fl_net *net, void *data, size_t size_bytes, fl_net_buffer **out)
{
    fl_shm_buffer *b = NULL;
    FL_TRY(fl_alloc(sizeof *b, (void **)&b));
    b->base.net = net;
    b->data = data;
    b->size_bytes = size_bytes;
    *out = &b->base;
    return FL_OK;
}

static void buffer_destroy(fl_net_buffer *base)
{
    fl_shm_buffer *b = (fl_shm_buffer *)base;
    fl_shm_net *net = fl__shm_of(base->net);
    lock(net);
    fl__shm_forget(b);
    pthread_mutex_unlock(&net->mutex);
    fl_free(b);
}

/* A member that has left takes part in nothing any more. */
static void refuse_left(fl_shm_net *net, int peer)
{
    char reason[64];
    if (net->peers[peer].left) {
        snprintf(reason, sizeof reason, "member %d has left", peer);
        fl__shm_lose(net, peer, reason);
    }
}

static fl_status start(fl_net_buffer *base, fl_shm_way way, int peer, uint64_t tag, size_t offset,
                       size_t size_bytes)
{
    fl_shm_buffer *b = (fl_shm_buffer *)base;
    fl_shm_net *net = fl__shm_of(base->net);
    if (offset > b->size_bytes || size_bytes > b->size_bytes - offset) {
        return fl_fail(FL_EINVAL, "net %s: %zu bytes at %zu of a buffer of %zu", net->base.name,
                       size_bytes, offset, b->size_bytes);
    }
    const fl_net_frame message = {FL_SHM_MESSAGE, tag, size_bytes};
    lock(net);
    look(net);
    refuse_left(net, peer);
    b->ways[way].peer = peer;
    fl_status status = is_broken(net) || net->peers[peer].lost
                           ? failed_with(net, peer)
                           : fl__shm_start(b, way, peer, &message, b->data + offset);
    return unlock(net, status);
}

/* Whether the wait is over, and how. The mutex is held. */
static bool is_over(fl_shm_buffer *b, fl_shm_way way, fl_status *status)
{
    fl_shm_net *net = fl__shm_of(b->base.net);
    int peer = b->ways[way].peer;
    look(net);
    if (!is_broken(net) && !net->peers[peer].lost && b->ways[way].n_done == 0) {
        refuse_left(net, peer);
    }
    *status = FL_OK;
    if (is_broken(net) || net->peers[peer].lost) {
        *status = failed_with(net, peer);
        return true;
    }
    if (b->ways[way].n_done > 0) {
        b->ways[way].n_done--;
        return true;
    }
    return false;
}

static fl_status fail_late(fl_shm_buffer *b, fl_shm_way way, int64_t waited_ms)
{
    fl_shm_net *net = fl__shm_of(b->base.net);
    char reason[96];
    fl_net_late_text(reason, sizeof reason, way == FL_SHM_SEND ? "sending to" : "receiving from",
                     b->ways[way].peer, waited_ms);
    lock(net);
    fl__shm_break(net, FL_EDEADLINE, reason);
    return unlock(net, failed_with(net, b->ways[way].peer));
}

static fl_status finish(fl_net_buffer *base, fl_shm_way way, int64_t deadline_us)
{
    fl_shm_buffer *b = (fl_shm_buffer *)base;
    fl_shm_net *net = fl__shm_of(base->net);
    int64_t started_us = fl_now_us(), latest_us = fl_deadline_us(net->base.wait_timeout_ms);
    latest_us = fl_net_wait_limit(base->net, deadline_us < latest_us ? deadline_us : latest_us);
    for (;;) {
        fl_status status = FL_OK;
        lock(net);
        unsigned seen = net->board.memory == NULL ? 0 : fl_shm_board_bell(&net->board);
        bool over = is_over(b, way, &status);
        pthread_mutex_unlock(&net->mutex);
        if (over) {
            return status;
        }
        int64_t left_us = latest_us - fl_now_us();
        if (left_us <= 0) {
            return fail_late(b, way, (latest_us - started_us) / 1000);
        }
        fl_shm_board_sleep(&net->board, seen, left_us < SLEEP_US ? left_us : SLEEP_US);
    }
}

static fl_status start_send(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                            size_t size_bytes)
{
    return start(b, FL_SHM_SEND, peer, tag, offset, size_bytes);
}

static fl_status start_recv(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                            size_t size_bytes)
{
    return start(b, FL_SHM_RECEIVE, peer, tag, offset, size_bytes);
}

static fl_status wait_send(fl_net_buffer *b, int64_t deadline_us)
{
    return finish(b, FL_SHM_SEND, deadline_us);
}

static fl_status wait_recv(fl_net_buffer *b, int64_t deadline_us)
{
    return finish(b, FL_SHM_RECEIVE, deadline_us);
}

const fl_net_ops fl__shm_net_ops = {
    .open = fl__shm_open,
    .close = fl__shm_close,
    .abort = abort_net,
    .state = state_of,
    .set_expendable = set_expendable,
    .lost = is_lost,
    .expect = expect,
    .late = late,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .send = start_send,
    .recv = start_recv,
    .wait_send = wait_send,
    .wait_recv = wait_recv,
};
