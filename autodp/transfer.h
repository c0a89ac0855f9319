/* State that moves between ranks of a message group: pieces of device memory, all announced before
 * they move, so that moving them allocates nothing. */
#ifndef FL_AUTODP_TRANSFER_H
#define FL_AUTODP_TRANSFER_H

#include "autodp/message.h"
#include "device/device.h"

/* One piece of state to transfer between two ranks. */
typedef struct fl_transfer {
    int peer;
    bool sending;
    uint32_t id; /* the same on both ends, distinct per ordered pair of ranks within an exchange */
    void *data;  /* device memory, borrowed [size_bytes] */
    size_t size_bytes;
    bool on_host; /* data is host memory instead */
} fl_transfer;

/* Prepare transfers: list [n] is copied. All ranks have devices of one kind, and list their
 * transfers in one common order, such as that of a schedule. Another thread may open and close them
 * while the group is in use.
 *
 * Where the device computes in host memory, data moves from and to where it lies. Elsewhere it
 * passes, piece by piece, through memory that the sender's device exports and the receiver's reads;
 * where one of both cannot, through host memory. 8 MiB of the one and 4 MiB of the other are taken
 * here, if they can be had; neither counts against the device's budget. */
typedef struct fl_transfers fl_transfers;
fl_status fl_transfers_open(fl_message_group *group, fl_device *device, const fl_transfer *list,
                            int n, fl_transfers **out) FL_MUST_CHECK;
void fl_transfers_close(fl_transfers **transfers);

/* Move everything; the device has finished its work on the data, and all its streams find what has
 * arrived. Every rank that is named as a peer calls this with its own half; a rank without
 * transfers need not. FL_EDEADLINE, FL_EPEER as usual; the contents of receive buffers are then
 * undefined. */
fl_status fl_transfers_run(fl_transfers *transfers, int64_t deadline_us) FL_MUST_CHECK;

/* The bytes that this rank has sent from device to device, without host memory. */
int64_t fl_transfers_device_bytes(const fl_transfers *transfers);

#endif
