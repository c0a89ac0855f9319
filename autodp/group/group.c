#include "autodp/group/group.h"

#include "autodp/group/backend.h"
#include "device/alloc.h"
#include "device/flight.h"

/* Each message names the group and its generation, because a run has several at once. */
static fl_status in_group(fl_status status, const fl_group *g, const char *what)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    return fl_within(status, "generation %u, member %d of %d: %s", g->generation, g->index, g->size,
                     what);
}

static fl_status check_member(const fl_group *g, int member, const char *what)
{
    if (member < 0 || member >= g->size) {
        return fl_fail(FL_EINVAL, "%s %d, but the group has %d members", what, member, g->size);
    }
    return FL_OK;
}

static const fl_group_ops *find_backend(fl_device_kind device)
{
    switch (device) {
    case FL_DEVICE_CPU:
        return &fl_host_group_ops;
    }
    return NULL;
}

fl_status fl_group_open(const fl_group_options *options, fl_group **out)
{
    if (options->size < 1 || options->index < 0 || options->index >= options->size) {
        return fl_fail(FL_EINVAL, "member %d of %d", options->index, options->size);
    }
    const fl_group_ops *ops = find_backend(options->device);
    fl_group *group = NULL;
    if (ops == NULL) {
        return fl_fail(FL_ENOTSUP, "no training group for devices of kind %d in this build",
                       (int)options->device);
    }
    FL_TRY(ops->group_open(options, &group));
    group->ops = ops;
    *out = group;
    return FL_OK;
}

void fl_group_close(fl_group **group)
{
    if (*group != NULL) {
        (*group)->ops->group_close(*group);
        *group = NULL;
    }
}

void fl_group_abort(fl_group *group, fl_status why)
{
    group->ops->group_abort(group, why);
}

fl_status fl_group_state(fl_group *group)
{
    return group->ops->group_state(group);
}

fl_status fl_group_all_reduce(fl_group *group, double *values, int n, int64_t deadline_us)
{
    if (n < 0 || n > FL_GROUP_ALL_REDUCE_MAX) {
        return fl_fail(FL_EINVAL, "a sum of %d values, at most %d are allowed", n,
                       FL_GROUP_ALL_REDUCE_MAX);
    }
    fl_flight_enter(FL_FLIGHT_SUM, -1, ++group->n_sums, (int64_t)sizeof *values * n);
    FL_TRY(in_group(group->ops->group_all_reduce(group, values, n, deadline_us), group, "sum"));
    fl_flight_leave();
    return FL_OK;
}

void fl_group_stats_get(const fl_group *group, fl_group_stats *out)
{
    group->ops->group_stats(group, out);
}

/* ---- channels ---- */

fl_status fl__channel_init(fl_channel *c, const fl_channel_ops *ops, fl_group *group, bool sending,
                           int peer, uint32_t id, size_t max_bytes, int depth)
{
    enum { ALIGNMENT = 64 };
    *c = (fl_channel){.ops = ops,
                      .group = group,
                      .sending = sending,
                      .peer = peer,
                      .id = id,
                      .max_bytes = max_bytes,
                      .stride_bytes = (max_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT,
                      .depth = depth};
    if (c->stride_bytes > SIZE_MAX / (size_t)depth) {
        return fl_fail(FL_ENOMEM, "%d messages of %zu bytes", depth, c->stride_bytes);
    }
    return fl_alloc_array((size_t)depth, sizeof *c->slots, (void **)&c->slots);
}

void fl__channel_fini(fl_channel *c)
{
    fl_free(c->slots);
}

fl_status fl_channel_open(fl_group *group, bool sending, int peer, uint32_t id, size_t max_bytes,
                          int depth, fl_channel **out)
{
    FL_TRY(check_member(group, peer, "channel to member"));
    if (peer == group->index || depth < 1 || max_bytes == 0) {
        return fl_fail(FL_EINVAL, "channel to member %d of depth %d for %zu bytes at member %d",
                       peer, depth, max_bytes, group->index);
    }
    return group->ops->channel_open(group, sending, peer, id, max_bytes, depth, out);
}

void fl_channel_close(fl_channel **channel)
{
    if (*channel != NULL) {
        (*channel)->ops->close(*channel);
        *channel = NULL;
    }
}

void *fl_channel_buffer(fl_channel *c, int64_t n)
{
    return c->ops->buffer(c, n);
}

static fl_status in_channel(fl_status status, const fl_channel *c, int64_t n)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    return fl_within(status, "generation %u, channel %u %s member %d, message %lld",
                     c->group->generation, c->id, c->sending ? "to" : "from", c->peer,
                     (long long)n);
}

static fl_status check_message(const fl_channel *c, bool sending, size_t size_bytes)
{
    if (c->sending != sending) {
        return fl_fail(FL_EINVAL, "this end only %s", c->sending ? "sends" : "receives");
    }
    if (size_bytes > c->max_bytes) {
        return fl_fail(FL_EINVAL, "%zu bytes, but the channel was opened for %zu", size_bytes,
                       c->max_bytes);
    }
    return FL_OK;
}

/* Send message n, or post a receive for it. */
static fl_status start(fl_channel *c, bool sending, int64_t n, size_t size_bytes)
{
    size_t slot = fl__channel_slot(c, n);
    FL_TRY(check_message(c, sending, size_bytes));
    if (c->slots[slot].busy) {
        return fl_fail(FL_EINVAL, "its buffer is still under way (depth %d)", c->depth);
    }
    FL_TRY((sending ? c->ops->send : c->ops->post)(c, n, size_bytes));
    c->slots[slot].busy = true;
    c->slots[slot].bytes = size_bytes;
    return FL_OK;
}

/* Wait until the buffer of message n may be filled again, or until the message has arrived. */
static fl_status finish(fl_channel *c, bool sending, int64_t n, int64_t deadline_us)
{
    size_t slot = fl__channel_slot(c, n);
    FL_TRY(check_message(c, sending, 0));
    if (!c->slots[slot].busy) {
        return sending ? FL_OK : fl_fail(FL_EINVAL, "it was not posted");
    }
    FL_TRY(sending ? c->ops->reuse(c, n, deadline_us)
                   : c->ops->wait(c, n, c->slots[slot].bytes, deadline_us));
    c->slots[slot].busy = false;
    return FL_OK;
}

fl_status fl_channel_send(fl_channel *c, int64_t n, size_t size_bytes)
{
    return in_channel(start(c, true, n, size_bytes), c, n);
}

fl_status fl_channel_reuse(fl_channel *c, int64_t n, int64_t deadline_us)
{
    return in_channel(finish(c, true, n, deadline_us), c, n);
}

fl_status fl_channel_post(fl_channel *c, int64_t n, size_t size_bytes)
{
    return in_channel(start(c, false, n, size_bytes), c, n);
}

fl_status fl_channel_wait(fl_channel *c, int64_t n, int64_t deadline_us)
{
    return in_channel(finish(c, false, n, deadline_us), c, n);
}

void fl_channel_release(fl_channel *c, int64_t n)
{
    c->ops->release(c, n);
}

/* ---- buckets ---- */

fl_status fl_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                           float *data, int64_t n, fl_bucket **out)
{
    bool mine = false;
    for (int i = 0; i < n_owners; i++) {
        FL_TRY(check_member(group, owners[i], "bucket of member"));
        mine = mine || owners[i] == group->index;
    }
    if (!mine || n < 0) {
        return fl_fail(FL_EINVAL, "bucket %u of %lld values: member %d is %s of its %d owners", id,
                       (long long)n, group->index, mine ? "one" : "none", n_owners);
    }
    return group->ops->bucket_create(group, id, owners, n_owners, data, n, out);
}

void fl_bucket_destroy(fl_bucket **bucket)
{
    if (*bucket != NULL) {
        (*bucket)->ops->destroy(*bucket);
        *bucket = NULL;
    }
}

void fl_bucket_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes)
{
    bucket->ops->share(bucket, shared, offset_bytes);
}

static fl_status in_bucket(fl_status status, const fl_bucket *b)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    return fl_within(status, "generation %u, all-reduce of bucket %u at member %d",
                     b->group->generation, b->id, b->group->index);
}

fl_status fl_bucket_start(fl_bucket *bucket)
{
    return in_bucket(bucket->ops->start(bucket), bucket);
}

fl_status fl_bucket_wait(fl_bucket *bucket, int64_t deadline_us)
{
    fl_flight_enter(FL_FLIGHT_REDUCE_WAIT, -1, (int)bucket->id,
                    (int64_t)sizeof *bucket->data * bucket->n);
    FL_TRY(in_bucket(bucket->ops->wait(bucket, deadline_us), bucket));
    fl_flight_leave();
    return FL_OK;
}
