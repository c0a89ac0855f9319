/* The parts of the Gloo shim that its files share. */
#ifndef FL_AUTODP_NET_NET_SHIM_H
#define FL_AUTODP_NET_NET_SHIM_H

#include "autodp/net/transport.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

/* The callers' tags have a kind of 1 to 254 in their highest byte; these are the shim's own. */
const uint64_t tag_hello = uint64_t(255) << 56;
const uint64_t tag_bye = tag_hello + 1;
const uint64_t tag_watch = tag_hello + 2; /* and above: a fresh one for each watch buffer */

const char bye_mark = 'B';

/* For a wait that an abort alone ends. */
const milliseconds fl__gloo_no_limit = std::chrono::hours(24 * 365);

/* The first message of a member: it exposes a stranger or a wrong wiring. */
struct Hello {
    uint32_t magic, rank, size, name_hash;
};

struct gloo_buffer : fl_net_buffer {
    std::unique_ptr<UnboundBuffer> unbound;
    gloo_buffer *previous, *next;
    std::atomic<int> send_peer, recv_peer; /* of the operation started last */
    std::atomic<int> under_way;            /* operations started but not finished */
};

struct gloo_net : fl_net {
    /* The device's thread writes here: these precede `device`, and are freed after it has ended. */
    std::vector<Hello> hellos; /* [size]; the own one is sent */
    std::vector<char> byes;    /* [size]; bye_mark once it arrived; the own one is sent */
    std::vector<char> never;   /* [size]; target of the watch receives, which never complete */
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<gloo::transport::Context> context;

    std::mutex mutex; /* guards everything below except the atomics */
    gloo_buffer *buffers;
    UnboundBuffer *watched;
    char reason[512];          /* written once, before `state` */
    std::atomic<int> state;    /* fl_status */
    std::atomic<bool> leaving; /* the watch thread must end */
    /* While this member connects to another one: where that listens, and since when; 0: it does
     * not. */
    std::atomic<uint32_t> to_address;
    std::atomic<uint16_t> to_port;
    std::atomic<int64_t> to_us;
    bool disconnected;
    std::vector<bool> spare, lost; /* [size] */
    std::vector<bool> left;        /* [size]; the watch thread writes it */
    std::thread watch;
    std::unique_ptr<UnboundBuffer> hello_buffer, bye_buffer;
};

/* gloo_net.cc. Never FL_OK: the reason why the net is broken. */
fl_status fl__gloo_refused(gloo_net *net);

/* Break the net. The first reason stays. Wakes all waiters and the watch thread. */
void fl__gloo_break(gloo_net *net, fl_status why, const char *reason);

/* Handle a dead peer: if it is expendable, only that peer is lost; otherwise the net breaks. */
void fl__gloo_lose(gloo_net *net, int peer, const char *reason);

/* Gloo's failures differ in their texts alone. */
bool fl__gloo_is_timeout(const char *what);

/* The text without the source position that Gloo puts before it. */
const char *fl__gloo_plain(const char *what);

/* gloo_watch.cc. Start and end of the watch thread, and the end of the connections. */
void fl__gloo_watch(gloo_net *net);

/* After the connections are closed, no operation moves data any more. */
void fl__gloo_disconnect(gloo_net *net);

/* gloo_open.cc and gloo_watch.cc: those of fl_net_ops. */
fl_status fl__gloo_open(const fl_net_options *options, fl_net **out);
void fl__gloo_look(fl_net *base, fl_net_unanswered *worst);
void fl__gloo_close(fl_net *base);

static inline gloo_net *gloo_of(fl_net *net)
{
    return static_cast<gloo_net *>(net);
}

#endif
