/* The training group: the communicators of one generation. One interface, and a backend for each
 * kind of device: for CPUs shared memory within a host and Gloo between hosts.
 *
 * Members are numbered by `index` within the group; the plan maps them to workers. Every wait has a
 * `deadline_us` and ends at once after fl_group_abort. Tags carry no generation because a group's
 * connections belong to one generation alone. */
#ifndef FL_AUTODP_GROUP_GROUP_H
#define FL_AUTODP_GROUP_GROUP_H

#include "autodp/net/net.h"
#include "device/shared.h"

#include <frostline/tensor.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_group fl_group;
typedef struct fl_channel fl_channel;
typedef struct fl_bucket fl_bucket;

typedef struct fl_group_options {
    fl_device_kind device; /* the members' compute device: it decides the backend */
    uint32_t generation;
    int index, size;
    const fl_kv *kv;
    const char *host;
    int64_t open_timeout_ms;
    int64_t wait_timeout_ms;
    fl_abort_set *abort_set; /* as in fl_net_options */
    /* Use sockets only, even between members of one host that could share memory. The same on all
     * members. */
    bool sockets_only;
} fl_group_options;

fl_status fl_group_open(const fl_group_options *options, fl_group **out) FL_MUST_CHECK;
void fl_group_close(fl_group **group);

/* Threads: any. */
void fl_group_abort(fl_group *group, fl_status why);
fl_status fl_group_state(fl_group *group);

/* ---- neighbours: one direction of one pair, with its buffers fixed beforehand ---- */

/* A channel to (sending) or from `peer`, for messages of at most max_bytes, `depth` of them in
 * flight at once. id: the same on both ends, distinct per (pair, use). */
fl_status fl_channel_open(fl_group *group, bool sending, int peer, uint32_t id, size_t max_bytes,
                          int depth, fl_channel **out) FL_MUST_CHECK;
void fl_channel_close(fl_channel **channel);

/* The buffer [max_bytes] of message number `n` (n modulo depth picks it). Host memory. */
void *fl_channel_buffer(fl_channel *c, int64_t n);

/* Sender: message n is in its buffer; start sending. Returns without waiting for the receiver. A
 * buffer may be filled again after fl_channel_reuse(n + depth), which may wait until the receiver
 * has released message n. */
fl_status fl_channel_send(fl_channel *c, int64_t n, size_t size_bytes) FL_MUST_CHECK;
fl_status fl_channel_reuse(fl_channel *c, int64_t n, int64_t deadline_us) FL_MUST_CHECK;

/* Receiver: post message n (early), wait for it, read it, and release it. Its buffer exists once it
 * has been waited for. */
fl_status fl_channel_post(fl_channel *c, int64_t n, size_t size_bytes) FL_MUST_CHECK;
fl_status fl_channel_wait(fl_channel *c, int64_t n, int64_t deadline_us) FL_MUST_CHECK;
void fl_channel_release(fl_channel *c, int64_t n);

/* ---- buckets: contiguous runs of gradients, summed over the owners of the same layers ---- */

/* owners: [n_owners] group indices, this member among them, the same order everywhere.
 * A bucket of one owner is legal and costs nothing. Buckets of a group are all-reduced by the
 * group's own communication thread in the order in which they were started, which must be the same
 * for all owners. data is borrowed [n] and must not be touched between start and wait. */
fl_status fl_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                           float *data, int64_t n, fl_bucket **out) FL_MUST_CHECK;
void fl_bucket_destroy(fl_bucket **bucket);

/* Before the first start: data is at offset_bytes in `shared`, so that owners on this host may read
 * it there, which saves a copy. The sums are the same. */
void fl_bucket_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes);

fl_status fl_bucket_start(fl_bucket *bucket) FL_MUST_CHECK;
fl_status fl_bucket_wait(fl_bucket *bucket, int64_t deadline_us) FL_MUST_CHECK;

/* ---- all members ---- */

enum { FL_GROUP_ALL_REDUCE_MAX = 1024 };

/* values[n] become their sums over all members, summed in the order of the members: the same bits
 * on all members. n <= FL_GROUP_ALL_REDUCE_MAX. On FL_OK all members have called it. */
fl_status fl_group_all_reduce(fl_group *group, double *values, int n,
                              int64_t deadline_us) FL_MUST_CHECK;

/* Bytes and microseconds spent since the group was opened; for reports. */
typedef struct fl_group_stats {
    int64_t sent_bytes, received_bytes;
    int64_t reduce_us;      /* the communication thread's time in all-reduces */
    int64_t reduce_wait_us; /* the caller's time in fl_bucket_wait */
} fl_group_stats;
void fl_group_stats_get(const fl_group *group, fl_group_stats *out);

#endif
