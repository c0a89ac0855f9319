/* Reads samples ahead of the step that wants them, on a thread of its own.
 *
 * Create it after the last fork: the thread does not come along. Requests are read, taken and
 * released in the order they were made; several may be taken and not yet released. Threads: one
 * requests, one (it may be another) takes and releases. */
#ifndef FL_DATA_LOADER_H
#define FL_DATA_LOADER_H

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
 * read  fill data [size_bytes, 64-byte aligned] for one request. In the loader's thread; returns
 *       early when *stop becomes true. */
typedef struct fl_load_source {
    void *context;
    size_t size_bytes; /* of the largest request */
    fl_status (*read)(void *context, const fl_load_request *request, const atomic_bool *stop,
                      void *data);
} fl_load_source;

/* A loader for requests of at most max_samples, `depth` of them read ahead. All memory is taken
 * here: depth * max_samples * the data set's max_shape. */
fl_status fl_loader_create(const fl_dataset *dataset, int64_t max_samples, int depth,
                           fl_loader **out) FL_MUST_CHECK;

/* The same over a source: what fl_loader_take gives has only data and n_samples. */
fl_status fl_loader_create_over(const fl_load_source *source, int64_t max_samples, int depth,
                                fl_loader **out) FL_MUST_CHECK;

/* End the thread, also while requests are queued: it stops after the current sample. What was taken
 * is no longer valid. *loader becomes NULL; NULL is fine. */
void fl_loader_destroy(fl_loader **loader);

enum { FL_LOADER_REQUEST_TIMEOUT_MS = 30000 };

/* Queue one request; waits only while `depth` are queued or not yet released.
 * FL_EDEADLINE after FL_LOADER_REQUEST_TIMEOUT_MS; FL_EINVAL for more than max_samples. */
fl_status fl_loader_request(fl_loader *loader, const fl_load_request *request) FL_MUST_CHECK;

/* The oldest request's samples as a ragged tensor in host memory; waits until they are read.
 * Valid until its fl_loader_release. FL_EDEADLINE after timeout_ms: it can be tried again.
 * FL_EINVAL if nothing was requested. A failure of the data set comes out here with its message;
 * that request is then over, and there is nothing to release. */
fl_status fl_loader_take(fl_loader *loader, int64_t timeout_ms, fl_tensor *out) FL_MUST_CHECK;

/* Give the oldest taken request's memory back. */
void fl_loader_release(fl_loader *loader);

/* The targets of `n` samples as a ragged tensor: data [capacity] and offsets [n + 1] are the
 * caller's. Not read ahead: targets are small. FL_EINVAL if they are more than `capacity`. */
fl_status fl_load_targets(const fl_dataset *dataset, fl_split split, const int64_t *ids, int64_t n,
                          int32_t *data, int64_t capacity, int32_t *offsets,
                          fl_tensor *out) FL_MUST_CHECK;

#endif
