/* The all-reduce between members of one host: each adds from where the others' data lies, so that
 * a byte is read once by its receiver and no socket is touched. P owners, P segments; the owner at
 * place p moves its count on by one with each of
 *
 *   READY    its data may be read
 *            ... adds the others' segment p to its own, as they become ready
 *   REDUCED  its segment p is the sum
 *            ... copies segment q of each other q, as it is reduced
 *   DONE     it reads no more; who has seen that of all may change its data again
 *
 * Nobody reads what is being written: q's segment p is written only by q, after p's REDUCED. */
#include "autodp/group/gloo_group.h"
#include "device/alloc.h"
#include "device/clock.h"

#include <string.h>

/* Elements at a time: what was added last is still in the cache when the next owner's is. */
enum { CHUNK = 128 * 1024 };

enum { READY = 1, REDUCED, DONE };

struct near_bucket {
    int *owners;           /* [n_owners] */
    fl_entry_data data;    /* where mine lies */
    fl_entry *mine;        /* NULL: not published yet */
    fl_look *theirs;       /* [n_owners] */
    fl_shared_view *views; /* [n_owners] */
    bool looked, shared;   /* at all entries; all of them say where the data lies */
    uint32_t before;       /* rung before this all-reduce */
};

static bool all_near(const gloo_group *g, const int *owners, int n_owners)
{
    for (int i = 0; i < n_owners; i++) {
        for (int j = 0; j < n_owners; j++) {
            if (!fl_shm_segment_is_shared(g->segment, owners[i], owners[j])) {
                return false;
            }
        }
    }
    return true;
}

static fl_status set_up(const gloo_bucket *b, near_bucket *d, const int *owners)
{
    size_t n = (size_t)b->n_owners;
    FL_TRY(fl_alloc_array(n, sizeof *d->owners, (void **)&d->owners));
    FL_TRY(fl_alloc_array(n, sizeof *d->theirs, (void **)&d->theirs));
    FL_TRY(fl_alloc_array(n, sizeof *d->views, (void **)&d->views));
    memcpy(d->owners, owners, n * sizeof *owners);
    return FL_OK;
}

fl_status fl__shm_bucket_create(gloo_group *g, gloo_bucket *b, const int *owners)
{
    if (!all_near(g, owners, b->n_owners)) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *b->near, (void **)&b->near));
    fl_status status = set_up(b, b->near, owners);
    if (status != FL_OK) {
        fl__shm_bucket_destroy(b);
    }
    return status;
}

void fl__shm_bucket_destroy(gloo_bucket *b)
{
    near_bucket *d = b->near;
    if (d == NULL) {
        return;
    }
    b->near = NULL;
    for (int i = 0; i < b->n_owners && d->views != NULL; i++) {
        fl_shared_view_close(&d->views[i]);
    }
    fl_free(d->views);
    fl_free(d->theirs);
    fl_free(d->owners);
    fl_free(d);
}

void fl__shm_bucket_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes)
{
    near_bucket *d = ((gloo_bucket *)bucket)->near;
    if (d != NULL) {
        d->data.key = fl_shared_key_of(shared);
        d->data.offset_bytes = offset_bytes;
    }
}

/* The other places in the order p + 1, p + 2, ..., so that not all read the same one at once. */
static int other(const gloo_bucket *b, int k)
{
    return (b->my_place + k) % b->n_owners;
}

/* Before the first all-reduce. All owners see the same entries, so all come to the same result. */
static fl_status look(gloo_group *g, const gloo_bucket *b, int64_t deadline_us)
{
    near_bucket *d = b->near;
    const fl_entry_name name = {.kind = FL_ENTRY_BUCKET, .peer = -1, .id = b->base.id};
    FL_TRY(fl_shm_segment_publish(g->segment, &name, &d->data, &d->mine));
    d->shared = d->data.key.id != 0;
    for (int k = 1; k < b->n_owners; k++) {
        fl_look *theirs = &d->theirs[other(b, k)];
        FL_TRY(fl_shm_segment_find(g->segment, d->owners[other(b, k)], &name, d->mine, deadline_us,
                                   theirs));
        d->shared = d->shared && theirs->entry->data.key.id != 0;
    }
    for (int k = 1; k < b->n_owners && d->shared; k++) {
        FL_TRY(fl_shm_segment_view(g->segment, &d->theirs[other(b, k)],
                                   sizeof(float) * (size_t)b->base.n, &d->views[other(b, k)]));
    }
    d->looked = true;
    return FL_OK;
}

/* Take segment `segment` of the owner at `place`: add it to mine, or put it in its place. */
static void take(gloo_group *g, const gloo_bucket *b, int place, int segment, bool adding)
{
    const float *theirs = b->near->views[place].data;
    float *mine = b->base.data;
    int64_t at = b->base.n * segment / b->n_owners;
    int64_t end = b->base.n * (segment + 1) / b->n_owners;
    while (at < end) {
        int64_t n = end - at < CHUNK ? end - at : CHUNK;
        if (adding) {
            fl__gloo_add(mine + at, theirs + at, n);
        } else {
            memcpy(mine + at, theirs + at, sizeof(float) * (size_t)n);
        }
        atomic_fetch_add(&g->received_bytes, (int64_t)sizeof(float) * n);
        atomic_fetch_add(&g->sent_bytes, (int64_t)sizeof(float) * n);
        at += n;
    }
}

/* Until the owner at `place` has come to that stage. */
static fl_status await(gloo_group *g, const gloo_bucket *b, int place, uint32_t stage)
{
    const near_bucket *d = b->near;
    return fl_shm_segment_wait(g->segment, &d->theirs[place], d->before + stage, FL_WAIT_ASLEEP,
                               fl_deadline_us(g->wait_timeout_ms));
}

fl_status fl__shm_bucket_reduce(gloo_group *g, gloo_bucket *b, bool *done)
{
    near_bucket *d = b->near;
    if (!d->looked) {
        FL_TRY(look(g, b, fl_deadline_us(g->wait_timeout_ms)));
    }
    *done = d->shared;
    if (!d->shared) {
        return FL_OK;
    }
    fl_entry_ring(d->mine);
    for (int k = 1; k < b->n_owners; k++) {
        FL_TRY(await(g, b, other(b, k), READY));
        take(g, b, other(b, k), b->my_place, true);
    }
    fl_entry_ring(d->mine);
    for (int k = 1; k < b->n_owners; k++) {
        FL_TRY(await(g, b, other(b, k), REDUCED));
        take(g, b, other(b, k), other(b, k), false);
    }
    fl_entry_ring(d->mine);
    for (int k = 1; k < b->n_owners; k++) {
        FL_TRY(await(g, b, other(b, k), DONE));
    }
    d->before += DONE;
    return FL_OK;
}
