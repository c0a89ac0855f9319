/* A bucket through sockets: the ring all-reduce, in chunks. P owners form a ring; the data is cut
 * into P segments, the parts of the bucket, and a segment into C chunks. In step t = 0 .. 2(P-1) -
 * 1 the owner at place p
 *
 *     sends segment (p - t) to its right, and receives segment (p - t - 1) from its left,
 *
 *   P = 3:   step   place 0          place 1          place 2
 *            0      ->0  +2          ->1  +0          ->2  +1       reduce: received data is added
 *            1      ->2  +1          ->0  +2          ->1  +0
 *            2      ->1  =0          ->2  =1          ->0  =2       gather: received data is final
 *            3      ->0  =2          ->1  =0          ->2  =1
 *
 * A reduce-scatter ends after the first half, which leaves segment p + 1 complete at place p; an
 * all-gather is the second half. An item is one chunk of one step. Item i may be sent as soon as
 * item i - C has arrived, so the chunks of neighbouring steps overlap. No owner waits for a send
 * before its next receive, so no cycle of waits can close. Source: Patarasuk and Yuan, "Bandwidth
 * optimal all-reduce algorithms", JPDC 2009. */
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
    int64_t n_reduce; /* (P - 1) C: the items before this one are added, the others are final */
    int64_t deadline_us;
} ring;

static span chunk_of(const ring *r, int64_t item, int64_t segment_shift)
{
    const host_bucket *b = &r->bucket->base;
    int64_t places = b->base.n_owners, step = item / r->n_chunks, chunk = item % r->n_chunks;
    span segment = fl__bucket_part(b, (int)(b->base.my_place - step - segment_shift + 2 * places));
    int64_t left = segment.n - chunk * FL_GLOO_CHUNK;
    int64_t length = left < FL_GLOO_CHUNK ? left : FL_GLOO_CHUNK;
    return (span){segment.first + chunk * FL_GLOO_CHUNK, length < 0 ? 0 : length};
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
    return item < r->n_reduce;
}

static size_t scratch_slot(int64_t item)
{
    return (size_t)(item % FL_GLOO_WINDOW) * FL_GLOO_CHUNK;
}

static fl_status post_item(const ring *r, int64_t item)
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

static fl_status send_item(const ring *r, int64_t item, int64_t *n_sent)
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

static fl_status receive_item(const ring *r, int64_t item)
{
    span s = incoming(r, item);
    if (s.n == 0) {
        return FL_OK;
    }
    if (!is_reduce(r, item)) {
        FL_TRY(fl_net_wait_recv(r->bucket->buffer, r->deadline_us));
    } else {
        FL_TRY(fl_net_wait_recv(r->group->scratch_buffer, r->deadline_us));
        fl__host_add(r->bucket->base.data + s.first, r->group->scratch + scratch_slot(item), s.n);
    }
    atomic_fetch_add(&r->group->received_bytes, (int64_t)sizeof(float) * s.n);
    return FL_OK;
}

/* The items first .. end - 1. */
static fl_status run_items(ring *r, int64_t first, int64_t end)
{
    host_group *g = r->group;
    int64_t ahead = r->n_chunks < FL_GLOO_WINDOW ? r->n_chunks : FL_GLOO_WINDOW;
    int64_t n_posted = first, n_started = first, n_sent = 0;
    for (int64_t done = first; done < end; done++) {
        for (; n_posted < end && n_posted < done + FL_GLOO_WINDOW; n_posted++) {
            FL_TRY(post_item(r, n_posted));
        }
        for (; n_started < end && n_started < done + ahead; n_started++) {
            FL_TRY(send_item(r, n_started, &n_sent));
        }
        FL_TRY(receive_item(r, done));
        /* A neighbour may still be computing; the deadline restarts whenever bytes arrive. */
        r->deadline_us = fl_deadline_us(g->wait_timeout_ms);
    }
    for (; n_sent > 0; n_sent--) {
        FL_TRY(fl_net_wait_send(r->bucket->buffer, r->deadline_us));
    }
    return FL_OK;
}

static fl_status run_ring(host_bucket *bucket)
{
    host_group *g = (host_group *)bucket->base.group;
    int64_t places = bucket->base.n_owners, segment = (bucket->base.n + places - 1) / places;
    ring r = {.group = g,
              .bucket = (const gloo_bucket *)bucket,
              .tag = fl_tag(FL_TAG_BUCKET, bucket->base.id),
              .n_chunks = (segment + FL_GLOO_CHUNK - 1) / FL_GLOO_CHUNK,
              .deadline_us = fl_deadline_us(g->wait_timeout_ms)};
    r.n_reduce = (places - 1) * r.n_chunks;
    return run_items(&r, bucket->op == FL_ALL_GATHER ? r.n_reduce : 0,
                     bucket->op == FL_REDUCE_SCATTER ? r.n_reduce : 2 * r.n_reduce);
}

/* ---- open and close ---- */

/* One for all buckets of the group, from the first one on. */
static fl_status create_scratch(host_group *g)
{
    size_t n = (size_t)FL_GLOO_WINDOW * FL_GLOO_CHUNK;
    if (g->scratch == NULL) {
        FL_TRY(fl_alloc_array(n, sizeof(float), (void **)&g->scratch));
    }
    if (g->scratch_buffer == NULL) {
        FL_TRY(fl_net_buffer_create(g->net, g->scratch, n * sizeof(float), &g->scratch_buffer));
    }
    return FL_OK;
}

static fl_status open_bucket(host_bucket *bucket, const int *owners)
{
    gloo_bucket *b = (gloo_bucket *)bucket;
    host_group *g = (host_group *)bucket->base.group;
    int n = bucket->base.n_owners, place = bucket->base.my_place;
    b->right = owners[(place + 1) % n];
    b->left = owners[(place + n - 1) % n];
    FL_TRY(create_scratch(g));
    return fl_net_buffer_create(g->net, bucket->data, (size_t)bucket->base.n * sizeof *bucket->data,
                                &b->buffer);
}

static void close_bucket(host_bucket *bucket)
{
    fl_net_buffer_destroy(&((gloo_bucket *)bucket)->buffer);
}

const host_bucket_ops fl__gloo_buckets = {.size_bytes = sizeof(gloo_bucket),
                                          .shares_data = false,
                                          .part_shift = 1,
                                          .open = open_bucket,
                                          .close = close_bucket,
                                          .run = run_ring};
