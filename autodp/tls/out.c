/* The connection on which this member talks to another one.
 *
 *   1. demand: a socket, and its connection begins
 *   2. advance, by the net's thread: connected, both ends have proved who they are, and the other
 *      end says that it has taken the connection. An attempt that fails before that is repeated,
 *      except where nobody listens any more.
 *   3. pump, by whoever has something to write: frames in the order of their operations. Whoever
 *      sets `busy` is the only one to use the connection until it takes it back.
 *   4. a connection that ends: the member has said bye, or it is lost. If its own connection to
 *      this member still has something to read, the bye may be in there. */
#include "autodp/tls/state.h"

#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/tcp_retry.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    PAUSE_MS = 5,
    MOST_PAUSE_MS = 500,
    ATTEMPT_MS = 10000,
    JUDGE_MS = 500,
    MOST_AT_ONCE = 128 * 1024,
};

/* ---- (1) and (2) ---- */

static void wait_to_retry(fl__tls_peer *p, const char *why)
{
    fl__tls_out *out = &p->out;
    snprintf(out->stream.why, sizeof out->stream.why, "%s", why);
    fl__tls_stream_close(&out->stream);
    out->state = FL__TLS_RETRYING;
    out->due_us = fl_deadline_us(out->pause_ms);
    out->pause_ms = out->pause_ms * 2 < MOST_PAUSE_MS ? out->pause_ms * 2 : MOST_PAUSE_MS;
}

static socklen_t size_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

static void fail_to_connect(fl__tls_net *net, fl__tls_peer *p, int error_number)
{
    p->out.error = error_number;
    if (error_number != ECONNREFUSED) {
        wait_to_retry(p, strerror(error_number));
        return;
    }
    /* Nobody listens: it has left, or it has died. A member that died is missed by member 0; here
     * it matters only to an operation with it. */
    fl__tls_stream_close(&p->out.stream);
    p->out.state = FL__TLS_ENDED;
    if (p->spare) {
        fl__tls_lose(net, p, "it listens no more");
    } else {
        fl__tls_left(net, p);
    }
}

static void begin(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_out *out = &p->out;
    int one = 1;
    int fd = socket(p->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    out->stream = (fl__tls_stream){.fd = fd};
    out->state = FL__TLS_CONNECTING;
    out->due_us = fl_deadline_us(ATTEMPT_MS);
    out->since_us = out->since_us == 0 ? fl_now_us() : out->since_us;
    out->unacknowledged_us = 0;
    if (fd < 0) {
        out->error = errno;
        wait_to_retry(p, strerror(errno));
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fl_tcp_retry_evenly(fd);
    if (connect(fd, (struct sockaddr *)&p->address, size_of(&p->address)) != 0 &&
        errno != EINPROGRESS) {
        fail_to_connect(net, p, errno);
    } else if (!fl__tls_watch(net, fd, true, FL__TLS_OUT, p->rank, true)) {
        wait_to_retry(p, strerror(errno));
    }
}

void fl__tls_demand(fl__tls_net *net, fl__tls_peer *p)
{
    if (p->out.state == FL__TLS_IDLE && !p->lost && !p->left) {
        p->out.pause_ms = PAUSE_MS;
        begin(net, p);
        fl__tls_wake(net);
    }
}

/* Owns the stream, without the mutex. 1: one step further. 0: later. -1: failed. */
static int step_further(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_stream *s = &p->out.stream;
    char byte;
    if (p->out.state == FL__TLS_CONNECTING) {
        return fl__tls_stream_open(s, &net->identity, s->fd, true, p->rank) == FL_OK ? 1 : -1;
    }
    if (p->out.state == FL__TLS_SHAKING) {
        return fl__tls_stream_shake(s);
    }
    return (int)fl__tls_stream_read(s, &byte, 1);
}

static void tell_once(fl__tls_net *net, const fl__tls_stream *s)
{
    if (!net->told) {
        net->told = true;
        fl_log(FL_LOG_INFO, "net %s: TLS 1.3 between members, AES-128-GCM, %s", net->base.name,
               fl__tls_stream_in_kernel(s, true) ? "by the kernel" : "not by the kernel");
    }
}

static void begin_to_talk(fl__tls_net *net, fl__tls_peer *p)
{
    const fl_net_frame hello = {.kind = FL__TLS_HELLO, .tag = FL__TLS_VERSION};
    fl__tls_out *out = &p->out;
    tell_once(net, &out->stream);
    out->state = FL__TLS_OPEN;
    out->blocked = out->look = out->renews = false;
    out->n_records = 0;
    out->stage_at = 0;
    fl__tls_frame_put(&hello, out->stage);
    out->stage_bytes = FL__TLS_HEAD_BYTES;
    fl__tls_watch(net, out->stream.fd, false, FL__TLS_OUT, p->rank, false);
    fl__tls_pump(net, p);
}

/* How the connection of a socket has ended; 0: it is connected. */
static int connect_error(int fd)
{
    int error_number = 0;
    socklen_t size = sizeof error_number;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &size) == 0 ? error_number : errno;
}

static void advance(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_out *out = &p->out;
    int error_number = out->state == FL__TLS_CONNECTING ? connect_error(out->stream.fd) : 0;
    if (error_number != 0) {
        fail_to_connect(net, p, error_number);
        return;
    }
    out->since_us = 0;
    out->error = 0;
    int rc = 1;
    while (rc > 0 && out->state != FL__TLS_OPEN) {
        out->busy = true;
        pthread_mutex_unlock(&net->mutex);
        rc = step_further(net, p);
        pthread_mutex_lock(&net->mutex);
        out->busy = false;
        out->state = rc > 0 ? (fl__tls_out_state)(out->state + 1) : out->state;
    }
    pthread_cond_broadcast(&net->idle);
    if (rc < 0) {
        char why[sizeof out->stream.why];
        memcpy(why, out->stream.why, sizeof why);
        wait_to_retry(p, why);
    } else if (rc == 0) {
        fl__tls_watch(net, out->stream.fd, false, FL__TLS_OUT, p->rank, out->stream.wants_write);
    } else {
        begin_to_talk(net, p);
    }
}

/* ---- (3) ---- */

static bool put_head(fl__tls_out *out, const fl_net_frame *frame)
{
    if (out->stage_bytes + FL__TLS_HEAD_BYTES > FL__TLS_STAGE_BYTES) {
        return false;
    }
    fl__tls_frame_put(frame, out->stage + out->stage_bytes);
    out->stage_bytes += FL__TLS_HEAD_BYTES;
    return true;
}

/* Put the message into the stage as far as it fits; what does not becomes `current`. */
static void stage_message(fl__tls_net *net, fl__tls_out *out, fl_net_op *op)
{
    size_t room = FL__TLS_STAGE_BYTES - out->stage_bytes, n = op->frame.size_bytes;
    n = n < room ? n : room;
    if (n > 0) {
        memcpy(out->stage + out->stage_bytes, op->data, n);
    }
    out->stage_bytes += n;
    if (n < op->frame.size_bytes) {
        out->current = op;
        out->current_at = n;
        return;
    }
    fl__tls_done(net, op);
}

static const fl_net_frame renew_frame = {.kind = FL__TLS_RENEW}, bye_frame = {.kind = FL__TLS_BYE};

static void fill_stage(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_out *out = &p->out;
    out->stage_bytes = out->stage_at = 0;
    out->renews = out->n_records >= net->most_records && put_head(out, &renew_frame);
    if (out->renews) {
        return;
    }
    while (p->control.first != NULL && put_head(out, &p->control.first->frame)) {
        fl__net_op_give(&net->ops, fl__net_take_behind(&p->control, NULL));
    }
    while (out->current == NULL && p->ready.first != NULL &&
           put_head(out, &p->ready.first->frame)) {
        stage_message(net, out, fl__net_take_behind(&p->ready, NULL));
    }
    if (out->bye && out->stage_bytes == 0) {
        put_head(out, &bye_frame);
        out->bye = false;
    }
}

/* The next bytes to write; false: there are none. */
static bool next_bytes(fl__tls_net *net, fl__tls_peer *p, const unsigned char **from, size_t *n)
{
    fl__tls_out *out = &p->out;
    if (out->stage_at == out->stage_bytes && out->current == NULL && !out->renews) {
        fill_stage(net, p);
    }
    if (out->stage_at < out->stage_bytes) {
        *from = out->stage + out->stage_at;
        *n = out->stage_bytes - out->stage_at;
        return true;
    }
    if (out->current == NULL) {
        return false;
    }
    size_t left = out->current->frame.size_bytes - out->current_at;
    *from = out->current->data + out->current_at;
    *n = left < MOST_AT_ONCE ? left : MOST_AT_ONCE;
    return true;
}

static void note_written(fl__tls_net *net, fl__tls_out *out, size_t n)
{
    out->n_records += (n + FL__TLS_RECORD_BYTES - 1) / FL__TLS_RECORD_BYTES;
    if (out->stage_at < out->stage_bytes) {
        out->stage_at += n;
        return;
    }
    out->current_at += n;
    if (out->current_at == out->current->frame.size_bytes) {
        fl_net_op *op = out->current;
        out->current = NULL;
        fl__tls_done(net, op);
        pthread_cond_broadcast(&net->idle);
    }
}

/* What has come back on the connection; the stream is the caller's. */
static void look_back(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_out *out = &p->out;
    unsigned char head[FL__TLS_HEAD_BYTES];
    fl_net_frame frame;
    out->look = false;
    pthread_mutex_unlock(&net->mutex);
    ptrdiff_t n = fl__tls_stream_read(&out->stream, head, sizeof head);
    pthread_mutex_lock(&net->mutex);
    if (n == 0) {
        return;
    }
    if (n == sizeof head && fl__tls_frame_get(head, &frame) == FL_OK && frame.kind == FL__TLS_BYE) {
        fl__tls_left(net, p);
    }
    out->state = FL__TLS_ENDED;
}

/* Whether the last frame of this connection is on its way. */
static bool has_renewed(const fl__tls_out *out)
{
    return out->renews && out->stage_at == out->stage_bytes &&
           fl__tls_stream_is_flushed(&out->stream);
}

/* After so many records, the cipher wants new keys: the pair goes on over a new connection. */
static void renew(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_stream_close(&p->out.stream);
    p->out.state = FL__TLS_IDLE;
    fl__tls_demand(net, p);
}

static void write_some(fl__tls_net *net, fl__tls_peer *p, const unsigned char *from,
                       size_t size_bytes)
{
    fl__tls_out *out = &p->out;
    pthread_mutex_unlock(&net->mutex);
    ptrdiff_t n = fl__tls_stream_write(&out->stream, from, size_bytes);
    pthread_mutex_lock(&net->mutex);
    if (n < 0) {
        out->state = FL__TLS_ENDED;
    } else if (n == 0) {
        out->blocked = true;
        fl__tls_watch(net, out->stream.fd, false, FL__TLS_OUT, p->rank, true);
    } else {
        note_written(net, out, (size_t)n);
    }
}

/* What was written lies in the stream still, because the socket took no more. */
static void flush(fl__tls_net *net, fl__tls_peer *p)
{
    int rc = fl__tls_stream_flush(&p->out.stream);
    if (rc < 0) {
        p->out.state = FL__TLS_ENDED;
    } else if (rc == 0) {
        p->out.blocked = true;
        fl__tls_watch(net, p->out.stream.fd, false, FL__TLS_OUT, p->rank, true);
    }
}

static void write_on(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_out *out = &p->out;
    const unsigned char *from;
    size_t size_bytes;
    while (out->state == FL__TLS_OPEN && (out->look || !out->blocked)) {
        if (has_renewed(out)) { /* the other end may have closed it already */
            renew(net, p);
        } else if (out->look) {
            look_back(net, p);
        } else if (next_bytes(net, p, &from, &size_bytes)) {
            write_some(net, p, from, size_bytes);
        } else if (!fl__tls_stream_is_flushed(&out->stream)) {
            flush(net, p);
        } else {
            return;
        }
    }
}

/* ---- (4) ---- */

static void judge(fl__tls_net *net, fl__tls_peer *p)
{
    char reason[160];
    if (p->left || p->lost) {
        return;
    }
    if (p->in.stream.fd >= 0 && p->judge_us == 0) {
        p->judge_us = fl_deadline_us(JUDGE_MS);
        fl__tls_wake(net);
        return;
    }
    snprintf(reason, sizeof reason, "member %d was lost: %s", p->rank,
             p->out.stream.why[0] == '\0' ? "connection closed" : p->out.stream.why);
    fl__tls_lose(net, p, reason);
}

void fl__tls_out_close(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_out *out = &p->out;
    fl__tls_stream_close(&out->stream);
    out->state = FL__TLS_ENDED;
    if (out->current != NULL) {
        fl__net_op_give(&net->ops, out->current);
        out->current = NULL;
    }
}

void fl__tls_pump(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_out *out = &p->out;
    if (out->state != FL__TLS_OPEN || out->busy) {
        return; /* whoever has it looks for more before giving it back */
    }
    out->busy = true;
    write_on(net, p);
    out->busy = false;
    pthread_cond_broadcast(&net->idle);
    if (out->state == FL__TLS_ENDED) {
        fl__tls_out_close(net, p);
        judge(net, p);
    }
}

void fl__tls_out_event(fl__tls_net *net, fl__tls_peer *p, uint32_t events)
{
    fl__tls_out *out = &p->out;
    pthread_mutex_lock(&net->mutex);
    if (out->state == FL__TLS_OPEN) {
        out->look = out->look || (events & ~(uint32_t)EPOLLOUT) != 0;
        if ((events & EPOLLOUT) != 0 && out->blocked) {
            out->blocked = false;
            fl__tls_watch(net, out->stream.fd, false, FL__TLS_OUT, p->rank, false);
        }
        fl__tls_pump(net, p);
    } else if (out->state >= FL__TLS_CONNECTING && out->state <= FL__TLS_PROVED) {
        advance(net, p);
    }
    pthread_mutex_unlock(&net->mutex);
}

void fl__tls_out_tick(fl__tls_net *net, fl__tls_peer *p, int64_t now_us)
{
    fl__tls_out *out = &p->out;
    bool due = now_us >= out->due_us;
    if (p->judge_us != 0 && now_us >= p->judge_us) {
        judge(net, p);
        p->judge_us = 0;
    }
    if (!fl__tls_out_waits(p)) {
        return;
    }
    if (p->left || p->lost) {
        fl__tls_out_close(net, p);
    } else if (due && out->state == FL__TLS_RETRYING) {
        begin(net, p);
    } else if (due) {
        wait_to_retry(p, "no answer");
    }
}

bool fl__tls_out_waits(const fl__tls_peer *p)
{
    return p->judge_us != 0 || (p->out.state >= FL__TLS_CONNECTING &&
                                p->out.state <= FL__TLS_RETRYING && p->out.state != FL__TLS_OPEN);
}

bool fl__tls_out_is_done(const fl__tls_peer *p)
{
    const fl__tls_out *out = &p->out;
    return out->state != FL__TLS_OPEN ||
           (!out->bye && !out->busy && out->current == NULL && out->stage_at == out->stage_bytes &&
            fl__tls_stream_is_flushed(&out->stream));
}
