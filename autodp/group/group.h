/* The training group: the communicators of one generation. It takes and gives device memory, in the
 * order of the device's streams; how the bytes travel, and whether they pass through host memory,
 * is the backend's business.
 *
 * Members are numbered by `index` within the group; the plan maps them to workers. Every wait has a
 * `deadline_us` and ends at once after fl_group_abort. Tags carry no generation because a group's
 * connections belong to one generation alone. */
#ifndef FL_AUTODP_GROUP_GROUP_H
#define FL_AUTODP_GROUP_GROUP_H

#include "autodp/net/net.h"
#include "device/device.h"
#include "device/system/shared.h"

#include <frostline/tensor.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_group fl_group;
typedef struct fl_channel fl_channel;
typedef struct fl_mover fl_mover;
typedef struct fl_bucket fl_bucket;
typedef struct fl_captured fl_captured;
typedef struct fl_group_ops fl_group_ops;

/* How a group got the communicators that its channels and buckets use. */
typedef enum fl_comm_way {
    FL_COMM_NONE,    /* it needs none */
    FL_COMM_REBUILD, /* fresh ones */
    FL_COMM_SPLIT,   /* split off one of the same workers, from an earlier group */
    FL_COMM_SHRINK,  /* the same, from one of more workers */
    FL_COMM_WAYS
} fl_comm_way;

/* "rebuild"; "none". */
const char *fl_comm_way_text(fl_comm_way way);

/* Whether a group's buffers are registered with the library that moves them, or why not. */
typedef enum fl_comm_registration {
    FL_REGISTERED_NONE,       /* there is nothing to register */
    FL_REGISTERED_ALL,        /* they are, on all members */
    FL_REGISTERED_NO_LIBRARY, /* a member's library cannot */
    FL_REGISTERED_NO_MEMORY,  /* a member's device memory does not suit it */
    FL_REGISTERED_TOO_DEAR,   /* it takes longer than it can save */
    FL_REGISTERED_FAILED,     /* it failed on a member, and was undone on all */
    FL_REGISTRATIONS
} fl_comm_registration;

/* "used", or the reason in words. */
const char *fl_comm_registration_text(fl_comm_registration registration);

enum { FL_GROUP_PAIRS_MAX = 1023 };

/* The transports of a group, and the cost of opening its communicators; for reports. */
typedef struct fl_group_comm {
    fl_comm_way way;
    int64_t us;  /* until all were connected, without waits for other members; the longest of any */
    int n_pairs; /* of members */
    int n_device_pairs; /* those that exchange data in the backend's own way */
    /* The other pairs, of workers, one a line: "0 and 2: they share one device". Lines that do not
     * fit are counted by the last one. "" if there are none. */
    char host_pairs[FL_GROUP_PAIRS_MAX + 1];
    fl_comm_registration registration;
    int n_registered; /* buffers of this member */
    int64_t registered_bytes, register_us;
} fl_group_comm;

/* What a worker's groups leave to later ones: a communicator of all members, and the times that
 * each way took. The caller's memory, cleared at first; one group opens at a time. */
typedef struct fl_comm_keeper {
    int64_t took_us[FL_COMM_WAYS]; /* 0: unknown */
    /* What registration took for so many bytes, the last time; 0 and 0: unknown. */
    int64_t register_us, registered_bytes;
    void *kept; /* of the backend; NULL: none */
    void (*release)(void *kept);
} fl_comm_keeper;

/* Release what it holds. Never waits longer than a second. */
void fl_comm_keeper_clear(fl_comm_keeper *keeper);

/* The time of a way, given that it took `us` this time: later times count for half. Pure. */
int64_t fl_comm_time_mixed(int64_t known_us, int64_t us);

typedef struct fl_group_options {
    fl_device *device; /* borrowed: whose memory and streams channels and buckets use */
    uint32_t generation;
    int index, size;
    const fl_kv *kv;
    const char *host;
    int64_t open_timeout_ms;
    int64_t wait_timeout_ms;
    fl_abort_set *abort_set;           /* as in fl_net_options */
    const fl_net_transport *transport; /* of what goes through sockets, as in fl_net_options */
    /* Use sockets only, even between members of one host that could share memory. The same on all
     * members. */
    bool sockets_only;
    const fl_group_ops *backend; /* NULL: through host memory. The same on all members. */
    const char *refused;    /* borrowed while it opens: why this member cannot use the backend, and
                               goes    through host memory; NULL: it may */
    bool every_pair;        /* as the backend says; through host memory there is no other way */
    bool between_hosts;     /* the backend may send data in plain from one host to another; the same
                               on all members */
    fl_comm_keeper *keeper; /* borrowed while it opens and connects. NULL: nothing is kept; each
                               channel opens for itself */
    bool after_loss;        /* a member of the group before was lost */
    const int *workers;     /* [size] borrowed while it opens: names of the members in reports;
                               NULL: their indices */
} fl_group_options;

fl_status fl_group_open(const fl_group_options *options, fl_group **out) FL_MUST_CHECK;

/* Wait until all channels and buckets that were opened so far are connected with their other ends,
 * which have to open theirs meanwhile. What is not connected here connects when it is first used.
 */
fl_status fl_group_connect(fl_group *group, int64_t deadline_us) FL_MUST_CHECK;
void fl_group_close(fl_group **group);

/* Threads: any. */
void fl_group_abort(fl_group *group, fl_status why);
fl_status fl_group_state(fl_group *group);

/* ---- neighbours: messages in one direction of one pair ---- */

/* A channel to (sending) or from `peer`, for messages of at most max_bytes, `depth` of them in
 * flight at once. id: the same on both ends, distinct per (pair, use). Messages arrive in the order
 * in which they were sent. */
fl_status fl_channel_open(fl_group *group, bool sending, int peer, uint32_t id, size_t max_bytes,
                          int depth, fl_channel **out) FL_MUST_CHECK;
void fl_channel_close(fl_channel **channel);

/* Sender: send what lies at `from` once the stream's earlier work is done; later work of the stream
 * may overwrite it. Waits while `depth` earlier messages are in flight. */
fl_status fl_channel_send_from(fl_channel *c, const void *from, size_t size_bytes,
                               fl_stream *stream, int64_t deadline_us) FL_MUST_CHECK;

/* Where the device may write the next message, which saves the copy when it is sent from there:
 * memory of the channel, max_bytes, left alone until `depth` more messages have been sent after
 * it. NULL where the device does not compute in host memory. Never waits. */
void *fl_channel_place(fl_channel *c);

/* Wait until the receiver no longer needs the channel, having taken every message. */
fl_status fl_channel_flush(fl_channel *c, int64_t deadline_us) FL_MUST_CHECK;

/* Receiver: announce the next message, so that it can travel before it is waited for; at most
 * `depth` ahead. */
fl_status fl_channel_post(fl_channel *c, size_t size_bytes) FL_MUST_CHECK;

/* Wait for the next message, which is posted here unless it was before; later work of the stream
 * finds it at `to`. */
fl_status fl_channel_receive_to(fl_channel *c, void *to, size_t size_bytes, fl_stream *stream,
                                int64_t deadline_us) FL_MUST_CHECK;

/* ---- state: pieces of device memory from one member to another, from where they lie ---- */

/* A mover to (sending) or from `peer`, for n_pieces of state; one for each ordered pair of members.
 * Opened before fl_group_connect, as a channel is. *out NULL: the backend has no way of its own
 * from the one device to the other, and finds that at both ends. */
fl_status fl_mover_open(fl_group *group, bool sending, int peer, int n_pieces,
                        fl_mover **out) FL_MUST_CHECK;

/* Nothing uses the pieces afterwards. What is under way is given up, and the group with it. */
void fl_mover_close(fl_mover **mover);

/* Move the next piece, the same at both ends: from or to `data`, device memory, borrowed
 * [size_bytes] until fl_mover_wait. The device has finished its work on it. Never waits. */
fl_status fl_mover_start(fl_mover *m, void *data, size_t size_bytes) FL_MUST_CHECK;

/* Wait for the next piece that was started: all streams of the device find what has arrived. */
fl_status fl_mover_wait(fl_mover *m, int64_t deadline_us) FL_MUST_CHECK;

/* ---- buckets: contiguous runs of gradients, summed over the owners of the same layers ---- */

enum { FL_BUCKET_TEXT = 48 };

/* The ids of the n-th bucket of a stage, and of the gradients of tied weights. */
uint32_t fl_bucket_id(int stage, int n);
uint32_t fl_bucket_id_of_tie(int tie);

/* "bucket 0 of stage 1", "bucket of tied weights 0", for messages. Returns text. */
const char *fl_bucket_text(uint32_t id, char text[FL_BUCKET_TEXT]);

typedef struct fl_bucket_options {
    uint32_t id;
    const int *owners; /* [n_owners] group indices, this member among them, in the same order on
                          all of them */
    int n_owners;
    void *data;     /* device memory, borrowed [n], 64-byte aligned */
    fl_dtype dtype; /* FL_F32: other types are FL_ENOTSUP */
    int64_t n;
    /* Where data lies in shared host memory, so that owners on this host read it there. NULL: in
     * memory of this process alone, or of the device. The sums are the same. */
    const fl_shared *shared;
    size_t offset_bytes;
} fl_bucket_options;

/* A bucket of one owner is legal and costs nothing. */
fl_status fl_bucket_create(fl_group *group, const fl_bucket_options *options,
                           fl_bucket **out) FL_MUST_CHECK;

/* Nothing uses the data afterwards. Breaks the group if the bucket is under way. */
void fl_bucket_destroy(fl_bucket **bucket);

/* A reduce-scatter leaves each owner the sums of its own part, and the other parts undefined; an
 * all-gather brings each owner's part to all. An all-reduce is one after the other, to the last
 * bit. */
typedef enum fl_bucket_op { FL_ALL_REDUCE, FL_REDUCE_SCATTER, FL_ALL_GATHER } fl_bucket_op;

/* The elements first .. first + n - 1 are the part of the owner at `place` in the list of owners.
 * The parts cover the bucket; where they lie depends on the transport, as the order of additions
 * does. */
void fl_bucket_part(const fl_bucket *bucket, int place, int64_t *first, int64_t *n);

/* Begin once the stream's earlier work is done. The group's communication thread runs its buckets
 * in the order in which they were started, which must be the same for all owners. The data must
 * not be touched between start and wait. */
fl_status fl_bucket_start(fl_bucket *bucket, fl_bucket_op op, fl_stream *stream) FL_MUST_CHECK;

/* Wait for the end; later work of the stream finds the result. */
fl_status fl_bucket_wait(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us) FL_MUST_CHECK;

/* ---- buckets in captured work ----
 *
 * An all-reduce can be part of work that a device captures and launches again. Whether it is, is
 * one matter of all owners: they capture it in the same step and in the same order, and each launch
 * is one all-reduce that all of them launch. The memory of a bucket stays where it is meanwhile. */

/* Whether this bucket's transport can do that, and its device. */
bool fl_bucket_can_capture(const fl_bucket *bucket);

/* While `stream` is captured: an all-reduce behind the work that was captured so far. Work that is
 * captured later may run beside it. */
fl_status fl_bucket_capture(fl_bucket *bucket, fl_stream *stream,
                            int64_t deadline_us) FL_MUST_CHECK;

/* Still while it is captured: what is captured later finds the result. */
fl_status fl_bucket_capture_join(fl_bucket *bucket, fl_stream *stream) FL_MUST_CHECK;

/* The captured work was launched in the stream: that counts as a start, and fl_bucket_wait follows.
 */
fl_status fl_bucket_launched(fl_bucket *bucket, fl_stream *stream) FL_MUST_CHECK;

/* Captured work with operations of the group, which takes the graph, also after a failure. If the
 * group breaks, the graph is destroyed at once, by any thread: the library cannot end communicators
 * that a graph still refers to. It ends before the buckets in it. */
fl_status fl_captured_create(fl_group *group, fl_graph *graph, fl_captured **out) FL_MUST_CHECK;
void fl_captured_destroy(fl_captured **captured);

/* FL_ESTALE, or why the group is broken: there is no graph any more, or its result is worth
 * nothing. */
fl_status fl_captured_launch(fl_captured *captured, fl_stream *stream) FL_MUST_CHECK;

/* ---- all members ---- */

enum { FL_GROUP_ALL_REDUCE_MAX = 1024 };

/* values[n] become their sums over all members, summed in the order of the members: the same bits
 * on all members. Host memory. n <= FL_GROUP_ALL_REDUCE_MAX. On FL_OK all have called it. */
fl_status fl_group_all_reduce(fl_group *group, double *values, int n,
                              int64_t deadline_us) FL_MUST_CHECK;

/* Bytes and microseconds spent since the group was opened; for reports. */
typedef struct fl_group_stats {
    int64_t sent_bytes, received_bytes;
    int64_t device_bytes;   /* of those sent: which a device reads from another one's memory */
    int64_t reduce_us;      /* the communication thread's time in buckets */
    int64_t reduce_wait_us; /* the caller's time in fl_bucket_wait */
} fl_group_stats;
void fl_group_stats_get(const fl_group *group, fl_group_stats *out);

/* Complete once the group is connected. Borrowed from the group. */
const fl_group_comm *fl_group_comm_get(const fl_group *group);

#endif
