/* The shim over Gloo's TCP transport.
 *
 * 1. open: net_open.cc.
 * 2. data: sends and receives on unbound buffers, whose waiters abort() can wake.
 * 3. watch: Gloo does not wake who is in the middle of a message when the other end dies. So every
 *    pair also has a receive posted on a tag that nobody sends to; Gloo fails it when the pair
 *    dies, and the watch thread, asleep on it, breaks the net.
 * 4. close: a bye to all, so that their watch threads know that the end of the connection was
 * meant.
 *
 * What Gloo's event thread throws ends the process. It throws when a message is longer than the
 * receive that was posted for it, and when a connection is reset before it was accepted. The hello
 * is there for the latter: nobody resets a connection before the other end has spoken on it. */
#include "autodp/net_shim.h"

extern "C" {
#include "device/alloc.h"
#include "device/clock.h"
}

#include <gloo/common/error.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

static const int64_t longest_close_ms = 1000;

/* ---- the state ---- */

static fl_status refused(fl_net *net)
{
    return fl_fail(fl_status(net->state.load()), "net %s, member %d: %s", net->name.c_str(),
                   net->rank, net->reason);
}

/* The first reason stays. Wakes all waiters, and the watch thread. */
static void break_net(fl_net *net, fl_status why, const char *reason)
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

/* Gloo tells its failures apart by their text alone. */
static bool is_timeout(const char *what)
{
    return strstr(what, "Timed out waiting") != nullptr ||
           strstr(what, "Application timeout") != nullptr;
}

/* The text without the source position that Gloo puts before it. */
const char *fl__net_plain(const char *what)
{
    const char *end = what[0] == '[' ? strstr(what, "] ") : nullptr;
    return end == nullptr ? what : end + 2;
}

extern "C" void fl_net_abort(fl_net *net, fl_status why)
{
    char reason[96];
    snprintf(reason, sizeof reason, "aborted: %s", fl_status_text(why));
    break_net(net, why == FL_OK ? FL_EINTERNAL : why, reason);
}

extern "C" fl_status fl_net_state(fl_net *net)
{
    return net->state.load() == FL_OK ? FL_OK : refused(net);
}

/* ---- (3) watch ---- */

/* Post the watch receive on every pair that is not known to have left. A pair that is dead already
 * throws: its peer has left if it said bye, else it is lost. After a time-out all pairs are dead,
 * and whoever waited breaks the net with the better message. NULL: there is nothing to watch. */
static std::unique_ptr<UnboundBuffer> watch_pairs(fl_net *net, std::vector<bool> &left,
                                                  uint64_t tag)
{
    auto buffer = net->context->createUnboundBuffer(net->never.data(), net->never.size());
    for (int peer = 0; peer < net->size; peer++) {
        if (peer == net->rank || left[size_t(peer)]) {
            continue;
        }
        try {
            buffer->recv(peer, tag, size_t(peer), 1);
        } catch (const std::exception &failure) {
            left[size_t(peer)] = true;
            if (net->byes[size_t(peer)] == bye_mark) {
                continue;
            }
            if (!is_timeout(failure.what())) {
                char reason[256];
                snprintf(reason, sizeof reason, "member %d was lost: %s", peer,
                         fl__net_plain(failure.what()));
                break_net(net, FL_EPEER, reason);
            }
            return nullptr;
        }
    }
    return buffer;
}

static void watch(fl_net *net)
{
    std::vector<bool> left(size_t(net->size), false);
    for (uint64_t tag = tag_watch; !net->leaving.load() && net->state.load() == FL_OK; tag++) {
        std::unique_ptr<UnboundBuffer> buffer;
        try {
            buffer = watch_pairs(net, left, tag);
            if (buffer == nullptr) {
                return;
            }
            {
                std::lock_guard<std::mutex> lock(net->mutex);
                if (net->leaving.load() || net->state.load() != FL_OK) {
                    return;
                }
                net->watched = buffer.get();
            }
            buffer->waitRecv(nullptr, std::chrono::hours(24 * 365));
        } catch (const std::exception &) {
            /* A pair died; the next round finds out which, and whether it said bye. */
        }
        std::lock_guard<std::mutex> lock(net->mutex);
        net->watched = nullptr;
    }
}

/* ---- (1) open ---- */

namespace
{

/* Threads started while one of these lives take no signals: those are for the program's own. */
class SignalsBlocked
{
  public:
    SignalsBlocked()
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~SignalsBlocked()
    {
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t before_;
};

} // namespace

extern "C" fl_status fl_net_open(const fl_net_options *options, fl_net **out)
{
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size) {
        return fl_fail(FL_EINVAL, "rank %d of %d members", options->rank, options->size);
    }
    struct sigaction action;
    if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
        signal(SIGPIPE, SIG_IGN); /* writing to a dead peer is an error here, not a signal */
    }
    void *memory = nullptr;
    FL_TRY(fl_alloc(sizeof(fl_net), &memory));
    fl_net *net = new (memory) fl_net();
    SignalsBlocked blocked;
    fl_status status = FL_OK;
    try {
        net->rank = options->rank;
        net->size = options->size;
        net->wait_timeout_ms = options->wait_timeout_ms;
        net->name = options->name;
        net->byes.assign(size_t(net->size), 0);
        net->never.assign(size_t(net->size), 0);
        if (net->size > 1) {
            status = fl__net_open_mesh(net, options);
            if (status == FL_OK) {
                net->watch = std::thread(watch, net);
            }
        }
    } catch (const std::bad_alloc &) {
        status = fl_fail(FL_ENOMEM, "out of memory");
    } catch (const gloo::IoException &failure) {
        status = fl_fail(FL_EPEER, "%s", fl__net_plain(failure.what()));
    } catch (const std::exception &failure) {
        status = fl_fail(FL_EIO, "%s", fl__net_plain(failure.what()));
    }
    if (status != FL_OK) {
        status = fl_within(status, "opening net %s, member %d of %d", options->name, options->rank,
                           options->size);
        net->~fl_net();
        fl_free(net);
        return status;
    }
    *out = net;
    return FL_OK;
}

/* ---- (4) close ---- */

static void say_bye(fl_net *net)
{
    int n_sent = 0;
    net->byes[size_t(net->rank)] = bye_mark;
    try {
        for (int peer = 0; peer < net->size; peer++) {
            try {
                if (peer != net->rank) {
                    net->bye_buffer->send(peer, tag_bye, size_t(net->rank), 1);
                    n_sent++;
                }
            } catch (const std::exception &) {
                /* It has gone first. */
            }
        }
        int64_t deadline_us = fl_deadline_us(longest_close_ms);
        for (; n_sent > 0; n_sent--) {
            net->bye_buffer->waitSend(nullptr, milliseconds(fl_left_ms(deadline_us)));
        }
    } catch (const std::exception &) {
        /* Somebody went without taking it, or is stuck: the others are told by the end of the
         * connection. */
    }
}

/* Nothing moves any more once the connections are closed, whatever was under way. */
static void disconnect(fl_net *net)
{
    std::lock_guard<std::mutex> lock(net->mutex);
    if (net->disconnected || net->context == nullptr) {
        return;
    }
    net->disconnected = true;
    for (int peer = 0; peer < net->size; peer++) {
        if (peer != net->rank) {
            try {
                net->context->getPair(peer)->close();
            } catch (const std::exception &) {
            }
        }
    }
}

extern "C" void fl_net_close(fl_net **net_pointer)
{
    fl_net *net = *net_pointer;
    if (net == nullptr) {
        return;
    }
    *net_pointer = nullptr;
    {
        std::lock_guard<std::mutex> lock(net->mutex);
        net->leaving.store(true);
        if (net->watched != nullptr) {
            net->watched->abortWaitRecv();
        }
    }
    if (net->watch.joinable()) {
        net->watch.join();
    }
    if (net->context != nullptr && net->state.load() == FL_OK) {
        say_bye(net);
    }
    net->bye_buffer.reset();
    net->hello_buffer.reset();
    net->~fl_net();
    fl_free(net);
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
    /* Gloo's event thread spins on a message whose buffer has gone, so the connection goes first.
     */
    if (b->under_way.load() > 0 && net->state.load() != FL_OK) {
        disconnect(net);
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
        return refused(net);
    }
    if (peer < 0 || peer >= net->size || peer == net->rank) {
        return fl_fail(FL_EINVAL, "net %s: no member %d to talk to", net->name.c_str(), peer);
    }
    if (offset > b->unbound->size || size_bytes > b->unbound->size - offset) {
        return fl_fail(FL_EINVAL, "net %s: %zu bytes at %zu of a buffer of %zu", net->name.c_str(),
                       size_bytes, offset, b->unbound->size);
    }
    try {
        b->under_way.fetch_add(1);
        (sending ? b->send_peer : b->recv_peer) = peer;
        if (sending) {
            b->unbound->send(peer, tag, offset, size_bytes);
        } else {
            b->unbound->recv(peer, tag, offset, size_bytes);
        }
    } catch (const std::exception &failure) {
        char reason[256];
        snprintf(reason, sizeof reason, "%s member %d: %s",
                 sending ? "sending to" : "receiving from", peer, fl__net_plain(failure.what()));
        break_net(net, is_timeout(failure.what()) ? FL_EDEADLINE : FL_EPEER, reason);
        return refused(net);
    }
    return FL_OK;
}

static fl_status finish(fl_net_buffer *b, bool sending, int64_t deadline_us)
{
    fl_net *net = b->net;
    if (net->state.load() != FL_OK) {
        return refused(net);
    }
    if (b->unbound == nullptr) {
        return fl_fail(FL_EINVAL, "net %s: nothing was started", net->name.c_str());
    }
    int64_t limit_ms = std::min(fl_left_ms(deadline_us), net->wait_timeout_ms);
    try {
        bool finished = sending ? b->unbound->waitSend(nullptr, milliseconds(limit_ms))
                                : b->unbound->waitRecv(nullptr, milliseconds(limit_ms));
        if (!finished) {
            return refused(net);
        }
        b->under_way.fetch_sub(1);
        return FL_OK;
    } catch (const std::exception &failure) {
        char reason[256];
        int peer = sending ? b->send_peer : b->recv_peer;
        const char *what = sending ? "sending to" : "receiving from";
        if (is_timeout(failure.what())) {
            snprintf(reason, sizeof reason, "%s member %d took longer than %lld ms", what, peer,
                     (long long)limit_ms);
            break_net(net, FL_EDEADLINE, reason);
        } else {
            snprintf(reason, sizeof reason, "%s member %d: %s", what, peer,
                     fl__net_plain(failure.what()));
            break_net(net, FL_EPEER, reason);
        }
        return refused(net);
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
