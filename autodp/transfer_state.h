/* What the three files of transfers share.
 *
 *     transfer.c          the list of transfers, and its pieces through host memory
 *     transfer_group.c    those that go over the training group's own way between devices
 *     transfer_device.c   which peers' devices read each other, and pieces that go this way */
#ifndef FL_AUTODP_TRANSFER_STATE_H
#define FL_AUTODP_TRANSFER_STATE_H

#include "autodp/net/net.h"
#include "autodp/transfer.h"

enum { FL__HOST_PIECE_BYTES = 1 << 20, FL__DEVICE_PIECE_BYTES = 2 << 20, FL__SLOTS = 4 };

/* Room for one piece under way. */
typedef struct fl__transfer_slot {
    unsigned char *memory; /* of the host [FL__HOST_PIECE_BYTES] */
    fl_net_buffer *buffer; /* over memory */
    fl_event *copied;      /* the copy between the device and the slot is done */
    uint32_t place;        /* message: in which of the sender's slots the piece lies */
    unsigned char read;    /* message: it was read */
    fl_net_buffer *place_buffer, *read_buffer;
} fl__transfer_slot;

/* Names this rank's exported slots to a peer. */
typedef struct fl__transfer_card {
    uint64_t host; /* fl_host_id */
    int64_t pid;
    fl_shared_key key; /* id 0: it has none */
} fl__transfer_card;

/* Another rank that state goes to or comes from. */
typedef struct fl__transfer_peer {
    int rank;
    fl_shared_view view; /* of its slots; data NULL: state from it comes through host memory */
    unsigned char reads; /* it reads mine, else state to it goes through host memory */
    unsigned char i_read;
    fl__transfer_card mine, theirs;
    fl_net_buffer *card_out, *card_in, *answer_out, *answer_in;
} fl__transfer_peer;

/* The training group's way to or from another rank. */
typedef struct fl__transfer_mover {
    int rank;
    bool sending;
    int n_pieces;
    fl_mover *mover; /* NULL: not asked for yet, or the group has none */
} fl__transfer_mover;

struct fl_transfers {
    fl_message_group *group;
    fl_device *device;
    int n;
    fl_transfer *list;      /* [n] without those that the movers have */
    fl_net_buffer **buffer; /* [n] over data; NULL: staged */
    fl__transfer_slot slots[FL__SLOTS];
    fl_stream *stream; /* of the copies; NULL: direct */

    int n_peers;
    fl__transfer_peer *peers; /* [n], n_peers of them */
    bool has_met;             /* the peers know which way state goes */
    unsigned char *exported;  /* [FL__SLOTS][FL__DEVICE_PIECE_BYTES], device memory; NULL: none */
    fl_shared *exported_name;
    int64_t device_bytes;

    int n_movers, n_moved;
    fl__transfer_mover *movers; /* [n_movers] one for each ordered pair */
    fl_transfer *moved;         /* [n_moved] what they move, in the common order */

    int64_t begun_us;
    fl_transfer_part part[FL_TRANSFER_WAYS];
};

/* transfer.c. Start a message that belongs to a transfer, or to its peer. */
fl_status fl__transfer_send(const fl_transfers *t, int rank, uint64_t tag, fl_net_buffer *buffer,
                            size_t size_bytes) FL_MUST_CHECK;
fl_status fl__transfer_post(const fl_transfers *t, int rank, uint64_t tag, fl_net_buffer *buffer,
                            size_t size_bytes) FL_MUST_CHECK;

/* transfer.c. This rank waits for a transfer, until fl_flight_leave. */
void fl__transfer_enter_flight(const fl_transfer *t);

/* A transfer is over: note what has come, and which way. */
void fl__transfer_note(fl_transfers *t, const fl_transfer *transfer, fl_transfer_way way);

/* ---- transfer_group.c ---- */

/* Take the transfers that go over the training group off the list, and open their movers. */
fl_status fl__transfer_movers_open(fl_transfers *t,
                                   const fl_transfers_options *options) FL_MUST_CHECK;
void fl__transfer_movers_close(fl_transfers *t);
fl_status fl__transfer_movers_start(fl_transfers *t) FL_MUST_CHECK;
fl_status fl__transfer_movers_wait(fl_transfers *t, int64_t deadline_us) FL_MUST_CHECK;

/* ---- transfer_device.c ---- */

/* What pieces from device to device need, as far as it can be had. */
fl_status fl__transfer_peers_open(fl_transfers *t) FL_MUST_CHECK;
void fl__transfer_peers_close(fl_transfers *t);

/* Let every peer learn whether its device reads this one's memory, and the other way round. */
fl_status fl__transfer_meet(fl_transfers *t, int64_t deadline_us) FL_MUST_CHECK;

/* Whether it goes from device to device: the same answer at both ends. */
bool fl__transfer_on_device(const fl_transfers *t, const fl_transfer *transfer);

/* A piece at `data`, through slot `s`. */
fl_status fl__device_piece_start(fl_transfers *t, const fl_transfer *transfer, fl__transfer_slot *s,
                                 const void *data, size_t size_bytes) FL_MUST_CHECK;
fl_status fl__device_piece_finish(fl_transfers *t, const fl_transfer *transfer,
                                  fl__transfer_slot *s, void *data, size_t size_bytes,
                                  int64_t deadline_us) FL_MUST_CHECK;

#endif
