/* The shim over Gloo's TCP transport.
 *
 * 1. open (net_open.cc): listen once for each peer, publish the addresses in the store, connect,
 * send a hello. A guard thread ends all that at the deadline, because Gloo's own time-outs add up
 * over the peers. 2. data: sends and receives on unbound buffers, whose waiters abort() can wake.
 * 3. watch (net_watch.cc): Gloo does not wake a waiter in the middle of a message when the peer
 * dies. So every pair also has a receive on a tag that no member sends to. Gloo fails it when the
 * pair dies; the watch thread, asleep on it, then breaks the net. The death of an expendable peer
 * only wakes the waiters for that peer. 4. close: a bye to all, so that their watch threads know
 * that the connection ended on purpose.
 *
 * An exception in Gloo's event thread ends the process. It is thrown when a message is longer than
 * the posted receive, and when a connection is reset before it was accepted. The hello prevents the
 * latter: no member resets a connection before the other end has sent something on it. */
#include "autodp/net/net_shim.h"

extern "C" {
#include "device/alloc.h"
#include "device/clock.h"
}

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

/* ---- the state ---- */

fl_status fl__net_refused(fl_net *net)
{
    return fl_fail(fl_status(net->state.load()), "net %s, member %d: %s", net->name.c_str(),
                   net->rank, net->reason);
}

void fl__net_break(fl_net *net, fl_status why, const char *reason)
{
    std::lock_guard<std::mutex> lock(net->mutex);
    if (net->state.load() != FL_OK) {
        return;
    }
    snprintf(net->reason, sizeof net->reason, "%s", reason);
    net->state.store(why);
    for (fl_net_buffer *b = net->buffers; b != nullptr; b = b->next) {
        b->unbound->abortWaitRecv();
        b->unbound->abortWaitSend();
    }
    if (net->watched != nullptr) {
        net->watched->abortWaitRecv();
    }
}

void fl__net_leave_abort_set(fl_net *net)
{
    if (net->abort_set != nullptr) {
        fl_abort_set_remove(net->abort_set, &net->abortable);
        net->abort_set = nullptr;
    }
}

/* Wake only threads with an operation in flight with this peer. The mutex is held. */
static void wake_waiters_for(fl_net *net, int peer)
{
    for (fl_net_buffer *b = net->buffers; b != nullptr; b = b->next) {
        if (b->under_way.load() > 0 && b->recv_peer.load() == peer) {
            b->unbound->abortWaitRecv();
        }
        if (b->under_way.load() > 0 && b->send_peer.load() == peer) {
            b->unbound->abortWaitSend();
        }
    }
}

void fl__net_lose(fl_net *net, int peer, const char *reason)
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
    fl__net_break(net, FL_EPEER, reason);
}

extern "C" fl_status fl_net_set_expendable(fl_net *net, int peer, bool spare)
{
    std::lock_guard<std::mutex> lock(net->mutex);
    net->spare[size_t(peer)] = spare;
    return spare || !net->lost[size_t(peer)]
               ? FL_OK
               : fl_fail(FL_EPEER, "net %s: member %d was lost", net->name.c_str(), peer);
}

extern "C" bool fl_net_lost(fl_net *net, int peer)
{
    std::lock_guard<std::mutex> lock(net->mutex);
    return net->lost[size_t(peer)];
}

static fl_status failed_with(fl_net *net, int peer)
{
    return net->state.load() != FL_OK
               ? fl__net_refused(net)
               : fl_fail(FL_EPEER, "net %s: member %d was lost", net->name.c_str(), peer);
}

bool fl__net_is_timeout(const char *what)
{
    return strstr(what, "Timed out waiting") != nullptr ||
           strstr(what, "Application timeout") != nullptr;
}

const char *fl__net_plain(const char *what)
{
    const char *end = what[0] == '[' ? strstr(what, "] ") : nullptr;
    return end == nullptr ? what : end + 2;
}

extern "C" void fl_net_abort(fl_net *net, fl_status why)
{
    char reason[96];
    snprintf(reason, sizeof reason, "aborted: %s", fl_status_text(why));
    fl__net_break(net, why == FL_OK ? FL_EINTERNAL : why, reason);
}

extern "C" fl_status fl_net_state(fl_net *net)
{
    return net->state.load() == FL_OK ? FL_OK : fl__net_refused(net);
}

extern "C" fl_status fl_net_expect(fl_net *net, int peer)
{
    FL_TRY(fl_net_state(net));
    std::lock_guard<std::mutex> lock(net->mutex);
    return !net->left[size_t(peer)]
               ? FL_OK
               : fl_fail(FL_EPEER, "net %s: member %d has left", net->name.c_str(), peer);
}

extern "C" fl_status fl_net_late(fl_net *net, int peer, int64_t waited_ms)
{
    char reason[96];
    snprintf(reason, sizeof reason, "waiting for member %d took longer than %lld ms", peer,
             (long long)waited_ms);
    fl__net_break(net, FL_EDEADLINE, reason);
    return fl__net_refused(net);
}

/* ---- (2) data ---- */

extern "C" fl_status fl_net_buffer_create(fl_net *net, void *data, size_t size_bytes,
                                          fl_net_buffer **out)
{
    void *memory = nullptr;
    FL_TRY(fl_alloc(sizeof(fl_net_buffer), &memory));
    fl_net_buffer *b = new (memory) fl_net_buffer();
    b->net = net;
    try {
        if (net->context != nullptr) {
            b->unbound = net->context->createUnboundBuffer(data, size_bytes);
        }
    } catch (const std::exception &failure) {
        b->~fl_net_buffer();
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

extern "C" void fl_net_buffer_destroy(fl_net_buffer **buffer)
{
    fl_net_buffer *b = *buffer;
    if (b == nullptr) {
        return;
    }
    *buffer = nullptr;
    fl_net *net = b->net;
    /* Gloo's event thread spins on a message whose buffer is gone, so the connection is closed
     * first. */
    if (b->under_way.load() > 0 && net->state.load() != FL_OK) {
        fl__net_disconnect(net);
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
    b->~fl_net_buffer();
    fl_free(b);
}

static fl_status start(fl_net_buffer *b, bool sending, int peer, uint64_t tag, size_t offset,
                       size_t size_bytes)
{
    fl_net *net = b->net;
    if (net->state.load() != FL_OK) {
        return fl__net_refused(net);
    }
    if (peer < 0 || peer >= net->size || peer == net->rank) {
        return fl_fail(FL_EINVAL, "net %s: no member %d to talk to", net->name.c_str(), peer);
    }
    if (offset > b->unbound->size || size_bytes > b->unbound->size - offset) {
        return fl_fail(FL_EINVAL, "net %s: %zu bytes at %zu of a buffer of %zu", net->name.c_str(),
                       size_bytes, offset, b->unbound->size);
    }
    (sending ? b->send_peer : b->recv_peer).store(peer);
    if (fl_net_lost(net, peer)) {
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
                 sending ? "sending to" : "receiving from", peer, fl__net_plain(failure.what()));
        if (fl__net_is_timeout(failure.what())) {
            fl__net_break(net, FL_EDEADLINE, reason);
        } else {
            fl__net_lose(net, peer, reason);
        }
        return failed_with(net, peer);
    }
    return FL_OK;
}

extern "C" int64_t fl_net_wait_limit(const fl_net *net, int64_t deadline_us)
{
    return net->waits_unlimited ? INT64_MAX : deadline_us;
}

/* Gloo closes every connection when a wait has timed out: a wait cannot be repeated. */
static milliseconds limit_of(const fl_net *net, int64_t deadline_us)
{
    return net->waits_unlimited
               ? fl__net_no_limit
               : milliseconds(std::min(fl_left_ms(deadline_us), net->wait_timeout_ms));
}

static fl_status finish(fl_net_buffer *b, bool sending, int64_t deadline_us)
{
    fl_net *net = b->net;
    if (net->state.load() != FL_OK) {
        return fl__net_refused(net);
    }
    milliseconds limit = limit_of(net, deadline_us);
    int peer = (sending ? b->send_peer : b->recv_peer).load();
    if (fl_net_lost(net, peer)) {
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
        if (fl__net_is_timeout(failure.what())) {
            snprintf(reason, sizeof reason, "%s member %d took longer than %lld ms", what, peer,
                     (long long)limit.count());
            fl__net_break(net, FL_EDEADLINE, reason);
        } else {
            snprintf(reason, sizeof reason, "%s member %d: %s", what, peer,
                     fl__net_plain(failure.what()));
            fl__net_lose(net, peer, reason);
        }
        return failed_with(net, peer);
    }
}

extern "C" fl_status fl_net_send(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                                 size_t size_bytes)
{
    return start(b, true, peer, tag, offset, size_bytes);
}

extern "C" fl_status fl_net_recv(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                                 size_t size_bytes)
{
    return start(b, false, peer, tag, offset, size_bytes);
}

extern "C" fl_status fl_net_wait_send(fl_net_buffer *b, int64_t deadline_us)
{
    return finish(b, true, deadline_us);
}

extern "C" fl_status fl_net_wait_recv(fl_net_buffer *b, int64_t deadline_us)
{
    return finish(b, false, deadline_us);
}
