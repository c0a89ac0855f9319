/* The watch thread, which notices members that are lost, and the closing of a net. gloo_net.cc
 * explains both. */
#include "autodp/net/gloo/gloo_net.h"

extern "C" {
#include "device/system/alloc.h"
#include "device/system/clock.h"
}

#include <cstdio>

static const int64_t longest_close_ms = 1000;

static void set_left(gloo_net *net, int peer)
{
    std::lock_guard<std::mutex> lock(net->mutex);
    net->left[size_t(peer)] = true;
}

/* Post the watch receive on every pair whose peer is not known to have left. A dead pair throws:
 * its peer has left if it said bye, otherwise it is lost. After a time-out all pairs are dead, and
 * the waiter breaks the net with the better message. NULL: there is nothing to watch. */
static std::unique_ptr<UnboundBuffer> watch_pairs(gloo_net *net, uint64_t tag)
{
    auto buffer = net->context->createUnboundBuffer(net->never.data(), net->never.size());
    for (int peer = 0; peer < net->size; peer++) {
        if (peer == net->rank || net->left[size_t(peer)]) {
            continue;
        }
        try {
            buffer->recv(peer, tag, size_t(peer), 1);
        } catch (const std::exception &failure) {
            set_left(net, peer);
            if (net->byes[size_t(peer)] == bye_mark) {
                continue;
            }
            if (!fl__gloo_is_timeout(failure.what())) {
                char reason[256];
                snprintf(reason, sizeof reason, "member %d was lost: %s", peer,
                         fl__gloo_plain(failure.what()));
                fl__gloo_lose(net, peer, reason);
                if (net->state.load() == FL_OK) {
                    continue;
                }
            }
            return nullptr;
        }
    }
    return buffer;
}

void fl__gloo_watch(gloo_net *net)
{
    for (uint64_t tag = tag_watch; !net->leaving.load() && net->state.load() == FL_OK; tag++) {
        std::unique_ptr<UnboundBuffer> buffer;
        try {
            buffer = watch_pairs(net, tag);
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
            buffer->waitRecv(nullptr, fl__gloo_no_limit);
        } catch (const std::exception &) {
            /* A pair died; the next round finds out which, and whether it said bye. */
        }
        std::lock_guard<std::mutex> lock(net->mutex);
        net->watched = nullptr;
    }
}

/* ---- leaving ---- */

static void say_bye(gloo_net *net)
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
                /* The peer has closed first. */
            }
        }
        int64_t deadline_us = fl_deadline_us(longest_close_ms);
        for (; n_sent > 0; n_sent--) {
            net->bye_buffer->waitSend(nullptr, milliseconds(fl_left_ms(deadline_us)));
        }
    } catch (const std::exception &) {
        /* A peer went without taking it, or is stuck: the others learn it from the end of the
         * connection. */
    }
}

void fl__gloo_disconnect(gloo_net *net)
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

void fl__gloo_close(fl_net *base)
{
    gloo_net *net = gloo_of(base);
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
    net->~gloo_net();
    fl_free(net);
}
