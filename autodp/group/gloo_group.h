/* The parts of the Gloo backend: what its files share. */
#ifndef FL_AUTODP_GROUP_GLOO_GROUP_H
#define FL_AUTODP_GROUP_GLOO_GROUP_H

#include "autodp/group/backend.h"
#include "autodp/group/shm_sum.h"
#include "autodp/net/small_all_gather.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct gloo_bucket gloo_bucket;
typedef struct near_bucket near_bucket;

/* The communication thread's queue: buckets linked in the order of their start. */
typedef struct gloo_queue {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the thread: something was queued, or stop */
    pthread_cond_t done; /* for who waits for a bucket */
    gloo_bucket *first, *last;
    bool stop;
    pthread_t thread;
    bool has_thread;
} gloo_queue;

typedef struct gloo_group {
    fl_group base;
    fl_net *net;
    int64_t wait_timeout_ms;
    fl_all_gather *sums;
    double *sum_rows; /* [size][FL_GROUP_ALL_REDUCE_MAX] */

    gloo_queue queue;
    float *scratch; /* FL_GLOO_WINDOW chunks that arrive and wait to be added */
    fl_net_buffer *scratch_buffer;

    fl_shm_segment *segment; /* NULL: everything goes through sockets */
    fl_shm_sum near_sum;     /* its board NULL: by exchanges */

    atomic_int_fast64_t sent_bytes, received_bytes, reduce_us, reduce_wait_us;
} gloo_group;

typedef enum gloo_bucket_state { BUCKET_IDLE, BUCKET_QUEUED, BUCKET_DONE } gloo_bucket_state;

struct gloo_bucket {
    fl_bucket base;
    gloo_bucket *next; /* in the queue */
    gloo_bucket_state state;
    fl_status status;                    /* of the last all-reduce */
    char message[512];                   /* its failure's message, for the thread that waits */
    int n_owners, my_place, left, right; /* the ring: the owners in their order */
    near_bucket *near;                   /* NULL: by the ring */
    fl_net_buffer *buffer;               /* over data; NULL when there is nobody to talk to */
};

/* Chunks of an all-reduce, in elements. Measured over loopback: with 256 KiB a message's fixed cost
 * takes a third of the processor time, from 2 MiB on the chunks fall out of the cache between
 * arriving and being added. */
enum { FL_GLOO_CHUNK = 256 * 1024, FL_GLOO_WINDOW = 3 };

/* gloo_reduce.c. Sum data over the owners, in place. The communication thread's. */
fl_status fl__gloo_reduce(gloo_group *g, gloo_bucket *b);

/* to[n] += from[n] */
void fl__gloo_add(float *restrict to, const float *restrict from, int64_t n);

/* shm_bucket.c. Sets b->near if all owners are on one host. */
fl_status fl__shm_bucket_create(gloo_group *g, gloo_bucket *b, const int *owners);
void fl__shm_bucket_destroy(gloo_bucket *b);
void fl__shm_bucket_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes);
/* *done false: somebody's data is not shared, so that it has to go by the ring. */
fl_status fl__shm_bucket_reduce(gloo_group *g, gloo_bucket *b, bool *done);

/* gloo_bucket.c */
fl_status fl__gloo_queue_init(gloo_group *g);
void fl__gloo_queue_fini(gloo_group *g);
fl_status fl__gloo_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                                 float *data, int64_t n, fl_bucket **out);
void fl__gloo_bucket_destroy(fl_bucket *bucket);
fl_status fl__gloo_bucket_start(fl_bucket *bucket);
fl_status fl__gloo_bucket_wait(fl_bucket *bucket, int64_t deadline_us);

/* gloo_channel.c */
fl_status fl__gloo_channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                                size_t max_bytes, int depth, fl_channel **out);
extern const fl_channel_ops fl__gloo_channel_ops;

/* shm_channel.c */
fl_status fl__shm_channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                               size_t max_bytes, int depth, fl_channel **out);
extern const fl_channel_ops fl__shm_channel_ops;

#endif
