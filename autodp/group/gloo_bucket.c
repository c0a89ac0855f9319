/* A bucket through sockets: the ring all-reduce, in chunks. P owners form a ring; the data is cut
 * into P segments, and a segment into C chunks. In step t = 0 .. 2(P-1) - 1 the owner at place p
 *
 *     sends segment (p - t) to its right, and receives segment (p - t - 1) from its left,
 *
 *   P = 3:   step   place 0          place 1          place 2
 *            0      ->0  +2          ->1  +0          ->2  +1       reduce: received data is added
 *            1      ->2  +1          ->0  +2          ->1  +0
 *            2      ->1  =0          ->2  =1          ->0  =2       gather: received data is final
 *            3      ->0  =2          ->1  =0          ->2  =1
 *
 * An item is one chunk of one step. Item i may be sent as soon as item i - C has arrived, so the
 * chunks of neighbouring steps overlap. No owner waits for a send before its next receive, so no
 * cycle of waits can close.
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009. */
#include "autodp/group/host_group.h"
#include "autodp/net/tag.h"
#include "device/alloc.h"
#include "device/clock.h"

typedef struct gloo_bucket {
    host_bucket base;
    int left, right;       /* neighbours in the ring of owners */
    fl_net_buffer *buffer; /* over data */
} gloo_bucket;

typedef struct ring {
    host_group *group;
    const gloo_bucket *bucket;
    uint64_t tag;
    int64_t n_chunks; /* C */
    int64_t n_items;  /* 2 (P - 1) C */
    int64_t deadline_us;
} ring;

typedef struct span {
    int64_t first, n; /* elements */
} span;

static span chunk_of(const ring *r, int64_t item, int64_t segment_shift)
{
    int64_t places = r->bucket->base.n_owners, step = item / r->n_chunks,
            chunk = item % r->n_chunks;
    int64_t segment = (r->bucket->base.my_place - step - segment_shift + 2 * places) % places;
    int64_t n = r->bucket->base.base.n;
    int64_t begin = n * segment / places + chunk * FL_GLOO_CHUNK;
    int64_t end = n * (segment + 1) / places;
    int64_t length = end - begin < FL_GLOO_CHUNK ? end - begin : FL_GLOO_CHUNK;
    return (span){begin, length < 0 ? 0 : length};
}

static span outgoing(const ring *r, int64_t item)
{
    return chunk_of(r, item, 0);
}

static span incoming(const ring *r, int64_t item)
{
    return chunk_of(r, item, 1);
}

static bool is_reduce(const ring *r, int64_t item)
{
    return item < r->n_items / 2;
}

static size_t scratch_slot(int64_t item)
{
    return (size_t)(item % FL_GLOO_WINDOW) * FL_GLOO_CHUNK;
}

static fl_status post(const ring *r, int64_t item)
{
    span s = incoming(r, item);
    if (s.n == 0) {
        return FL_OK;
    }
    bool reduce = is_reduce(r, item);
    size_t at = reduce ? scratch_slot(item) : (size_t)s.first;
    return fl_net_recv(reduce ? r->group->scratch_buffer : r->bucket->buffer, r->bucket->left,
                       r->tag, at * sizeof(float), (size_t)s.n * sizeof(float));
}

static fl_status send(const ring *r, int64_t item, int64_t *n_sent)
{
    span s = outgoing(r, item);
    if (s.n == 0) {
        return FL_OK;
    }
    ++*n_sent;
    atomic_fetch_add(&r->group->sent_bytes, (int64_t)sizeof(float) * s.n);
    return fl_net_send(r->bucket->buffer, r->bucket->right, r->tag, (size_t)s.first * sizeof(float),
                       (size_t)s.n * sizeof(float));
}

void fl__host_add(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static fl_status receive(const ring *r, int64_t item)
{
    span s = incoming(r, item);
    if (s.n == 0) {
        return FL_OK;
    }
    if (!is_reduce(r, item)) {
        FL_TRY(fl_net_wait_recv(r->bucket->buffer, r->deadline_us));
    } else {
        FL_TRY(fl_net_wait_recv(r->group->scratch_buffer, r->deadline_us));
        fl__host_add(r->bucket->base.base.data + s.first, r->group->scratch + scratch_slot(item),
                     s.n);
    }
    atomic_fetch_add(&r->group->received_bytes, (int64_t)sizeof(float) * s.n);
    return FL_OK;
}

static fl_status reduce_in_ring(host_bucket *bucket)
{
    const gloo_bucket *b = (const gloo_bucket *)bucket;
    host_group *g = fl__host_group_of(bucket);
    int64_t places = bucket->n_owners, segment = (bucket->base.n + places - 1) / places;
    ring r = {.group = g, .bucket = b, .tag = fl_tag(FL_TAG_BUCKET, bucket->base.id)};
    r.n_chunks = (segment + FL_GLOO_CHUNK - 1) / FL_GLOO_CHUNK;
    r.n_items = 2 * (places - 1) * r.n_chunks;
    r.deadline_us = fl_deadline_us(g->wait_timeout_ms);
    int64_t ahead = r.n_chunks < FL_GLOO_WINDOW ? r.n_chunks : FL_GLOO_WINDOW;
    int64_t n_posted = 0, n_started = 0, n_sent = 0;
    for (int64_t done = 0; done < r.n_items; done++) {
        for (; n_posted < r.n_items && n_posted < done + FL_GLOO_WINDOW; n_posted++) {
            FL_TRY(post(&r, n_posted));
        }
        for (; n_started < r.n_items && n_started < done + ahead; n_started++) {
            FL_TRY(send(&r, n_started, &n_sent));
        }
        FL_TRY(receive(&r, done));
        /* A neighbour may still be computing; the deadline restarts whenever bytes arrive. */
        r.deadline_us = fl_deadline_us(g->wait_timeout_ms);
    }
    for (; n_sent > 0; n_sent--) {
        FL_TRY(fl_net_wait_send(b->buffer, r.deadline_us));
    }
    return FL_OK;
}

/* ---- create and destroy ---- */

static void bucket_destroy(fl_bucket *bucket)
{
    gloo_bucket *b = (gloo_bucket *)bucket;
    fl__bucket_queue_remove(&b->base);
    fl_net_buffer_destroy(&b->buffer);
    fl_free(b);
}

/* Other members do not read the data of a bucket that goes through sockets. */
static void bucket_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes)
{
    (void)bucket, (void)shared, (void)offset_bytes;
}

static const fl_bucket_ops gloo_bucket_ops = {.destroy = bucket_destroy,
                                              .share = bucket_share,
                                              .start = fl__host_bucket_start,
                                              .wait = fl__host_bucket_wait};

fl_status fl__gloo_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                                 float *data, int64_t n, fl_bucket **out)
{
    gloo_bucket *b = NULL;
    FL_TRY(fl_alloc(sizeof *b, (void **)&b));
    b->base = (host_bucket){.base = {&gloo_bucket_ops, group, id, data, n},
                            .reduce = reduce_in_ring,
                            .n_owners = n_owners};
    for (int i = 0; i < n_owners; i++) {
        if (owners[i] == group->index) {
            b->base.my_place = i;
            b->right = owners[(i + 1) % n_owners];
            b->left = owners[(i + n_owners - 1) % n_owners];
        }
    }
    fl_status status = fl_net_buffer_create(((host_group *)group)->net, data,
                                            (size_t)n * sizeof *data, &b->buffer);
    if (status != FL_OK) {
        fl_free(b);
        return status;
    }
    *out = &b->base.base;
    return FL_OK;
}
