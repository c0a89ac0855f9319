/* The caller thread: it makes the calls of NCCL, so that one that does not return holds up nobody
 * else, and so that all communicators of a device see one thread.
 *
 *     each lane's first job    not begun: its stream waits for `after`, then the call
 *                              begun: is the call still in progress?
 *                              ended: `done` is recorded behind its work
 *     nothing to do            now and then: has a communicator an asynchronous error?
 */
#include "autodp/nccl/nccl_group.h"
#include "device/system/clock.h"
#include "device/system/thread.h"
#include "device/system/thread_priority.h"

enum {
    PROGRESS_US = 50,
    SELDOM_US = 2000,
    IDLE_US = 10 * 1000,
    SLICE_US = 10 * 1000,
    STOP_MS = 2000
};

/* When to look again for what has been awaited since then. NCCL wakes nobody; what has taken long
 * is looked for less often, so that it is seen late by an eighth of its time at most. */
static int64_t next_look_us(int64_t since_us)
{
    int64_t now_us = fl_now_us(), pause_us = (now_us - since_us) / 8;
    return now_us + (pause_us < PROGRESS_US ? PROGRESS_US
                     : pause_us > SELDOM_US ? SELDOM_US
                                            : pause_us);
}

/* ---- calls ---- */

/* A peer that died shows as an error of the network; it does not end this worker. */
static fl_status status_of(fl_nccl_result result)
{
    return result == FL_NCCL_REMOTE_ERROR || result == FL_NCCL_SYSTEM_ERROR ? FL_EPEER : FL_EIO;
}

static fl_status check_result(const nccl_lane *lane, const char *call, fl_nccl_result result)
{
    const fl_nccl *nccl = &lane->group->nccl;
    if (result == FL_NCCL_SUCCESS || result == FL_NCCL_IN_PROGRESS) {
        return FL_OK;
    }
    const char *detail = nccl->GetLastError(NULL);
    char name[NCCL_LANE_TEXT];
    bool opens = lane->state != NCCL_LANE_OPEN || lane->kind == NCCL_PARENT;
    return fl_fail(status_of(result), "%s: %s: %s%s%s%s", fl__nccl_lane_text(lane, name), call,
                   nccl->GetErrorString(result), detail == NULL || *detail == '\0' ? "" : ": ",
                   detail == NULL ? "" : detail,
                   opens ? "; autodp.transport: host does without NCCL" : "");
}

/* FL_NCCL_IN_PROGRESS in *result: the communicator's last call has not ended. */
static fl_status look_at_communicator(const nccl_lane *lane, fl_nccl_result *result)
{
    FL_TRY(check_result(lane, "ncclCommGetAsyncError",
                        lane->group->nccl.CommGetAsyncError(lane->comm, result)));
    return check_result(lane, "asynchronous error", *result);
}

static fl_status begin_job(nccl_job *job, fl_nccl_result *result)
{
    nccl_lane *lane = job->lane;
    fl_device *d = lane->group->base.device;
    if (job->after != NULL) {
        FL_TRY(d->ops->stream_wait(d, lane->stream, job->after));
    }
    *result = job->begin(job);
    return check_result(lane, job->call, *result);
}

static fl_status advance_job(nccl_job *job, bool *ended)
{
    fl_nccl_result result = FL_NCCL_SUCCESS;
    fl_device *d = job->lane->group->base.device;
    FL_TRY(job->begun ? look_at_communicator(job->lane, &result) : begin_job(job, &result));
    *ended = result == FL_NCCL_SUCCESS;
    return *ended && job->done != NULL ? d->ops->event_record(d, job->done, job->lane->stream)
                                       : FL_OK;
}

/* ---- jobs, with the mutex ---- */

static void append_issued(nccl_lane *lane, nccl_job *job)
{
    *(lane->issued == NULL ? &lane->issued : &lane->last_issued->next) = job;
    lane->last_issued = job;
}

static void end_job(nccl_job *job, bool failed)
{
    nccl_lane *lane = job->lane;
    nccl_group *g = lane->group;
    lane->queued = job->next;
    job->next = NULL;
    bool runs = job->done != NULL && !job->captured;
    job->state = failed ? NCCL_FAILED : runs ? NCCL_ISSUED : NCCL_DONE;
    if (job->state == NCCL_ISSUED) {
        append_issued(lane, job);
    }
    if (!failed && job->finish != NULL) {
        job->finish(job);
    }
    pthread_cond_broadcast(&g->changed);
}

static void enter_call(nccl_group *g, nccl_lane *lane, const char *call, int64_t until_us)
{
    g->call = call;
    g->call_lane = lane;
    g->call_since_us = fl_now_us();
    g->call_until_us = until_us;
    pthread_mutex_unlock(&g->mutex);
}

static void leave_call(nccl_group *g)
{
    pthread_mutex_lock(&g->mutex);
    g->call_since_us = 0;
    pthread_cond_broadcast(&g->changed);
}

/* Whether something happened. */
static bool run_job(nccl_group *g, nccl_job *job)
{
    bool ended = false, was_begun = job->begun;
    nccl_lane *lane = job->lane;
    if (g->failed != FL_OK || lane->state >= NCCL_LANE_ABORTING) {
        end_job(job, true);
        return true;
    }
    enter_call(g, lane, was_begun ? "ncclCommGetAsyncError" : job->call, job->deadline_us);
    fl_status status = advance_job(job, &ended);
    leave_call(g);
    job->begun = true;
    if (status != FL_OK) {
        fl__nccl_break(g, status, "%s", fl_errmsg());
    }
    bool failed = status != FL_OK || lane->state >= NCCL_LANE_ABORTING;
    if (failed || ended) {
        lane->unmarked = lane->unmarked || (failed && job->done != NULL);
        end_job(job, failed);
        return true;
    }
    return !was_begun;
}

static bool run_jobs(nccl_group *g, bool *any)
{
    bool happened = false;
    *any = false;
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        happened = (lane->queued != NULL && run_job(g, lane->queued)) || happened;
        *any = *any || lane->queued != NULL;
    }
    return happened;
}

/* A communicator fails by itself, too: when one of its peers dies. */
static void look_for_errors(nccl_group *g)
{
    for (nccl_lane *lane = g->lanes; lane != NULL && g->failed == FL_OK; lane = lane->next) {
        if (lane->state != NCCL_LANE_OPEN || lane->queued != NULL) {
            continue;
        }
        fl_nccl_result result = FL_NCCL_SUCCESS;
        enter_call(g, lane, "ncclCommGetAsyncError",
                   fl__nccl_limit(g, fl_deadline_us(g->wait_timeout_ms)));
        fl_status status = look_at_communicator(lane, &result);
        leave_call(g);
        if (status != FL_OK) {
            fl__nccl_break(g, status, "%s", fl_errmsg());
        }
    }
}

static void *make_calls(void *argument)
{
    nccl_group *g = argument;
    fl_device *d = g->base.device;
    fl_native native;
    bool any = false;
    int64_t happened_us = fl_now_us();
    fl_thread_raise_priority(true);
    fl_status status = d->ops->stream_native(d, NULL, &native); /* the thread's device */
    pthread_mutex_lock(&g->mutex);
    if (status != FL_OK) {
        fl__nccl_break(g, status, "%s", fl_errmsg());
    }
    while (!g->stop || any) {
        if (run_jobs(g, &any)) {
            happened_us = fl_now_us();
            continue;
        }
        if (!any && !g->stop &&
            !fl_condition_wait_until(&g->work, &g->mutex, fl_now_us() + IDLE_US)) {
            fl__nccl_look_at_abort(g);
            look_for_errors(g);
        } else if (any) {
            fl_condition_wait_until(&g->work, &g->mutex, next_look_us(happened_us));
        }
    }
    g->caller_ended = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
    return NULL;
}

/* ---- the threads ---- */

fl_status fl__nccl_threads_start(nccl_group *g)
{
    if (!g->has_caller) {
        FL_TRY(fl_thread_start(&g->caller, make_calls, g, "the thread that calls NCCL"));
        g->has_caller = true;
    }
    if (!g->has_watcher) {
        FL_TRY(fl_thread_start(&g->watcher, fl__nccl_watch, g, "the thread that watches NCCL"));
        g->has_watcher = true;
    }
    return FL_OK;
}

bool fl__nccl_threads_stop(nccl_group *g)
{
    int64_t until_us = fl_deadline_us(STOP_MS);
    pthread_mutex_lock(&g->mutex);
    bool in_time = !g->stuck;
    g->stop = true;
    pthread_cond_broadcast(&g->work);
    pthread_cond_broadcast(&g->alarm);
    while (in_time &&
           ((g->has_caller && !g->caller_ended) || (g->has_watcher && !g->watcher_ended))) {
        in_time = fl_condition_wait_until(&g->changed, &g->mutex, until_us);
    }
    bool caller_ended = g->caller_ended, watcher_ended = g->watcher_ended;
    pthread_mutex_unlock(&g->mutex);
    if (g->has_caller) {
        (void)(caller_ended ? pthread_join(g->caller, NULL) : pthread_detach(g->caller));
    }
    if (g->has_watcher) {
        (void)(watcher_ended ? pthread_join(g->watcher, NULL) : pthread_detach(g->watcher));
    }
    return (!g->has_caller || caller_ended) && (!g->has_watcher || watcher_ended);
}

/* ---- for other threads ---- */

fl_status fl__nccl_job_queue(nccl_job *job, int64_t timeout_ms)
{
    nccl_lane *lane = job->lane;
    nccl_group *g = lane->group;
    pthread_mutex_lock(&g->mutex);
    bool free = job->state != NCCL_QUEUED && job->state != NCCL_ISSUED;
    bool sound = g->failed == FL_OK && lane->state < NCCL_LANE_ABORTING;
    if (free && sound) {
        job->state = NCCL_QUEUED;
        job->begun = false;
        job->awaited.kind = FL_FLIGHT_NONE;
        job->next = NULL;
        job->deadline_us =
            timeout_ms < 0 ? INT64_MAX : fl__nccl_limit(g, fl_deadline_us(timeout_ms));
        *(lane->queued == NULL ? &lane->queued : &lane->last_queued->next) = job;
        lane->last_queued = job;
        pthread_cond_signal(&g->work);
    }
    pthread_mutex_unlock(&g->mutex);
    return !free   ? fl_fail(FL_EINVAL, "%s: started again before it was waited for", job->call)
           : sound ? FL_OK
                   : fl__nccl_result(g, fl_fail(FL_ESTALE, "its communicator is closed"));
}

fl_status fl__nccl_job_note_issued(nccl_job *job, int64_t timeout_ms)
{
    nccl_lane *lane = job->lane;
    nccl_group *g = lane->group;
    pthread_mutex_lock(&g->mutex);
    bool sound = g->failed == FL_OK && lane->state < NCCL_LANE_ABORTING;
    if (sound) {
        job->state = NCCL_ISSUED;
        job->next = NULL;
        job->awaited.kind = FL_FLIGHT_NONE;
        job->deadline_us = fl__nccl_limit(g, fl_deadline_us(timeout_ms));
        append_issued(lane, job);
    }
    pthread_mutex_unlock(&g->mutex);
    return sound ? FL_OK : fl__nccl_result(g, fl_fail(FL_ESTALE, "its communicator is closed"));
}

void fl__nccl_job_await(nccl_job *job)
{
    nccl_group *g = job->lane->group;
    pthread_mutex_lock(&g->mutex);
    fl_flight_innermost(&job->awaited);
    pthread_mutex_unlock(&g->mutex);
}

bool fl__nccl_job_left(nccl_job *job, int64_t deadline_us)
{
    nccl_group *g = job->lane->group;
    while (job->state == NCCL_QUEUED) {
        if (!fl_condition_wait_until(&g->changed, &g->mutex, deadline_us)) {
            return job->state != NCCL_QUEUED;
        }
    }
    return true;
}

void fl__nccl_lane_late(nccl_lane *lane)
{
    char name[NCCL_LANE_TEXT];
    const nccl_job *issued = lane->issued, *queued = lane->queued;
    bool on_device =
        issued != NULL && (queued == NULL || issued->deadline_us <= queued->deadline_us);
    const nccl_job *late = on_device ? issued : queued;
    const nccl_group *g = lane->group;
    if (late != NULL && !on_device && !late->begun && g->call_since_us != 0) {
        /* Its turn has not come: the caller thread is in another call, or in this one. */
        fl__nccl_break(lane->group, FL_EDEADLINE, "%s: %s has not returned in time",
                       fl__nccl_lane_text(g->call_lane, name), g->call);
    } else if (late != NULL) {
        fl__nccl_break(lane->group, FL_EDEADLINE, "%s: %s has not %s in time",
                       fl__nccl_lane_text(lane, name), late->call,
                       on_device     ? "ended on the device"
                       : late->begun ? "ended"
                                     : "returned");
    }
}

/* Wait until the job is in `state` or past it; the deadline breaks the group. */
static fl_status await_state(nccl_job *job, nccl_job_state state, int64_t deadline_us)
{
    nccl_group *g = job->lane->group;
    deadline_us = fl__nccl_limit(g, deadline_us);
    int64_t since_us = fl_now_us();
    pthread_mutex_lock(&g->mutex);
    while (g->failed == FL_OK) {
        fl__nccl_lane_look(job->lane);
        bool is_queued = job->state == NCCL_QUEUED;
        if (job->state == NCCL_FAILED || (!is_queued && job->state != NCCL_ISSUED) ||
            (!is_queued && state == NCCL_ISSUED)) {
            break;
        }
        int64_t slice_us = is_queued ? fl_now_us() + SLICE_US : next_look_us(since_us);
        fl_condition_wait_until(&g->changed, &g->mutex,
                                slice_us < deadline_us ? slice_us : deadline_us);
        if (fl_now_us() >= deadline_us) {
            fl__nccl_lane_late(job->lane);
        }
    }
    bool failed = g->failed != FL_OK || job->state == NCCL_FAILED;
    pthread_mutex_unlock(&g->mutex);
    return failed ? fl__nccl_result(g, fl_fail(FL_ESTALE, "its communicator is closed")) : FL_OK;
}

void fl__nccl_enter(const nccl_lane *lane, fl_flight_kind kind)
{
    const nccl_group *g = lane->group;
    int peer = lane->n_members == 2 && g->workers != NULL
                   ? g->workers[lane->members[1 - lane->my_place]]
                   : -1;
    fl_flight_enter(kind, peer, -1, 0);
}

/* An operation that fails is not left: it shows where the thread came to. */
static fl_status await_recorded(nccl_job *job, nccl_job_state state, int64_t deadline_us)
{
    if (job->opens == FL_FLIGHT_NONE) {
        return await_state(job, state, deadline_us);
    }
    fl__nccl_enter(job->lane, job->opens);
    FL_TRY(await_state(job, state, deadline_us));
    fl_flight_leave();
    return FL_OK;
}

fl_status fl__nccl_job_issued(nccl_job *job, int64_t deadline_us)
{
    return await_recorded(job, NCCL_ISSUED, deadline_us);
}

fl_status fl__nccl_job_done(nccl_job *job, int64_t deadline_us)
{
    return await_recorded(job, NCCL_DONE, deadline_us);
}

void fl__nccl_lane_look(nccl_lane *lane)
{
    nccl_group *g = lane->group;
    fl_device *d = g->base.device;
    bool reached = true;
    while (lane->issued != NULL && reached) {
        nccl_job *job = lane->issued;
        fl_status status = d->ops->event_reached(d, job->done, &reached);
        if (status != FL_OK) {
            fl__nccl_break(g, status, "%s", fl_errmsg());
            return;
        }
        if (reached) {
            lane->issued = job->next;
            job->next = NULL;
            job->state = NCCL_DONE;
            pthread_cond_broadcast(&g->changed);
        }
    }
}
