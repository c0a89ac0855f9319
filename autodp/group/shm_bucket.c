/* The all-reduce between members of one host: each owner adds the others' data in place, so that a
 * byte is read once by its receiver and no socket is used. P owners, P parts of the data; the owner
 * at place p increments its entry's count at each of
 *
 *   READY    its data may be read
 *            ... adds the others' part p to its own, as they become ready
 *   REDUCED  its part p is the sum
 *            ... copies part q of each other q, as it is reduced
 *   DONE     it has finished reading; once all others are DONE, an owner may change its data again
 *
 * No owner reads a part that is being written: only q writes q's part p, after p's REDUCED. */
#include "autodp/group/host_group.h"
#include "device/alloc.h"
#include "device/clock.h"

#include <string.h>

/* Elements at a time: the sum is still in the cache when the next owner's part is added. */
enum { CHUNK = 128 * 1024 };

enum { READY = 1, REDUCED, DONE };

typedef struct shm_bucket {
    host_bucket base;
    fl_bucket *ring;       /* the same bucket through sockets, for data that is not shared */
    int *owners;           /* [n_owners] */
    fl_entry_data data;    /* the location of the own data */
    fl_entry *mine;        /* NULL: not published yet */
    fl_look *theirs;       /* [n_owners] */
    fl_shared_view *views; /* [n_owners] */
    bool looked, shared;   /* all entries were found; all owners share their data */
    uint32_t before;       /* the count before this all-reduce */
} shm_bucket;

/* The other places in the order p + 1, p + 2, ..., so that not all owners read the same one at
 * once. */
static int place_after(const shm_bucket *b, int k)
{
    return (b->base.my_place + k) % b->base.n_owners;
}

/* Before the first all-reduce. All owners see the same entries, so all reach the same result. */
static fl_status find_entries(shm_bucket *b, int64_t deadline_us)
{
    fl_shm_segment *segment = fl__host_group_of(&b->base)->segment;
    const fl_bucket *bucket = &b->base.base;
    const fl_entry_name name = {.kind = FL_ENTRY_BUCKET, .peer = -1, .id = bucket->id};
    FL_TRY(fl_shm_segment_publish(segment, &name, &b->data, &b->mine));
    b->shared = b->data.key.id != 0;
    for (int k = 1; k < b->base.n_owners; k++) {
        int place = place_after(b, k);
        fl_look *theirs = &b->theirs[place];
        FL_TRY(fl_shm_segment_find(segment, b->owners[place], &name, b->mine, deadline_us, theirs));
        b->shared = b->shared && theirs->entry->data.key.id != 0;
    }
    for (int k = 1; k < b->base.n_owners && b->shared; k++) {
        int place = place_after(b, k);
        FL_TRY(fl_shm_segment_view(segment, &b->theirs[place], sizeof(float) * (size_t)bucket->n,
                                   &b->views[place]));
    }
    b->looked = true;
    return FL_OK;
}

/* Process part `part` of the owner at `place`: add it to the own part, or copy it. */
static void take_part(shm_bucket *b, int place, int part, bool adding)
{
    host_group *g = fl__host_group_of(&b->base);
    const float *theirs = b->views[place].data;
    float *mine = b->base.base.data;
    int64_t at = b->base.base.n * part / b->base.n_owners;
    int64_t end = b->base.base.n * (part + 1) / b->base.n_owners;
    while (at < end) {
        int64_t n = end - at < CHUNK ? end - at : CHUNK;
        if (adding) {
            fl__host_add(mine + at, theirs + at, n);
        } else {
            memcpy(mine + at, theirs + at, sizeof(float) * (size_t)n);
        }
        atomic_fetch_add(&g->received_bytes, (int64_t)sizeof(float) * n);
        atomic_fetch_add(&g->sent_bytes, (int64_t)sizeof(float) * n);
        at += n;
    }
}

/* Wait until the owner at `place` has reached that stage. */
static fl_status wait_stage(const shm_bucket *b, int place, uint32_t stage)
{
    const host_group *g = fl__host_group_of(&b->base);
    return fl_shm_segment_wait(g->segment, &b->theirs[place], b->before + stage, FL_WAIT_ASLEEP,
                               fl_deadline_us(g->wait_timeout_ms));
}

static fl_status reduce_in_memory(host_bucket *bucket)
{
    shm_bucket *b = (shm_bucket *)bucket;
    if (!b->looked) {
        FL_TRY(find_entries(b, fl_deadline_us(fl__host_group_of(bucket)->wait_timeout_ms)));
    }
    if (!b->shared) {
        host_bucket *ring = (host_bucket *)b->ring;
        return ring->reduce(ring);
    }
    fl_entry_ring(b->mine);
    for (int k = 1; k < bucket->n_owners; k++) {
        FL_TRY(wait_stage(b, place_after(b, k), READY));
        take_part(b, place_after(b, k), bucket->my_place, true);
    }
    fl_entry_ring(b->mine);
    for (int k = 1; k < bucket->n_owners; k++) {
        FL_TRY(wait_stage(b, place_after(b, k), REDUCED));
        take_part(b, place_after(b, k), place_after(b, k), false);
    }
    fl_entry_ring(b->mine);
    for (int k = 1; k < bucket->n_owners; k++) {
        FL_TRY(wait_stage(b, place_after(b, k), DONE));
    }
    b->before += DONE;
    return FL_OK;
}

/* ---- create and destroy ---- */

static void bucket_destroy(fl_bucket *bucket)
{
    shm_bucket *b = (shm_bucket *)bucket;
    fl__bucket_queue_remove(&b->base);
    for (int i = 0; b->views != NULL && i < b->base.n_owners; i++) {
        fl_shared_view_close(&b->views[i]);
    }
    fl_bucket_destroy(&b->ring);
    fl_free(b->views);
    fl_free(b->theirs);
    fl_free(b->owners);
    fl_free(b);
}

static void bucket_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes)
{
    shm_bucket *b = (shm_bucket *)bucket;
    b->data.key = fl_shared_key_of(shared);
    b->data.offset_bytes = offset_bytes;
}

static const fl_bucket_ops shm_bucket_ops = {.destroy = bucket_destroy,
                                             .share = bucket_share,
                                             .start = fl__host_bucket_start,
                                             .wait = fl__host_bucket_wait};

static fl_status alloc_arrays(shm_bucket *b, const int *owners)
{
    size_t n = (size_t)b->base.n_owners;
    FL_TRY(fl_alloc_array(n, sizeof *b->owners, (void **)&b->owners));
    FL_TRY(fl_alloc_array(n, sizeof *b->theirs, (void **)&b->theirs));
    FL_TRY(fl_alloc_array(n, sizeof *b->views, (void **)&b->views));
    memcpy(b->owners, owners, n * sizeof *owners);
    return FL_OK;
}

fl_status fl__shm_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                                float *data, int64_t n, fl_bucket **out)
{
    shm_bucket *b = NULL;
    FL_TRY(fl_alloc(sizeof *b, (void **)&b));
    b->base = (host_bucket){.base = {&shm_bucket_ops, group, id, data, n},
                            .reduce = reduce_in_memory,
                            .n_owners = n_owners};
    for (int i = 0; i < n_owners; i++) {
        b->base.my_place = owners[i] == group->index ? i : b->base.my_place;
    }
    fl_status status = alloc_arrays(b, owners);
    if (status == FL_OK) {
        status = fl__gloo_bucket_create(group, id, owners, n_owners, data, n, &b->ring);
    }
    if (status != FL_OK) {
        bucket_destroy(&b->base.base);
        return status;
    }
    *out = &b->base.base;
    return FL_OK;
}
