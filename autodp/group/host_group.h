/* The training group that moves everything through host memory: state that its files share.
 *
 *   group.h          device memory, streams                       any device
 *   host_channel.c   a message's copy to or from a buffer here    copy_queue.c waits for it
 *   host_bucket.c    the communication thread; data staged here   staging.c lends the memory
 *   host_transport   host memory here and there                   gloo_*.c sockets, shm_*.c memory,
 *                                                                 two_level_bucket.c both
 *
 * A device that computes in host memory needs no copy for buckets, and one less for each message:
 * the transport works on the device's memory itself. host_group.c chooses the transport of each
 * channel and bucket; no other file depends on the choice. */
#ifndef FL_AUTODP_GROUP_HOST_GROUP_H
#define FL_AUTODP_GROUP_HOST_GROUP_H

#include "autodp/group/backend.h"
#include "autodp/group/shm_sum.h"
#include "autodp/net/small_all_gather.h"

#include <pthread.h>
#include <stdatomic.h>

/* Elements first .. first + n - 1 of a bucket. */
typedef struct span {
    int64_t first, n;
} span;

typedef struct host_channel host_channel;
typedef struct host_bucket host_bucket;

/* A transport moves bytes between host memory of members. Its objects begin with host_channel and
 * host_bucket, whose fields are filled before `open`. Every wait ends at an abort. */
typedef struct host_channel_ops {
    size_t size_bytes; /* of its struct */
    fl_status (*open)(host_channel *c);
    void (*close)(host_channel *c);              /* also after a failed open */
    void *(*buffer)(host_channel *c, int64_t n); /* a receiver's: once message n has arrived */
    fl_status (*send)(host_channel *c, int64_t n, size_t size_bytes);
    fl_status (*wait_sent)(host_channel *c, int64_t n, int64_t deadline_us);
    fl_status (*post)(host_channel *c, int64_t n, size_t size_bytes); /* NULL: not needed */
    fl_status (*wait_arrived)(host_channel *c, int64_t n, int64_t deadline_us);
    void (*release)(host_channel *c, int64_t n); /* n was read; NULL: not needed */
} host_channel_ops;

typedef struct host_bucket_ops {
    size_t size_bytes; /* of its struct */
    bool shares_data;  /* other owners read a bucket's data where it lies */
    span (*part)(const host_bucket *b, int place); /* of the owner at this place */
    fl_status (*open)(host_bucket *b, const int *owners);
    void (*close)(host_bucket *b);    /* also after a failed open */
    fl_status (*run)(host_bucket *b); /* b->op, in place; on the communication thread */
} host_bucket_ops;

typedef struct host_transport {
    const host_channel_ops *channels;
    const host_bucket_ops *buckets;
} host_transport;

extern const host_channel_ops fl__gloo_channels, fl__shm_channels;
extern const host_bucket_ops fl__gloo_buckets, fl__shm_buckets, fl__two_level_buckets;

/* ---- queues ---- */

/* The communication thread's: buckets linked in the order of their start. */
typedef struct bucket_queue {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the thread: something was queued, or stop */
    pthread_cond_t done; /* for the thread that waits for a bucket */
    host_bucket *first, *last;
    bool stop;
    pthread_t thread;
    bool has_thread;
    fl_stream *stream; /* of its copies; NULL: no bucket is staged */
} bucket_queue;

/* A copy between a buffer and the device. When it is done, the message is sent, or its buffer is
 * released. */
typedef struct host_copy {
    host_channel *channel;
    int64_t n;
    size_t size_bytes;
    fl_stream *stream;
    fl_event *event; /* the stream has come so far */
    bool under_way;  /* guarded by the queue */
    struct host_copy *next;
} host_copy;

/* The copy thread's: copies linked in the order of their start. */
typedef struct copy_queue {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    host_copy *first, *last;
    bool stop;
    pthread_t thread;
    bool has_thread;
    fl_status failed; /* of the first copy that failed */
    char message[512];
} copy_queue;

/* ---- the group ---- */

typedef struct staging_area staging_area;

typedef struct host_group {
    fl_group base;
    fl_net *net;
    int64_t wait_timeout_ms;
    fl_all_gather *sums;
    double *sum_rows; /* [size][FL_GROUP_ALL_REDUCE_MAX] */

    bucket_queue buckets;
    copy_queue copies;
    staging_area *staging;
    float *scratch; /* FL_GLOO_WINDOW chunks that have arrived and are not added yet */
    fl_net_buffer *scratch_buffer;

    fl_shm_segment *segment; /* NULL: everything goes through sockets */
    fl_shm_sum shm_sum;      /* its segment NULL: sums go through sockets */

    atomic_int_fast64_t sent_bytes, received_bytes, device_bytes, reduce_us, reduce_wait_us;
} host_group;

/* host_group.c. Whether the device's memory is host memory, so that nothing is staged. */
bool fl__host_is_direct(const host_group *g);

/* How these members exchange data: the same answer on all of them. */
const host_transport *fl__host_transport_of(const host_group *g, const int *members, int n);

/* Returns status. If that is a failure, wait first until the stream no longer uses host memory,
 * which the caller may free next. */
fl_status fl__host_drained(fl_device *device, fl_stream *stream, fl_status status) FL_MUST_CHECK;

/* The status that the caller learns: a copy that failed also breaks the net, but is the reason. */
fl_status fl__host_result(host_group *g, fl_status status);

/* ---- channels ---- */

struct host_channel {
    fl_channel base;
    const host_channel_ops *ops;
    size_t stride_bytes; /* from one buffer to the next */
    int n_buffers; /* a sender has one more than are in flight, for the message that is written */
    int64_t n_finished; /* messages sent whose buffers may be written again */
    host_copy *copies;  /* [n_buffers]; NULL: the device computes in host memory */
    bool on_device;     /* the buffers are memory that a device has exported */
};

/* The buffer that message n lies in. */
static inline size_t fl__host_slot(const host_channel *c, int64_t n)
{
    return (size_t)(n % c->n_buffers);
}

static inline host_group *fl__host_group_of(const host_channel *c)
{
    return (host_group *)c->base.group;
}

/* host_channel.c: the entries of fl_host_group_ops. */
fl_status fl__host_channel_open(const fl_channel *common, fl_channel **out);
void fl__host_channel_close(fl_channel *channel);
fl_status fl__host_channel_send_from(fl_channel *channel, const void *from, size_t size_bytes,
                                     fl_stream *stream, int64_t deadline_us);
void *fl__host_channel_place(fl_channel *channel);
fl_status fl__host_channel_flush(fl_channel *channel, int64_t deadline_us);
fl_status fl__host_channel_post(fl_channel *channel, size_t size_bytes);
fl_status fl__host_channel_receive_to(fl_channel *channel, void *to, size_t size_bytes,
                                      fl_stream *stream, int64_t deadline_us);

/* copy_queue.c */
void fl__copy_queue_init(host_group *g);
fl_status fl__copy_queue_start(host_group *g); /* the thread, unless it runs */
void fl__copy_queue_fini(host_group *g);
/* The copy is what the stream's latest work does. */
fl_status fl__copy_begin(host_copy *copy, fl_stream *stream);
fl_status fl__copy_wait(host_copy *copy, int64_t deadline_us);
void fl__copy_fini(host_copy *copy); /* waits for it, without a deadline: the device ends it */

/* ---- buckets ---- */

typedef enum bucket_state { BUCKET_IDLE, BUCKET_QUEUED, BUCKET_DONE } bucket_state;

struct host_bucket {
    fl_bucket base;
    const host_bucket_ops *ops; /* NULL: a bucket of one owner, or of no values */
    float *data;                /* [n] in host memory: the device's own, or staged */
    bool staged;
    bool on_device;        /* staged in memory of the device that the other owners' devices read */
    fl_shared_key key;     /* where data lies for other owners, if the transport shares it */
    uint64_t offset_bytes; /* within the file of `key` */
    fl_bucket_op op;
    fl_event *ready, *done; /* the stream that started it has come so far; staged sums are there */
    host_bucket *next;      /* in the queue */
    bucket_state state;
    fl_status status;  /* of the last operation */
    char message[512]; /* its failure's message, for the thread that waits */
};

/* Part `part`, modulo n_parts, of `whole` in parts of about the same length. */
span fl__span_part(span whole, int part, int n_parts);

/* to[n] += from[n] */
void fl__host_add(float *restrict to, const float *restrict from, int64_t n);

/* host_bucket.c: the queue, and the entries of fl_host_group_ops. */
void fl__bucket_queue_init(host_group *g);
void fl__bucket_queue_fini(host_group *g);
fl_status fl__host_bucket_create(fl_group *group, const fl_bucket_options *options,
                                 fl_bucket **out);
void fl__host_bucket_destroy(fl_bucket *bucket);
void fl__host_bucket_part(const fl_bucket *bucket, int place, int64_t *first, int64_t *n);
fl_status fl__host_bucket_start(fl_bucket *bucket, fl_bucket_op op, fl_stream *stream);
fl_status fl__host_bucket_wait(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us);

/* Where a bucket's data is staged. */
typedef enum staging_kind {
    STAGED_ALONE,     /* host memory that copies to and from the device are fastest with */
    STAGED_SHARED,    /* host memory that other members of this host can look into */
    STAGED_ON_DEVICE, /* device memory that their devices can read */
} staging_kind;

/* staging.c. Memory for a bucket's data while it is at work: buckets of a group take turns in it.
 * *shared_at names it to others; NULL for STAGED_ALONE. */
fl_status fl__staging_get(host_group *g, size_t size_bytes, staging_kind kind, float **data,
                          const fl_shared **shared_at);
void fl__staging_fini(host_group *g);

/* Lock the pages of host memory that the device copies from or to. Whether they are: without, the
 * copies are slower. */
bool fl__host_pin(const host_group *g, void *memory, size_t size_bytes, bool read_only);
void fl__host_unpin(const host_group *g, void *memory, bool pinned); /* not pinned: nothing */

/* Chunks of a ring's items, in elements. Measured over loopback: with 256 KiB a message's fixed
 * cost takes a third of the processor time; from 2 MiB on, chunks leave the cache between arrival
 * and addition. */
enum { FL_GLOO_CHUNK = 256 * 1024, FL_GLOO_WINDOW = 3 };

#endif
