#include "autodp/group/group.h"

#include "autodp/group/backend.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/table_head.h"

#include <frostline/plan.h>
#include <stddef.h>

#include <stdio.h>
#include <string.h>

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

/* ---- the backend ---- */

fl_status fl_group_ops_check(const fl_group_ops *ops)
{
    return fl_ops_table_check(&(fl_ops_table){.table = ops,
                                              .first = offsetof(fl_group_ops, group_open),
                                              .size_bytes = sizeof *ops,
                                              .version = FL_GROUP_OPS_VERSION,
                                              .its_version = ops->version,
                                              .its_size_bytes = ops->size_bytes,
                                              .kind = ops->kind,
                                              .what = "transport",
                                              .interface = "group"});
}

fl_status fl_group_open(const fl_group_options *options, fl_group **out)
{
    if (options->size < 1 || options->index < 0 || options->index >= options->size) {
        return fl_fail(FL_EINVAL, "member %d of %d", options->index, options->size);
    }
    const fl_group_ops *ops = options->backend != NULL ? options->backend : &fl_host_group_ops;
    fl_group *group = NULL;
    FL_TRY(fl_group_ops_check(ops));
    FL_TRY(ops->group_open(options, &group));
    group->ops = ops;
    *out = group;
    return FL_OK;
}

fl_status fl_group_connect(fl_group *group, int64_t deadline_us)
{
    return in_group(group->ops->group_connect(group, deadline_us), group, "connecting");
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
    group->ops->group_stats_get(group, out);
}

const fl_group_comm *fl_group_comm_get(const fl_group *group)
{
    return &group->comm;
}

/* ---- communicators ---- */

const char *fl_comm_way_text(fl_comm_way way)
{
    static const char *const text[FL_COMM_WAYS] = {"none", "rebuild", "split", "shrink"};
    return text[way];
}

const char *fl_comm_registration_text(fl_comm_registration registration)
{
    static const char *const text[FL_REGISTRATIONS] = {
        "nothing to register",
        "used",
        "not used: a worker's library cannot",
        "not used: a worker's device memory does not suit it",
        "not used: it takes longer than it saves in a thousand steps",
        "not used: it failed on a worker"};
    return text[registration];
}

int64_t fl_comm_time_mixed(int64_t known_us, int64_t us)
{
    return known_us == 0 ? us : (known_us + us) / 2;
}

void fl_comm_keeper_clear(fl_comm_keeper *keeper)
{
    if (keeper->kept != NULL) {
        keeper->release(keeper->kept);
    }
    keeper->kept = NULL;
}

/* ---- channels ---- */

fl_status fl_channel_open(fl_group *group, bool sending, int peer, uint32_t id, size_t max_bytes,
                          int depth, fl_channel **out)
{
    FL_TRY(check_member(group, peer, "channel to member"));
    if (peer == group->index || depth < 1 || max_bytes == 0) {
        return fl_fail(FL_EINVAL, "channel to member %d of depth %d for %zu bytes at member %d",
                       peer, depth, max_bytes, group->index);
    }
    fl_channel common = {.group = group,
                         .sending = sending,
                         .peer = peer,
                         .id = id,
                         .max_bytes = max_bytes,
                         .depth = depth};
    FL_TRY(
        fl_alloc_array((size_t)depth, sizeof *common.posted_bytes, (void **)&common.posted_bytes));
    fl_status status = group->ops->channel_open(&common, out);
    if (status != FL_OK) {
        fl_free(common.posted_bytes);
    }
    return status;
}

void fl_channel_close(fl_channel **channel)
{
    fl_channel *c = *channel;
    if (c != NULL) {
        *channel = NULL;
        fl_free(c->posted_bytes);
        c->group->ops->channel_close(c);
    }
}

/* ---- movers ---- */

static fl_status in_mover(fl_status status, const fl_mover *m)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    return fl_within(status, "generation %u, state %s member %d", m->group->generation,
                     m->sending ? "to" : "from", m->peer);
}

fl_status fl_mover_open(fl_group *group, bool sending, int peer, int n_pieces, fl_mover **out)
{
    const fl_mover common = {
        .group = group, .sending = sending, .peer = peer, .n_pieces = n_pieces};
    FL_TRY(check_member(group, peer, "state for member"));
    if (peer == group->index || n_pieces < 1) {
        return fl_fail(FL_EINVAL, "%d pieces of state for member %d at member %d", n_pieces, peer,
                       group->index);
    }
    return in_mover(group->ops->mover_open(&common, out), &common);
}

void fl_mover_close(fl_mover **mover)
{
    fl_mover *m = *mover;
    if (m != NULL) {
        *mover = NULL;
        m->group->ops->mover_close(m);
    }
}

fl_status fl_mover_start(fl_mover *m, void *data, size_t size_bytes)
{
    if (m->n_started == m->n_pieces || size_bytes == 0) {
        return in_mover(fl_fail(FL_EINVAL, "piece %d of %d, of %zu bytes", m->n_started,
                                m->n_pieces, size_bytes),
                        m);
    }
    FL_TRY(in_mover(m->group->ops->mover_start(m, data, size_bytes), m));
    m->n_started++;
    return FL_OK;
}

fl_status fl_mover_wait(fl_mover *m, int64_t deadline_us)
{
    if (m->n_ended == m->n_started) {
        return in_mover(fl_fail(FL_EINVAL, "waited for, but not started"), m);
    }
    FL_TRY(in_mover(m->group->ops->mover_wait(m, deadline_us), m));
    m->n_ended++;
    return FL_OK;
}

/* ---- channels, in use ---- */

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

static fl_status send_message(fl_channel *c, const void *from, size_t size_bytes, fl_stream *stream,
                              int64_t deadline_us)
{
    FL_TRY(check_message(c, true, size_bytes));
    FL_TRY(c->group->ops->channel_send_from(c, from, size_bytes, stream, deadline_us));
    c->n_started++;
    return FL_OK;
}

fl_status fl_channel_send_from(fl_channel *c, const void *from, size_t size_bytes,
                               fl_stream *stream, int64_t deadline_us)
{
    return in_channel(send_message(c, from, size_bytes, stream, deadline_us), c, c->n_started);
}

void *fl_channel_place(fl_channel *c)
{
    return c->sending ? c->group->ops->channel_place(c) : NULL;
}

fl_status fl_channel_flush(fl_channel *c, int64_t deadline_us)
{
    FL_TRY(in_channel(check_message(c, true, 0), c, c->n_started));
    return in_channel(c->group->ops->channel_flush(c, deadline_us), c, c->n_started);
}

static fl_status post_message(fl_channel *c, size_t size_bytes)
{
    FL_TRY(check_message(c, false, size_bytes));
    if (c->n_started - c->n_taken >= c->depth) {
        return fl_fail(FL_EINVAL, "%d are posted already, the channel's depth", c->depth);
    }
    FL_TRY(c->group->ops->channel_post(c, size_bytes));
    c->posted_bytes[c->n_started % c->depth] = size_bytes;
    c->n_started++;
    return FL_OK;
}

fl_status fl_channel_post(fl_channel *c, size_t size_bytes)
{
    return in_channel(post_message(c, size_bytes), c, c->n_started);
}

static fl_status take_message(fl_channel *c, void *to, size_t size_bytes, fl_stream *stream,
                              int64_t deadline_us)
{
    if (c->n_taken == c->n_started) {
        FL_TRY(post_message(c, size_bytes));
    }
    size_t posted_bytes = c->posted_bytes[c->n_taken % c->depth];
    if (posted_bytes != size_bytes) {
        return fl_fail(FL_EINVAL, "%zu bytes, but it was posted with %zu", size_bytes,
                       posted_bytes);
    }
    FL_TRY(c->group->ops->channel_receive_to(c, to, size_bytes, stream, deadline_us));
    c->n_taken++;
    return FL_OK;
}

fl_status fl_channel_receive_to(fl_channel *c, void *to, size_t size_bytes, fl_stream *stream,
                                int64_t deadline_us)
{
    return in_channel(take_message(c, to, size_bytes, stream, deadline_us), c, c->n_taken);
}

/* ---- buckets ---- */

fl_bucket fl_bucket_common(fl_group *group, const fl_bucket_options *o)
{
    fl_bucket common = {.group = group,
                        .id = o->id,
                        .data = o->data,
                        .dtype = o->dtype,
                        .n = o->n,
                        .n_owners = o->n_owners};
    for (int i = 0; i < o->n_owners; i++) {
        common.my_place = o->owners[i] == group->index ? i : common.my_place;
    }
    return common;
}

uint32_t fl_bucket_id(int stage, int n)
{
    return (uint32_t)(stage * FL_MAX_LAYERS + n);
}

uint32_t fl_bucket_id_of_tie(int tie)
{
    return fl_bucket_id(FL_MAX_STAGES, tie);
}

const char *fl_bucket_text(uint32_t id, char text[FL_BUCKET_TEXT])
{
    uint32_t stage = id / FL_MAX_LAYERS, n = id % FL_MAX_LAYERS;
    if (stage >= FL_MAX_STAGES) {
        snprintf(text, FL_BUCKET_TEXT, "bucket of tied weights %u",
                 id - (uint32_t)FL_MAX_STAGES * FL_MAX_LAYERS);
    } else {
        snprintf(text, FL_BUCKET_TEXT, "bucket %u of stage %u", n, stage);
    }
    return text;
}

fl_status fl_bucket_create(fl_group *group, const fl_bucket_options *o, fl_bucket **out)
{
    bool mine = false;
    for (int i = 0; i < o->n_owners; i++) {
        FL_TRY(check_member(group, o->owners[i], "bucket of member"));
        mine = mine || o->owners[i] == group->index;
    }
    if (!mine || o->n < 0) {
        return fl_fail(FL_EINVAL, "bucket %u of %lld values: member %d is %s of its %d owners",
                       o->id, (long long)o->n, group->index, mine ? "one" : "none", o->n_owners);
    }
    if (o->dtype != FL_F32) {
        return fl_fail(FL_ENOTSUP, "bucket %u of %s values: only float32 can be summed", o->id,
                       o->dtype == FL_BF16 ? "bfloat16" : "int32");
    }
    return group->ops->bucket_create(group, o, out);
}

void fl_bucket_destroy(fl_bucket **bucket)
{
    if (*bucket != NULL) {
        (*bucket)->group->ops->bucket_destroy(*bucket);
        *bucket = NULL;
    }
}

void fl_bucket_part(const fl_bucket *bucket, int place, int64_t *first, int64_t *n)
{
    bucket->group->ops->bucket_part(bucket, place, first, n);
}

static fl_status in_bucket(fl_status status, const fl_bucket *b)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    char name[FL_BUCKET_TEXT];
    return fl_within(status, "generation %u, %s at member %d", b->group->generation,
                     fl_bucket_text(b->id, name), b->group->index);
}

fl_status fl_bucket_start(fl_bucket *bucket, fl_bucket_op op, fl_stream *stream)
{
    return in_bucket(bucket->group->ops->bucket_start(bucket, op, stream), bucket);
}

fl_status fl_bucket_wait(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us)
{
    fl_flight_enter(FL_FLIGHT_REDUCE_WAIT, -1, (int)bucket->id,
                    (int64_t)fl_dtype_size(bucket->dtype) * bucket->n);
    FL_TRY(in_bucket(bucket->group->ops->bucket_wait(bucket, stream, deadline_us), bucket));
    fl_flight_leave();
    return FL_OK;
}

/* ---- buckets in captured work ---- */

bool fl_bucket_can_capture(const fl_bucket *bucket)
{
    return bucket->group->ops->bucket_can_capture(bucket);
}

fl_status fl_bucket_capture(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us)
{
    return in_bucket(bucket->group->ops->bucket_capture(bucket, stream, deadline_us), bucket);
}

fl_status fl_bucket_capture_join(fl_bucket *bucket, fl_stream *stream)
{
    return in_bucket(bucket->group->ops->bucket_capture_join(bucket, stream), bucket);
}

fl_status fl_bucket_launched(fl_bucket *bucket, fl_stream *stream)
{
    return in_bucket(bucket->group->ops->bucket_launched(bucket, stream), bucket);
}

fl_status fl_captured_create(fl_group *group, fl_graph *graph, fl_captured **out)
{
    return group->ops->captured_create(group, graph, out);
}

void fl_captured_destroy(fl_captured **captured)
{
    if (*captured != NULL) {
        (*captured)->group->ops->captured_destroy(*captured);
        *captured = NULL;
    }
}

fl_status fl_captured_launch(fl_captured *captured, fl_stream *stream)
{
    return captured->group->ops->captured_launch(captured, stream);
}
