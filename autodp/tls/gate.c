/* Where connections come in. Each is a stranger, in one of a few slots, until it has proved which
 * member it is; only then does the net hear of it.
 *
 * A stranger that does nothing is dropped after a while. Where all slots are taken, the oldest
 * stranger goes: a member needs a moment to prove itself, and tries again if it was dropped, so
 * strangers can delay members but not keep them out, and they take a bounded amount of memory and
 * of descriptors: where the process may have few, fewer. */
#include "autodp/tls/state.h"

#include "autodp/net/listen.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/tcp_retry.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STRANGERS_MIN = 4,
    STRANGERS_MAX = 64,
    NETS = 2,   /* that a worker has at once: those of this plan and of the next one */
    SPARE = 32, /* descriptors for what else the process opens */
    STRANGER_MS = 10000,
    ACCEPTS = 64, /* at a time */
    BACKLOG = 1024,
    REST_MS = 50,         /* without descriptors */
    TELL_EACH_MS = 10000, /* of refused connections */
};

typedef struct stranger {
    fl__tls_stream stream; /* fd -1: the slot is free */
    int64_t since_us;
} stranger;

struct fl__tls_gate {
    int fd;
    struct sockaddr_storage address;
    int n_slots;
    stranger *slots;
    int64_t rests_until_us; /* 0: it accepts */
    int64_t n_refused, told_us;
};

/* ---- open and close ---- */

int fl__tls_gate_strangers(uint64_t limit, int open, int size)
{
    int most = limit < INT32_MAX ? (int)limit : INT32_MAX;
    int left = (most - open - SPARE) / NETS - 2 * size; /* a member is connected both ways */
    return left < STRANGERS_MIN ? STRANGERS_MIN : left > STRANGERS_MAX ? STRANGERS_MAX : left;
}

/* One for each member and for some strangers. New descriptors get the lowest free number, so that
 * of the port shows how many there are. */
static fl_status make_slots(fl__tls_gate *g, int size)
{
    struct rlimit limit;
    uint64_t most = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
    int n = size + fl__tls_gate_strangers(most, g->fd, size);
    FL_TRY(fl_alloc_array((size_t)n, sizeof *g->slots, (void **)&g->slots));
    g->n_slots = n;
    for (int i = 0; i < n; i++) {
        g->slots[i].stream.fd = -1;
    }
    return FL_OK;
}

static fl_status find_address(const char *host, struct sockaddr_storage *out, socklen_t *size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int rc = getaddrinfo(host == NULL ? "127.0.0.1" : host, "0", &hints, &found);
    if (rc != 0) {
        return fl_fail(FL_EINVAL, "address to listen on '%s': %s", host, gai_strerror(rc));
    }
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *size = found->ai_addrlen;
    freeaddrinfo(found);
    return FL_OK;
}

static fl_status listen_at(fl__tls_gate *g, const char *host, const uint16_t ports[2])
{
    socklen_t size = 0;
    const char *name = host == NULL ? "127.0.0.1" : host;
    FL_TRY(find_address(host, &g->address, &size));
    g->fd = fl_net_listen(&g->address, size, ports, BACKLOG);
    if (g->fd < 0 && ports[0] != 0) {
        return fl_fail(FL_EIO, "listening at %s, at a port from %u to %u (autodp.ports): %s", name,
                       ports[0], ports[1], strerror(errno));
    }
    return g->fd >= 0 ? FL_OK : fl_fail(FL_EIO, "listening at %s: %s", name, strerror(errno));
}

fl_status fl__tls_gate_open(fl__tls_net *net, const char *host, const uint16_t ports[2])
{
    fl__tls_gate *g = NULL;
    FL_TRY(fl_alloc(sizeof *g, (void **)&g));
    net->gate = g;
    g->fd = -1;
    FL_TRY(listen_at(g, host, ports));
    FL_TRY(make_slots(g, net->base.size));
    return fl__tls_watch(net, g->fd, true, FL__TLS_LISTEN, 0, false)
               ? FL_OK
               : fl_fail(FL_ENOMEM, "waiting for connections: %s", strerror(errno));
}

void fl__tls_gate_close(fl__tls_net *net)
{
    fl__tls_gate *g = net->gate;
    if (g == NULL) {
        return;
    }
    net->gate = NULL;
    for (int i = 0; i < g->n_slots; i++) {
        fl__tls_stream_close(&g->slots[i].stream);
    }
    if (g->fd >= 0) {
        close(g->fd);
    }
    fl_free(g->slots);
    fl_free(g);
}

void fl__tls_gate_address(const fl__tls_net *net, struct sockaddr_storage *out)
{
    *out = net->gate->address;
}

/* ---- strangers ---- */

static void name_other_end(int fd, char text[NI_MAXHOST])
{
    struct sockaddr_storage other;
    socklen_t size = sizeof other;
    if (getpeername(fd, (struct sockaddr *)&other, &size) != 0 ||
        getnameinfo((struct sockaddr *)&other, size, text, NI_MAXHOST, NULL, 0, NI_NUMERICHOST) !=
            0) {
        snprintf(text, NI_MAXHOST, "an unknown address");
    }
}

static void refuse(fl__tls_net *net, stranger *s, const char *why)
{
    fl__tls_gate *g = net->gate;
    char from[NI_MAXHOST];
    if (s->stream.hung_up) { /* a member that gave up its attempt, or a port scan */
        fl__tls_stream_close(&s->stream);
        return;
    }
    g->n_refused++;
    if (g->told_us == 0 || fl_now_us() >= g->told_us + TELL_EACH_MS * INT64_C(1000)) {
        name_other_end(s->stream.fd, from);
        fl_log(FL_LOG_WARN, "net %s: refused a connection from %s: %s (%lld so far)",
               net->base.name, from, why, (long long)g->n_refused);
        g->told_us = fl_now_us();
    }
    fl__tls_stream_close(&s->stream);
}

/* A free slot: if need be, that of the oldest stranger. */
static int free_slot(fl__tls_net *net)
{
    fl__tls_gate *g = net->gate;
    int oldest = 0;
    for (int i = 0; i < g->n_slots; i++) {
        if (g->slots[i].stream.fd < 0) {
            return i;
        }
        oldest = g->slots[i].since_us < g->slots[oldest].since_us ? i : oldest;
    }
    refuse(net, &g->slots[oldest], "too many strangers at the same time");
    return oldest;
}

static void take_stranger(fl__tls_net *net, int fd)
{
    int one = 1, slot = free_slot(net);
    stranger *s = &net->gate->slots[slot];
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fl_tcp_retry_evenly(fd);
    s->since_us = fl_now_us();
    if (fl__tls_stream_open(&s->stream, &net->identity, fd, false, -1) == FL_OK &&
        !fl__tls_watch(net, fd, true, FL__TLS_STRANGER, slot, false)) {
        fl__tls_stream_close(&s->stream);
    }
}

/* Without descriptors, the listening socket would wake the thread all the time. */
static void rest(fl__tls_net *net)
{
    fl__tls_gate *g = net->gate;
    epoll_ctl(net->epoll, EPOLL_CTL_DEL, g->fd, NULL);
    g->rests_until_us = fl_deadline_us(REST_MS);
}

void fl__tls_gate_accept(fl__tls_net *net)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(net->gate->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_stranger(net, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            rest(net);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

void fl__tls_gate_event(fl__tls_net *net, int slot)
{
    stranger *s = &net->gate->slots[slot];
    if (s->stream.fd < 0) {
        return;
    }
    int rc = fl__tls_stream_shake(&s->stream);
    if (rc == 0) {
        fl__tls_watch(net, s->stream.fd, false, FL__TLS_STRANGER, slot, s->stream.wants_write);
    } else if (rc < 0) {
        refuse(net, s, s->stream.why);
    } else if (!fl__tls_in_has_room(&net->peers[s->stream.peer])) {
        fl__tls_stream_close(&s->stream); /* before it hears that it was taken: it tries again */
    } else if (fl__tls_stream_write(&s->stream, "", 1) != 1) {
        refuse(net, s, "it went away");
    } else {
        fl__tls_in_take(net, &net->peers[s->stream.peer], &s->stream);
    }
}

bool fl__tls_gate_tick(fl__tls_net *net, int64_t now_us)
{
    fl__tls_gate *g = net->gate;
    bool any = g->rests_until_us != 0;
    if (any && now_us >= g->rests_until_us) {
        g->rests_until_us = 0;
        fl__tls_watch(net, g->fd, true, FL__TLS_LISTEN, 0, false);
    }
    for (int i = 0; i < g->n_slots; i++) {
        stranger *s = &g->slots[i];
        if (s->stream.fd >= 0 && now_us >= s->since_us + STRANGER_MS * INT64_C(1000)) {
            refuse(net, s, "it has proved nothing in time");
        }
        any = any || s->stream.fd >= 0;
    }
    return any;
}
