/* A lane: a communicator of some members with a stream of its own.
 *
 *     first member                     the others
 *     ncclGetUniqueId
 *     tells them the id  ---------->   receive it when they first need the lane
 *     ncclCommInitRankConfig           ncclCommInitRankConfig
 *     first operation    <--------->   first operation: NCCL connects the ranks here, not in a step
 *     ...
 *     ncclCommFinalize   <--------->   ncclCommFinalize: nothing is on its way any more
 *     ncclCommDestroy                  ncclCommDestroy
 *
 * Only the receipt of the id waits, for what the first member sends without waiting, so members may
 * open their lanes in any order. */
#include "autodp/nccl/nccl_group.h"
#include "autodp/net/tag.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>

enum { SCRATCH_BYTES = 64, FINALIZE_MS = 1000 };

/* ---- calls, on the caller thread ---- */

static fl_nccl_result identify_lane(nccl_job *job)
{
    return job->lane->group->nccl.GetUniqueId(&job->lane->unique_id);
}

static fl_nccl_result open_lane(nccl_job *job)
{
    nccl_lane *lane = job->lane;
    fl_nccl_config config = FL_NCCL_CONFIG_INIT;
    return lane->group->nccl.CommInitRankConfig(&lane->comm, lane->n_members, lane->unique_id,
                                                lane->my_place, &config);
}

/* What was split off or shrunk is polled like any other call. */
static fl_nccl_result adopt_lane(nccl_job *job)
{
    return job->lane->comm == NULL ? FL_NCCL_INTERNAL_ERROR : FL_NCCL_IN_PROGRESS;
}

static fl_nccl_result connect_lane(nccl_job *job)
{
    nccl_lane *lane = job->lane;
    const fl_nccl *nccl = &lane->group->nccl;
    if (lane->kind == NCCL_BUCKETS) {
        return nccl->AllReduce(lane->scratch, lane->scratch, 1, FL_NCCL_FLOAT32, FL_NCCL_SUM,
                               lane->comm, lane->native);
    }
    return lane->my_place == 0
               ? nccl->Send(lane->scratch, 1, FL_NCCL_UINT8, 1, lane->comm, lane->native)
               : nccl->Recv(lane->scratch, 1, FL_NCCL_UINT8, 0, lane->comm, lane->native);
}

static void note_connected(nccl_job *job)
{
    job->lane->state = NCCL_LANE_OPEN;
}

static fl_nccl_result finalize_lane(nccl_job *job)
{
    return job->lane->group->nccl.CommFinalize(job->lane->comm);
}

/* The communicator is freed once, by this thread or by the watch: by who takes it under the mutex.
 * Afterwards it cannot be asked whether it is gone. */
static fl_nccl_result destroy_lane(nccl_job *job)
{
    nccl_lane *lane = job->lane;
    nccl_group *g = lane->group;
    pthread_mutex_lock(&g->mutex);
    fl_nccl_handle comm = lane->state < NCCL_LANE_ABORTING ? lane->comm : NULL;
    lane->comm = comm != NULL ? NULL : lane->comm;
    pthread_mutex_unlock(&g->mutex);
    fl_nccl_result result = comm != NULL ? g->nccl.CommDestroy(comm) : FL_NCCL_SUCCESS;
    return result == FL_NCCL_IN_PROGRESS ? FL_NCCL_SUCCESS : result;
}

static void note_destroyed(nccl_job *job)
{
    job->lane->state = NCCL_LANE_CLOSED;
}

static void prepare_jobs(nccl_lane *lane)
{
    lane->identify = (nccl_job){.lane = lane,
                                .call = "ncclGetUniqueId",
                                .opens = FL_FLIGHT_COMM_ID,
                                .begin = identify_lane};
    lane->open = (nccl_job){.lane = lane,
                            .call = "ncclCommInitRankConfig",
                            .opens = FL_FLIGHT_COMM_INIT,
                            .begin = open_lane};
    lane->adopt = (nccl_job){.lane = lane,
                             .call = "a new communicator",
                             .opens = FL_FLIGHT_COMM_SHRINK,
                             .begin = adopt_lane};
    if (lane->kind == NCCL_PARENT) {
        lane->open.finish = lane->adopt.finish = note_connected;
    }
    lane->connect = (nccl_job){.lane = lane,
                               .call = "the first operation",
                               .opens = FL_FLIGHT_COMM_CONNECT,
                               .begin = connect_lane,
                               .finish = note_connected,
                               .done = lane->connect.done};
    lane->finalize = (nccl_job){.lane = lane, .call = "ncclCommFinalize", .begin = finalize_lane};
    lane->destroy = (nccl_job){
        .lane = lane, .call = "ncclCommDestroy", .begin = destroy_lane, .finish = note_destroyed};
}

/* ---- opening ---- */

static uint64_t tag_of(const nccl_lane *lane)
{
    static const fl_tag_kind kinds[] = {[NCCL_MESSAGES] = FL_TAG_NCCL_CHANNEL,
                                        [NCCL_BUCKETS] = FL_TAG_NCCL_BUCKET,
                                        [NCCL_STATE] = FL_TAG_NCCL_STATE,
                                        [NCCL_PARENT] = FL_TAG_NCCL_PARENT};
    return fl_tag(kinds[lane->kind], lane->id);
}

static fl_status open_jobs_queue(nccl_lane *lane, nccl_job *first)
{
    nccl_group *g = lane->group;
    pthread_mutex_lock(&g->mutex);
    lane->state = lane->state == NCCL_LANE_NEW ? NCCL_LANE_OPENING : lane->state;
    pthread_mutex_unlock(&g->mutex);
    FL_TRY(fl__nccl_job_queue(first, g->open_timeout_ms));
    return lane->kind == NCCL_PARENT ? FL_OK
                                     : fl__nccl_job_queue(&lane->connect, g->open_timeout_ms);
}

fl_status fl__nccl_lane_adopt(nccl_lane *lane)
{
    lane->begun = true;
    return open_jobs_queue(lane, &lane->adopt);
}

static fl_status tell_id(nccl_lane *lane)
{
    nccl_group *g = lane->group;
    FL_TRY(fl__nccl_job_queue(&lane->identify, g->open_timeout_ms));
    FL_TRY(fl__nccl_job_issued(&lane->identify, fl_deadline_us(g->open_timeout_ms)));
    for (int place = 1; place < lane->n_members; place++) {
        FL_TRY(fl_net_buffer_create(g->net, &lane->unique_id, sizeof lane->unique_id,
                                    &lane->told[place]));
        FL_TRY(fl_net_send(lane->told[place], lane->members[place], tag_of(lane), 0,
                           sizeof lane->unique_id));
    }
    return open_jobs_queue(lane, &lane->open);
}

static fl_status expect_id(nccl_lane *lane)
{
    FL_TRY(fl_net_buffer_create(lane->group->net, &lane->unique_id, sizeof lane->unique_id,
                                &lane->told[0]));
    return fl_net_recv(lane->told[0], lane->members[0], tag_of(lane), 0, sizeof lane->unique_id);
}

static fl_status create_parts(nccl_lane *lane, const int *members)
{
    fl_device *d = lane->group->base.device;
    size_t n = (size_t)lane->n_members;
    fl_native native;
    FL_TRY(fl_alloc_array(n, sizeof *lane->members, (void **)&lane->members));
    FL_TRY(fl_alloc_array(n, sizeof(fl_net_buffer *), (void **)&lane->told));
    memcpy(lane->members, members, n * sizeof *members);
    if (lane->kind == NCCL_PARENT) {
        return FL_OK;
    }
    FL_TRY(d->ops->stream_create(d, &lane->stream));
    FL_TRY(d->ops->stream_native(d, lane->stream, &native));
    lane->native = native.stream;
    FL_TRY(d->ops->event_create(d, &lane->connect.done));
    return d->ops->memory_take(d, SCRATCH_BYTES, &lane->scratch);
}

static void free_lane(nccl_lane *lane)
{
    fl_device *d = lane->group->base.device;
    if (lane->scratch != NULL) {
        d->ops->memory_give(d, lane->scratch, SCRATCH_BYTES);
    }
    fl_device_event_destroy(d, &lane->connect.done);
    if (lane->stream != NULL) {
        d->ops->stream_destroy(d, &lane->stream);
    }
    fl_free(lane->told);
    fl_free(lane->members);
    fl_free(lane->excluded);
    fl_free(lane);
}

static int place_of(const int *members, int n, int index)
{
    int place = 0;
    while (place < n && members[place] != index) {
        place++;
    }
    return place;
}

/* From here on the lane is the group's, also after a failure. */
static fl_status add_lane(nccl_lane *values, const int *members, nccl_lane **out)
{
    nccl_group *g = values->group;
    nccl_lane *lane = NULL;
    FL_TRY(fl__nccl_threads_start(g));
    FL_TRY(fl_alloc(sizeof *lane, (void **)&lane));
    *lane = *values;
    lane->my_place = place_of(members, lane->n_members, g->base.index);
    fl_status status = create_parts(lane, members);
    if (status != FL_OK) {
        free_lane(lane);
        return status;
    }
    prepare_jobs(lane);
    pthread_mutex_lock(&g->mutex);
    lane->next = g->lanes;
    g->lanes = lane;
    pthread_mutex_unlock(&g->mutex);
    *out = lane;
    return FL_OK;
}

fl_status fl__nccl_lane_open_by_id(nccl_lane *lane)
{
    lane->begun = true;
    return lane->my_place == 0 ? tell_id(lane) : expect_id(lane);
}

fl_status fl__nccl_lane_create(nccl_group *g, uint32_t id, nccl_lane_kind kind, const int *members,
                               int n_members, nccl_lane **out)
{
    nccl_lane values = {.group = g, .id = id, .kind = kind, .n_members = n_members};
    nccl_lane *lane = NULL;
    FL_TRY(add_lane(&values, members, &lane));
    fl_status status = g->parent != NULL ? FL_OK : fl__nccl_lane_open_by_id(lane);
    if (status != FL_OK) {
        lane->kind = NCCL_MESSAGES; /* no other bucket finds it */
        return status;
    }
    *out = lane;
    return FL_OK;
}

fl_status fl__nccl_lane_create_parent(nccl_group *g, nccl_lane **out)
{
    nccl_lane values = {.group = g, .kind = NCCL_PARENT, .n_members = g->base.size};
    int *members = NULL;
    FL_TRY(fl_alloc_array((size_t)g->base.size, sizeof *members, (void **)&members));
    for (int i = 0; i < g->base.size; i++) {
        members[i] = i;
    }
    fl_status status = add_lane(&values, members, out);
    fl_free(members);
    return status;
}

const char *fl__nccl_lane_text(const nccl_lane *lane, char text[NCCL_LANE_TEXT])
{
    if (lane->kind == NCCL_PARENT) {
        snprintf(text, NCCL_LANE_TEXT, "the communicator of all members");
    } else if (lane->kind == NCCL_STATE) {
        snprintf(text, NCCL_LANE_TEXT, "state from member %d to %d", lane->members[0],
                 lane->members[1]);
    } else if (lane->kind == NCCL_BUCKETS) {
        fl_bucket_text(lane->id, text);
    } else {
        snprintf(text, NCCL_LANE_TEXT, "channel %u", lane->id);
    }
    return text;
}

fl_status fl__nccl_lane_begin(nccl_lane *lane, int64_t deadline_us)
{
    if (!lane->begun) {
        FL_TRY(fl__nccl_lane_open_by_id(lane)); /* it is used before the group is connected */
    }
    if (lane->my_place == 0 || lane->told[0] == NULL) {
        return FL_OK;
    }
    fl__nccl_enter(lane, FL_FLIGHT_COMM_ID);
    fl_status status = fl__nccl_result(lane->group, fl_net_wait_recv(lane->told[0], deadline_us));
    fl_net_buffer_destroy(&lane->told[0]);
    FL_TRY(status);
    fl_flight_leave();
    return open_jobs_queue(lane, &lane->open);
}

fl_status fl__nccl_lane_connected(nccl_lane *lane, int64_t deadline_us)
{
    FL_TRY(fl__nccl_lane_begin(lane, deadline_us));
    return fl__nccl_job_done(lane->kind == NCCL_PARENT ? &lane->open : &lane->connect, deadline_us);
}

/* ---- closing ---- */

static nccl_lane_state state_of(nccl_lane *lane)
{
    pthread_mutex_lock(&lane->group->mutex);
    nccl_lane_state state = lane->state;
    pthread_mutex_unlock(&lane->group->mutex);
    return state;
}

static bool is_stuck(nccl_group *g)
{
    pthread_mutex_lock(&g->mutex);
    bool stuck = g->stuck;
    pthread_mutex_unlock(&g->mutex);
    return stuck;
}

static bool has_work(nccl_lane *lane)
{
    nccl_group *g = lane->group;
    pthread_mutex_lock(&g->mutex);
    if (g->failed == FL_OK) {
        fl__nccl_lane_look(lane);
    }
    bool any = lane->queued != NULL || lane->issued != NULL || lane->unmarked;
    pthread_mutex_unlock(&g->mutex);
    return any;
}

bool fl__nccl_lane_quiet(nccl_lane *lane)
{
    nccl_group *g = lane->group;
    fl_device *d = g->base.device;
    if (!has_work(lane)) {
        return !is_stuck(g);
    }
    if (!fl__nccl_lane_abort(lane)) {
        return false;
    }
    fl_status same = d->ops->sync(d, lane->stream);
    (void)same; /* a device that has failed goes on failing */
    pthread_mutex_lock(&g->mutex);
    for (nccl_job *job = lane->issued; job != NULL; job = job->next) {
        job->state = NCCL_FAILED;
    }
    lane->issued = NULL;
    lane->unmarked = false;
    pthread_mutex_unlock(&g->mutex);
    return true;
}

void fl__nccl_lane_leave(nccl_lane *lane)
{
    bool ends = state_of(lane) == NCCL_LANE_OPEN && fl__nccl_state(lane->group) == FL_OK;
    fl_status status = ends ? fl__nccl_job_queue(&lane->finalize, -1) : FL_OK;
    status = ends && status == FL_OK ? fl__nccl_job_queue(&lane->destroy, -1) : status;
    (void)status; /* of a group that has broken: the lane is aborted */
}

/* Queue a job of each open lane, and wait until all of them have ended. */
static void run_on_all(nccl_group *g, size_t job_at, int64_t until_us)
{
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        nccl_job *job = (nccl_job *)(void *)((char *)lane + job_at);
        bool ends = lane->kind != NCCL_PARENT && state_of(lane) == NCCL_LANE_OPEN;
        fl_status status = ends ? fl__nccl_job_queue(job, -1) : FL_OK;
        (void)status; /* of a group that has broken: the lane is aborted */
    }
    pthread_mutex_lock(&g->mutex);
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        nccl_job *job = (nccl_job *)(void *)((char *)lane + job_at);
        if (!fl__nccl_job_left(job, until_us) || job->state == NCCL_FAILED) {
            lane->abort_wanted = true;
        }
    }
    pthread_cond_signal(&g->alarm);
    pthread_mutex_unlock(&g->mutex);
}

bool fl__nccl_lanes_end(nccl_group *g)
{
    bool all = true;
    if (fl__nccl_state(g) == FL_OK) {
        pthread_mutex_lock(&g->mutex);
        g->closing = true;
        pthread_mutex_unlock(&g->mutex);
        run_on_all(g, offsetof(nccl_lane, finalize), fl_deadline_us(FINALIZE_MS));
        run_on_all(g, offsetof(nccl_lane, destroy), fl_deadline_us(2 * FINALIZE_MS));
    }
    for (nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        /* A parent that is still here is aborted: peers without it do not finalize theirs. */
        all = (state_of(lane) == NCCL_LANE_CLOSED || fl__nccl_lane_abort(lane)) && all;
        for (int place = 0; place < lane->n_members; place++) {
            fl_net_buffer_destroy(&lane->told[place]);
        }
    }
    return all;
}

void fl__nccl_lanes_free(nccl_group *g)
{
    while (g->lanes != NULL) {
        nccl_lane *lane = g->lanes;
        g->lanes = lane->next;
        free_lane(lane);
    }
    fl_free(g->rounds);
}
