/* Transfers between members of the training group with a way of their own between their devices go
 * that way (transfer_group.c). There are two ways to run the list of all others:
 *
 *   direct   receives are posted, then sends, all at once, then all are waited for
 *   staged   each transfer is cut into pieces, and a few pieces are under way at a time, in the
 *            list's order, each in a slot of host memory:
 *
 *                 start    receive: post            send: copy from the device, send
 *                 finish   receive: wait, copy in   send: wait
 *
 *            or, where the devices read each other's memory, of the sender's device
 *            (transfer_device.c): the sender waits until the piece was read
 *
 * The first unfinished piece in the order that all ranks share is the next one to be finished on
 * both its ends, so both have started it, and no cycle of waits can close. */
#include "autodp/transfer_state.h"

#include "autodp/net/tag.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <string.h>

static bool is_direct(const fl_transfers *t)
{
    return t->device->ops->host_memory;
}

const char *fl_transfer_way_text(fl_transfer_way way)
{
    static const char *const texts[] = {"nccl", "device", "messages"};
    return texts[way];
}

void fl__transfer_note(fl_transfers *t, const fl_transfer *transfer, fl_transfer_way way)
{
    if (!transfer->sending) {
        t->part[way].bytes += (int64_t)transfer->size_bytes;
        t->part[way].us = fl_now_us() - t->begun_us;
    }
}

void fl__transfer_enter_flight(const fl_transfer *t)
{
    fl_flight_enter(t->sending ? FL_FLIGHT_STATE_OUT : FL_FLIGHT_STATE_IN, t->peer, (int)t->id,
                    (int64_t)t->size_bytes);
}

fl_status fl__transfer_send(const fl_transfers *t, int rank, uint64_t tag, fl_net_buffer *buffer,
                            size_t size_bytes)
{
    return fl_net_send(buffer, fl__message_index(t->group, rank), tag, 0, size_bytes);
}

fl_status fl__transfer_post(const fl_transfers *t, int rank, uint64_t tag, fl_net_buffer *buffer,
                            size_t size_bytes)
{
    return fl_net_recv(buffer, fl__message_index(t->group, rank), tag, 0, size_bytes);
}

static fl_status start_message(const fl_transfers *t, const fl_transfer *transfer,
                               fl_net_buffer *buffer, size_t size_bytes)
{
    uint64_t tag = fl_tag(FL_TAG_TRANSFER, transfer->id);
    return (transfer->sending ? fl__transfer_send : fl__transfer_post)(t, transfer->peer, tag,
                                                                       buffer, size_bytes);
}

static fl_status finish_message(const fl_transfer *transfer, fl_net_buffer *buffer,
                                int64_t deadline_us)
{
    return transfer->sending ? fl_net_wait_send(buffer, deadline_us)
                             : fl_net_wait_recv(buffer, deadline_us);
}

/* ---- direct ---- */

/* Receives are posted before sends, so that every message finds its buffer. */
static fl_status run_direct(fl_transfers *t, int64_t deadline_us)
{
    for (int sending = 0; sending < 2; sending++) {
        for (int i = 0; i < t->n; i++) {
            if (t->list[i].sending == (sending == 1)) {
                FL_TRY(start_message(t, &t->list[i], t->buffer[i], t->list[i].size_bytes));
            }
        }
    }
    for (int i = 0; i < t->n; i++) {
        fl__transfer_enter_flight(&t->list[i]);
        FL_TRY(finish_message(&t->list[i], t->buffer[i], deadline_us));
        fl__transfer_note(t, &t->list[i], FL_TRANSFER_MESSAGES);
        fl_flight_leave();
    }
    return FL_OK;
}

/* ---- staged ---- */

/* A place in the list of all pieces. */
typedef struct cursor {
    int transfer;
    size_t offset;
    int64_t n; /* pieces before this one */
} cursor;

static bool at_end(const fl_transfers *t, const cursor *at)
{
    return at->transfer == t->n;
}

static size_t piece_bytes(const fl_transfers *t, const cursor *at)
{
    const fl_transfer *transfer = &t->list[at->transfer];
    size_t left = transfer->size_bytes - at->offset;
    size_t most = fl__transfer_on_device(t, transfer) ? (size_t)FL__DEVICE_PIECE_BYTES
                                                      : (size_t)FL__HOST_PIECE_BYTES;
    return left < most ? left : most;
}

static void advance(const fl_transfers *t, cursor *at)
{
    at->offset += piece_bytes(t, at);
    at->n++;
    if (at->offset == t->list[at->transfer].size_bytes) {
        at->transfer++;
        at->offset = 0;
    }
}

static unsigned char *data_at(const fl_transfers *t, const cursor *at)
{
    return (unsigned char *)t->list[at->transfer].data + at->offset;
}

static fl_status send_piece(fl_transfers *t, const fl_transfer *transfer, fl__transfer_slot *s,
                            const void *data, size_t size_bytes)
{
    const fl_device_ops *ops = t->device->ops;
    if (transfer->on_host) {
        memcpy(s->memory, data, size_bytes);
    } else {
        FL_TRY(ops->copy_out(t->device, t->stream, s->memory, data, size_bytes));
        FL_TRY(ops->event_record(t->device, s->copied, t->stream));
        FL_TRY(ops->event_wait(t->device, s->copied));
    }
    return start_message(t, transfer, s->buffer, size_bytes);
}

static fl_status start_piece(fl_transfers *t, const cursor *at)
{
    const fl_transfer *transfer = &t->list[at->transfer];
    size_t size_bytes = piece_bytes(t, at);
    fl__transfer_slot *s = &t->slots[at->n % FL__SLOTS];
    FL_TRY(t->device->ops->event_wait(t->device, s->copied)); /* of the piece before in the slot */
    if (fl__transfer_on_device(t, transfer)) {
        return fl__device_piece_start(t, transfer, s, data_at(t, at), size_bytes);
    }
    return transfer->sending ? send_piece(t, transfer, s, data_at(t, at), size_bytes)
                             : start_message(t, transfer, s->buffer, size_bytes);
}

static fl_status finish_piece(fl_transfers *t, const cursor *at, int64_t deadline_us)
{
    const fl_transfer *transfer = &t->list[at->transfer];
    const fl_device_ops *ops = t->device->ops;
    size_t size_bytes = piece_bytes(t, at);
    fl__transfer_slot *s = &t->slots[at->n % FL__SLOTS];
    if (fl__transfer_on_device(t, transfer)) {
        return fl__device_piece_finish(t, transfer, s, data_at(t, at), size_bytes, deadline_us);
    }
    FL_TRY(finish_message(transfer, s->buffer, deadline_us));
    if (transfer->sending) {
        return FL_OK;
    }
    if (transfer->on_host) {
        memcpy(data_at(t, at), s->memory, size_bytes);
        return FL_OK;
    }
    FL_TRY(ops->copy_in(t->device, t->stream, data_at(t, at), s->memory, size_bytes));
    return ops->event_record(t->device, s->copied, t->stream);
}

static fl_transfer_way staged_way(const fl_transfers *t, const fl_transfer *transfer)
{
    return fl__transfer_on_device(t, transfer) ? FL_TRANSFER_DEVICE : FL_TRANSFER_MESSAGES;
}

static fl_status run_staged(fl_transfers *t, int64_t deadline_us)
{
    cursor started = {0}, finished = {0};
    FL_TRY(fl__transfer_meet(t, deadline_us));
    while (!at_end(t, &finished)) {
        for (; !at_end(t, &started) && started.n < finished.n + FL__SLOTS; advance(t, &started)) {
            FL_TRY(start_piece(t, &started));
        }
        if (finished.offset == 0) {
            fl__transfer_enter_flight(&t->list[finished.transfer]);
        }
        FL_TRY(finish_piece(t, &finished, deadline_us));
        const fl_transfer *transfer = &t->list[finished.transfer];
        advance(t, &finished);
        if (finished.offset == 0) {
            fl__transfer_note(t, transfer, staged_way(t, transfer));
            fl_flight_leave();
        }
    }
    return t->device->ops->sync(t->device, t->stream);
}

/* ---- open and close ---- */

static fl_status register_data(fl_transfers *t)
{
    fl_net *net = fl__message_net(t->group);
    FL_TRY(fl_alloc_array((size_t)t->n, sizeof(fl_net_buffer *), (void **)&t->buffer));
    for (int i = 0; i < t->n; i++) {
        FL_TRY(fl_net_buffer_create(net, t->list[i].data, t->list[i].size_bytes, &t->buffer[i]));
    }
    return FL_OK;
}

static fl_status create_slots(fl_transfers *t)
{
    const fl_device_ops *ops = t->device->ops;
    fl_net *net = fl__message_net(t->group);
    FL_TRY(ops->stream_create(t->device, &t->stream));
    for (int i = 0; i < FL__SLOTS; i++) {
        fl__transfer_slot *s = &t->slots[i];
        FL_TRY(ops->event_create(t->device, &s->copied));
        FL_TRY(ops->host_take(t->device, FL__HOST_PIECE_BYTES, (void **)&s->memory));
        FL_TRY(fl_net_buffer_create(net, s->memory, FL__HOST_PIECE_BYTES, &s->buffer));
        FL_TRY(fl_net_buffer_create(net, &s->place, sizeof s->place, &s->place_buffer));
        FL_TRY(fl_net_buffer_create(net, &s->read, sizeof s->read, &s->read_buffer));
    }
    return fl__transfer_peers_open(t);
}

static fl_status copy_list(fl_transfers *t, const fl_transfer *list, int n)
{
    FL_TRY(fl_alloc_array((size_t)n, sizeof *t->list, (void **)&t->list));
    for (int i = 0; i < n; i++) {
        if (fl__message_index(t->group, list[i].peer) < 0) {
            return fl_fail(FL_EINTERNAL, "state for rank %d, which is not a member", list[i].peer);
        }
        if (list[i].size_bytes > 0) {
            t->list[t->n++] = list[i];
        }
    }
    return FL_OK;
}

static fl_status prepare(fl_transfers *t, const fl_transfers_options *options,
                         const fl_transfer *list, int n)
{
    FL_TRY(copy_list(t, list, n));
    FL_TRY(options->group == NULL ? FL_OK : fl__transfer_movers_open(t, options));
    if (t->n == 0) {
        return FL_OK;
    }
    return is_direct(t) ? register_data(t) : create_slots(t);
}

fl_status fl_transfers_open(const fl_transfers_options *options, const fl_transfer *list, int n,
                            fl_transfers **out)
{
    fl_transfers *t = NULL;
    FL_TRY(fl_alloc(sizeof *t, (void **)&t));
    t->group = options->messages;
    t->device = options->device;
    fl_status status = prepare(t, options, list, n);
    if (status != FL_OK) {
        fl_transfers_close(&t);
        return status;
    }
    *out = t;
    return FL_OK;
}

static void close_slot(fl_transfers *t, fl__transfer_slot *s)
{
    const fl_device_ops *ops = t->device->ops;
    fl_net_buffer_destroy(&s->buffer);
    fl_net_buffer_destroy(&s->place_buffer);
    fl_net_buffer_destroy(&s->read_buffer);
    if (s->memory != NULL) {
        ops->host_give(t->device, s->memory, FL__HOST_PIECE_BYTES);
    }
    if (s->copied != NULL) {
        ops->event_destroy(t->device, &s->copied);
    }
}

void fl_transfers_close(fl_transfers **transfers)
{
    fl_transfers *t = *transfers;
    if (t == NULL) {
        return;
    }
    *transfers = NULL;
    for (int i = 0; t->buffer != NULL && i < t->n; i++) {
        fl_net_buffer_destroy(&t->buffer[i]);
    }
    if (t->stream != NULL) {
        t->device->ops->stream_destroy(t->device, &t->stream); /* waits for its copies */
    }
    for (int i = 0; i < FL__SLOTS; i++) {
        close_slot(t, &t->slots[i]);
    }
    fl__transfer_peers_close(t);
    fl__transfer_movers_close(t);
    fl_free(t->buffer);
    fl_free(t->list);
    fl_free(t);
}

fl_status fl_transfers_run(fl_transfers *t, int64_t deadline_us)
{
    t->begun_us = fl_now_us();
    FL_TRY(fl__transfer_movers_start(t));
    if (t->n > 0) {
        FL_TRY(is_direct(t) ? run_direct(t, deadline_us) : run_staged(t, deadline_us));
    }
    return fl__transfer_movers_wait(t, deadline_us);
}

/* ---- reports ---- */

/* Whether no earlier transfer of the list has come from the same rank in the same way. */
static bool is_first_of_pair(const fl_transfers *t, int at)
{
    const fl_transfer *transfer = &t->list[at];
    for (int i = 0; i < at; i++) {
        if (!t->list[i].sending && t->list[i].peer == transfer->peer) {
            return false;
        }
    }
    return !transfer->sending;
}

void fl_transfers_parts(const fl_transfers *t, fl_transfer_part *part)
{
    memcpy(part, t->part, sizeof t->part);
    for (int i = 0; i < t->n_movers; i++) {
        part[FL_TRANSFER_NCCL].pairs += t->movers[i].mover != NULL && !t->movers[i].sending;
    }
    for (int i = 0; i < t->n; i++) {
        if (is_first_of_pair(t, i)) {
            part[is_direct(t) ? FL_TRANSFER_MESSAGES : staged_way(t, &t->list[i])].pairs++;
        }
    }
}

int64_t fl_transfers_device_bytes(const fl_transfers *transfers)
{
    return transfers->device_bytes;
}
