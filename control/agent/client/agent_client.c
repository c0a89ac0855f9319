#include "control/agent/client/agent_client.h"

#include "control/agent/client/agent_client_state.h"
#include "control/agent/gate/gate.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum {
    KILL_MS = 500,    /* from SIGKILL to the report of the exit */
    LOOK_US = 500000, /* age at which a look is too old */
};

/* ---- its workers ---- */

int fl_agent_fd(const fl_agent *agent)
{
    return agent->socket;
}

int fl_agent_watch(fl_agent *agent)
{
    int n_living = 0;
    fl__agent_read(agent);
    fl__agent_send_owed(agent);
    for (int i = 0; i < agent->n_workers; i++) {
        n_living += agent->workers[i].exited_us == 0;
    }
    return n_living;
}

/* who    "the agent, the parent of the workers,"
 * whose  "the workers": who ended with it */
static void describe_end(int how, const char *who, const char *whose, char *text, size_t size_bytes)
{
    if (WIFSIGNALED(how)) {
        snprintf(text, size_bytes, "%s was killed by signal %d (%s), and %s ended with it", who,
                 WTERMSIG(how), strsignal(WTERMSIG(how)), whose);
    } else {
        snprintf(text, size_bytes, "%s ended (exit code %d), and %s with it", who, WEXITSTATUS(how),
                 whose);
    }
}

bool fl_agent_is_lost(const fl_agent *agent, char *text, size_t size_bytes)
{
    int how = agent->wait_status;
    int code = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
    if (!agent->is_lost) {
        return false;
    }
    if (!agent->awaits_hosts) {
        describe_end(how, "the agent, the parent of the workers,", "the workers", text, size_bytes);
    } else if (code == FL_GATE_PORT_TAKEN) {
        snprintf(text, size_bytes, "another process has taken %s, where agents join",
                 agent->hosts->agents);
    } else if (code > FL_GATE_AGENT_KILLED) {
        describe_end(code - FL_GATE_AGENT_KILLED,
                     "the agent of the head, the parent of its workers,",
                     "the workers of all hosts", text, size_bytes);
    } else {
        describe_end(how, "the gate, the parent of the agent of the head,",
                     "the workers of all hosts", text, size_bytes);
    }
    return true;
}

bool fl_agent_look(fl_agent *agent, int rank, fl_process_look *out)
{
    fl__agent_requests *r = &agent->requests[rank];
    int64_t now_us = fl_now_us();
    bool is_new = r->answered && r->look_is_known && now_us - r->asked_us < LOOK_US;
    if (is_new) {
        *out = r->look;
    }
    r->answered = false;
    if (!r->looks) {
        r->looks = fl__agent_send_about(agent, FL_AGENT_LOOK, &agent->workers[rank]);
        r->asked_us = now_us;
    }
    return is_new;
}

bool fl_agent_ask_records(fl_agent *agent, int rank, const fl_records_request *asked)
{
    fl__agent_requests *r = &agent->requests[rank];
    fl_agent_frame frame = {.type = FL_AGENT_READ,
                            .rank = rank,
                            .incarnation = agent->workers[rank].incarnation,
                            .read = *asked};
    r->has_records = false;
    return (r->records != NULL || fl_alloc(sizeof *r->records, (void **)&r->records) == FL_OK) &&
           fl__agent_send(agent, &frame);
}

const fl_flight_records *fl_agent_take_records(fl_agent *agent, int rank)
{
    fl__agent_requests *r = &agent->requests[rank];
    bool has = r->has_records;
    r->has_records = false;
    return has ? r->records : NULL;
}

void fl_agent_hide_link(fl_agent *agent)
{
    agent->owes_hide = true;
    fl__agent_send_owed(agent);
}

static bool have_exited(const fl_worker *workers, int n)
{
    for (int i = 0; i < n; i++) {
        if (workers[i].exited_us == 0) {
            return false;
        }
    }
    return true;
}

void fl_agent_kill(fl_agent *agent, fl_worker *workers, int n)
{
    int64_t deadline_us = fl_deadline_us(KILL_MS);
    for (int i = 0; i < n; i++) {
        if (workers[i].exited_us == 0) {
            workers[i].killed = true;
            agent->requests[workers[i].rank].owes_kill = true;
        }
    }
    fl__agent_send_owed(agent);
    while (!agent->is_lost && !have_exited(workers, n) &&
           fl__agent_wait_readable(agent->socket, deadline_us)) {
        fl__agent_read(agent);
        fl__agent_send_owed(agent);
    }
}

/* ---- other hosts ---- */

bool fl_agent_release_host(fl_agent *agent, int i, const char *why)
{
    fl_agent_frame frame = {.type = FL_AGENT_RELEASE, .rank = agent->hosts->host[i].first};
    snprintf(frame.text, sizeof frame.text, "%s", why);
    return fl__agent_send(agent, &frame);
}

bool fl_agent_ask_reach(fl_agent *agent, int64_t timeout_ms)
{
    fl_agent_frame frame = {.type = FL_AGENT_REACH, .reach = {.timeout_ms = timeout_ms}};
    fl_host_sight *sight = agent->host_sight;
    sight->number++;
    sight->complete = false;
    sight->n = 0;
    frame.reach.number = sight->number;
    return fl__agent_send(agent, &frame);
}

bool fl_agent_leave_out_host(fl_agent *agent, int i, int from, const fl_host_trial *trial,
                             const char *why)
{
    fl_agent_frame frame = {.type = FL_AGENT_APART,
                            .rank = agent->hosts->host[i].first,
                            .apart = {.from = agent->hosts->host[from].first, .trial = *trial}};
    snprintf(frame.apart.text, sizeof frame.apart.text, "%s", why);
    return fl__agent_send(agent, &frame);
}
