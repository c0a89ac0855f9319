/* Small memory that the host and the device share: tables that the host writes and kernels read,
 * such as where the samples of a micro-batch begin, or sums that kernels write and the host reads.
 * There is a piece of each kind of memory and one copy between them; where the device computes in
 * host memory, both are one piece and nothing is copied.
 *
 * A mirror that runs ahead is sent without a wait of the host. Each sending writes another piece of
 * host memory, and the copy has a stream of its own:
 *
 *     host             writes piece i      writes piece i + 1       ...
 *     copy stream        piece i -> staged   piece i + 1 -> staged
 *     stream             work of i - 1 ...     staged -> on_device, work of i
 *
 * The copy over the bus overlaps the work of the sending before. `on_device` stays where it is and
 * keeps its content until the stream has come to its copy. Threads: one. */
#ifndef FL_DEVICE_MIRROR_H
#define FL_DEVICE_MIRROR_H

#include "device/device.h"

typedef struct fl_mirror {
    fl_device *device; /* borrowed, as the streams */
    fl_stream *stream;
    fl_stream *copy_stream; /* NULL: copies to the device are work of `stream` */
    size_t size_bytes;
    unsigned char *host;      /* [size_bytes] for the host: the piece that it writes now */
    unsigned char *on_device; /* [size_bytes] for kernels; host where that is the same */
    unsigned char *pieces;    /* [n_pieces] of stride_bytes, all of the host's memory */
    unsigned char *staged;    /* [size_bytes] device memory behind on_device, of the copy stream */
    size_t stride_bytes;
    int n_pieces;
    int64_t n_sent, n_arrived; /* sendings, and those that the host knows to be copied */
    fl_event **sent;           /* [n_pieces] the last copy of each; NULL: none is needed */
    fl_event *taken;           /* the stream has copied what was staged */
} fl_mirror;

/* Device memory that a mirror needs: size_bytes, or 0 where the device computes in host memory; and
 * one that runs ahead. */
size_t fl_mirror_device_bytes(const fl_device *device, size_t size_bytes);
size_t fl_mirror_ahead_device_bytes(const fl_device *device, size_t size_bytes);

/* on_device  [fl_mirror_device_bytes] 64-byte aligned, borrowed
 * Call fini after a failure, too; it also takes a mirror of zeros. The streams have done all their
 * work before fini. FL_ENOMEM */
fl_status fl_mirror_init(fl_mirror *mirror, fl_device *device, fl_stream *stream, void *on_device,
                         size_t size_bytes) FL_MUST_CHECK;
void fl_mirror_fini(fl_mirror *mirror);

/* The same for a mirror that runs ahead by up to n_pieces sendings.
 * copy_stream  NULL where the device computes in host memory
 * on_device    [fl_mirror_ahead_device_bytes]
 * size_bytes   a multiple of 64 */
fl_status fl_mirror_init_ahead(fl_mirror *mirror, fl_device *device, fl_stream *stream,
                               fl_stream *copy_stream, void *on_device, size_t size_bytes,
                               int n_pieces) FL_MUST_CHECK;

/* Before the host writes: wait until what it wrote last into this piece has been copied, unless
 * that is known. */
fl_status fl_mirror_begin(fl_mirror *mirror) FL_MUST_CHECK;

/* After the host has written the first size_bytes: the work that the stream is given from now on
 * reads them. */
fl_status fl_mirror_send(fl_mirror *mirror, size_t size_bytes) FL_MUST_CHECK;

/* The host has waited for the stream: whatever was sent has been copied. */
void fl_mirror_settle(fl_mirror *mirror);

/* Bring the first size_bytes of what kernels wrote to the host: there once the stream was waited
 * for. */
fl_status fl_mirror_fetch(fl_mirror *mirror, size_t size_bytes) FL_MUST_CHECK;

/* Where kernels find what the host has at `host`. */
static inline void *fl_mirror_at(const fl_mirror *mirror, const void *host)
{
    return mirror->on_device + ((const unsigned char *)host - mirror->host);
}

#endif
