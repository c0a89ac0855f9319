/* The parent: a communicator of all members, which carries nothing. The communicators of channels
 * and buckets are split off it (split.c), and then it waits in the worker's keeper for the next
 * group.
 *
 *     rebuild   ncclCommInitRankConfig, with an id from the first member
 *     split     the one that was kept, if its ranks are the members of this group
 *     shrink    ncclCommShrink of the one that was kept, if its ranks are these members and more
 *
 * It is never finalized: a rank that was lost, or that is no member any more, does not take part.
 * As it carries nothing, an abort only frees it. */
#include "autodp/nccl/nccl_group.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <string.h>

enum { RELEASE_MS = 1000 };

typedef struct nccl_kept {
    fl_nccl nccl;
    fl_nccl_handle comm;
    fl_device *device; /* borrowed: it lives longer than the keeper */
    uint32_t serial;
    int rank, n_ranks;
} nccl_kept;

/* ---- release, where no group takes it ---- */

typedef struct nccl_releaser {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    fl_nccl_handle comm;
    fl_nccl nccl;
    fl_device *device;
    bool done;
} nccl_releaser;

static void *abort_kept(void *argument)
{
    nccl_releaser *r = argument;
    fl_native native;
    fl_status status = r->device->ops->stream_native(r->device, NULL, &native); /* its device */
    (void)status; /* a device that has failed has no use for it */
    r->nccl.CommAbort(r->comm);
    pthread_mutex_lock(&r->mutex);
    r->done = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

static bool wait_for_release(nccl_releaser *r)
{
    int64_t until_us = fl_deadline_us(RELEASE_MS);
    bool in_time = true;
    pthread_mutex_lock(&r->mutex);
    while (!r->done && in_time) {
        in_time = fl_condition_wait_until(&r->changed, &r->mutex, until_us);
    }
    bool done = r->done;
    pthread_mutex_unlock(&r->mutex);
    return done;
}

/* An abort that does not return must not hold up the end of the worker. */
static void release_kept(void *kept)
{
    nccl_kept *k = kept;
    nccl_releaser *r = NULL;
    pthread_t thread;
    if (fl_alloc(sizeof *r, (void **)&r) != FL_OK) {
        fl_free(k);
        return;
    }
    *r = (nccl_releaser){.comm = k->comm, .nccl = k->nccl, .device = k->device};
    pthread_mutex_init(&r->mutex, NULL);
    fl_condition_init(&r->changed);
    fl_free(k);
    if (fl_thread_start(&thread, abort_kept, r, "the thread that ends a communicator") != FL_OK) {
        fl_free(r);
        return;
    }
    if (!wait_for_release(r)) {
        fl_log(FL_LOG_WARN,
               "ncclCommAbort has not returned within %d ms; its thread is left behind",
               RELEASE_MS);
        pthread_detach(thread);
        return; /* the thread uses it */
    }
    pthread_join(thread, NULL);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    fl_free(r);
}

/* ---- what is kept ---- */

fl_nccl_kept_facts fl__nccl_kept(const nccl_group *g)
{
    fl_nccl_kept_facts facts = {.serial = 0};
    const nccl_kept *k = g->keeper == NULL ? NULL : g->keeper->kept;
    if (k != NULL) {
        facts.serial = k->serial;
        facts.rank = k->rank;
        facts.n_ranks = k->n_ranks;
    }
    if (g->keeper != NULL) {
        memcpy(facts.took_us, g->keeper->took_us, sizeof facts.took_us);
    }
    return facts;
}

/* The lane has the communicator that was kept. */
static void take_kept(nccl_group *g, nccl_lane *lane)
{
    nccl_kept *k = g->keeper->kept;
    pthread_mutex_lock(&g->mutex);
    lane->comm = k->comm;
    lane->state = NCCL_LANE_OPEN;
    pthread_mutex_unlock(&g->mutex);
    g->keeper->kept = NULL;
    fl_free(k);
}

/* Nobody will use the one that was kept: the watch thread aborts it. */
static fl_status drop_kept(nccl_group *g)
{
    nccl_lane *lane = NULL;
    if (g->keeper->kept == NULL) {
        return FL_OK;
    }
    FL_TRY(fl__nccl_lane_create_parent(g, &lane));
    take_kept(g, lane);
    pthread_mutex_lock(&g->mutex);
    lane->abort_wanted = true;
    pthread_cond_signal(&g->alarm);
    pthread_mutex_unlock(&g->mutex);
    return FL_OK;
}

/* ---- shrink ---- */

static fl_nccl_result begin_revoke(nccl_job *job)
{
    return job->lane->group->nccl.CommRevoke(job->lane->comm, FL_NCCL_REVOKE_DEFAULT);
}

/* After a loss the communicator may have an error: a revoke, or the flag, clears that. */
static fl_nccl_result begin_shrink(nccl_job *job)
{
    nccl_lane *lane = job->lane;
    const nccl_group *g = lane->group;
    fl_nccl_config config = FL_NCCL_CONFIG_INIT;
    bool aborts = g->after_loss && g->nccl.CommRevoke == NULL;
    return g->nccl.CommShrink(lane->comm, lane->excluded, lane->n_excluded, &lane->child->comm,
                              &config, aborts ? FL_NCCL_SHRINK_ABORT : FL_NCCL_SHRINK_DEFAULT);
}

/* The ranks of the communicator that are no members of this group. */
static fl_status list_excluded(const nccl_group *g, nccl_lane *old)
{
    const fl_nccl_kept_facts *kept = g->survey.kept;
    int n = kept[0].n_ranks;
    FL_TRY(fl_alloc_array((size_t)n, sizeof *old->excluded, (void **)&old->excluded));
    for (int rank = 0; rank < n; rank++) {
        bool stays = false;
        for (int i = 0; i < g->survey.n; i++) {
            stays = stays || kept[i].rank == rank;
        }
        if (!stays) {
            old->excluded[old->n_excluded++] = rank;
        }
    }
    return FL_OK;
}

static fl_status shrink_kept(nccl_group *g, int64_t deadline_us)
{
    nccl_lane *old = NULL;
    FL_TRY(fl__nccl_lane_create_parent(g, &old));
    FL_TRY(list_excluded(g, old));
    FL_TRY(fl__nccl_lane_create_parent(g, &g->parent));
    take_kept(g, old);
    old->child = g->parent;
    old->revoke = (nccl_job){.lane = old,
                             .call = "ncclCommRevoke",
                             .opens = FL_FLIGHT_COMM_SHRINK,
                             .begin = begin_revoke};
    old->shrink = (nccl_job){.lane = old,
                             .call = "ncclCommShrink",
                             .opens = FL_FLIGHT_COMM_SHRINK,
                             .begin = begin_shrink};
    if (g->after_loss && g->nccl.CommRevoke != NULL) {
        FL_TRY(fl__nccl_job_queue(&old->revoke, g->open_timeout_ms));
    }
    FL_TRY(fl__nccl_job_queue(&old->shrink, g->open_timeout_ms));
    FL_TRY(fl__nccl_job_done(&old->shrink, deadline_us));
    FL_TRY(fl__nccl_lane_adopt(g->parent));
    FL_TRY(fl__nccl_job_done(&g->parent->adopt, deadline_us));
    pthread_mutex_lock(&g->mutex);
    old->abort_wanted = true;
    pthread_cond_signal(&g->alarm);
    pthread_mutex_unlock(&g->mutex);
    return FL_OK;
}

/* ---- the parent ---- */

static fl_status open_fresh(nccl_group *g, int64_t deadline_us)
{
    FL_TRY(drop_kept(g));
    FL_TRY(fl__nccl_lane_create_parent(g, &g->parent));
    FL_TRY(fl__nccl_lane_open_by_id(g->parent));
    FL_TRY(fl__nccl_lane_begin(g->parent, deadline_us));
    return fl__nccl_lane_connected(g->parent, deadline_us);
}

static fl_status use_kept(nccl_group *g)
{
    FL_TRY(fl__nccl_lane_create_parent(g, &g->parent));
    take_kept(g, g->parent);
    return FL_OK;
}

fl_status fl__nccl_parent_open(nccl_group *g, int64_t deadline_us)
{
    fl_group_comm *comm = &g->base.comm;
    if (comm->n_device_pairs == 0) {
        return FL_OK;
    }
    comm->way = FL_COMM_REBUILD;
    if (g->keeper == NULL || comm->n_device_pairs != comm->n_pairs) {
        return FL_OK;
    }
    int64_t begun_us = fl_now_us();
    comm->way = fl_nccl_survey_way(&g->survey);
    FL_TRY(comm->way == FL_COMM_SPLIT    ? use_kept(g)
           : comm->way == FL_COMM_SHRINK ? shrink_kept(g, deadline_us)
                                         : open_fresh(g, deadline_us));
    comm->us = fl_now_us() - begun_us;
    return FL_OK;
}

fl_status fl__nccl_parent_keep(nccl_group *g)
{
    const fl_group_comm *comm = &g->base.comm;
    nccl_kept *k = NULL;
    if (g->parent == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *k, (void **)&k));
    *k = (nccl_kept){.nccl = g->nccl, .device = g->base.device, .n_ranks = g->base.size};
    bool same = comm->way == FL_COMM_SPLIT;
    const fl_nccl_kept_facts *before = &g->survey.kept[g->base.index];
    k->serial = same ? before->serial : g->base.generation;
    /* A shrunk communicator has the ranks that stay in their order; a fresh one has the members'.
     */
    k->rank = same ? before->rank : g->base.index;
    for (int i = 0; comm->way == FL_COMM_SHRINK && i < g->survey.n; i++) {
        k->rank = i == 0 ? 0 : k->rank;
        k->rank += g->survey.kept[i].rank < before->rank;
    }
    pthread_mutex_lock(&g->mutex);
    bool open = g->parent->state == NCCL_LANE_OPEN;
    k->comm = g->parent->comm;
    if (open) {
        g->parent->comm = NULL;
        g->parent->state = NCCL_LANE_CLOSED;
    }
    g->parent = NULL; /* lanes that come later open with ids of their own */
    pthread_mutex_unlock(&g->mutex);
    if (!open) {
        fl_free(k); /* the group is broken */
        return fl__nccl_state(g);
    }
    g->keeper->kept = k;
    g->keeper->release = release_kept;
    g->keeper->took_us[comm->way] = fl_comm_time_mixed(g->keeper->took_us[comm->way], comm->us);
    g->keeper = NULL;
    return FL_OK;
}
