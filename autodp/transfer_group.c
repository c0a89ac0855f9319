/* State that goes over the training group's own way between two devices: all its pieces are given
 * to the device at once, and go beside those that take other ways.
 *
 * Both ends of a transfer choose alike: they know the same members, the group finds the same for a
 * pair at both its ends, and both know where the data lies. */
#include "autodp/transfer_state.h"

#include "device/flight/flight.h"
#include "device/system/alloc.h"

static int member_of(const fl_transfers_options *o, int rank)
{
    for (int i = 0; i < o->n_ranks; i++) {
        if (o->ranks[i] == rank) {
            return i;
        }
    }
    return -1;
}

/* The mover of the transfer's pair and direction; NULL: it has none. */
static fl__transfer_mover *mover_of(const fl_transfers *t, const fl_transfer *transfer)
{
    for (int i = 0; i < t->n_movers; i++) {
        fl__transfer_mover *m = &t->movers[i];
        if (m->rank == transfer->peer && m->sending == transfer->sending) {
            return m;
        }
    }
    return NULL;
}

/* How many pieces each pair would have. */
static void count_pieces(fl_transfers *t, const fl_transfers_options *o)
{
    for (int i = 0; i < t->n; i++) {
        const fl_transfer *transfer = &t->list[i];
        if (transfer->host_end || member_of(o, transfer->peer) < 0) {
            continue;
        }
        fl__transfer_mover *m = mover_of(t, transfer);
        if (m == NULL) {
            m = &t->movers[t->n_movers++];
            *m = (fl__transfer_mover){.rank = transfer->peer, .sending = transfer->sending};
        }
        m->n_pieces++;
    }
}

/* Those that a mover takes leave the list; both parts stay in order. */
static void part_list(fl_transfers *t)
{
    int n_left = 0;
    for (int i = 0; i < t->n; i++) {
        const fl_transfer transfer = t->list[i];
        const fl__transfer_mover *m = mover_of(t, &transfer);
        if (m != NULL && m->mover != NULL && !transfer.host_end) {
            t->moved[t->n_moved++] = transfer;
        } else {
            t->list[n_left++] = transfer;
        }
    }
    t->n = n_left;
}

fl_status fl__transfer_movers_open(fl_transfers *t, const fl_transfers_options *options)
{
    FL_TRY(fl_alloc_array((size_t)t->n, sizeof *t->movers, (void **)&t->movers));
    FL_TRY(fl_alloc_array((size_t)t->n, sizeof *t->moved, (void **)&t->moved));
    count_pieces(t, options);
    for (int i = 0; i < t->n_movers; i++) {
        fl__transfer_mover *m = &t->movers[i];
        FL_TRY(fl_mover_open(options->group, m->sending, member_of(options, m->rank), m->n_pieces,
                             &m->mover));
    }
    part_list(t);
    return FL_OK;
}

void fl__transfer_movers_close(fl_transfers *t)
{
    for (int i = 0; i < t->n_movers; i++) {
        fl_mover_close(&t->movers[i].mover);
    }
    fl_free(t->movers);
    fl_free(t->moved);
}

fl_status fl__transfer_movers_start(fl_transfers *t)
{
    for (int i = 0; i < t->n_moved; i++) {
        const fl_transfer *transfer = &t->moved[i];
        FL_TRY(fl_mover_start(mover_of(t, transfer)->mover, transfer->data, transfer->size_bytes));
        t->device_bytes += transfer->sending ? (int64_t)transfer->size_bytes : 0;
    }
    return FL_OK;
}

fl_status fl__transfer_movers_wait(fl_transfers *t, int64_t deadline_us)
{
    for (int i = 0; i < t->n_moved; i++) {
        const fl_transfer *transfer = &t->moved[i];
        fl__transfer_enter_flight(transfer);
        FL_TRY(fl_mover_wait(mover_of(t, transfer)->mover, deadline_us));
        fl__transfer_note(t, transfer, FL_TRANSFER_NCCL);
        fl_flight_leave();
    }
    return FL_OK;
}
