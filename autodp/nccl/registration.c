/* Buffers that are registered with NCCL, so that its other ranks, and network interfaces, reach
 * them directly: without that, NCCL copies through buffers of its own.
 *
 *     noted       by each bucket and channel, when it gets its lane
 *     connected   all members tell each other whether they can, and what it took the last time
 *     registered  on all members; if one fails, all undo it: NCCL wants all ranks, or none
 *     given up    before the buffer is given back, and so before its communicator ends
 *
 * Registration belongs to the preparation of a generation, beside the running one: it costs time
 * there, and memory of the driver, and a step none of both. */
#include "autodp/nccl/registration.h"
#include "autodp/nccl/nccl_group.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

/* NCCL moves smaller messages by protocols that copy in any case. */
enum { LEAST_BYTES = 64 * 1024 };

/* A generation should earn within so many steps what its registration took. What a step saves is at
 * least one copy of each byte within the device, at about 10^6 bytes in a microsecond. */
enum { STEPS_TO_EARN = 1000, COPY_BYTES_PER_US = 1000000 };

bool fl_nccl_registration_pays(int64_t took_us, int64_t of_bytes, int64_t bytes)
{
    if (took_us <= 0 || of_bytes <= 0) {
        return true; /* nobody has measured it */
    }
    double cost_us = (double)took_us * (double)bytes / (double)of_bytes;
    double saved_us = (double)STEPS_TO_EARN * (double)bytes / COPY_BYTES_PER_US;
    return cost_us <= saved_us;
}

/* ---- on the caller thread ---- */

/* A refusal ends no group: the buffer is used as it is. */
static fl_nccl_result begin_take(nccl_job *job)
{
    nccl_registration *r = job->owner;
    const fl_nccl *nccl = &r->lane->group->nccl;
    fl_nccl_result result = nccl->CommRegister(r->lane->comm, r->data, r->size_bytes, &r->handle);
    r->held = result == FL_NCCL_SUCCESS;
    if (!r->held) {
        char name[NCCL_LANE_TEXT];
        fl_log(FL_LOG_WARN, "%s: ncclCommRegister: %s", fl__nccl_lane_text(r->lane, name),
               nccl->GetErrorString(result));
    }
    return FL_NCCL_SUCCESS;
}

static fl_nccl_result begin_give(nccl_job *job)
{
    nccl_registration *r = job->owner;
    r->held = false;
    return r->lane->group->nccl.CommDeregister(r->lane->comm, r->handle);
}

/* ---- one buffer ---- */

void fl__nccl_register_note(nccl_registration *r, nccl_lane *lane, void *data, size_t size_bytes)
{
    nccl_group *g = lane->group;
    if (size_bytes < LEAST_BYTES) {
        return;
    }
    *r = (nccl_registration){.lane = lane, .data = data, .size_bytes = size_bytes};
    r->take = (nccl_job){.lane = lane, .call = "ncclCommRegister", .begin = begin_take, .owner = r};
    r->give =
        (nccl_job){.lane = lane, .call = "ncclCommDeregister", .begin = begin_give, .owner = r};
    r->next = g->registrations;
    g->registrations = r;
}

static fl_status end_registration(nccl_registration *r)
{
    nccl_group *g = r->lane->group;
    FL_TRY(fl__nccl_job_queue(&r->give, g->wait_timeout_ms));
    return fl__nccl_job_issued(&r->give, fl_deadline_us(g->wait_timeout_ms));
}

bool fl__nccl_unregister(nccl_registration *r)
{
    if (r->lane == NULL) {
        return true;
    }
    nccl_registration **at = &r->lane->group->registrations;
    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
    bool done = !r->held || end_registration(r) == FL_OK || fl__nccl_lane_abort(r->lane);
    r->lane = done ? NULL : r->lane;
    return done;
}

/* ---- all of them ---- */

static int64_t count_bytes(const nccl_group *g)
{
    int64_t bytes = 0;
    for (const nccl_registration *r = g->registrations; r != NULL; r = r->next) {
        bytes += (int64_t)r->size_bytes;
    }
    return bytes;
}

/* What all members find, the same on all of them. */
static fl_status choose(nccl_group *g, int64_t deadline_us, fl_comm_registration *out)
{
    enum { BYTES, NO_LIBRARY, NO_MEMORY, TOOK_US, OF_BYTES, N };
    double number[N] = {0};
    fl_native native = {0};
    fl_device *d = g->base.device;
    if (g->registrations != NULL) {
        FL_TRY(d->ops->stream_native(d, NULL, &native));
        number[BYTES] = (double)count_bytes(g);
        number[NO_LIBRARY] = g->nccl.CommRegister == NULL || g->nccl.CommDeregister == NULL;
        number[NO_MEMORY] = !native.registers;
    }
    if (g->keeper != NULL) {
        number[TOOK_US] = (double)g->keeper->register_us;
        number[OF_BYTES] = (double)g->keeper->registered_bytes;
    }
    FL_TRY(fl__nccl_result(g, fl_group_all_reduce(g->host, number, N, deadline_us)));
    bool pays = fl_nccl_registration_pays((int64_t)number[TOOK_US], (int64_t)number[OF_BYTES],
                                          (int64_t)number[BYTES]);
    *out = number[BYTES] == 0.0       ? FL_REGISTERED_NONE
           : number[NO_LIBRARY] > 0.0 ? FL_REGISTERED_NO_LIBRARY
           : number[NO_MEMORY] > 0.0  ? FL_REGISTERED_NO_MEMORY
           : pays                     ? FL_REGISTERED_ALL
                                      : FL_REGISTERED_TOO_DEAR;
    return FL_OK;
}

static fl_status take_all(nccl_group *g, int64_t deadline_us, double *n_refused)
{
    for (nccl_registration *r = g->registrations; r != NULL; r = r->next) {
        FL_TRY(fl__nccl_job_queue(&r->take, g->open_timeout_ms));
    }
    for (nccl_registration *r = g->registrations; r != NULL; r = r->next) {
        FL_TRY(fl__nccl_job_issued(&r->take, deadline_us));
        *n_refused += !r->held;
    }
    return FL_OK;
}

static fl_status give_all(nccl_group *g)
{
    for (nccl_registration *r = g->registrations; r != NULL; r = r->next) {
        FL_TRY(r->held ? end_registration(r) : FL_OK);
    }
    return FL_OK;
}

static void note_registered(nccl_group *g, int64_t us)
{
    fl_group_comm *comm = &g->base.comm;
    for (const nccl_registration *r = g->registrations; r != NULL; r = r->next) {
        comm->n_registered++;
        comm->registered_bytes += (int64_t)r->size_bytes;
    }
    comm->register_us = us;
    if (g->keeper != NULL && comm->n_registered > 0) {
        g->keeper->register_us = us > 0 ? us : 1;
        g->keeper->registered_bytes = comm->registered_bytes;
    }
}

fl_status fl__nccl_register_all(nccl_group *g, int64_t deadline_us)
{
    double n_refused = 0;
    if (g->base.comm.n_device_pairs == 0) {
        return FL_OK;
    }
    FL_TRY(choose(g, deadline_us, &g->base.comm.registration));
    if (g->base.comm.registration != FL_REGISTERED_ALL) {
        return FL_OK;
    }
    int64_t begun_us = fl_now_us();
    FL_TRY(take_all(g, deadline_us, &n_refused));
    int64_t took_us = fl_now_us() - begun_us;
    FL_TRY(fl__nccl_result(g, fl_group_all_reduce(g->host, &n_refused, 1, deadline_us)));
    if (n_refused > 0.0) {
        g->base.comm.registration = FL_REGISTERED_FAILED;
        return give_all(g);
    }
    note_registered(g, took_us);
    return FL_OK;
}
