/* How the members of a net find and connect to each other. gloo_net.cc has the overview. */
#include "autodp/net/gloo/gloo_net.h"

extern "C" {
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"
#include "device/system/thread_priority.h"
}

#include <gloo/common/error.h>
#include <gloo/transport/tcp/address.h>

#include <algorithm>
#include <arpa/inet.h>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <new>
#include <unistd.h>

namespace
{

const int64_t guard_period_ms = 20;
const int64_t slice_ms = 100; /* between two looks at the guard while the store does not answer */
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

namespace
{

/* While an object of this class exists, new threads block all signals: the program handles those.
 */
class SignalsBlocked
{
  public:
    SignalsBlocked()
    {
        fl_thread_block_signals(&before_);
    }
    ~SignalsBlocked()
    {
        fl_thread_restore_signals(&before_);
    }

  private:
    sigset_t before_;
};

/* Ends an open that takes too long or is aborted, whatever it waits for. */
class Guard
{
  public:
    Guard(const gloo_net *net, int64_t deadline_us)
        : net_(net), deadline_us_(deadline_us), thread_(&Guard::run, this)
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

    /* FL_OK while the open may go on. */
    fl_status state() const
    {
        return fl_status(state_.load());
    }

    /* The object to wake when time is up: a pair in its connect, or a waiter on a buffer. */
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
            if (state_.load() == FL_OK) {
                state_.store(fl_now_us() >= deadline_us_ ? int(FL_EDEADLINE) : net_->state.load());
            }
            if (state_.load() != FL_OK) {
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
        /* A connection wakes a listening pair, and so does closing it; but close() resets a
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

    const gloo_net *net_;
    const int64_t deadline_us_;
    std::atomic<int> state_{FL_OK};
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

/* In place of Gloo's function of this name, which throws where the connection is no more. Gloo asks
 * in its event thread, for messages alone, when it has accepted a connection; then it reads from it
 * and finds out in good order that it was reset. */
gloo::transport::tcp::Address gloo::transport::tcp::Address::fromPeerName(int fd)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    memset(&peer, 0, sizeof peer);
    if (getpeername(fd, reinterpret_cast<struct sockaddr *>(&peer), &size) != 0) {
        peer.ss_family = AF_INET;
    }
    return Address(peer);
}

/* The comparison by which Gloo decides which end connects. */
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

/* The end that connects waits for an answer; the other one for a member that may be late. */
static void note_connecting(gloo_net *net, const std::vector<char> &other)
{
    struct sockaddr_storage address;
    memset(&address, 0, sizeof address);
    memcpy(&address, other.data(), std::min(sizeof address, other.size()));
    if (address.ss_family == AF_INET) {
        auto *a = reinterpret_cast<struct sockaddr_in *>(&address);
        net->to_address.store(ntohl(a->sin_addr.s_addr));
        net->to_port.store(ntohs(a->sin_port));
        net->to_us.store(fl_now_us());
    }
}

void fl__gloo_look(fl_net *base, fl_net_unanswered *worst)
{
    gloo_net *net = gloo_of(base);
    int64_t since_us = net->to_us.load();
    fl_net_unanswered found = {net->to_address.load(), net->to_port.load(), false, 0,
                               since_us == 0 ? 0 : (fl_now_us() - since_us) / 1000};
    fl_net_unanswered_add(worst, &found);
}

/* Gloo's own look-up fails badly on a name that does not resolve; a numeric address is safe. */
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

/* kv->set, ended early when the guard ends the open. A store that serves many members may need
 * longer than they take to ask. */
static fl_status set_addresses(const fl_net_options *o, const Guard &guard, int64_t deadline_us,
                               const std::vector<char> &mine)
{
    char key[256];
    snprintf(key, sizeof key, "%s/%d", o->name, o->rank);
    for (;;) {
        int64_t slice_us = std::min(deadline_us, fl_deadline_us(slice_ms));
        fl_status status = o->kv->set(o->kv->self, key, slice_us, mine.data(), mine.size());
        if (status != FL_EDEADLINE) {
            return status;
        }
        if (guard.state() != FL_OK) {
            return fl_fail(guard.state(), "publishing this member's address");
        }
        if (fl_now_us() >= deadline_us) {
            return fl_fail(FL_EDEADLINE, "the store did not take this member's address");
        }
    }
}

/* kv->get, ended early when the guard ends the open. */
static fl_status get_addresses(const fl_net_options *o, const Guard &guard, int64_t deadline_us,
                               int peer, size_t expected, std::vector<char> &out)
{
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
        if (guard.state() != FL_OK) {
            return fl_fail(guard.state(), "waiting for the address of member %d", peer);
        }
        if (fl_now_us() >= deadline_us) {
            return fl_fail(FL_EDEADLINE, "member %d did not arrive", peer);
        }
    }
}

static fl_status connect_all(gloo_net *net, const fl_net_options *o, Guard &guard,
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
    FL_TRY(set_addresses(o, guard, deadline_us, mine));
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
        if (connects_to(own, other)) {
            note_connecting(net, other);
        }
        try {
            pair->connect(other);
        } catch (const std::exception &failure) {
            net->to_us.store(0);
            guard.waits_for(nullptr);
            fl_status why = guard.state() != FL_OK ? guard.state() : FL_EPEER;
            return fl_fail(why, "connecting to member %d: %s", peer,
                           fl__gloo_plain(failure.what()));
        }
        net->to_us.store(0);
        guard.waits_for(nullptr);
        if (guard.state() != FL_OK) {
            return fl_fail(guard.state(), "connecting to member %d", peer);
        }
    }
    return FL_OK;
}

static fl_status say_hello(gloo_net *net, Guard &guard)
{
    const size_t me = size_t(net->rank), each = sizeof(Hello);
    net->hellos.assign(size_t(net->size), Hello());
    net->hellos[me] = {hello_magic, uint32_t(net->rank), uint32_t(net->size), hash_text(net->name)};
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
    fl_status state = guard.state();
    guard.waits_for(nullptr);
    for (int peer = 0; peer < net->size; peer++) {
        const Hello &hello = net->hellos[size_t(peer)];
        if (hello.magic == 0) {
            return fl_fail(state != FL_OK ? state : FL_EPEER, "no hello from member %d", peer);
        }
        if (hello.magic != hello_magic || hello.rank != uint32_t(peer) ||
            hello.size != uint32_t(net->size) || hello.name_hash != net->hellos[me].name_hash) {
            return fl_fail(FL_ESTALE, "member %d is of another net (rank %u of %u)", peer,
                           hello.rank, hello.size);
        }
    }
    return FL_OK;
}

/* A loopback address of this member's own. A member listens on one port for each other member: on a
 * single address, the members of a large net would use up the ports, and the search for a free port
 * takes the longer the fewer there are. 127.0.0.1 where the system has only this one. */
static std::string own_loopback(int rank)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(0x7f010001u + uint32_t(rank / 250 * 256 + rank % 250));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool works =
        fd >= 0 && bind(fd, reinterpret_cast<struct sockaddr *>(&address), sizeof address) == 0;
    if (fd >= 0) {
        close(fd);
    }
    char text[INET_ADDRSTRLEN];
    bool is_text = inet_ntop(AF_INET, &address.sin_addr, text, sizeof text) != nullptr;
    return works && is_text ? text : "127.0.0.1";
}

static fl_status open_mesh(gloo_net *net, const fl_net_options *o)
{
    std::string host;
    std::string wanted = o->host == nullptr ? own_loopback(net->rank) : o->host;
    FL_TRY(numeric_host(wanted.c_str(), host));
    int64_t deadline_us = fl_deadline_us(o->open_timeout_ms);
    fl_thread_raise_priority(true); /* for the device's event thread */
    net->device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(host.c_str()));
    fl_thread_raise_priority(false);
    net->context = net->device->createContext(net->rank, net->size);
    net->context->setTimeout(gloo::kNoTimeout); /* the guard limits the time */
    net->bye_buffer = net->context->createUnboundBuffer(net->byes.data(), net->byes.size());
    Guard guard(net, deadline_us);
    FL_TRY(connect_all(net, o, guard, deadline_us));
    return say_hello(net, guard);
}

fl_status fl__gloo_open(const fl_net_options *options, fl_net **out)
{
    void *memory = nullptr;
    FL_TRY(fl_alloc(sizeof(gloo_net), &memory));
    gloo_net *net = new (memory) gloo_net();
    SignalsBlocked blocked;
    fl_status status = FL_OK;
    try {
        const size_t size = size_t(options->size);
        net->byes.assign(size, 0);
        net->never.assign(size, 0);
        net->spare.assign(size, false);
        net->lost.assign(size, false);
        net->left.assign(size, false);
        status = fl__net_begin(net, &fl__gloo_net_ops, options);
        if (status == FL_OK && net->size > 1) {
            status = open_mesh(net, options);
            if (status == FL_OK) {
                net->watch = std::thread(fl__gloo_watch, net);
            }
        }
    } catch (const std::bad_alloc &) {
        status = fl_fail(FL_ENOMEM, "out of memory");
    } catch (const gloo::IoException &failure) {
        status = fl_fail(FL_EPEER, "%s", fl__gloo_plain(failure.what()));
    } catch (const std::exception &failure) {
        status = fl_fail(FL_EIO, "%s", fl__gloo_plain(failure.what()));
    }
    if (status != FL_OK) {
        fl__net_leave_abort_set(net);
        net->~gloo_net();
        fl_free(net);
        return status;
    }
    *out = net;
    return FL_OK;
}
