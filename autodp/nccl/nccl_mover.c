/* State over NCCL: a lane of two members, and an operation for each piece, from where it lies to
 * where it belongs. The lane opens and connects with those of channels and buckets, beside the
 * running generation, and ends once the state has moved. */
#include "autodp/nccl/nccl_group.h"

#include "device/system/alloc.h"

typedef struct nccl_mover {
    fl_mover base;
    nccl_lane *lane;
    nccl_job *job; /* [n_pieces] */
} nccl_mover;

static nccl_group *group_of(const nccl_mover *m)
{
    return (nccl_group *)m->base.group;
}

/* ---- on the caller thread ---- */

static fl_nccl_result begin_out(nccl_job *job)
{
    const nccl_lane *lane = job->lane;
    return lane->group->nccl.Send(job->from, job->count, FL_NCCL_UINT8, 1, lane->comm,
                                  lane->native);
}

static fl_nccl_result begin_in(nccl_job *job)
{
    const nccl_lane *lane = job->lane;
    return lane->group->nccl.Recv(job->to, job->count, FL_NCCL_UINT8, 0, lane->comm, lane->native);
}

/* ---- open and close ---- */

static fl_status set_up(nccl_mover *m)
{
    nccl_group *g = group_of(m);
    fl_device *d = g->base.device;
    int from = m->base.sending ? g->base.index : m->base.peer;
    int members[] = {from, m->base.sending ? m->base.peer : g->base.index};
    FL_TRY(fl_alloc_array((size_t)m->base.n_pieces, sizeof *m->job, (void **)&m->job));
    for (int i = 0; i < m->base.n_pieces; i++) {
        m->job[i] = (nccl_job){.call = m->base.sending ? "ncclSend" : "ncclRecv",
                               .begin = m->base.sending ? begin_out : begin_in};
        FL_TRY(d->ops->event_create(d, &m->job[i].done));
    }
    nccl_lane *lane = NULL;
    FL_TRY(fl__nccl_result(g, fl__nccl_lane_create(g, 0, NCCL_STATE, members, 2, &lane)));
    for (int i = 0; i < m->base.n_pieces; i++) {
        m->job[i].lane = lane;
    }
    m->lane = lane;
    return FL_OK;
}

void fl__nccl_mover_close(fl_mover *mover)
{
    nccl_mover *m = (nccl_mover *)mover;
    fl_device *d = mover->group->device;
    if (m->lane != NULL && !fl__nccl_lane_quiet(m->lane)) {
        return; /* a thread that does not come back uses it */
    }
    if (m->lane != NULL) {
        fl__nccl_lane_leave(m->lane);
    }
    for (int i = 0; m->job != NULL && i < mover->n_pieces; i++) {
        fl_device_event_destroy(d, &m->job[i].done);
    }
    fl_free(m->job);
    fl_free(m);
}

fl_status fl__nccl_mover_open(const fl_mover *common, fl_mover **out)
{
    nccl_group *g = (nccl_group *)common->group;
    nccl_mover *m = NULL;
    *out = NULL;
    if (!fl_nccl_survey_pair(&g->survey, common->peer, g->base.index)) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *m, (void **)&m));
    m->base = *common;
    fl_status status = set_up(m);
    if (status != FL_OK) {
        fl__nccl_mover_close(&m->base);
        return status;
    }
    *out = &m->base;
    return FL_OK;
}

/* ---- pieces ---- */

fl_status fl__nccl_mover_start(fl_mover *mover, void *data, size_t size_bytes)
{
    nccl_mover *m = (nccl_mover *)mover;
    nccl_group *g = group_of(m);
    nccl_job *job = &m->job[mover->n_started];
    FL_TRY(fl__nccl_state(g));
    job->from = job->to = data;
    job->count = size_bytes;
    return fl__nccl_job_queue(job, g->wait_timeout_ms);
}

fl_status fl__nccl_mover_wait(fl_mover *mover, int64_t deadline_us)
{
    nccl_mover *m = (nccl_mover *)mover;
    nccl_group *g = group_of(m);
    FL_TRY(fl__nccl_state(g));
    return fl__nccl_job_done(&m->job[mover->n_ended], fl__nccl_wait_limit(g, deadline_us));
}
