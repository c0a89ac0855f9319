/* State from one device's memory to another's, where the devices read each other.
 *
 * Each rank has slots in memory that its device exports. Before the first piece, each pair of ranks
 * with state for each other exchanges two messages:
 *
 *     card     how the sender's slots are named
 *     answer   whether the rank's device reads those of the other
 *
 * A piece then takes
 *
 *     sender      device memory -> slot, and says in which slot it lies
 *     receiver    the sender's slot -> device memory, and says that it was read
 *
 * Where one of both cannot, the piece goes through host memory, as transfer.c has it. */
#include "autodp/net/host_id.h"
#include "autodp/net/tag.h"
#include "autodp/transfer_state.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"

#include <unistd.h>

/* ---- open and close ---- */

static fl__transfer_peer *peer_of(const fl_transfers *t, int rank)
{
    for (int i = 0; i < t->n_peers; i++) {
        if (t->peers[i].rank == rank) {
            return &t->peers[i];
        }
    }
    return NULL;
}

static fl_status open_peer(fl_transfers *t, fl__transfer_peer *p)
{
    fl_net *net = fl__message_net(t->group);
    FL_TRY(fl_net_buffer_create(net, &p->mine, sizeof p->mine, &p->card_out));
    FL_TRY(fl_net_buffer_create(net, &p->theirs, sizeof p->theirs, &p->card_in));
    FL_TRY(fl_net_buffer_create(net, &p->i_read, sizeof p->i_read, &p->answer_out));
    return fl_net_buffer_create(net, &p->reads, sizeof p->reads, &p->answer_in);
}

/* Where the device exports nothing, state goes through host memory. */
static void export_slots(fl_transfers *t)
{
    fl_device *d = t->device;
    void *memory = NULL;
    if (d->ops->memory_export(d, (size_t)FL__SLOTS * FL__DEVICE_PIECE_BYTES, &memory,
                              &t->exported_name) == FL_OK) {
        t->exported = memory;
    }
}

fl_status fl__transfer_peers_open(fl_transfers *t)
{
    FL_TRY(fl_alloc_array((size_t)t->n, sizeof *t->peers, (void **)&t->peers));
    export_slots(t);
    for (int i = 0; i < t->n; i++) {
        if (peer_of(t, t->list[i].peer) == NULL) {
            fl__transfer_peer *p = &t->peers[t->n_peers++];
            p->rank = t->list[i].peer;
            FL_TRY(open_peer(t, p));
        }
    }
    return FL_OK;
}

void fl__transfer_peers_close(fl_transfers *t)
{
    fl_device *d = t->device;
    for (int i = 0; i < t->n_peers; i++) {
        fl__transfer_peer *p = &t->peers[i];
        fl_net_buffer_destroy(&p->card_out);
        fl_net_buffer_destroy(&p->card_in);
        fl_net_buffer_destroy(&p->answer_out);
        fl_net_buffer_destroy(&p->answer_in);
        d->ops->view_close(d, &p->view);
    }
    if (t->exported != NULL) {
        d->ops->memory_give(d, t->exported, (size_t)FL__SLOTS * FL__DEVICE_PIECE_BYTES);
        fl_shared_destroy(&t->exported_name);
    }
    fl_free(t->peers);
}

/* ---- which way ---- */

static fl_status send_cards(fl_transfers *t)
{
    fl__transfer_card card = {.host = fl_host_id(), .pid = getpid()};
    if (t->exported != NULL) {
        card.key = fl_shared_key_of(t->exported_name);
    }
    for (int i = 0; i < t->n_peers; i++) {
        fl__transfer_peer *p = &t->peers[i];
        p->mine = card;
        FL_TRY(fl__transfer_post(t, p->rank, fl_tag(FL_TAG_TRANSFER_CARD, 0), p->card_in,
                                 sizeof p->theirs));
        FL_TRY(fl__transfer_post(t, p->rank, fl_tag(FL_TAG_TRANSFER_ANSWER, 0), p->answer_in,
                                 sizeof p->reads));
        FL_TRY(fl__transfer_send(t, p->rank, fl_tag(FL_TAG_TRANSFER_CARD, 0), p->card_out,
                                 sizeof p->mine));
    }
    return FL_OK;
}

/* Look at a peer's slots. */
static bool look_at(const fl_transfers *t, fl__transfer_peer *p)
{
    fl_device *d = t->device;
    return p->theirs.key.id != 0 && p->theirs.host == p->mine.host &&
           d->ops->view_open(d, p->theirs.pid, &p->theirs.key,
                             (size_t)FL__SLOTS * FL__DEVICE_PIECE_BYTES, &p->view) == FL_OK;
}

static fl_status answer_cards(fl_transfers *t, int64_t deadline_us)
{
    for (int i = 0; i < t->n_peers; i++) {
        fl__transfer_peer *p = &t->peers[i];
        FL_TRY(fl_net_wait_recv(p->card_in, deadline_us));
        p->i_read = look_at(t, p) ? 1 : 0;
        FL_TRY(fl__transfer_send(t, p->rank, fl_tag(FL_TAG_TRANSFER_ANSWER, 0), p->answer_out,
                                 sizeof p->i_read));
    }
    return FL_OK;
}

fl_status fl__transfer_meet(fl_transfers *t, int64_t deadline_us)
{
    if (t->has_met) {
        return FL_OK;
    }
    fl_flight_enter(FL_FLIGHT_GATHER, -1, -1, 0);
    FL_TRY(send_cards(t));
    FL_TRY(answer_cards(t, deadline_us));
    for (int i = 0; i < t->n_peers; i++) {
        fl__transfer_peer *p = &t->peers[i];
        FL_TRY(fl_net_wait_recv(p->answer_in, deadline_us));
        FL_TRY(fl_net_wait_send(p->card_out, deadline_us));
        FL_TRY(fl_net_wait_send(p->answer_out, deadline_us));
    }
    fl_flight_leave();
    t->has_met = true;
    return FL_OK;
}

bool fl__transfer_on_device(const fl_transfers *t, const fl_transfer *transfer)
{
    const fl__transfer_peer *p = peer_of(t, transfer->peer);
    return transfer->sending ? p->reads != 0 : p->i_read != 0;
}

/* ---- pieces ---- */

/* The copy is done when this returns: what follows tells the other end. */
static fl_status finish_copy(fl_transfers *t, fl__transfer_slot *s)
{
    const fl_device_ops *ops = t->device->ops;
    FL_TRY(ops->event_record(t->device, s->copied, t->stream));
    return ops->event_wait(t->device, s->copied);
}

static fl_status send_piece(fl_transfers *t, const fl_transfer *transfer, fl__transfer_slot *s,
                            const void *data, size_t size_bytes)
{
    fl_device *d = t->device;
    s->place = (uint32_t)(s - t->slots);
    unsigned char *to = t->exported + (size_t)s->place * FL__DEVICE_PIECE_BYTES;
    FL_TRY(
        (transfer->on_host ? d->ops->copy_in : d->ops->copy)(d, t->stream, to, data, size_bytes));
    FL_TRY(finish_copy(t, s));
    t->device_bytes += (int64_t)size_bytes;
    FL_TRY(fl__transfer_post(t, transfer->peer, fl_tag(FL_TAG_TRANSFER_READ, transfer->id),
                             s->read_buffer, sizeof s->read));
    return fl__transfer_send(t, transfer->peer, fl_tag(FL_TAG_TRANSFER, transfer->id),
                             s->place_buffer, sizeof s->place);
}

fl_status fl__device_piece_start(fl_transfers *t, const fl_transfer *transfer, fl__transfer_slot *s,
                                 const void *data, size_t size_bytes)
{
    return transfer->sending
               ? send_piece(t, transfer, s, data, size_bytes)
               : fl__transfer_post(t, transfer->peer, fl_tag(FL_TAG_TRANSFER, transfer->id),
                                   s->place_buffer, sizeof s->place);
}

/* The peer says where the piece lies. */
static fl_status read_piece(fl_transfers *t, const fl_transfer *transfer, fl__transfer_slot *s,
                            void *data, size_t size_bytes)
{
    fl_device *d = t->device;
    const unsigned char *slots = peer_of(t, transfer->peer)->view.data;
    if (s->place >= FL__SLOTS) {
        return fl_fail(FL_EINTERNAL, "rank %d has sent a piece in slot %u of %d", transfer->peer,
                       s->place, FL__SLOTS);
    }
    const unsigned char *from = slots + (size_t)s->place * FL__DEVICE_PIECE_BYTES;
    FL_TRY((transfer->on_host ? d->ops->copy_out : d->ops->copy)(d, t->stream, data, from,
                                                                 size_bytes));
    return finish_copy(t, s);
}

fl_status fl__device_piece_finish(fl_transfers *t, const fl_transfer *transfer,
                                  fl__transfer_slot *s, void *data, size_t size_bytes,
                                  int64_t deadline_us)
{
    if (transfer->sending) {
        FL_TRY(fl_net_wait_send(s->place_buffer, deadline_us));
        return fl_net_wait_recv(s->read_buffer, deadline_us);
    }
    FL_TRY(fl_net_wait_recv(s->place_buffer, deadline_us));
    FL_TRY(read_piece(t, transfer, s, data, size_bytes));
    FL_TRY(fl__transfer_send(t, transfer->peer, fl_tag(FL_TAG_TRANSFER_READ, transfer->id),
                             s->read_buffer, sizeof s->read));
    return fl_net_wait_send(s->read_buffer, deadline_us);
}
