#include "autodp/group/shm_team.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <string.h>

/* Elements at a time: the sum is still in the cache when the next member's part is added. */
enum { CHUNK = 128 * 1024 };

static host_group *group_of(const fl__shm_team *t)
{
    return (host_group *)t->bucket->base.group;
}

span fl__shm_team_part(const fl__shm_team *t, int part)
{
    return fl__span_part((span){0, t->bucket->base.n}, part, t->n_parts);
}

/* The other places in the order p + 1, p + 2, ..., so that not all members read the same one at
 * once. */
static int place_after(const fl__shm_team *t, int k)
{
    return (t->place + k) % t->n;
}

/* Before the first operation. */
static fl_status find_entries(fl__shm_team *t, int64_t deadline_us)
{
    fl_shm_segment *segment = group_of(t)->segment;
    const fl_bucket *bucket = &t->bucket->base;
    const fl_entry_name name = {.kind = FL_ENTRY_BUCKET, .peer = -1, .id = bucket->id};
    const fl_entry_data data = {t->bucket->key, t->bucket->offset_bytes};
    FL_TRY(fl_shm_segment_publish(segment, &name, &data, &t->mine));
    for (int k = 1; k < t->n; k++) {
        int place = place_after(t, k);
        FL_TRY(fl_shm_segment_find(segment, t->members[place], &name, t->mine, deadline_us,
                                   &t->theirs[place]));
        FL_TRY(fl_shm_segment_view(segment, &t->theirs[place], sizeof(float) * (size_t)bucket->n,
                                   t->bucket->on_device, &t->views[place]));
    }
    t->looked = true;
    return FL_OK;
}

fl_status fl__shm_team_find(fl__shm_team *t)
{
    return t->looked || t->n == 1 ? FL_OK
                                  : find_entries(t, fl_deadline_us(group_of(t)->wait_timeout_ms));
}

/* As take_part, by the device: queued in the stream that stages buckets. */
static fl_status take_part_on_device(fl__shm_team *t, int place, span s, bool adding)
{
    host_group *g = group_of(t);
    fl_device *d = g->base.device;
    const float *theirs = (const float *)t->views[place].data + s.first;
    float *mine = t->bucket->data + s.first;
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

/* Process part `part` of the member at `place`: add it to the own part, or copy it. */
static fl_status take_part(fl__shm_team *t, int place, int part, bool adding)
{
    host_group *g = group_of(t);
    const float *theirs = t->views[place].data;
    float *mine = t->bucket->data;
    span s = fl__shm_team_part(t, part);
    int64_t at = s.first, end = s.first + s.n;
    if (t->bucket->on_device) {
        return take_part_on_device(t, place, s, adding);
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

/* ---- stages ---- */

/* What this member took in the stage before is done. */
static fl_status enter_stage(fl__shm_team *t)
{
    host_group *g = group_of(t);
    fl_device *d = g->base.device;
    if (t->n == 1) {
        return FL_OK;
    }
    FL_TRY(t->bucket->on_device ? d->ops->sync(d, g->buckets.stream) : FL_OK);
    t->stage++;
    fl_entry_ring(t->mine);
    return FL_OK;
}

/* Wait until the member at `place` has entered the stage that this one is in. */
static fl_status wait_stage(const fl__shm_team *t, int place)
{
    const host_group *g = group_of(t);
    return fl_shm_segment_wait(g->segment, &t->theirs[place], t->stage, FL_WAIT_ASLEEP,
                               fl_deadline_us(g->wait_timeout_ms));
}

fl_status fl__shm_team_reduce(fl__shm_team *t)
{
    FL_TRY(enter_stage(t));
    for (int k = 1; k < t->n && t->place < t->n_parts; k++) {
        FL_TRY(wait_stage(t, place_after(t, k)));
        FL_TRY(take_part(t, place_after(t, k), t->place, true));
    }
    return FL_OK;
}

fl_status fl__shm_team_gather(fl__shm_team *t)
{
    FL_TRY(enter_stage(t));
    for (int k = 1; k < t->n; k++) {
        int place = place_after(t, k);
        if (place < t->n_parts) {
            FL_TRY(wait_stage(t, place));
            FL_TRY(take_part(t, place, place, false));
        }
    }
    return FL_OK;
}

fl_status fl__shm_team_leave(fl__shm_team *t)
{
    FL_TRY(enter_stage(t));
    for (int k = 1; k < t->n; k++) {
        FL_TRY(wait_stage(t, place_after(t, k)));
    }
    return FL_OK;
}

/* ---- open and close ---- */

fl_status fl__shm_team_open(fl__shm_team *t, host_bucket *bucket, const int *members, int n,
                            int place, int n_parts)
{
    *t = (fl__shm_team){.bucket = bucket, .n = n, .place = place, .n_parts = n_parts};
    FL_TRY(fl_alloc_array((size_t)n, sizeof *t->members, (void **)&t->members));
    FL_TRY(fl_alloc_array((size_t)n, sizeof *t->theirs, (void **)&t->theirs));
    FL_TRY(fl_alloc_array((size_t)n, sizeof *t->views, (void **)&t->views));
    memcpy(t->members, members, (size_t)n * sizeof *members);
    return FL_OK;
}

void fl__shm_team_close(fl__shm_team *t)
{
    for (int i = 0; t->views != NULL && i < t->n; i++) {
        fl_device *d = t->bucket->base.group->device;
        if (t->bucket->on_device) {
            d->ops->view_close(d, &t->views[i]);
        } else {
            fl_shared_view_close(&t->views[i]);
        }
    }
    fl_free(t->views);
    fl_free(t->theirs);
    fl_free(t->members);
}
