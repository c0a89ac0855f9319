/* The functions of net.h over TLS. state.h has the overview. */
#include "autodp/tls/state.h"

#include "autodp/tls/tls.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <stdio.h>
#include <string.h>

enum { OPS_AT_FIRST = 256 };

/* AES-GCM is safe for 2^24.5 records of a key (RFC 8446, 5.5). */
static const uint64_t most_records = (uint64_t)1 << 23;

/* ---- the state ---- */

/* Why the net is broken: never FL_OK. */
static fl_status refused(fl__tls_net *net)
{
    return fl_fail((fl_status)atomic_load(&net->state), "net %s, member %d: %s", net->base.name,
                   net->base.rank, net->reason);
}

static bool is_broken(fl__tls_net *net)
{
    return atomic_load(&net->state) != FL_OK;
}

static void wake_all(fl__tls_net *net)
{
    for (fl__tls_buffer *b = net->buffers; b != NULL; b = b->next) {
        pthread_cond_broadcast(&b->changed);
    }
}

void fl__tls_break(fl__tls_net *net, fl_status why, const char *reason)
{
    if (is_broken(net)) {
        return;
    }
    snprintf(net->reason, sizeof net->reason, "%s", reason);
    atomic_store(&net->state, (int)why);
    wake_all(net);
    pthread_cond_broadcast(&net->idle);
}

void fl__tls_lose(fl__tls_net *net, fl__tls_peer *p, const char *reason)
{
    if (p->left || p->lost) {
        return;
    }
    if (p->spare) {
        p->lost = true;
        wake_all(net);
    } else {
        fl__tls_break(net, FL_EPEER, reason);
    }
}

void fl__tls_left(fl__tls_net *net, fl__tls_peer *p)
{
    if (!p->lost) {
        p->left = true;
        wake_all(net);
    }
}

void fl__tls_done(fl__tls_net *net, fl_net_op *op)
{
    fl__tls_buffer *b = (fl__tls_buffer *)op->buffer;
    if (b != NULL) {
        b->side[op->sends].n_done++;
        pthread_cond_broadcast(&b->changed);
    }
    fl__net_op_give(&net->ops, op);
}

static void abort_net(fl_net *base, fl_status why)
{
    fl__tls_net *net = fl__tls_of(base);
    char reason[96];
    snprintf(reason, sizeof reason, "aborted: %s", fl_status_text(why));
    pthread_mutex_lock(&net->mutex);
    fl__tls_break(net, why, reason);
    pthread_mutex_unlock(&net->mutex);
}

static fl_status state_of(fl_net *base)
{
    fl__tls_net *net = fl__tls_of(base);
    return is_broken(net) ? refused(net) : FL_OK;
}

static fl_status fail_lost(fl__tls_net *net, int peer)
{
    return is_broken(net) ? refused(net)
                          : fl_fail(FL_EPEER, "net %s: member %d was lost", net->base.name, peer);
}

static fl_status set_expendable(fl_net *base, int peer, bool spare)
{
    fl__tls_net *net = fl__tls_of(base);
    pthread_mutex_lock(&net->mutex);
    net->peers[peer].spare = spare;
    bool lost = net->peers[peer].lost;
    pthread_mutex_unlock(&net->mutex);
    return spare || !lost ? FL_OK
                          : fl_fail(FL_EPEER, "net %s: member %d was lost", net->base.name, peer);
}

static bool is_lost(fl_net *base, int peer)
{
    fl__tls_net *net = fl__tls_of(base);
    pthread_mutex_lock(&net->mutex);
    bool lost = net->peers[peer].lost;
    pthread_mutex_unlock(&net->mutex);
    return lost;
}

/* The connection is what tells that a member has gone. */
static fl_status expect(fl_net *base, int peer)
{
    fl__tls_net *net = fl__tls_of(base);
    FL_TRY(state_of(base));
    fl__tls_peer *p = &net->peers[peer];
    pthread_mutex_lock(&net->mutex);
    bool gone = p->left || p->lost;
    fl__tls_demand(net, p);
    pthread_mutex_unlock(&net->mutex);
    return gone ? fl_fail(FL_EPEER, "net %s: member %d has left", net->base.name, peer)
                : state_of(base);
}

/* The mutex is held. */
static void break_late(fl__tls_net *net, const char *what, int peer, int64_t waited_ms)
{
    const fl__tls_out *out = &net->peers[peer].out;
    bool is_open = out->state == FL__TLS_IDLE || out->state == FL__TLS_OPEN;
    char late[128], reason[256];
    fl_net_late_text(late, sizeof late, what, peer, waited_ms);
    snprintf(reason, sizeof reason, "%s%s%s%s", late, is_open ? "" : " (not connected: ",
             is_open                      ? ""
             : out->stream.why[0] == '\0' ? "no answer"
                                          : out->stream.why,
             is_open ? "" : ")");
    fl__tls_break(net, FL_EDEADLINE, reason);
}

static fl_status late(fl_net *base, int peer, int64_t waited_ms)
{
    fl__tls_net *net = fl__tls_of(base);
    pthread_mutex_lock(&net->mutex);
    break_late(net, "waiting for", peer, waited_ms);
    pthread_mutex_unlock(&net->mutex);
    return refused(net);
}

/* ---- buffers ---- */

static fl_status buffer_create(fl_net *base, void *data, size_t size_bytes, fl_net_buffer **out)
{
    fl__tls_net *net = fl__tls_of(base);
    fl__tls_buffer *b = NULL;
    FL_TRY(fl_alloc(sizeof *b, (void **)&b));
    b->base.net = base;
    b->data = data;
    b->size_bytes = size_bytes;
    b->side[0].peer = b->side[1].peer = base->rank;
    fl_condition_init(&b->changed);
    pthread_mutex_lock(&net->mutex);
    b->next = net->buffers;
    if (b->next != NULL) {
        b->next->previous = b;
    }
    net->buffers = b;
    pthread_mutex_unlock(&net->mutex);
    *out = &b->base;
    return FL_OK;
}

static void buffer_destroy(fl_net_buffer *buffer)
{
    fl__tls_buffer *b = (fl__tls_buffer *)buffer;
    fl__tls_net *net = fl__tls_of(buffer->net);
    pthread_mutex_lock(&net->mutex);
    for (int i = 0; i < 2; i++) {
        fl__tls_withdraw(net, &net->peers[b->side[i].peer], b);
    }
    if (b->previous != NULL) {
        b->previous->next = b->next;
    } else {
        net->buffers = b->next;
    }
    if (b->next != NULL) {
        b->next->previous = b->previous;
    }
    pthread_mutex_unlock(&net->mutex);
    pthread_cond_destroy(&b->changed);
    fl_free(b);
}

/* ---- operations ---- */

/* The mutex is held. */
static fl_status begin(fl__tls_net *net, fl__tls_buffer *b, bool sending, fl__tls_peer *p,
                       const fl_net_op *like)
{
    fl_net_op *op = NULL;
    b->side[sending].peer = p->rank;
    if (p->left) {
        fl__tls_break(net, FL_EPEER,
                      sending ? "sending to a member that has left"
                              : "receiving from a member that has left");
    }
    if (is_broken(net) || p->lost) {
        return fail_lost(net, p->rank);
    }
    FL_TRY(fl__net_op_take(&net->ops, &op));
    *op = *like;
    fl_status status = sending ? fl__tls_match_send(net, p, op) : fl__tls_match_receive(net, p, op);
    if (status != FL_OK) {
        fl__net_op_give(&net->ops, op);
        fl__tls_break(net, status, fl_errmsg());
        return status;
    }
    fl__tls_demand(net, p);
    fl__tls_pump(net, p);
    return is_broken(net) || p->lost ? fail_lost(net, p->rank) : FL_OK;
}

static fl_status start(fl_net_buffer *buffer, bool sending, int peer, uint64_t tag, size_t offset,
                       size_t size_bytes)
{
    fl__tls_buffer *b = (fl__tls_buffer *)buffer;
    fl__tls_net *net = fl__tls_of(buffer->net);
    if (offset > b->size_bytes || size_bytes > b->size_bytes - offset) {
        return fl_fail(FL_EINVAL, "net %s: %zu bytes at %zu of a buffer of %zu", net->base.name,
                       size_bytes, offset, b->size_bytes);
    }
    const fl_net_op op = {.buffer = buffer,
                          .sends = sending,
                          .data = b->data == NULL ? NULL : b->data + offset,
                          .frame = {.kind = FL__TLS_DATA, .tag = tag, .size_bytes = size_bytes}};
    pthread_mutex_lock(&net->mutex);
    fl_status status = begin(net, b, sending, &net->peers[peer], &op);
    pthread_mutex_unlock(&net->mutex);
    return status;
}

static fl_status start_send(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                            size_t size_bytes)
{
    return start(b, true, peer, tag, offset, size_bytes);
}

static fl_status start_receive(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                               size_t size_bytes)
{
    return start(b, false, peer, tag, offset, size_bytes);
}

/* The mutex is held. Until the wait may end; false: the deadline has passed. */
static bool wait_for_change(fl__tls_net *net, fl__tls_buffer *b, int64_t deadline_us)
{
    if (net->base.waits_unlimited) {
        pthread_cond_wait(&b->changed, &net->mutex);
        return true;
    }
    return fl_condition_wait_until(&b->changed, &net->mutex, deadline_us);
}

/* The mutex is held. */
static fl_status finish(fl__tls_net *net, fl__tls_buffer *b, bool sending, int64_t deadline_us,
                        int64_t limit_ms)
{
    const char *what = sending ? "sending to" : "receiving from";
    fl__tls_side *side = &b->side[sending];
    fl__tls_peer *p = &net->peers[side->peer];
    for (bool in_time = true;;) {
        if (is_broken(net) || p->lost) {
            return fail_lost(net, p->rank);
        }
        if (side->n_done > side->n_taken) {
            side->n_taken++;
            return FL_OK;
        }
        if (p->left) {
            char reason[96];
            snprintf(reason, sizeof reason, "%s member %d: it has left", what, p->rank);
            fl__tls_break(net, FL_EPEER, reason);
        } else if (!in_time) {
            break_late(net, what, p->rank, limit_ms);
        } else {
            in_time = wait_for_change(net, b, deadline_us);
        }
    }
}

static fl_status wait_for(fl_net_buffer *buffer, bool sending, int64_t deadline_us)
{
    fl__tls_net *net = fl__tls_of(buffer->net);
    int64_t left_ms = fl_left_ms(deadline_us), most_ms = net->base.wait_timeout_ms;
    int64_t latest_us = fl_deadline_us(most_ms);
    pthread_mutex_lock(&net->mutex);
    fl_status status = finish(net, (fl__tls_buffer *)buffer, sending,
                              deadline_us < latest_us ? deadline_us : latest_us,
                              left_ms < most_ms ? left_ms : most_ms);
    pthread_mutex_unlock(&net->mutex);
    return status;
}

static fl_status wait_sent(fl_net_buffer *b, int64_t deadline_us)
{
    return wait_for(b, true, deadline_us);
}

static fl_status wait_received(fl_net_buffer *b, int64_t deadline_us)
{
    return wait_for(b, false, deadline_us);
}

/* ---- open and close ---- */

static fl_status create_peers(fl__tls_net *net, int size)
{
    fl__tls_peer *peers = NULL;
    FL_TRY(fl_alloc_array((size_t)size, sizeof *peers, (void **)&peers));
    for (int i = 0; i < size; i++) {
        fl__tls_peer *p = &peers[i];
        p->rank = i;
        p->out.stream.fd = p->in.stream.fd = p->next_in.fd = -1;
    }
    pthread_mutex_lock(&net->mutex); /* another thread may look at it */
    net->peers = peers;
    pthread_mutex_unlock(&net->mutex);
    FL_TRY(fl_alloc_untouched((size_t)size * FL__TLS_STAGE_BYTES, (void **)&net->stages));
    for (int i = 0; i < size; i++) {
        net->peers[i].out.stage = net->stages + (size_t)i * FL__TLS_STAGE_BYTES;
    }
    return fl__net_pool_reserve(&net->ops, OPS_AT_FIRST);
}

static void close_net(fl_net *base)
{
    fl__tls_net *net = fl__tls_of(base);
    fl__tls_loop_close(net);
    fl__tls_gate_close(net);
    pthread_mutex_lock(&net->mutex);
    for (int i = 0; net->peers != NULL && i < base->size; i++) {
        fl__tls_out_close(net, &net->peers[i]);
        fl__tls_in_close(net, &net->peers[i]);
    }
    pthread_mutex_unlock(&net->mutex);
    fl__net_pool_free(&net->ops);
    fl_free(net->peers);
    fl_free(net->stages);
    fl__tls_identity_close(&net->identity);
    pthread_cond_destroy(&net->idle);
    pthread_mutex_destroy(&net->mutex);
    fl_free(net);
}

static fl_status set_up(fl__tls_net *net, const fl_net_options *options)
{
    FL_TRY(fl__net_begin(&net->base, &fl_tls_net_ops, options));
    FL_TRY(fl__tls_identity_open(&net->identity, options));
    FL_TRY(create_peers(net, options->size));
    if (options->size == 1) {
        return FL_OK;
    }
    FL_TRY(fl__tls_loop_open(net));
    FL_TRY(fl__tls_gate_open(net, options->host, options->transport->ports));
    return fl__tls_rendezvous(net, options);
}

static fl_status open_net(const fl_net_options *options, fl_net **out)
{
    fl__tls_net *net = NULL;
    FL_TRY(fl_alloc(sizeof *net, (void **)&net));
    pthread_mutex_init(&net->mutex, NULL);
    fl_condition_init(&net->idle);
    net->epoll = net->wake = -1;
    net->most_records = most_records;
    fl_status status = set_up(net, options);
    if (status != FL_OK) {
        fl__net_leave_abort_set(&net->base);
        close_net(&net->base);
        return status;
    }
    *out = &net->base;
    return FL_OK;
}

const fl_net_ops fl_tls_net_ops = {.open = open_net,
                                   .close = close_net,
                                   .abort = abort_net,
                                   .state = state_of,
                                   .set_expendable = set_expendable,
                                   .lost = is_lost,
                                   .expect = expect,
                                   .late = late,
                                   .buffer_create = buffer_create,
                                   .buffer_destroy = buffer_destroy,
                                   .send = start_send,
                                   .recv = start_receive,
                                   .wait_send = wait_sent,
                                   .wait_recv = wait_received,
                                   .look = fl__tls_look,
                                   .connects_late = true};
