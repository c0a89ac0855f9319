/* The shim over Gloo's TCP transport.
 *
 * 1. open (gloo_open.cc): listen once for each peer, publish the addresses in the store, connect,
 * send a hello. A guard thread ends all that at the deadline, because Gloo's own time-outs add up
 * over the peers. 2. data: sends and receives on unbound buffers, whose waiters abort() can wake.
 * 3. watch (gloo_watch.cc): Gloo does not wake a waiter in the middle of a message when the peer
 * dies. So every pair also has a receive on a tag that no member sends to. Gloo fails it when the
 * pair dies; the watch thread, asleep on it, then breaks the net. The death of an expendable peer
 * only wakes the waiters for that peer. 4. close: a bye to all, so that their watch threads know
 * that the connection ended on purpose.
 *
 * An exception in Gloo's event thread ends the process. It is thrown when a message is longer than
 * the posted receive, and when a connection is reset before it was accepted: by a stranger, or by
 * the end of a member's process. gloo_open.cc replaces the function that throws the latter. */
#include "autodp/net/gloo/gloo_net.h"

extern "C" {
#include "device/system/alloc.h"
#include "device/system/clock.h"
}

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

/* ---- the state ---- */

fl_status fl__gloo_refused(gloo_net *net)
{
    return fl_fail(fl_status(net->state.load()), "net %s, member %d: %s", net->name, net->rank,
                   net->reason);
}

void fl__gloo_break(gloo_net *net, fl_status why, const char *reason)
{
    std::lock_guard<std::mutex> lock(net->mutex);
    if (net->state.load() != FL_OK) {
        return;
    }
    snprintf(net->reason, sizeof net->reason, "%s", reason);
    net->state.store(why);
    for (gloo_buffer *b = net->buffers; b != nullptr; b = b->next) {
        b->unbound->abortWaitRecv();
        b->unbound->abortWaitSend();
    }
    if (net->watched != nullptr) {
        net->watched->abortWaitRecv();
    }
}

/* Wake only threads with an operation in flight with this peer. The mutex is held. */
static void wake_waiters_for(gloo_net *net, int peer)
{
    for (gloo_buffer *b = net->buffers; b != nullptr; b = b->next) {
        if (b->under_way.load() > 0 && b->recv_peer.load() == peer) {
            b->unbound->abortWaitRecv();
        }
        if (b->under_way.load() > 0 && b->send_peer.load() == peer) {
            b->unbound->abortWaitSend();
        }
    }
}

void fl__gloo_lose(gloo_net *net, int peer, const char *reason)
{
    {
        std::lock_guard<std::mutex> lock(net->mutex);
        if (net->spare[size_t(peer)]) {
            if (!net->lost[size_t(peer)]) {
                net->lost[size_t(peer)] = true;
                wake_waiters_for(net, peer);
            }
            return;
        }
    }
    fl__gloo_break(net, FL_EPEER, reason);
}

static fl_status set_expendable(fl_net *base, int peer, bool spare)
{
    gloo_net *net = gloo_of(base);
    std::lock_guard<std::mutex> lock(net->mutex);
    net->spare[size_t(peer)] = spare;
    return spare || !net->lost[size_t(peer)]
               ? FL_OK
               : fl_fail(FL_EPEER, "net %s: member %d was lost", net->name, peer);
}

static bool is_lost(fl_net *base, int peer)
{
    gloo_net *net = gloo_of(base);
    std::lock_guard<std::mutex> lock(net->mutex);
    return net->lost[size_t(peer)];
}

static fl_status failed_with(gloo_net *net, int peer)
{
    return net->state.load() != FL_OK
               ? fl__gloo_refused(net)
               : fl_fail(FL_EPEER, "net %s: member %d was lost", net->name, peer);
}

bool fl__gloo_is_timeout(const char *what)
{
    return strstr(what, "Timed out waiting") != nullptr ||
           strstr(what, "Application timeout") != nullptr;
}

const char *fl__gloo_plain(const char *what)
{
    const char *end = what[0] == '[' ? strstr(what, "] ") : nullptr;
    return end == nullptr ? what : end + 2;
}

static void abort_net(fl_net *net, fl_status why)
{
    char reason[96];
    snprintf(reason, sizeof reason, "aborted: %s", fl_status_text(why));
    fl__gloo_break(gloo_of(net), why, reason);
}

static fl_status state_of(fl_net *base)
{
    gloo_net *net = gloo_of(base);
    return net->state.load() == FL_OK ? FL_OK : fl__gloo_refused(net);
}

static fl_status expect(fl_net *base, int peer)
{
    gloo_net *net = gloo_of(base);
    FL_TRY(state_of(net));
    std::lock_guard<std::mutex> lock(net->mutex);
    return !net->left[size_t(peer)]
               ? FL_OK
               : fl_fail(FL_EPEER, "net %s: member %d has left", net->name, peer);
}

static fl_status late(fl_net *base, int peer, int64_t waited_ms)
{
    gloo_net *net = gloo_of(base);
    char reason[96];
    fl_net_late_text(reason, sizeof reason, "waiting for", peer, waited_ms);
    fl__gloo_break(net, FL_EDEADLINE, reason);
    return fl__gloo_refused(net);
}

/* ---- (2) data ---- */

static fl_status buffer_create(fl_net *base, void *data, size_t size_bytes, fl_net_buffer **out)
{
    gloo_net *net = gloo_of(base);
    void *memory = nullptr;
    FL_TRY(fl_alloc(sizeof(gloo_buffer), &memory));
    gloo_buffer *b = new (memory) gloo_buffer();
    b->net = net;
    try {
        if (net->context != nullptr) {
            b->unbound = net->context->createUnboundBuffer(data, size_bytes);
        }
    } catch (const std::exception &failure) {
        b->~gloo_buffer();
        fl_free(b);
        return fl_fail(FL_ENOMEM, "buffer of %zu bytes: %s", size_bytes, failure.what());
    }
    if (b->unbound != nullptr) {
        std::lock_guard<std::mutex> lock(net->mutex);
        b->next = net->buffers;
        if (b->next != nullptr) {
            b->next->previous = b;
        }
        net->buffers = b;
    }
    *out = b;
    return FL_OK;
}

static void buffer_destroy(fl_net_buffer *buffer)
{
    gloo_buffer *b = static_cast<gloo_buffer *>(buffer);
    gloo_net *net = gloo_of(b->net);
    /* Gloo's event thread spins on a message whose buffer is gone, so the connection is closed
     * first. */
    if (b->under_way.load() > 0 && net->state.load() != FL_OK) {
        fl__gloo_disconnect(net);
    }
    if (b->unbound != nullptr) {
        std::lock_guard<std::mutex> lock(net->mutex);
        if (b->previous != nullptr) {
            b->previous->next = b->next;
        } else {
            net->buffers = b->next;
        }
        if (b->next != nullptr) {
            b->next->previous = b->previous;
        }
    }
    b->~gloo_buffer();
    fl_free(b);
}

static fl_status start(gloo_buffer *b, bool sending, int peer, uint64_t tag, size_t offset,
                       size_t size_bytes)
{
    gloo_net *net = gloo_of(b->net);
    if (offset > b->unbound->size || size_bytes > b->unbound->size - offset) {
        return fl_fail(FL_EINVAL, "net %s: %zu bytes at %zu of a buffer of %zu", net->name,
                       size_bytes, offset, b->unbound->size);
    }
    (sending ? b->send_peer : b->recv_peer).store(peer);
    if (is_lost(net, peer)) {
        return failed_with(net, peer);
    }
    try {
        b->under_way.fetch_add(1);
        if (sending) {
            b->unbound->send(peer, tag, offset, size_bytes);
        } else {
            b->unbound->recv(peer, tag, offset, size_bytes);
        }
    } catch (const std::exception &failure) {
        char reason[256];
        snprintf(reason, sizeof reason, "%s member %d: %s",
                 sending ? "sending to" : "receiving from", peer, fl__gloo_plain(failure.what()));
        if (fl__gloo_is_timeout(failure.what())) {
            fl__gloo_break(net, FL_EDEADLINE, reason);
        } else {
            fl__gloo_lose(net, peer, reason);
        }
        return failed_with(net, peer);
    }
    return FL_OK;
}

/* Gloo closes every connection when a wait has timed out: a wait cannot be repeated. */
static milliseconds limit_of(const gloo_net *net, int64_t deadline_us)
{
    return net->waits_unlimited
               ? fl__gloo_no_limit
               : milliseconds(std::min(fl_left_ms(deadline_us), net->wait_timeout_ms));
}

static fl_status finish(gloo_buffer *b, bool sending, int64_t deadline_us)
{
    gloo_net *net = gloo_of(b->net);
    if (net->state.load() != FL_OK) {
        return fl__gloo_refused(net);
    }
    milliseconds limit = limit_of(net, deadline_us);
    int peer = (sending ? b->send_peer : b->recv_peer).load();
    if (is_lost(net, peer)) {
        return failed_with(net, peer); /* also if it was not started for that reason */
    }
    try {
        bool finished =
            sending ? b->unbound->waitSend(nullptr, limit) : b->unbound->waitRecv(nullptr, limit);
        if (!finished) {
            return failed_with(net, peer);
        }
        b->under_way.fetch_sub(1);
        return FL_OK;
    } catch (const std::exception &failure) {
        char reason[256];
        const char *what = sending ? "sending to" : "receiving from";
        if (fl__gloo_is_timeout(failure.what())) {
            fl_net_late_text(reason, sizeof reason, what, peer, limit.count());
            fl__gloo_break(net, FL_EDEADLINE, reason);
        } else {
            snprintf(reason, sizeof reason, "%s member %d: %s", what, peer,
                     fl__gloo_plain(failure.what()));
            fl__gloo_lose(net, peer, reason);
        }
        return failed_with(net, peer);
    }
}

static fl_status start_send(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                            size_t size_bytes)
{
    return start(static_cast<gloo_buffer *>(b), true, peer, tag, offset, size_bytes);
}

static fl_status start_recv(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                            size_t size_bytes)
{
    return start(static_cast<gloo_buffer *>(b), false, peer, tag, offset, size_bytes);
}

static fl_status wait_send(fl_net_buffer *b, int64_t deadline_us)
{
    return finish(static_cast<gloo_buffer *>(b), true, deadline_us);
}

static fl_status wait_recv(fl_net_buffer *b, int64_t deadline_us)
{
    return finish(static_cast<gloo_buffer *>(b), false, deadline_us);
}

const fl_net_ops fl__gloo_net_ops = {
    fl__gloo_open, fl__gloo_close, abort_net,     state_of,       set_expendable, is_lost,
    expect,        late,           buffer_create, buffer_destroy, start_send,     start_recv,
    wait_send,     wait_recv,      fl__gloo_look, false,
};
