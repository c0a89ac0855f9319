/* Frames between the controller and its agent. */
#include "control/agent/client/agent_client_state.h"

#include "control/agent/client/host_news.h"
#include "control/agent/wire/agent_socket.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

bool fl__agent_wait_readable(int fd, int64_t deadline_us)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&item, 1, (int)fl_left_ms(deadline_us));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* ---- to the agent ---- */

bool fl__agent_send(const fl_agent *agent, const fl_agent_frame *frame)
{
    return !agent->is_lost && fl_agent_socket_send(agent->socket, frame);
}

/* A frame about the present process of a worker. */
bool fl__agent_send_about(const fl_agent *agent, fl_agent_type type, const fl_worker *w)
{
    return fl__agent_send(
        agent, &(fl_agent_frame){.type = type, .rank = w->rank, .incarnation = w->incarnation});
}

void fl__agent_send_owed(fl_agent *agent)
{
    if (agent->owes_hide) {
        agent->owes_hide = !fl__agent_send(agent, &(fl_agent_frame){.type = FL_AGENT_HIDE});
    }
    for (int rank = 0; rank < agent->n_workers; rank++) {
        const fl_worker *w = &agent->workers[rank];
        fl__agent_requests *r = &agent->requests[rank];
        if (r->owes_kill) {
            r->owes_kill = w->exited_us == 0 && !fl__agent_send_about(agent, FL_AGENT_KILL, w);
        }
    }
}

/* ---- from the agent ---- */

static void take_spawned(const fl_agent *agent, fl_worker *w, const fl_agent_frame *frame)
{
    w->pid = (pid_t)frame->spawned.pid;
    w->spawn_error = frame->spawned.error;
    w->gpu = frame->spawned.gpu;
    snprintf(w->gpu_name, sizeof w->gpu_name, "%s", frame->spawned.gpu_name);
    if (w->spawn_error != 0) {
        w->exited_us = fl_now_us();
        fl_host_news_of_worker(agent->hosts, agent->host_records, w);
    }
}

static void take_look(fl__agent_requests *r, const fl_agent_frame *frame)
{
    r->answered = r->looks;
    r->looks = false;
    r->look_is_known = frame->looked.is_known;
    r->look = frame->looked.process;
}

/* The controller's flight recorders of other hosts are copies. Before the clock of a host is known,
 * what it shows counts as of now. */
static void take_flight(const fl_agent *agent, const fl_agent_frame *frame)
{
    if (frame->rank < agent->n_near) {
        return;
    }
    int host = fl_hosts_of(agent->hosts, frame->rank);
    const fl_clock_estimate *clock = host < 0 ? NULL : &agent->host_records[host].clock;
    bool known = clock != NULL && clock->known;
    fl_flight_shown_take(agent->flight, frame->rank, &frame->flight,
                         known ? clock->offset_ns : frame->flight.now_ns - fl_now_ns());
}

/* Unasked ones are dropped. */
static void take_records(fl__agent_requests *r, const fl_agent_frame *frame)
{
    if (r->records != NULL) {
        *r->records = frame->records;
        r->has_records = true;
    }
}

static void take_frame(fl_agent *agent, const fl_agent_frame *frame)
{
    if (frame->type == FL_AGENT_HOST) {
        if (!fl_host_news_take(agent->hosts, agent->host_records, agent->n_workers, frame)) {
            fl_log_counted(&agent->n_dropped[FL__AGENT_DROP_HOST], 1,
                           "dropped news of a host with the first rank %d", frame->rank);
        }
        return;
    }
    if (frame->type == FL_AGENT_REACHED) {
        fl_host_news_of_sight(agent->hosts, agent->host_sight, frame);
        return;
    }
    fl_worker *w = frame->rank < agent->n_workers ? &agent->workers[frame->rank] : NULL;
    if (w == NULL || frame->incarnation != w->incarnation) {
        fl_log_counted(&agent->n_dropped[FL__AGENT_DROP_PROCESS], 1,
                       "dropped what the agent reports of process %u of rank %d",
                       frame->incarnation, frame->rank);
        return;
    }
    switch (frame->type) {
    case FL_AGENT_SPAWNED:
        take_spawned(agent, w, frame);
        break;
    case FL_AGENT_EXITED:
        w->exited_us = fl_now_us();
        w->wait_status = frame->wait_status;
        fl_host_news_of_worker(agent->hosts, agent->host_records, w);
        break;
    case FL_AGENT_LOOKED:
        take_look(&agent->requests[frame->rank], frame);
        break;
    case FL_AGENT_FLIGHT:
        take_flight(agent, frame);
        break;
    case FL_AGENT_RECORDS:
        take_records(&agent->requests[frame->rank], frame);
        break;
    case FL_AGENT_SPAWN:
    case FL_AGENT_KILL:
    case FL_AGENT_LOOK:
    case FL_AGENT_END:
    case FL_AGENT_HIDE:
    case FL_AGENT_RELEASE:
    case FL_AGENT_READ:
    case FL_AGENT_REACH:
    case FL_AGENT_APART:
    case FL_AGENT_HOST:
    case FL_AGENT_REACHED:
    case FL_AGENT_REFUSE:
    case FL_AGENT_SHARES:
        fl_log_counted(&agent->n_dropped[FL__AGENT_DROP_TYPE], 1,
                       "dropped a frame of type %d: the controller sends these", (int)frame->type);
    }
}

void fl__agent_read(fl_agent *agent)
{
    fl_agent_frame frame;
    size_t n;
    while (!agent->is_lost) {
        switch (fl_agent_socket_read(agent->socket, &frame, &n)) {
        case FL_AGENT_GOT_NOTHING:
            return;
        case FL_AGENT_GOT_FRAME:
            take_frame(agent, &frame);
            break;
        case FL_AGENT_GOT_JUNK:
            fl_log_counted(&agent->n_dropped[FL__AGENT_DROP_JUNK], 1,
                           "dropped %zu bytes from the agent: %s", n, fl_errmsg());
            break;
        case FL_AGENT_GOT_END:
            fl__agent_bury(agent);
        }
    }
}
