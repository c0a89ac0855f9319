/* A channel over NCCL: a lane of two members, and buffers in device memory.
 *
 *     message n   sender                               receiver
 *                 caller's stream: copy to buffer      lane: ncclRecv into the buffer, once what
 *                 lane: ncclSend of the buffer               was in it has been read
 *                                                      caller's stream: waits, copies to its memory
 *
 * Without buffers a receiver's compute would wait in the sender's stream: with them each side's
 * stream runs on, until `depth` messages are in flight. A message of 0 bytes is no operation. */
#include "autodp/nccl/nccl_group.h"

#include "autodp/group/host_group.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <sched.h>

typedef struct nccl_channel {
    fl_channel base;
    nccl_lane *lane;
    size_t stride_bytes; /* from one buffer to the next */
    void *buffers;       /* [depth] in device memory */
    /* A receiver has twice as many jobs as buffers: a message may be announced while the device
     * still brings the one that was in its buffer before. */
    int n_jobs;
    nccl_job *job;                  /* [n_jobs], by number modulo n_jobs */
    fl_event **free;                /* [depth]: the buffer is written, by a sender; has been read */
    nccl_registration registration; /* of all buffers */
} nccl_channel;

static nccl_group *group_of(const nccl_channel *c)
{
    return (nccl_group *)c->base.group;
}

static char *buffer_of(const nccl_channel *c, int64_t n)
{
    return (char *)c->buffers + (size_t)(n % c->base.depth) * c->stride_bytes;
}

static nccl_job *job_of(const nccl_channel *c, int64_t n)
{
    return &c->job[n % c->n_jobs];
}

/* ---- on the caller thread ---- */

static fl_nccl_result begin_send(nccl_job *job)
{
    const nccl_lane *lane = job->lane;
    return job->count == 0 ? FL_NCCL_SUCCESS
                           : lane->group->nccl.Send(job->from, job->count, FL_NCCL_UINT8, 1,
                                                    lane->comm, lane->native);
}

static fl_nccl_result begin_receive(nccl_job *job)
{
    const nccl_lane *lane = job->lane;
    return job->count == 0 ? FL_NCCL_SUCCESS
                           : lane->group->nccl.Recv(job->to, job->count, FL_NCCL_UINT8, 0,
                                                    lane->comm, lane->native);
}

/* ---- open and close ---- */

static fl_status create_jobs(nccl_channel *c)
{
    fl_device *d = c->base.group->device;
    FL_TRY(fl_alloc_array((size_t)c->base.depth, sizeof(fl_event *), (void **)&c->free));
    FL_TRY(fl_alloc_array((size_t)c->n_jobs, sizeof *c->job, (void **)&c->job));
    for (int i = 0; i < c->base.depth; i++) {
        FL_TRY(d->ops->event_create(d, &c->free[i]));
    }
    for (int i = 0; i < c->n_jobs; i++) {
        c->job[i] = (nccl_job){.call = c->base.sending ? "ncclSend" : "ncclRecv",
                               .begin = c->base.sending ? begin_send : begin_receive,
                               .after = c->free[i % c->base.depth]};
        FL_TRY(d->ops->event_create(d, &c->job[i].done));
    }
    return FL_OK;
}

static fl_status set_up(nccl_channel *c)
{
    enum { ALIGNMENT = 256 };
    nccl_group *g = group_of(c);
    fl_device *d = g->base.device;
    const int members[2] = {c->base.sending ? g->base.index : c->base.peer,
                            c->base.sending ? c->base.peer : g->base.index};
    size_t most = SIZE_MAX / (size_t)c->base.depth - ALIGNMENT;
    if (c->base.max_bytes > most) {
        return fl_fail(FL_ENOMEM, "%d messages of %zu bytes", c->base.depth, c->base.max_bytes);
    }
    c->stride_bytes = (c->base.max_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    c->n_jobs = c->base.sending ? c->base.depth : 2 * c->base.depth;
    FL_TRY(create_jobs(c));
    FL_TRY(d->ops->memory_take(d, (size_t)c->base.depth * c->stride_bytes, &c->buffers));
    nccl_lane *lane = NULL;
    FL_TRY(
        fl__nccl_result(g, fl__nccl_lane_create(g, c->base.id, NCCL_MESSAGES, members, 2, &lane)));
    for (int i = 0; i < c->n_jobs; i++) {
        c->job[i].lane = lane;
    }
    c->lane = lane;
    fl__nccl_register_note(&c->registration, lane, c->buffers,
                           (size_t)c->base.depth * c->stride_bytes);
    return FL_OK;
}

/* The copies are work of the caller's stream, which may wait for an operation of another lane that
 * never ends: then the group is given up, which ends it. */
static void wait_for_copies(nccl_channel *c)
{
    enum { PATIENCE_MS = 1000 };
    nccl_group *g = group_of(c);
    fl_device *d = g->base.device;
    int64_t until_us = fl_deadline_us(PATIENCE_MS);
    for (int i = 0; c->free != NULL && i < c->base.depth && c->free[i] != NULL; i++) {
        bool reached = false;
        while (d->ops->event_reached(d, c->free[i], &reached) == FL_OK && !reached &&
               fl__nccl_state(g) == FL_OK) {
            if (fl_now_us() >= until_us) {
                fl_group_abort(g->host, FL_ESTALE);
            }
            sched_yield();
        }
        fl_status same = reached ? FL_OK : d->ops->event_wait(d, c->free[i]);
        (void)same; /* a device that has failed goes on failing */
    }
}

void fl__nccl_channel_close(fl_channel *channel)
{
    nccl_channel *c = (nccl_channel *)channel;
    fl_device *d = channel->group->device;
    if (c->lane != NULL &&
        (!fl__nccl_lane_quiet(c->lane) || !fl__nccl_unregister(&c->registration))) {
        return; /* a thread that does not come back uses it */
    }
    wait_for_copies(c);
    for (int i = 0; c->job != NULL && i < c->n_jobs; i++) {
        fl_device_event_destroy(d, &c->job[i].done);
    }
    for (int i = 0; c->free != NULL && i < c->base.depth; i++) {
        fl_device_event_destroy(d, &c->free[i]);
    }
    if (c->buffers != NULL) {
        d->ops->memory_give(d, c->buffers, (size_t)c->base.depth * c->stride_bytes);
    }
    fl_free(c->job);
    fl_free(c->free);
    fl_free(c);
}

fl_status fl__nccl_channel_open(const fl_channel *common, fl_channel **out)
{
    nccl_group *g = (nccl_group *)common->group;
    if (!fl_nccl_survey_pair(&g->survey, common->peer, g->base.index)) {
        fl_channel host = *common;
        host.group = g->host;
        return g->host->ops->channel_open(&host, out);
    }
    nccl_channel *c = NULL;
    FL_TRY(fl_alloc(sizeof *c, (void **)&c));
    c->base = *common;
    fl_status status = set_up(c);
    if (status != FL_OK) {
        fl__nccl_channel_close(&c->base);
        return status;
    }
    *out = &c->base;
    return FL_OK;
}

/* The copy that the stream was given last uses the buffer until the event is reached. */
static fl_status record_copy(nccl_channel *c, fl_event *event, fl_stream *stream)
{
    nccl_group *g = group_of(c);
    fl_device *d = g->base.device;
    fl_status status = fl__nccl_device_result(g, d->ops->event_record(d, event, stream));
    return fl__nccl_result(g, fl__host_drained(d, stream, status));
}

/* ---- sender ---- */

/* Nothing has been sent yet that message n has to wait for. */
static bool is_first_use(const nccl_channel *c, int64_t n)
{
    return n < c->n_jobs;
}

fl_status fl__nccl_channel_send_from(fl_channel *channel, const void *from, size_t size_bytes,
                                     fl_stream *stream, int64_t deadline_us)
{
    nccl_channel *c = (nccl_channel *)channel;
    nccl_group *g = group_of(c);
    fl_device *d = g->base.device;
    int64_t n = channel->n_started;
    nccl_job *job = job_of(c, n);
    char *buffer = buffer_of(c, n);
    FL_TRY(fl__nccl_state(g));
    FL_TRY(fl__nccl_lane_begin(c->lane, deadline_us));
    if (!is_first_use(c, n)) {
        FL_TRY(fl__nccl_job_done(job, fl__nccl_wait_limit(g, deadline_us)));
    }
    if (size_bytes > 0) {
        FL_TRY(fl__nccl_device_result(g, d->ops->copy(d, stream, buffer, from, size_bytes)));
    }
    FL_TRY(record_copy(c, job->after, stream));
    job->from = buffer;
    job->count = size_bytes;
    FL_TRY(fl__nccl_job_queue(job, g->wait_timeout_ms));
    atomic_fetch_add(&g->sent_bytes, (int64_t)size_bytes);
    return FL_OK;
}

void *fl__nccl_channel_place(fl_channel *channel)
{
    (void)channel; /* the device writes into its own memory */
    return NULL;
}

fl_status fl__nccl_channel_flush(fl_channel *channel, int64_t deadline_us)
{
    nccl_channel *c = (nccl_channel *)channel;
    nccl_group *g = group_of(c);
    FL_TRY(fl__nccl_state(g));
    for (int i = 0; i < c->n_jobs && i < channel->n_started; i++) {
        FL_TRY(fl__nccl_job_done(&c->job[i], fl__nccl_wait_limit(g, deadline_us)));
    }
    return FL_OK;
}

/* ---- receiver ---- */

fl_status fl__nccl_channel_post(fl_channel *channel, size_t size_bytes)
{
    nccl_channel *c = (nccl_channel *)channel;
    nccl_group *g = group_of(c);
    int64_t n = channel->n_started, deadline_us = fl_deadline_us(g->wait_timeout_ms);
    nccl_job *job = job_of(c, n);
    FL_TRY(fl__nccl_state(g));
    FL_TRY(fl__nccl_lane_begin(c->lane, deadline_us));
    if (!is_first_use(c, n)) {
        FL_TRY(fl__nccl_job_done(job, deadline_us));
    }
    job->to = buffer_of(c, n);
    job->count = size_bytes;
    return fl__nccl_job_queue(job, g->wait_timeout_ms);
}

fl_status fl__nccl_channel_receive_to(fl_channel *channel, void *to, size_t size_bytes,
                                      fl_stream *stream, int64_t deadline_us)
{
    nccl_channel *c = (nccl_channel *)channel;
    nccl_group *g = group_of(c);
    fl_device *d = g->base.device;
    int64_t n = channel->n_taken;
    nccl_job *job = job_of(c, n);
    FL_TRY(fl__nccl_job_issued(job, fl__nccl_wait_limit(g, deadline_us)));
    fl__nccl_job_await(job);
    FL_TRY(fl__nccl_device_result(g, d->ops->stream_wait(d, stream, job->done)));
    if (size_bytes > 0) {
        FL_TRY(fl__nccl_device_result(g, d->ops->copy(d, stream, to, buffer_of(c, n), size_bytes)));
    }
    FL_TRY(record_copy(c, job->after, stream));
    atomic_fetch_add(&g->received_bytes, (int64_t)size_bytes);
    return FL_OK;
}
