/* A bucket between members of one host: each owner adds the others' data in place, so that a byte
 * is read once by its receiver and no socket is used; on devices that read each other's memory, the
 * devices add. P owners, P parts of the data. The owner at
 * place p raises its entry's count when it enters a stage; an operation is
 *
 *   reduce  the data may be read
 *           ... adds the others' part p to its own, as they enter
 *   gather  its part p is final
 *           ... copies part q of each other q, as it enters
 *   leave   it has finished reading; once all others have left, an owner may change its data again
 *
 * without `gather` for a reduce-scatter, and without `reduce` for an all-gather. No owner reads a
 * part that is being written: only q writes q's part p, after p has entered `gather`. */
#include "autodp/group/host_group.h"
#include "device/alloc.h"
#include "device/clock.h"

#include <string.h>

/* Elements at a time: the sum is still in the cache when the next owner's part is added. */
enum { CHUNK = 128 * 1024 };

typedef struct shm_bucket {
    host_bucket base;
    int *owners;           /* [n_owners] */
    fl_entry *mine;        /* NULL: not published yet */
    fl_look *theirs;       /* [n_owners] */
    fl_shared_view *views; /* [n_owners] of their data */
    bool looked;           /* all entries were found */
    uint32_t stage;        /* how many stages this owner has entered since it published the entry */
} shm_bucket;

static host_group *group_of(const shm_bucket *b)
{
    return (host_group *)b->base.base.group;
}

/* The other places in the order p + 1, p + 2, ..., so that not all owners read the same one at
 * once. */
static int place_after(const shm_bucket *b, int k)
{
    return (b->base.base.my_place + k) % b->base.base.n_owners;
}

/* Before the first operation. */
static fl_status find_entries(shm_bucket *b, int64_t deadline_us)
{
    fl_shm_segment *segment = group_of(b)->segment;
    const fl_bucket *bucket = &b->base.base;
    const fl_entry_name name = {.kind = FL_ENTRY_BUCKET, .peer = -1, .id = bucket->id};
    const fl_entry_data data = {b->base.key, b->base.offset_bytes};
    FL_TRY(fl_shm_segment_publish(segment, &name, &data, &b->mine));
    for (int k = 1; k < bucket->n_owners; k++) {
        int place = place_after(b, k);
        FL_TRY(fl_shm_segment_find(segment, b->owners[place], &name, b->mine, deadline_us,
                                   &b->theirs[place]));
        FL_TRY(fl_shm_segment_view(segment, &b->theirs[place], sizeof(float) * (size_t)bucket->n,
                                   b->base.on_device, &b->views[place]));
    }
    b->looked = true;
    return FL_OK;
}

/* As take_part, by the device: queued in the stream that stages buckets. */
static fl_status take_part_on_device(shm_bucket *b, int place, span s, bool adding)
{
    host_group *g = group_of(b);
    fl_device *d = g->base.device;
    const float *theirs = (const float *)b->views[place].data + s.first;
    float *mine = b->base.data + s.first;
    size_t size_bytes = (size_t)s.n * sizeof *mine;
    if (s.n == 0) {
        return FL_OK;
    }
    atomic_fetch_add(&g->received_bytes, (int64_t)size_bytes);
    atomic_fetch_add(&g->sent_bytes, (int64_t)size_bytes);
    atomic_fetch_add(&g->device_bytes, (int64_t)size_bytes);
    const fl_add_args add = {.a = mine, .b = theirs, .y = mine, .n = s.n};
    return adding ? d->ops->add(d, g->buckets.stream, &add)
                  : d->ops->copy(d, g->buckets.stream, mine, theirs, size_bytes);
}

/* Process part `part` of the owner at `place`: add it to the own part, or copy it. */
static fl_status take_part(shm_bucket *b, int place, int part, bool adding)
{
    host_group *g = group_of(b);
    const float *theirs = b->views[place].data;
    float *mine = b->base.data;
    span s = fl__bucket_part(&b->base, part);
    int64_t at = s.first, end = s.first + s.n;
    if (b->base.on_device) {
        return take_part_on_device(b, place, s, adding);
    }
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
    return FL_OK;
}

/* What this owner took in the stage before is done. */
static fl_status enter_stage(shm_bucket *b)
{
    host_group *g = group_of(b);
    fl_device *d = g->base.device;
    FL_TRY(b->base.on_device ? d->ops->sync(d, g->buckets.stream) : FL_OK);
    b->stage++;
    fl_entry_ring(b->mine);
    return FL_OK;
}

/* Wait until the owner at `place` has entered the stage that this one is in. */
static fl_status wait_stage(const shm_bucket *b, int place)
{
    const host_group *g = group_of(b);
    return fl_shm_segment_wait(g->segment, &b->theirs[place], b->stage, FL_WAIT_ASLEEP,
                               fl_deadline_us(g->wait_timeout_ms));
}

static fl_status reduce_part(shm_bucket *b)
{
    FL_TRY(enter_stage(b));
    for (int k = 1; k < b->base.base.n_owners; k++) {
        FL_TRY(wait_stage(b, place_after(b, k)));
        FL_TRY(take_part(b, place_after(b, k), b->base.base.my_place, true));
    }
    return FL_OK;
}

static fl_status gather_parts(shm_bucket *b)
{
    FL_TRY(enter_stage(b));
    for (int k = 1; k < b->base.base.n_owners; k++) {
        FL_TRY(wait_stage(b, place_after(b, k)));
        FL_TRY(take_part(b, place_after(b, k), place_after(b, k), false));
    }
    return FL_OK;
}

static fl_status leave_data(shm_bucket *b)
{
    FL_TRY(enter_stage(b));
    for (int k = 1; k < b->base.base.n_owners; k++) {
        FL_TRY(wait_stage(b, place_after(b, k)));
    }
    return FL_OK;
}

static fl_status run_in_memory(host_bucket *bucket)
{
    shm_bucket *b = (shm_bucket *)bucket;
    if (!b->looked) {
        FL_TRY(find_entries(b, fl_deadline_us(group_of(b)->wait_timeout_ms)));
    }
    FL_TRY(bucket->op == FL_ALL_GATHER ? FL_OK : reduce_part(b));
    FL_TRY(bucket->op == FL_REDUCE_SCATTER ? FL_OK : gather_parts(b));
    return leave_data(b);
}

/* ---- open and close ---- */

static fl_status open_bucket(host_bucket *bucket, const int *owners)
{
    shm_bucket *b = (shm_bucket *)bucket;
    size_t n = (size_t)bucket->base.n_owners;
    FL_TRY(fl_alloc_array(n, sizeof *b->owners, (void **)&b->owners));
    FL_TRY(fl_alloc_array(n, sizeof *b->theirs, (void **)&b->theirs));
    FL_TRY(fl_alloc_array(n, sizeof *b->views, (void **)&b->views));
    memcpy(b->owners, owners, n * sizeof *owners);
    return FL_OK;
}

static void close_bucket(host_bucket *bucket)
{
    shm_bucket *b = (shm_bucket *)bucket;
    fl_device *d = bucket->base.group->device;
    for (int i = 0; b->views != NULL && i < bucket->base.n_owners; i++) {
        if (bucket->on_device) {
            d->ops->view_close(d, &b->views[i]);
        } else {
            fl_shared_view_close(&b->views[i]);
        }
    }
    fl_free(b->views);
    fl_free(b->theirs);
    fl_free(b->owners);
}

const host_bucket_ops fl__shm_buckets = {.size_bytes = sizeof(shm_bucket),
                                         .shares_data = true,
                                         .part_shift = 0,
                                         .open = open_bucket,
                                         .close = close_bucket,
                                         .run = run_in_memory};
