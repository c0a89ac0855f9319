/* The watch thread. Every few milliseconds it looks
 *
 *     whether the net is broken: a member has died, or somebody has aborted the generation
 *     whether the caller thread is in a call for too long
 *     whether a lane's first job, in the call or on the device, takes too long
 *
 * and what it finds breaks the group. It also notes in the flight recorder what the device waits
 * for: the training thread has gone on, and is then in whatever needs a result of the device. Then
 * it aborts all communicators, in one group of NCCL's: each abort first raises its flag, and
 * communicators that wait for each other leave together. An abort waits for the device; if it does
 * not return, the device is lost, and with it the worker.
 *
 * Behind the flags, and before the group of calls ends, the watch thread destroys the graphs that
 * captured operations: only then can NCCL free what they refer to.
 *
 * Before an abort the caller thread leaves its call, unless that takes too long: NCCL allows an
 * abort beside a call that does not return. */
#include "autodp/nccl/nccl_group.h"
#include "device/errors/log.h"
#include "device/flight/flight.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <stdio.h>

enum { LOOK_US = 5 * 1000, GRACE_US = 200 * 1000, STUCK_MS = 3000, LEAVE_MS = 500 };

/* ---- what breaks a group ---- */

static void look_at_net(nccl_group *g)
{
    fl_status status = fl_net_state(g->net);
    if (status != FL_OK) {
        fl__nccl_break(g, status, "%s", fl_errmsg());
    }
}

/* A member that has left the group, which it may without breaking the net, takes part in nothing.
 */
static void look_at_members(nccl_lane *lane)
{
    nccl_group *g = lane->group;
    for (int place = 0; place < lane->n_members && g->failed == FL_OK; place++) {
        int member = lane->members[place];
        if (member != g->base.index && fl_net_expect(g->net, member) != FL_OK) {
            fl__nccl_break(g, FL_EPEER, "%s", fl_errmsg());
        }
    }
}

static void look_at_lane(nccl_lane *lane)
{
    int64_t now_us = fl_now_us();
    fl__nccl_lane_look(lane);
    if ((lane->queued != NULL || lane->issued != NULL) && lane->queued != &lane->finalize) {
        look_at_members(lane);
    }
    if ((lane->queued != NULL && lane->queued->deadline_us <= now_us) ||
        (lane->issued != NULL && lane->issued->deadline_us <= now_us)) {
        fl__nccl_lane_late(lane);
    }
}

/* The first job that the lane's stream is at, if another stream waits for it and its own work
 * before it is done: then the device waits for the other members. NULL: there is none. */
static const nccl_job *awaited_job(const nccl_lane *lane)
{
    fl_device *d = lane->group->base.device;
    const nccl_job *job = lane->issued;
    bool ready = true;
    if (job == NULL || job->awaited.kind == FL_FLIGHT_NONE) {
        return NULL;
    }
    /* A message's `after` is of the next one in its buffer. */
    bool asks = lane->kind == NCCL_BUCKETS && job->after != NULL;
    return !asks || (d->ops->event_reached(d, job->after, &ready) == FL_OK && ready) ? job : NULL;
}

static void note_awaited(const nccl_group *g)
{
    const nccl_job *first = NULL;
    for (const nccl_lane *lane = g->lanes; lane != NULL && g->failed == FL_OK; lane = lane->next) {
        const nccl_job *job = awaited_job(lane);
        if (job != NULL && (first == NULL || job->awaited.entered_ns < first->awaited.entered_ns)) {
            first = job;
        }
    }
    fl_flight_awaits(first == NULL ? NULL : &first->awaited);
}

static void look_at_all(nccl_group *g)
{
    char name[NCCL_LANE_TEXT];
    look_at_net(g);
    if (g->call_since_us != 0 && g->call_until_us <= fl_now_us()) {
        fl__nccl_break(g, FL_EDEADLINE, "%s: %s has not returned in time",
                       fl__nccl_lane_text(g->call_lane, name), g->call);
    }
    if (g->launch_until_us != 0 && g->launch_until_us <= fl_now_us()) {
        fl__nccl_break(g, FL_EDEADLINE, "the launch of a graph with sums has not returned in time");
    }
    for (nccl_lane *lane = g->lanes; lane != NULL && g->failed == FL_OK; lane = lane->next) {
        look_at_lane(lane);
    }
}

/* ---- aborts ---- */

/* Whether there are any; the caller thread leaves them alone from here on. */
static bool mark_lanes(nccl_group *g)
{
    bool any = false;
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        if ((g->failed != FL_OK || lane->abort_wanted) && lane->state < NCCL_LANE_ABORTING) {
            lane->state = NCCL_LANE_ABORTING;
            any = true;
        }
    }
    return any;
}

static void wait_for_caller(nccl_group *g)
{
    int64_t until_us = fl_now_us() + GRACE_US;
    bool in_time = true;
    while (g->call_since_us != 0 && in_time) {
        in_time = fl_condition_wait_until(&g->changed, &g->mutex, until_us);
    }
}

static void abort_each(const nccl_group *g, nccl_lane *first, bool parents)
{
    for (nccl_lane *lane = first; lane != NULL; lane = lane->next) {
        if ((lane->kind == NCCL_PARENT) == parents && lane->state == NCCL_LANE_ABORTING &&
            lane->comm != NULL) {
            g->nccl.CommAbort(lane->comm); /* a result would change nothing */
        }
    }
}

/* What is split off a communicator is aborted after that: the split may be in progress. */
static void abort_marked(nccl_group *g, nccl_lane *first, bool all)
{
    g->nccl.GroupStart();
    abort_each(g, first, true);
    abort_each(g, first, false);
    if (all) {
        fl__nccl_captured_drop(g);
    }
    g->nccl.GroupEnd();
}

static void close_marked(nccl_group *g)
{
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        if (lane->state == NCCL_LANE_ABORTING) {
            lane->state = NCCL_LANE_CLOSED;
            lane->comm = NULL;
        }
    }
    pthread_cond_broadcast(&g->changed);
    pthread_cond_signal(&g->work);
}

static void abort_lanes(nccl_group *g)
{
    wait_for_caller(g);
    nccl_lane *first = g->lanes; /* lanes that come later are before it */
    bool all = g->failed != FL_OK;
    g->abort_since_us = fl_now_us();
    pthread_mutex_unlock(&g->mutex);
    abort_marked(g, first, all);
    pthread_mutex_lock(&g->mutex);
    g->abort_since_us = 0;
    close_marked(g);
}

void *fl__nccl_watch(void *group)
{
    nccl_group *g = group;
    fl_device *d = g->base.device;
    fl_native native;
    fl_status status = d->ops->stream_native(d, NULL, &native); /* the thread's device */
    (void)status; /* the caller thread learns the same */
    fl_flight_thread(FL_FLIGHT_AWAITED, g->base.generation);
    pthread_mutex_lock(&g->mutex);
    while (!g->stop) {
        if (g->failed == FL_OK) {
            look_at_all(g);
        }
        note_awaited(g);
        if (mark_lanes(g)) {
            abort_lanes(g);
        } else {
            fl_condition_wait_until(&g->alarm, &g->mutex, fl_now_us() + LOOK_US);
        }
    }
    fl_flight_thread_end();
    g->watcher_ended = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
    return NULL;
}

/* ---- for other threads ---- */

void fl__nccl_look_at_abort(nccl_group *g)
{
    if (g->abort_since_us == 0 || fl_now_us() < g->abort_since_us + (int64_t)STUCK_MS * 1000 ||
        (g->failed != FL_OK && !fl_status_is_regroup(g->failed))) {
        return;
    }
    g->stuck = true;
    g->failed = FL_EIO;
    snprintf(g->message, sizeof g->message,
             "ncclCommAbort has not returned within %d ms: the device cannot be used any more",
             STUCK_MS);
    fl_log(FL_LOG_ERROR, "generation %u: %s", g->base.generation, g->message);
    pthread_cond_broadcast(&g->changed);
}

bool fl__nccl_lane_abort(nccl_lane *lane)
{
    nccl_group *g = lane->group;
    bool in_time = true;
    pthread_mutex_lock(&g->mutex);
    lane->abort_wanted = true;
    pthread_cond_signal(&g->alarm);
    int64_t until_us = fl_deadline_us(STUCK_MS);
    while (!g->stuck && in_time && lane->state != NCCL_LANE_CLOSED) {
        in_time = fl_condition_wait_until(&g->changed, &g->mutex, until_us);
    }
    fl__nccl_look_at_abort(g);
    until_us = fl_deadline_us(LEAVE_MS);
    while (!g->stuck && in_time && lane->queued != NULL) {
        in_time = fl_condition_wait_until(&g->changed, &g->mutex, until_us);
    }
    bool gone = lane->state == NCCL_LANE_CLOSED && lane->queued == NULL;
    g->stuck = g->stuck || !gone;
    pthread_mutex_unlock(&g->mutex);
    return gone;
}
