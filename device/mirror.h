/* Small memory that the host and the device share: tables that the host writes and kernels read,
 * such as where the samples of a micro-batch begin, or sums that kernels write and the host reads.
 * There is a piece of each kind of memory and one copy between them; where the device computes in
 * host memory, both are one piece and nothing is copied. Threads: one. */
#ifndef FL_DEVICE_MIRROR_H
#define FL_DEVICE_MIRROR_H

#include "device/device.h"

typedef struct fl_mirror {
    fl_device *device; /* borrowed, as the stream */
    fl_stream *stream;
    size_t size_bytes;
    unsigned char *host;      /* [size_bytes] for the host */
    unsigned char *on_device; /* [size_bytes] for kernels; host where that is the same */
    fl_event *sent;           /* the last copy to the device; NULL: none is needed */
} fl_mirror;

/* Device memory that a mirror needs: size_bytes, or 0 where the device computes in host memory. */
size_t fl_mirror_device_bytes(const fl_device *device, size_t size_bytes);

/* on_device  [fl_mirror_device_bytes] 64-byte aligned, borrowed
 * Call fini after a failure, too; it also takes a mirror of zeros. The stream has done all its work
 * before fini. FL_ENOMEM */
fl_status fl_mirror_init(fl_mirror *mirror, fl_device *device, fl_stream *stream, void *on_device,
                         size_t size_bytes) FL_MUST_CHECK;
void fl_mirror_fini(fl_mirror *mirror);

/* Before the host writes: wait until what it wrote last has been copied. */
fl_status fl_mirror_begin(fl_mirror *mirror) FL_MUST_CHECK;

/* After the host has written the first size_bytes: the work that the stream is given from now on
 * reads them. */
fl_status fl_mirror_send(fl_mirror *mirror, size_t size_bytes) FL_MUST_CHECK;

/* Bring the first size_bytes of what kernels wrote to the host: there once the stream was waited
 * for. */
fl_status fl_mirror_fetch(fl_mirror *mirror, size_t size_bytes) FL_MUST_CHECK;

/* Where kernels find what the host has at `host`. */
static inline void *fl_mirror_at(const fl_mirror *mirror, const void *host)
{
    return mirror->on_device + ((const unsigned char *)host - mirror->host);
}

#endif
