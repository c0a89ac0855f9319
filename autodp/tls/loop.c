/* The net's thread: it waits for all sockets, and for the moments at which something is due. */
#include "autodp/tls/state.h"

#include "device/system/clock.h"
#include "device/system/thread.h"
#include "device/system/thread_priority.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS = 64, TICK_MS = 10, LEAVE_MS = 1000 };

bool fl__tls_watch(fl__tls_net *net, int fd, bool is_new, fl__tls_event what, int which,
                   bool to_write)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (to_write ? EPOLLOUT : 0),
                                .data.u64 = (uint64_t)what << 32 | (uint32_t)which};
    return epoll_ctl(net->epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0;
}

void fl__tls_wake(fl__tls_net *net)
{
    uint64_t one = 1;
    (void)!write(net->wake, &one, sizeof one);
}

/* ---- what happened ---- */

static void handle(fl__tls_net *net, const struct epoll_event *event)
{
    int which = (int)(uint32_t)event->data.u64;
    uint64_t count;
    switch ((fl__tls_event)(event->data.u64 >> 32)) {
    case FL__TLS_WAKE:
        (void)!read(net->wake, &count, sizeof count);
        break;
    case FL__TLS_LISTEN:
        fl__tls_gate_accept(net);
        break;
    case FL__TLS_STRANGER:
        fl__tls_gate_event(net, which);
        break;
    case FL__TLS_OUT:
        fl__tls_out_event(net, &net->peers[which], event->events);
        break;
    case FL__TLS_IN:
        if (net->peers[which].in.stream.fd >= 0) {
            fl__tls_in_event(net, &net->peers[which]);
        }
        break;
    }
}

/* Members that had more to read than their turn allowed. Whether there are still some. */
static bool read_more(fl__tls_net *net)
{
    bool more = false;
    for (int i = 0; i < net->base.size; i++) {
        if (net->peers[i].in.more) {
            fl__tls_in_event(net, &net->peers[i]);
        }
        more = more || net->peers[i].in.more;
    }
    return more;
}

/* What is due. Whether something will be. */
static bool tick(fl__tls_net *net)
{
    int64_t now_us = fl_now_us();
    bool waits = fl__tls_gate_tick(net, now_us);
    pthread_mutex_lock(&net->mutex);
    for (int i = 0; i < net->base.size; i++) {
        fl__tls_peer *p = &net->peers[i];
        if (fl__tls_out_waits(p)) {
            fl__tls_out_tick(net, p, now_us);
            waits = true;
        }
    }
    pthread_mutex_unlock(&net->mutex);
    return waits;
}

/* ---- leaving ---- */

/* On the connection to a member, behind all that was sent; or on the one from it, if there is no
 * other. */
static void say_bye(fl__tls_net *net)
{
    const fl_net_frame bye = {.kind = FL__TLS_BYE};
    unsigned char head[FL__TLS_HEAD_BYTES];
    fl__tls_frame_put(&bye, head);
    for (int i = 0; i < net->base.size; i++) {
        fl__tls_peer *p = &net->peers[i];
        pthread_mutex_lock(&net->mutex);
        bool talks = p->out.state == FL__TLS_OPEN;
        p->out.bye = talks;
        fl__tls_pump(net, p);
        pthread_mutex_unlock(&net->mutex);
        if (!talks && p->in.stream.fd >= 0) {
            (void)fl__tls_stream_write(&p->in.stream, head, sizeof head);
        }
    }
}

static bool is_said(fl__tls_net *net)
{
    bool done = true;
    pthread_mutex_lock(&net->mutex);
    for (int i = 0; i < net->base.size; i++) {
        done = done && fl__tls_out_is_done(&net->peers[i]);
    }
    pthread_mutex_unlock(&net->mutex);
    return done;
}

/* Whether the thread may end. */
static bool leave(fl__tls_net *net, bool *said)
{
    pthread_mutex_lock(&net->mutex);
    bool leaving = net->leaving, broken = atomic_load(&net->state) != FL_OK;
    int64_t leave_us = net->leave_us;
    pthread_mutex_unlock(&net->mutex);
    if (!leaving || broken) {
        return leaving;
    }
    if (!*said) {
        *said = true;
        say_bye(net);
    }
    return is_said(net) || fl_now_us() >= leave_us;
}

/* ---- the thread ---- */

static void *serve(void *argument)
{
    fl__tls_net *net = argument;
    struct epoll_event events[EVENTS];
    bool more = false, waits = true, said = false;
    int64_t tick_us = 0;
    while (!leave(net, &said)) {
        int timeout_ms = more ? 0 : waits || said ? TICK_MS : -1;
        int n = epoll_wait(net->epoll, events, EVENTS, timeout_ms);
        bool woken = false;
        for (int i = 0; i < n; i++) {
            woken = woken || events[i].data.u64 >> 32 != FL__TLS_IN;
            handle(net, &events[i]);
        }
        more = read_more(net);
        if (woken || (waits && fl_now_us() >= tick_us)) {
            waits = tick(net);
            tick_us = fl_deadline_us(TICK_MS);
        }
    }
    return NULL;
}

fl_status fl__tls_loop_open(fl__tls_net *net)
{
    net->epoll = epoll_create1(EPOLL_CLOEXEC);
    net->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return net->epoll >= 0 && net->wake >= 0 &&
                   fl__tls_watch(net, net->wake, true, FL__TLS_WAKE, 0, false)
               ? FL_OK
               : fl_fail(FL_EIO, "waiting for sockets: %s", strerror(errno));
}

fl_status fl__tls_loop_start(fl__tls_net *net)
{
    fl_thread_raise_priority(true); /* the thread inherits it */
    fl_status status = fl_thread_start(&net->thread, serve, net, "the net's thread");
    fl_thread_raise_priority(false);
    net->has_thread = status == FL_OK;
    return status;
}

void fl__tls_loop_close(fl__tls_net *net)
{
    if (net->has_thread) {
        pthread_mutex_lock(&net->mutex);
        net->leaving = true;
        net->leave_us = fl_deadline_us(LEAVE_MS);
        pthread_mutex_unlock(&net->mutex);
        fl__tls_wake(net);
        pthread_join(net->thread, NULL);
        net->has_thread = false;
    }
    if (net->epoll >= 0) {
        close(net->epoll);
    }
    if (net->wake >= 0) {
        close(net->wake);
    }
}
