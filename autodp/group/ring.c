#include "autodp/group/ring.h"

#include "autodp/net/tag.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

/* A ring at work. */
typedef struct lap {
    const fl__ring *ring;
    uint64_t tag;
    int64_t n_chunks; /* C */
    int64_t n_reduce; /* (P - 1) C: the items before this one are added, the others are final */
    int64_t deadline_us;
} lap;

static span chunk_of(const lap *l, int64_t item, int64_t segment_shift)
{
    const fl__ring *r = l->ring;
    int64_t step = item / l->n_chunks, chunk = item % l->n_chunks;
    span segment = fl__span_part(r->whole, (int)(r->place - step - segment_shift + 2 * r->n_places),
                                 r->n_places);
    int64_t left = segment.n - chunk * FL_GLOO_CHUNK;
    int64_t length = left < FL_GLOO_CHUNK ? left : FL_GLOO_CHUNK;
    return (span){segment.first + chunk * FL_GLOO_CHUNK, length < 0 ? 0 : length};
}

static span outgoing(const lap *l, int64_t item)
{
    return chunk_of(l, item, 0);
}

static span incoming(const lap *l, int64_t item)
{
    return chunk_of(l, item, 1);
}

static bool is_reduce(const lap *l, int64_t item)
{
    return item < l->n_reduce;
}

static size_t scratch_slot(int64_t item)
{
    return (size_t)(item % FL_GLOO_WINDOW) * FL_GLOO_CHUNK;
}

static fl_status post_item(const lap *l, int64_t item)
{
    const fl__ring *r = l->ring;
    span s = incoming(l, item);
    if (s.n == 0) {
        return FL_OK;
    }
    bool reduce = is_reduce(l, item);
    size_t at = reduce ? scratch_slot(item) : (size_t)s.first;
    return fl_net_recv(reduce ? r->group->scratch_buffer : r->buffer, r->left, l->tag,
                       at * sizeof(float), (size_t)s.n * sizeof(float));
}

static fl_status send_item(const lap *l, int64_t item, int64_t *n_sent)
{
    const fl__ring *r = l->ring;
    span s = outgoing(l, item);
    if (s.n == 0) {
        return FL_OK;
    }
    ++*n_sent;
    atomic_fetch_add(&r->group->sent_bytes, (int64_t)sizeof(float) * s.n);
    return fl_net_send(r->buffer, r->right, l->tag, (size_t)s.first * sizeof(float),
                       (size_t)s.n * sizeof(float));
}

static fl_status receive_item(const lap *l, int64_t item)
{
    const fl__ring *r = l->ring;
    span s = incoming(l, item);
    if (s.n == 0) {
        return FL_OK;
    }
    if (!is_reduce(l, item)) {
        FL_TRY(fl_net_wait_recv(r->buffer, l->deadline_us));
    } else {
        FL_TRY(fl_net_wait_recv(r->group->scratch_buffer, l->deadline_us));
        fl__host_add(r->bucket->data + s.first, r->group->scratch + scratch_slot(item), s.n);
    }
    atomic_fetch_add(&r->group->received_bytes, (int64_t)sizeof(float) * s.n);
    return FL_OK;
}

/* The items first .. end - 1. */
static fl_status run_items(lap *l, int64_t first, int64_t end)
{
    const fl__ring *r = l->ring;
    int64_t ahead = l->n_chunks < FL_GLOO_WINDOW ? l->n_chunks : FL_GLOO_WINDOW;
    int64_t n_posted = first, n_started = first, n_sent = 0;
    for (int64_t done = first; done < end; done++) {
        for (; n_posted < end && n_posted < done + FL_GLOO_WINDOW; n_posted++) {
            FL_TRY(post_item(l, n_posted));
        }
        for (; n_started < end && n_started < done + ahead; n_started++) {
            FL_TRY(send_item(l, n_started, &n_sent));
        }
        FL_TRY(receive_item(l, done));
        /* A neighbour may still be computing; the deadline restarts whenever bytes arrive. */
        l->deadline_us = fl_deadline_us(r->group->wait_timeout_ms);
    }
    for (; n_sent > 0; n_sent--) {
        FL_TRY(fl_net_wait_send(r->buffer, l->deadline_us));
    }
    return FL_OK;
}

fl_status fl__ring_run(const fl__ring *r, fl_bucket_op op)
{
    int64_t segment = (r->whole.n + r->n_places - 1) / r->n_places;
    lap l = {.ring = r,
             .tag = fl_tag(FL_TAG_BUCKET, r->bucket->base.id),
             .n_chunks = (segment + FL_GLOO_CHUNK - 1) / FL_GLOO_CHUNK,
             .deadline_us = fl_deadline_us(r->group->wait_timeout_ms)};
    l.n_reduce = (r->n_places - 1) * l.n_chunks;
    return run_items(&l, op == FL_ALL_GATHER ? l.n_reduce : 0,
                     op == FL_REDUCE_SCATTER ? l.n_reduce : 2 * l.n_reduce);
}

span fl__ring_part(span whole, int n_places, int place)
{
    return fl__span_part(whole, place + 1, n_places);
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

fl_status fl__ring_open(fl__ring *ring, const host_bucket *bucket, span whole, const int *members,
                        int n, int place)
{
    host_group *g = (host_group *)bucket->base.group;
    *ring = (fl__ring){.group = g,
                       .bucket = bucket,
                       .whole = whole,
                       .n_places = n,
                       .place = place,
                       .left = members[(place + n - 1) % n],
                       .right = members[(place + 1) % n]};
    FL_TRY(create_scratch(g));
    return fl_net_buffer_create(g->net, bucket->data, (size_t)bucket->base.n * sizeof *bucket->data,
                                &ring->buffer);
}

void fl__ring_close(fl__ring *ring)
{
    fl_net_buffer_destroy(&ring->buffer);
}
