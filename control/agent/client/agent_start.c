/* How the controller has its agent start workers. */
#include "control/agent/client/agent_client_state.h"

#include "control/agent/join/awaited.h"
#include "control/agent/join/wait_record.h"
#include "control/agent/process/signals.h"
#include "device/system/clock.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

enum {
    START_MS = 30000,      /* for the processes of all workers */
    JOIN_SLACK_MS = 10000, /* beyond the time after which the gate gives hosts up */
    SIGNAL_MS = 200,       /* between two looks whether the user has given up waiting for them */
};

/* The controller takes signals later: those of a wait for hosts are pending. A client that ends the
 * wait leaves its request in the run directory. */
static bool is_given_up(const fl_agent *agent)
{
    return fl_signals_pending_stop() != 0 ||
           (agent->awaits_hosts && fl_wait_record_is_stopped(agent->dir_fd));
}

/* Whether the agent has something to report before the deadline. */
static bool await_report(const fl_agent *agent, int64_t deadline_us, const char **why)
{
    bool readable = false, given_up = false;
    while (agent->awaits_hosts && !readable && !given_up && fl_left_ms(deadline_us) > 0) {
        given_up = is_given_up(agent);
        readable = !given_up && fl__agent_wait_readable(agent->socket, fl_deadline_us(SIGNAL_MS));
    }
    *why = given_up ? "stopped before all hosts had joined" : "the agent does not answer";
    return readable || (!given_up && fl__agent_wait_readable(agent->socket, deadline_us));
}

/* Whether the host of this worker had joined, and was lost before it started the worker: a loss as
 * one of a worker that runs. One that says that it cannot take part must be mended first. */
static bool is_lost_with_host(const fl_agent *agent, fl_worker *w)
{
    int i = agent->hosts == NULL ? -1 : fl_hosts_of(agent->hosts, w->rank);
    const fl_host_record *record = i < 0 ? NULL : &agent->host_records[i];
    bool lost =
        record != NULL && w->host_why[0] != '\0' && record->joined_us != 0 && !record->unfit;
    if (lost) {
        w->wait_status = SIGKILL;
    }
    return lost;
}

/* A worker of a host that has not joined, or that cannot start it: the host is the reason.
 * FL_EINVAL if it cannot take part before a user corrects something there. */
static fl_status refuse_start(const fl_agent *agent, int rank, const char *why)
{
    int i =
        agent->hosts == NULL || agent->host_records == NULL ? -1 : fl_hosts_of(agent->hosts, rank);
    const fl_host_record *record = i < 0 ? NULL : &agent->host_records[i];
    if (record == NULL || record->why[0] == '\0') {
        return fl_fail(FL_EFAILED, "cannot start worker %d of %d: %s", rank, agent->n_workers, why);
    }
    return fl_fail(record->unfit ? FL_EINVAL : FL_EFAILED,
                   "cannot start worker %d of %d on host %s (%s): %s", rank, agent->n_workers,
                   agent->hosts->host[i].name, agent->hosts->host[i].address, record->why);
}

/* Frames of several workers may still be on their way; the first missing one is named. */
static fl_status await_processes(fl_agent *agent, int64_t deadline_us)
{
    for (int rank = 0; rank < agent->n_workers;) {
        fl_worker *w = &agent->workers[rank];
        char lost[160];
        const char *why = lost;
        if (w->pid > 0 || w->departed || is_lost_with_host(agent, w)) {
            rank++;
            continue;
        }
        bool waits = w->spawn_error == 0 && !fl_agent_is_lost(agent, lost, sizeof lost) &&
                     await_report(agent, deadline_us, &why);
        if (!waits && why != lost && is_given_up(agent)) {
            return fl_fail(FL_ESTOPPED, "%s", why);
        }
        if (!waits) {
            return refuse_start(agent, rank, w->spawn_error != 0 ? strerror(w->spawn_error) : why);
        }
        fl__agent_read(agent);
    }
    return FL_OK;
}

/* The socket takes some hundred frames that the agent has not read yet. One that was stopped reads
 * none. */
static bool send_spawn(fl_agent *agent, const fl_agent_frame *frame, int64_t deadline_us)
{
    while (!fl__agent_send(agent, frame)) {
        struct pollfd item = {.fd = agent->socket, .events = POLLIN | POLLOUT};
        if (agent->is_lost || is_given_up(agent) || fl_left_ms(deadline_us) == 0) {
            return false;
        }
        (void)poll(&item, 1, SIGNAL_MS);
        fl__agent_read(agent);
    }
    return true;
}

fl_status fl_agent_start_all(fl_agent *agent, const fl_worker_birth *birth)
{
    int64_t deadline_us =
        fl_deadline_us(agent->awaits_hosts ? FL_AWAITED_JOIN_MS + JOIN_SLACK_MS : START_MS);
    fl_agent_frame frame = {.type = FL_AGENT_SPAWN, .birth = *birth};
    for (int rank = 0; rank < agent->n_workers; rank++) {
        fl_worker *w = &agent->workers[rank];
        if (w->departed) {
            continue;
        }
        w->incarnation++;
        w->spawned_us = w->heard_us = fl_now_us();
        frame.rank = rank;
        frame.incarnation = w->incarnation;
        if (!send_spawn(agent, &frame, deadline_us)) {
            break;
        }
    }
    return await_processes(agent, deadline_us);
}

bool fl_agent_start(fl_agent *agent, const fl_worker_birth *birth)
{
    fl_worker *w = &agent->workers[birth->rank];
    const fl_agent_frame frame = {.type = FL_AGENT_SPAWN,
                                  .rank = birth->rank,
                                  .incarnation = w->incarnation + 1,
                                  .birth = *birth};
    if (w->exited_us == 0 || !fl__agent_send(agent, &frame)) {
        return false;
    }
    fl_worker_begin_again(w, fl_now_us());
    fl__agent_requests *r = &agent->requests[birth->rank];
    *r = (fl__agent_requests){.records = r->records};
    return true;
}
