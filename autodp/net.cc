/* The shim over Gloo's TCP transport.
 *
 * 1. open: listen once a peer, publish the addresses in the store, connect, say hello. A guard
 *    thread ends all that at the deadline, for Gloo's own time-outs add up over the peers.
 * 2. data: sends and receives on unbound buffers, whose waiters abort() can wake.
 * 3. watch: Gloo does not wake who is in the middle of a message when the other end dies. So every
 *    pair also has a receive posted on a tag that nobody sends to; Gloo fails it when the pair
 *    dies, and the watch thread, asleep on it, breaks the net.
 *    A peer that is spare breaks nothing: only who waits for it is woken.
 * 4. close: a bye to all, so that their watch threads know that the end of the connection was
 * meant.
 *
 * What Gloo's event thread throws ends the process. It throws when a message is longer than the
 * receive that was posted for it, and when a connection is reset before it was accepted. The hello
 * is there for the latter: nobody resets a connection before the other end has spoken on it. */
#include "autodp/net.h"

extern "C" {
#include "device/alloc.h"
#include "device/clock.h"
#include "device/urgent.h"
}

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

namespace
{

/* The callers' tags have a kind of 1 to 254 in their highest byte; these are the shim's own. */
const uint64_t tag_hello = uint64_t(255) << 56;
const uint64_t tag_bye = tag_hello + 1;
const uint64_t tag_watch = tag_hello + 2; /* and above: a fresh one for each watch buffer */

const int64_t longest_close_ms = 1000;
const int64_t guard_period_ms = 20;
const char bye_mark = 'B';

/* What a member says first, so that a stranger or a wrong wiring is noticed. */
struct Hello {
    uint32_t magic, rank, size, name_hash;
};
const uint32_t hello_magic = 0x464c4831; /* FLH1 */

uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *text != 0; text++) {
        hash = (hash ^ uint8_t(*text)) * 16777619u;
    }
    return hash;
}

} // namespace

struct fl_net_buffer {
    fl_net *net;
    std::unique_ptr<UnboundBuffer> unbound;
    fl_net_buffer *previous, *next;
    std::atomic<int> send_peer, recv_peer; /* of the operation started last */
    std::atomic<int> under_way;            /* operations started and not finished */
};

struct fl_net {
    int rank, size;
    int64_t wait_timeout_ms;
    std::string name;
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<gloo::transport::Context> context;

    std::mutex mutex; /* guards everything below but the atomics */
    fl_net_buffer *buffers;
    UnboundBuffer *watched;
    char reason[512];          /* written once, before the state is */
    std::atomic<int> state;    /* fl_status */
    std::atomic<bool> leaving; /* the watch thread is to end */
    bool disconnected;
    std::vector<bool> spare, lost; /* [size] */
    std::vector<bool> left;        /* [size]; the watch thread writes it */
    std::thread watch;

    std::vector<Hello> hellos; /* [size]; mine is what I send */
    std::vector<char> byes;    /* [size]; bye_mark once it came; mine is what I send */
    std::vector<char> never;   /* [size]; where the watch receives would go */
    std::unique_ptr<UnboundBuffer> hello_buffer, bye_buffer;
};

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

/* Only who has an operation under way with this peer. The mutex is held. */
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

/* A spare peer that died is lost, and nothing else is; the net breaks for any other. */
static void lose_peer(fl_net *net, int peer, const char *reason)
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
    break_net(net, FL_EPEER, reason);
}

extern "C" fl_status fl_net_spare(fl_net *net, int peer, bool spare)
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
               ? refused(net)
               : fl_fail(FL_EPEER, "net %s: member %d was lost", net->name.c_str(), peer);
}

/* Gloo tells its failures apart by their text alone. */
static bool is_timeout(const char *what)
{
    return strstr(what, "Timed out waiting") != nullptr ||
           strstr(what, "Application timeout") != nullptr;
}

/* The text without the source position that Gloo puts before it. */
static const char *plain(const char *what)
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
    break_net(net, FL_EDEADLINE, reason);
    return refused(net);
}

/* ---- (3) watch ---- */

static void set_left(fl_net *net, int peer)
{
    std::lock_guard<std::mutex> lock(net->mutex);
    net->left[size_t(peer)] = true;
}

/* Post the watch receive on every pair that is not known to have left. A pair that is dead already
 * throws: its peer has left if it said bye, else it is lost. After a time-out all pairs are dead,
 * and whoever waited breaks the net with the better message. NULL: there is nothing to watch. */
static std::unique_ptr<UnboundBuffer> watch_pairs(fl_net *net, uint64_t tag)
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
            if (!is_timeout(failure.what())) {
                char reason[256];
                snprintf(reason, sizeof reason, "member %d was lost: %s", peer,
                         plain(failure.what()));
                lose_peer(net, peer, reason);
                if (net->state.load() == FL_OK) {
                    continue;
                }
            }
            return nullptr;
        }
    }
    return buffer;
}

static void watch(fl_net *net)
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

/* Ends an open that takes too long or is given up, whatever it waits in. */
class Guard
{
  public:
    Guard(const fl_net_options *options, int64_t deadline_us)
        : options_(options), deadline_us_(deadline_us), thread_(&Guard::run, this)
    {
    }
    ~Guard()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            done_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    fl_status verdict() const
    {
        return fl_status(verdict_.load());
    }

    /* What to wake when time is up: a pair in its connect, or a waiter on a buffer. */
    void waits_for(gloo::transport::Pair *pair, const std::vector<char> &own, bool is_client)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        pair_ = pair;
        own_ = own;
        is_client_ = is_client;
    }
    void waits_for(UnboundBuffer *buffer)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        pair_ = nullptr;
        buffer_ = buffer;
    }

  private:
    void run()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!done_) {
            changed_.wait_for(lock, milliseconds(guard_period_ms));
            if (done_) {
                return;
            }
            if (verdict_.load() == FL_OK) {
                if (fl_now_us() >= deadline_us_) {
                    verdict_.store(FL_EDEADLINE);
                } else if (options_->given_up != nullptr && options_->given_up(options_->context)) {
                    verdict_.store(FL_ESTALE);
                }
            }
            if (verdict_.load() != FL_OK) {
                wake();
            }
        }
    }

    void wake()
    {
        if (buffer_ != nullptr) {
            buffer_->abortWaitRecv();
        }
        if (pair_ == nullptr) {
            return;
        }
        if (is_client_) {
            pair_->close();
            return;
        }
        /* A listening pair is woken by a connection, and by closing it too; but close() resets a
         * connection that the other end may not have accepted yet. */
        struct sockaddr_storage address;
        memcpy(&address, own_.data(), std::min(sizeof address, own_.size()));
        int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0) {
            (void)!connect(fd, reinterpret_cast<struct sockaddr *>(&address),
                           address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                         : sizeof(struct sockaddr_in));
            ::close(fd);
        }
    }

    const fl_net_options *options_;
    const int64_t deadline_us_;
    std::atomic<int> verdict_{FL_OK};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    gloo::transport::Pair *pair_ = nullptr;
    std::vector<char> own_;
    bool is_client_ = false;
    UnboundBuffer *buffer_ = nullptr;
    std::thread thread_;
};

} // namespace

/* The same comparison by which Gloo decides which end connects. */
static bool connects_to(const std::vector<char> &own, const std::vector<char> &other)
{
    struct sockaddr_storage a, b;
    memcpy(&a, own.data(), std::min(sizeof a, own.size()));
    memcpy(&b, other.data(), std::min(sizeof b, other.size()));
    if (a.ss_family == AF_INET) {
        auto *x = reinterpret_cast<struct sockaddr_in *>(&a);
        auto *y = reinterpret_cast<struct sockaddr_in *>(&b);
        int order = memcmp(&x->sin_addr, &y->sin_addr, sizeof x->sin_addr);
        return order != 0 ? order > 0 : x->sin_port > y->sin_port;
    }
    auto *x = reinterpret_cast<struct sockaddr_in6 *>(&a);
    auto *y = reinterpret_cast<struct sockaddr_in6 *>(&b);
    int order = memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr);
    return order != 0 ? order > 0 : x->sin6_port > y->sin6_port;
}

/* Gloo's own look-up goes astray on a name that does not resolve; a numeric address is safe. */
static fl_status numeric_host(const char *host, std::string &out)
{
    struct addrinfo hints, *found = nullptr;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    int rc = getaddrinfo(host, nullptr, &hints, &found);
    if (rc != 0) {
        return fl_fail(FL_EINVAL, "address to listen on '%s': %s", host, gai_strerror(rc));
    }
    char text[NI_MAXHOST];
    rc = getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0,
                     NI_NUMERICHOST);
    freeaddrinfo(found);
    if (rc != 0) {
        return fl_fail(FL_EINVAL, "address to listen on '%s': %s", host, gai_strerror(rc));
    }
    out = text;
    return FL_OK;
}

/* kv->get, but given up when the guard says so. */
static fl_status get_addresses(const fl_net_options *o, const Guard &guard, int64_t deadline_us,
                               int peer, size_t expected, std::vector<char> &out)
{
    const int64_t slice_ms = 100;
    char key[256];
    snprintf(key, sizeof key, "%s/%d", o->name, peer);
    for (;;) {
        void *data = nullptr;
        size_t size_bytes = 0;
        int64_t slice_us = std::min(deadline_us, fl_deadline_us(slice_ms));
        fl_status status = o->kv->get(o->kv->self, key, slice_us, &data, &size_bytes);
        if (status == FL_OK) {
            if (size_bytes == expected) {
                out.assign(static_cast<char *>(data), static_cast<char *>(data) + size_bytes);
            } else {
                status = fl_fail(FL_EFORMAT, "address of member %d has %zu bytes, expected %zu",
                                 peer, size_bytes, expected);
            }
            fl_free(data);
            return status;
        }
        if (status != FL_EDEADLINE) {
            return fl_within(status, "address of member %d", peer);
        }
        if (guard.verdict() != FL_OK) {
            return fl_fail(guard.verdict(), "waiting for the address of member %d", peer);
        }
        if (fl_now_us() >= deadline_us) {
            return fl_fail(FL_EDEADLINE, "member %d did not come", peer);
        }
    }
}

static fl_status connect_all(fl_net *net, const fl_net_options *o, Guard &guard,
                             int64_t deadline_us)
{
    /* Rank i's value: its addresses for all others in order, each of the same size. */
    std::vector<char> mine;
    size_t address_bytes = 0;
    for (int peer = 0; peer < net->size; peer++) {
        if (peer != net->rank) {
            std::vector<char> address = net->context->createPair(peer)->address().bytes();
            address_bytes = address.size();
            mine.insert(mine.end(), address.begin(), address.end());
        }
    }
    char key[256];
    snprintf(key, sizeof key, "%s/%d", o->name, net->rank);
    FL_TRY(o->kv->set(o->kv->self, key, mine.data(), mine.size()));
    for (int peer = 0; peer < net->size; peer++) {
        if (peer == net->rank) {
            continue;
        }
        std::vector<char> all;
        FL_TRY(get_addresses(o, guard, deadline_us, peer, mine.size(), all));
        auto slot = [&](int owner, int other) {
            return std::ptrdiff_t(address_bytes) * (other > owner ? other - 1 : other);
        };
        auto begin = all.begin() + slot(peer, net->rank);
        std::vector<char> other(begin, begin + std::ptrdiff_t(address_bytes));
        auto from = mine.begin() + slot(net->rank, peer);
        std::vector<char> own(from, from + std::ptrdiff_t(address_bytes));
        auto *pair = net->context->getPair(peer).get();
        guard.waits_for(pair, own, connects_to(own, other));
        try {
            pair->connect(other);
        } catch (const std::exception &failure) {
            guard.waits_for(nullptr);
            fl_status why = guard.verdict() != FL_OK ? guard.verdict() : FL_EPEER;
            return fl_fail(why, "connecting to member %d: %s", peer, plain(failure.what()));
        }
        guard.waits_for(nullptr);
        if (guard.verdict() != FL_OK) {
            return fl_fail(guard.verdict(), "connecting to member %d", peer);
        }
    }
    return FL_OK;
}

static fl_status say_hello(fl_net *net, Guard &guard)
{
    const size_t me = size_t(net->rank), each = sizeof(Hello);
    net->hellos.assign(size_t(net->size), Hello());
    net->hellos[me] = {hello_magic, uint32_t(net->rank), uint32_t(net->size),
                       hash_text(net->name.c_str())};
    net->hello_buffer =
        net->context->createUnboundBuffer(net->hellos.data(), net->hellos.size() * each);
    guard.waits_for(net->hello_buffer.get());
    for (int peer = 0; peer < net->size; peer++) {
        if (peer != net->rank) {
            net->hello_buffer->recv(peer, tag_hello, size_t(peer) * each, each);
            net->bye_buffer->recv(peer, tag_bye, size_t(peer), 1);
            net->hello_buffer->send(peer, tag_hello, me * each, each);
        }
    }
    for (int i = 0; i < net->size - 1; i++) {
        if (!net->hello_buffer->waitRecv(nullptr, std::chrono::hours(24))) {
            break;
        }
    }
    fl_status verdict = guard.verdict();
    guard.waits_for(nullptr);
    for (int peer = 0; peer < net->size; peer++) {
        const Hello &hello = net->hellos[size_t(peer)];
        if (hello.magic == 0) {
            return fl_fail(verdict != FL_OK ? verdict : FL_EPEER, "no hello from member %d", peer);
        }
        if (hello.magic != hello_magic || hello.rank != uint32_t(peer) ||
            hello.size != uint32_t(net->size) || hello.name_hash != net->hellos[me].name_hash) {
            return fl_fail(FL_ESTALE, "member %d is of another net (rank %u of %u)", peer,
                           hello.rank, hello.size);
        }
    }
    return FL_OK;
}

static fl_status open_mesh(fl_net *net, const fl_net_options *o)
{
    std::string host;
    FL_TRY(numeric_host(o->host == nullptr ? "127.0.0.1" : o->host, host));
    int64_t deadline_us = fl_deadline_us(o->open_timeout_ms);
    fl_urgent(true); /* for the device's event thread */
    net->device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(host.c_str()));
    fl_urgent(false);
    net->context = net->device->createContext(net->rank, net->size);
    net->context->setTimeout(gloo::kNoTimeout); /* while connecting: the guard knows better */
    net->bye_buffer = net->context->createUnboundBuffer(net->byes.data(), net->byes.size());
    Guard guard(o, deadline_us);
    FL_TRY(connect_all(net, o, guard, deadline_us));
    return say_hello(net, guard);
}

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
        net->spare.assign(size_t(net->size), false);
        net->lost.assign(size_t(net->size), false);
        net->left.assign(size_t(net->size), false);
        if (net->size > 1) {
            status = open_mesh(net, options);
            if (status == FL_OK) {
                net->watch = std::thread(watch, net);
            }
        }
    } catch (const std::bad_alloc &) {
        status = fl_fail(FL_ENOMEM, "out of memory");
    } catch (const gloo::IoException &failure) {
        status = fl_fail(FL_EPEER, "%s", plain(failure.what()));
    } catch (const std::exception &failure) {
        status = fl_fail(FL_EIO, "%s", plain(failure.what()));
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
                 sending ? "sending to" : "receiving from", peer, plain(failure.what()));
        if (is_timeout(failure.what())) {
            break_net(net, FL_EDEADLINE, reason);
        } else {
            lose_peer(net, peer, reason);
        }
        return failed_with(net, peer);
    }
    return FL_OK;
}

static fl_status finish(fl_net_buffer *b, bool sending, int64_t deadline_us)
{
    fl_net *net = b->net;
    if (net->state.load() != FL_OK) {
        return refused(net);
    }
    int64_t limit_ms = std::min(fl_left_ms(deadline_us), net->wait_timeout_ms);
    int peer = (sending ? b->send_peer : b->recv_peer).load();
    if (fl_net_lost(net, peer)) {
        return failed_with(net, peer); /* also what was not started because of that */
    }
    try {
        bool finished = sending ? b->unbound->waitSend(nullptr, milliseconds(limit_ms))
                                : b->unbound->waitRecv(nullptr, milliseconds(limit_ms));
        if (!finished) {
            return failed_with(net, peer);
        }
        b->under_way.fetch_sub(1);
        return FL_OK;
    } catch (const std::exception &failure) {
        char reason[256];
        const char *what = sending ? "sending to" : "receiving from";
        if (is_timeout(failure.what())) {
            snprintf(reason, sizeof reason, "%s member %d took longer than %lld ms", what, peer,
                     (long long)limit_ms);
            break_net(net, FL_EDEADLINE, reason);
        } else {
            snprintf(reason, sizeof reason, "%s member %d: %s", what, peer, plain(failure.what()));
            lose_peer(net, peer, reason);
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
