/* What all nets do alike, whatever their transport. */
#include "autodp/net/transport.h"

#include <stdio.h>
#include <string.h>

/* ---- for the transports ---- */

static void abort_net(void *self, fl_status why)
{
    fl_net_abort(self, why);
}

static void look_at(void *self, fl_net_unanswered *worst)
{
    fl_net *net = self;
    if (net->ops->look != NULL) {
        net->ops->look(net, worst);
    }
}

fl_status fl__net_begin(fl_net *net, const fl_net_ops *ops, const fl_net_options *options)
{
    net->ops = ops;
    net->rank = options->rank;
    net->size = options->size;
    net->wait_timeout_ms = options->wait_timeout_ms;
    snprintf(net->name, sizeof net->name, "%s", options->name);
    if (options->abort_set == NULL) {
        return FL_OK;
    }
    net->abortable = (fl_abortable){
        .generation = options->generation, .self = net, .abort = abort_net, .look = look_at};
    FL_TRY(fl_abort_set_add(options->abort_set, &net->abortable));
    net->abort_set = options->abort_set;
    net->waits_unlimited = options->abort_set->limits_waits;
    return FL_OK;
}

void fl__net_leave_abort_set(fl_net *net)
{
    if (net->abort_set != NULL) {
        fl_abort_set_remove(net->abort_set, &net->abortable);
        net->abort_set = NULL;
    }
}

/* ---- net.h ---- */

void fl_net_close(fl_net **net)
{
    fl_net *closed = *net;
    if (closed != NULL) {
        *net = NULL;
        fl__net_leave_abort_set(closed);
        closed->ops->close(closed);
    }
}

void fl_net_abort(fl_net *net, fl_status why)
{
    net->ops->abort(net, why == FL_OK ? FL_EINTERNAL : why);
}

fl_status fl_net_state(fl_net *net)
{
    return net->ops->state(net);
}

bool fl_net_connects_late(const fl_net *net)
{
    return net->ops->connects_late;
}

fl_status fl_net_set_expendable(fl_net *net, int peer, bool spare)
{
    return net->ops->set_expendable(net, peer, spare);
}

bool fl_net_lost(fl_net *net, int peer)
{
    return net->ops->lost(net, peer);
}

fl_status fl_net_expect(fl_net *net, int peer)
{
    return net->ops->expect(net, peer);
}

fl_status fl_net_late(fl_net *net, int peer, int64_t waited_ms)
{
    return net->ops->late(net, peer, waited_ms);
}

void fl_net_late_text(char *text, size_t size_bytes, const char *what, int peer, int64_t waited_ms)
{
    if (waited_ms > 0) {
        snprintf(text, size_bytes, "%s member %d took longer than %lld ms", what, peer,
                 (long long)waited_ms);
    } else {
        snprintf(text, size_bytes, "%s member %d: its time was over before the wait for it began",
                 what, peer);
    }
}

fl_status fl_net_buffer_create(fl_net *net, void *data, size_t size_bytes, fl_net_buffer **out)
{
    return net->ops->buffer_create(net, data, size_bytes, out);
}

void fl_net_buffer_destroy(fl_net_buffer **buffer)
{
    fl_net_buffer *destroyed = *buffer;
    if (destroyed != NULL) {
        *buffer = NULL;
        destroyed->net->ops->buffer_destroy(destroyed);
    }
}

/* FL_OK if there is such a peer and the net is not broken. */
static fl_status check_peer(fl_net *net, int peer)
{
    FL_TRY(net->ops->state(net));
    return peer >= 0 && peer < net->size && peer != net->rank
               ? FL_OK
               : fl_fail(FL_EINVAL, "net %s: no member %d to talk to", net->name, peer);
}

fl_status fl_net_send(fl_net_buffer *b, int peer, uint64_t tag, size_t offset, size_t size_bytes)
{
    FL_TRY(check_peer(b->net, peer));
    return b->net->ops->send(b, peer, tag, offset, size_bytes);
}

fl_status fl_net_recv(fl_net_buffer *b, int peer, uint64_t tag, size_t offset, size_t size_bytes)
{
    FL_TRY(check_peer(b->net, peer));
    return b->net->ops->recv(b, peer, tag, offset, size_bytes);
}

int64_t fl_net_wait_limit(const fl_net *net, int64_t deadline_us)
{
    return net->waits_unlimited ? INT64_MAX : deadline_us;
}

fl_status fl_net_wait_send(fl_net_buffer *b, int64_t deadline_us)
{
    return b->net->ops->wait_send(b, deadline_us);
}

fl_status fl_net_wait_recv(fl_net_buffer *b, int64_t deadline_us)
{
    return b->net->ops->wait_recv(b, deadline_us);
}
