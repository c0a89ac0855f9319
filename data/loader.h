/* Reads samples ahead of the step that wants them, on a thread of its own.
 *
 * Create it after the last fork: the thread does not come along. Requests are read, taken and
 * released in the order they were made; several may be taken and not yet released. Threads: one
 * requests, one (it may be another) takes and releases. */
#ifndef FL_DATA_LOADER_H
#define FL_DATA_LOADER_H

#include "device/device.h"

#include <frostline/dataset.h>

#include <stdatomic.h>

typedef struct fl_loader fl_loader;

/* The samples of one micro-batch: ids [n], copied by the request. */
typedef struct fl_load_request {
    fl_split split;
    uint64_t seed;
    int64_t epoch;
    bool augment;
    const int64_t *ids;
    int64_t n;
} fl_load_request;

/* A reader that replaces the data set, for more than raw samples.
 * size  the bytes that `read` writes for this request; a pure function
 * read  fill data [size bytes, 64-byte aligned] for one request. In the loader's thread; returns
 *       early when *stop becomes true. */
typedef struct fl_load_source {
    void *context;
    fl_status (*size)(void *context, const fl_load_request *request, size_t *size_bytes);
    fl_status (*read)(void *context, const fl_load_request *request, const atomic_bool *stop,
                      void *data);
} fl_load_source;

/* What a loader has room for. The data of the requests that were made and not yet released lies in
 * a ring of pieces, each request's in whole pieces one behind the other. Requests of many sizes
 * always fit if the ring holds their sum and the largest of them once more: the end of the ring may
 * be too short for it. */
typedef struct fl_loader_room {
    int64_t max_samples; /* of one request */
    int depth;           /* requests */
    size_t piece_bytes;  /* a multiple of 64 */
    size_t n_pieces;
    fl_device *device; /* borrowed: it will copy the data, which lies in the kind of host memory
                          that it copies from at full speed. NULL: in ordinary memory */
} fl_loader_room;

/* Room for `depth` requests, each of max_samples times the data set's max_shape. */
fl_status fl_loader_room_equal(const fl_dataset *dataset, int64_t max_samples, int depth,
                               fl_loader_room *room) FL_MUST_CHECK;

/* Room for requests of different size that have ahead_bytes together. */
fl_loader_room fl_loader_room_ragged(int64_t max_samples, int depth, int64_t ahead_bytes);

/* A loader over a data set, or over a source: what fl_loader_take gives then has only data and
 * n_samples. All memory is taken here. */
fl_status fl_loader_create(const fl_dataset *dataset, const fl_loader_room *room,
                           fl_loader **out) FL_MUST_CHECK;
fl_status fl_loader_create_over(const fl_load_source *source, const fl_loader_room *room,
                                fl_loader **out) FL_MUST_CHECK;

/* End the thread, also while requests are queued: it stops after the current sample. What was taken
 * is no longer valid. *loader becomes NULL; NULL is fine. */
void fl_loader_destroy(fl_loader **loader);

enum { FL_LOADER_REQUEST_TIMEOUT_MS = 30000 };

/* Queue one request; waits only while those that are queued or not yet released leave no room.
 * FL_EDEADLINE after FL_LOADER_REQUEST_TIMEOUT_MS; FL_EINVAL for more than there can be room for.
 */
fl_status fl_loader_request(fl_loader *loader, const fl_load_request *request) FL_MUST_CHECK;

/* The oldest request's samples as a ragged tensor in host memory; waits until they are read.
 * Valid until its fl_loader_release. FL_EIO after timeout_ms: it can be tried again. This is no
 * FL_EDEADLINE, which would stand for a wait for another worker: the cause lies in this process.
 * FL_EINVAL if nothing was requested. A failure of the data set comes out here with its message;
 * that request is then over, and there is nothing to release. */
fl_status fl_loader_take(fl_loader *loader, int64_t timeout_ms, fl_tensor *out) FL_MUST_CHECK;

/* The data of the oldest request that was not taken, where it was read already: NULL if not. It
 * stays the loader's until fl_loader_take, except that the caller may write it. */
void *fl_loader_peek(fl_loader *loader);

/* Give the oldest taken request's memory back. */
void fl_loader_release(fl_loader *loader);

/* The same, but nothing is read into that memory before the stream has done what it was given so
 * far; only the loader's thread waits for that. For a loader with a device. */
fl_status fl_loader_release_after(fl_loader *loader, fl_stream *stream) FL_MUST_CHECK;

enum { FL_TARGET_BYTES = 4 }; /* of one target, of either type */

/* The targets of `n` samples as a ragged tensor of the data set's type: data [capacity] of
 * FL_TARGET_BYTES each and offsets [n + 1] are the caller's. Not read ahead: targets are small.
 * FL_EINVAL if they are more than `capacity`. */
fl_status fl_load_targets(const fl_dataset *dataset, fl_split split, const int64_t *ids, int64_t n,
                          void *data, int64_t capacity, int32_t *offsets,
                          fl_tensor *out) FL_MUST_CHECK;

/* FL_EINVAL unless the table has either targets or targets_f32. */
fl_status fl_targets_check(const fl_dataset_ops *ops) FL_MUST_CHECK;

/* FL_EINVAL if the table is NULL or lacks an entry that it must have, which the message names;
 * FL_ENOTSUP for a table of another version. */
fl_status fl_dataset_check(const fl_dataset_ops *ops) FL_MUST_CHECK;

#endif
