/* The training group of workers that compute on the host's processors: state that its files share.
 *
 * Two transports move its data: Gloo's sockets between any two members, and shared memory (shm)
 * between members of one host. host_group.c picks one for each channel and bucket; no other file
 * depends on the choice. */
#ifndef FL_AUTODP_GROUP_HOST_GROUP_H
#define FL_AUTODP_GROUP_HOST_GROUP_H

#include "autodp/group/backend.h"
#include "autodp/group/shm_sum.h"
#include "autodp/net/small_all_gather.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct host_bucket host_bucket;

/* The communication thread's queue: buckets linked in the order of their start. */
typedef struct bucket_queue {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the thread: something was queued, or stop */
    pthread_cond_t done; /* for the thread that waits for a bucket */
    host_bucket *first, *last;
    bool stop;
    pthread_t thread;
    bool has_thread;
} bucket_queue;

typedef struct host_group {
    fl_group base;
    fl_net *net;
    int64_t wait_timeout_ms;
    fl_all_gather *sums;
    double *sum_rows; /* [size][FL_GROUP_ALL_REDUCE_MAX] */

    bucket_queue queue;
    float *scratch; /* FL_GLOO_WINDOW chunks that have arrived and are not added yet */
    fl_net_buffer *scratch_buffer;

    fl_shm_segment *segment; /* NULL: everything goes through sockets */
    fl_shm_sum shm_sum;      /* its segment NULL: sums go through sockets */

    atomic_int_fast64_t sent_bytes, received_bytes, reduce_us, reduce_wait_us;
} host_group;

/* ---- channels ---- */

/* gloo_channel.c */
fl_status fl__gloo_channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                                size_t max_bytes, int depth, fl_channel **out);

/* shm_channel.c. The peer shares its segment. */
fl_status fl__shm_channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                               size_t max_bytes, int depth, fl_channel **out);

/* ---- buckets ---- */

typedef enum bucket_state { BUCKET_IDLE, BUCKET_QUEUED, BUCKET_DONE } bucket_state;

/* The first member of the buckets of all transports: a place in the queue. */
struct host_bucket {
    fl_bucket base;
    fl_status (*reduce)(host_bucket *bucket); /* sums, in place; on the communication thread */
    host_bucket *next;                        /* in the queue */
    bucket_state state;
    fl_status status;       /* of the last all-reduce */
    char message[512];      /* its failure's message, for the thread that waits */
    int n_owners, my_place; /* among the owners in their order */
};

static inline host_group *fl__host_group_of(const host_bucket *bucket)
{
    return (host_group *)bucket->base.group;
}

/* bucket_queue.c */
void fl__bucket_queue_init(host_group *g);
void fl__bucket_queue_fini(host_group *g);
fl_status fl__bucket_queue_start(host_group *g); /* the thread, unless it runs; its scratch */
void fl__bucket_queue_remove(host_bucket *b);    /* breaks the net if b is under way */
fl_status fl__host_bucket_start(fl_bucket *bucket);
fl_status fl__host_bucket_wait(fl_bucket *bucket, int64_t deadline_us);

/* Chunks of an all-reduce, in elements. Measured over loopback: with 256 KiB a message's fixed cost
 * takes a third of the processor time; from 2 MiB on, chunks leave the cache between arrival and
 * addition. */
enum { FL_GLOO_CHUNK = 256 * 1024, FL_GLOO_WINDOW = 3 };

/* gloo_bucket.c. For two owners or more, and n > 0. */
fl_status fl__gloo_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                                 float *data, int64_t n, fl_bucket **out);

/* to[n] += from[n] */
void fl__host_add(float *restrict to, const float *restrict from, int64_t n);

/* shm_bucket.c. As fl__gloo_bucket_create; the owners share their segments with each other. */
fl_status fl__shm_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                                float *data, int64_t n, fl_bucket **out);

#endif
