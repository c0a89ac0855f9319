/* State that moves between ranks of a message group: pieces of device memory, all announced before
 * they move, so that moving them allocates nothing. */
#ifndef FL_AUTODP_TRANSFER_H
#define FL_AUTODP_TRANSFER_H

#include "autodp/group/group.h"
#include "autodp/message.h"
#include "device/device.h"

/* One piece of state to transfer between two ranks. */
typedef struct fl_transfer {
    int peer;
    bool sending;
    uint32_t id; /* the same on both ends, distinct per ordered pair of ranks within an exchange */
    void *data;  /* device memory, borrowed [size_bytes] */
    size_t size_bytes;
    bool on_host;  /* data is host memory instead */
    bool host_end; /* at this end, at the other, or at both: both say the same */
} fl_transfer;

/* The way that a piece of state goes. */
typedef enum fl_transfer_way {
    FL_TRANSFER_NCCL,     /* over the training group's own way between two devices */
    FL_TRANSFER_DEVICE,   /* the receiver's device reads the sender's memory */
    FL_TRANSFER_MESSAGES, /* through host memory, over the message group */
    FL_TRANSFER_WAYS
} fl_transfer_way;

/* "nccl", "device", "messages". */
const char *fl_transfer_way_text(fl_transfer_way way);

/* What a rank has received in one way. */
typedef struct fl_transfer_part {
    int pairs; /* the ranks that it came from */
    int64_t bytes;
    int64_t us; /* from the beginning of all transfers until the last byte of these was there */
} fl_transfer_part;

typedef struct fl_transfers_options {
    fl_message_group *messages; /* borrowed, as all of this */
    fl_device *device;
    /* The group that trains next, before it is connected: state between two of its members goes
     * over their devices' own way, if they have one and the data lies in device memory at both
     * ends. NULL: no state goes that way. It lives longer than the transfers. */
    fl_group *group;
    const int *ranks; /* [members of group] */
    int n_ranks;
} fl_transfers_options;

/* Prepare transfers: list [n] is copied. All ranks have devices of one kind, and list their
 * transfers in one common order, such as that of a schedule. Another thread may open and close them
 * while the groups are in use. All members of options->group connect it before the transfers run.
 *
 * Where the device computes in host memory, data moves from and to where it lies. Elsewhere it
 * passes, piece by piece, through memory that the sender's device exports and the receiver's reads;
 * where one of both cannot, through host memory. 8 MiB of the one and 4 MiB of the other are taken
 * here, if they can be had; neither counts against the device's budget. */
typedef struct fl_transfers fl_transfers;
fl_status fl_transfers_open(const fl_transfers_options *options, const fl_transfer *list, int n,
                            fl_transfers **out) FL_MUST_CHECK;
void fl_transfers_close(fl_transfers **transfers);

/* Move everything; the device has finished its work on the data, and all its streams find what has
 * arrived. Every rank that is named as a peer calls this with its own half; a rank without
 * transfers need not. FL_EDEADLINE, FL_EPEER as usual; the contents of receive buffers are then
 * undefined. */
fl_status fl_transfers_run(fl_transfers *transfers, int64_t deadline_us) FL_MUST_CHECK;

/* The bytes that this rank has sent from device to device, without host memory. */
int64_t fl_transfers_device_bytes(const fl_transfers *transfers);

/* What this rank has received, by the way: part [FL_TRANSFER_WAYS] out. */
void fl_transfers_parts(const fl_transfers *transfers, fl_transfer_part *part);

#endif
