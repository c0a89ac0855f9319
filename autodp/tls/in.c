/* The connection on which another member talks to this one: it goes from frame to frame, each head
 * first, and reads payloads into the memory of their receives. */
#include "autodp/tls/state.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    TURN_BYTES = 4 << 20, /* of one member, before the others have their turn */
    SCRAP_BYTES = 16 * 1024,
};

static void close_in(fl__tls_in *in)
{
    fl__tls_stream_close(&in->stream);
    *in = (fl__tls_in){.stream = {.fd = -1}};
}

/* The mutex is held. */
static void drop_in(fl__tls_net *net, fl__tls_peer *p)
{
    if (p->in.op != NULL) {
        fl__net_op_give(&net->ops, p->in.op);
    }
    close_in(&p->in);
}

void fl__tls_in_close(fl__tls_net *net, fl__tls_peer *p)
{
    drop_in(net, p);
    fl__tls_stream_close(&p->next_in);
}

/* The connection is over, without loss: the next one, if there is one, takes its place. */
static void go_on(fl__tls_net *net, fl__tls_peer *p)
{
    pthread_mutex_lock(&net->mutex);
    drop_in(net, p);
    if (p->next_in.fd >= 0) {
        fl__tls_stream_move(&p->in.stream, &p->next_in);
        p->in.more = true; /* it may have been read from already */
        fl__tls_watch(net, p->in.stream.fd, true, FL__TLS_IN, p->rank, false);
    }
    pthread_mutex_unlock(&net->mutex);
}

/* The connection is over, and so is the member. */
static void lose(fl__tls_net *net, fl__tls_peer *p, const char *why)
{
    char reason[512];
    snprintf(reason, sizeof reason, "member %d was lost: %s", p->rank, why);
    pthread_mutex_lock(&net->mutex);
    fl__tls_lose(net, p, reason);
    fl__tls_in_close(net, p);
    pthread_mutex_unlock(&net->mutex);
}

/* ---- frames ---- */

static void finish_payload(fl__tls_net *net, fl__tls_in *in)
{
    pthread_mutex_lock(&net->mutex);
    fl_net_op *op = in->op;
    in->op = NULL;
    fl__tls_done(net, op);
    pthread_mutex_unlock(&net->mutex);
    in->in_payload = false;
}

static bool begin_payload(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_in *in = &p->in;
    pthread_mutex_lock(&net->mutex);
    in->op = fl__tls_match_data(p, &in->frame);
    pthread_mutex_unlock(&net->mutex);
    if (in->op == NULL) {
        lose(net, p, "it sent a message that was not asked for");
        return false;
    }
    in->in_payload = true;
    in->payload_at = 0;
    if (in->frame.size_bytes == 0) {
        finish_payload(net, in);
    }
    return true;
}

static bool take_credit(fl__tls_net *net, fl__tls_peer *p)
{
    pthread_mutex_lock(&net->mutex);
    fl_status status = fl__tls_match_credit(net, p, &p->in.frame);
    if (status == FL_OK) {
        fl__tls_pump(net, p);
    }
    pthread_mutex_unlock(&net->mutex);
    if (status != FL_OK) {
        lose(net, p, fl_errmsg());
    }
    return status == FL_OK;
}

/* A head is complete. False: the connection is over. */
static bool take_frame(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_in *in = &p->in;
    in->head_at = 0;
    if (fl__tls_frame_get(in->head, &in->frame) != FL_OK ||
        (in->frame.kind == FL__TLS_HELLO) == in->used) {
        lose(net, p, "it sent what is no frame");
        return false;
    }
    in->used = true;
    switch (in->frame.kind) {
    case FL__TLS_HELLO:
        return true;
    case FL__TLS_DATA:
        return begin_payload(net, p);
    case FL__TLS_CREDIT:
        return take_credit(net, p);
    case FL__TLS_RENEW:
        go_on(net, p);
        return false;
    case FL__TLS_BYE:
        pthread_mutex_lock(&net->mutex);
        fl__tls_left(net, p);
        fl__tls_in_close(net, p);
        pthread_mutex_unlock(&net->mutex);
        return false;
    }
    return false;
}

/* ---- bytes ---- */

static ptrdiff_t read_head(fl__tls_in *in)
{
    ptrdiff_t n =
        fl__tls_stream_read(&in->stream, in->head + in->head_at, sizeof in->head - in->head_at);
    in->head_at += n > 0 ? (size_t)n : 0;
    return n;
}

static ptrdiff_t read_payload(fl__tls_net *net, fl__tls_in *in)
{
    unsigned char scrap[SCRAP_BYTES];
    size_t left = in->frame.size_bytes - in->payload_at;
    pthread_mutex_lock(&net->mutex);
    bool wanted = in->op->buffer != NULL;
    unsigned char *to = wanted ? in->op->data + in->payload_at : scrap;
    in->busy = true;
    pthread_mutex_unlock(&net->mutex);
    size_t most = wanted ? TURN_BYTES : sizeof scrap;
    ptrdiff_t n = fl__tls_stream_read(&in->stream, to, left < most ? left : most);
    pthread_mutex_lock(&net->mutex);
    in->busy = false;
    pthread_cond_broadcast(&net->idle);
    pthread_mutex_unlock(&net->mutex);
    in->payload_at += n > 0 ? (size_t)n : 0;
    return n;
}

/* A connection that ends before its first frame was given up by an attempt that is repeated. */
static void end(fl__tls_net *net, fl__tls_peer *p)
{
    if (p->in.used) {
        char why[sizeof p->in.stream.why];
        memcpy(why, p->in.stream.why, sizeof why);
        lose(net, p, why);
    } else {
        go_on(net, p);
    }
}

/* All that has come was read. */
static void expect_more(fl__tls_in *in)
{
    fl__tls_stream_expect(&in->stream, in->in_payload ? in->frame.size_bytes - in->payload_at : 0);
}

void fl__tls_in_event(fl__tls_net *net, fl__tls_peer *p)
{
    fl__tls_in *in = &p->in;
    ptrdiff_t n = 1;
    in->more = false;
    for (ptrdiff_t turn = 0; turn < TURN_BYTES; turn += n) {
        n = in->in_payload ? read_payload(net, in) : read_head(in);
        if (n < 0) {
            end(net, p);
            return;
        }
        if (in->stream.dry && !in->stream.ended) {
            expect_more(in);
            return;
        }
        if (in->in_payload && in->payload_at == in->frame.size_bytes) {
            finish_payload(net, in);
        } else if (!in->in_payload && in->head_at == sizeof in->head && !take_frame(net, p)) {
            return;
        }
    }
    in->more = true;
}

bool fl__tls_in_has_room(const fl__tls_peer *p)
{
    return p->next_in.fd < 0;
}

void fl__tls_in_take(fl__tls_net *net, fl__tls_peer *p, fl__tls_stream *stream)
{
    pthread_mutex_lock(&net->mutex);
    bool gone = p->left || p->lost;
    pthread_mutex_unlock(&net->mutex);
    if (gone || !fl__tls_in_has_room(p)) {
        fl__tls_stream_close(stream);
    } else if (p->in.stream.fd >= 0) {
        epoll_ctl(net->epoll, EPOLL_CTL_DEL, stream->fd, NULL);
        fl__tls_stream_move(&p->next_in, stream);
    } else {
        fl__tls_stream_move(&p->in.stream, stream);
        fl__tls_watch(net, p->in.stream.fd, false, FL__TLS_IN, p->rank, false);
        fl__tls_in_event(net, p);
    }
}
