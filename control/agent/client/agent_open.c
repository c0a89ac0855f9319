/* How the agent starts and ends. */
#include "control/agent/client/agent_client_state.h"

#include "control/agent/gate/gate.h"
#include "control/agent/join/wait_record.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/child.h"
#include "device/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    END_MS = 1500,        /* from END to the agent's exit */
    END_HOSTS_MS = 13000, /* the same of the gate: hosts are told, and ssh of their agents ends */
    GONE_MS = 2000,       /* from the agent's death to the end of the last worker */
};

/* ---- start ---- */

static _Noreturn void become_agent(const fl_agent_options *options, int socket,
                                   fl_agent_child *children, pid_t controller)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != controller) {
        _exit(1); /* the controller died before the agent could watch it */
    }
    if (options->hosts != NULL) {
        fl__gate_run(options, socket, children);
    }
    fl__agent_run(options, socket, children);
}

static fl_status fork_agent(const fl_agent_options *options, fl_agent *agent,
                            fl_agent_child *children)
{
    int sockets[2], alive[2];
    pid_t controller = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return fl_fail(FL_EIO, "cannot make a socket for the agent: %s", strerror(errno));
    }
    agent->socket = sockets[0];
    if (pipe2(alive, O_CLOEXEC) != 0) {
        close(sockets[1]);
        return fl_fail(FL_EIO, "cannot make a pipe for the agent: %s", strerror(errno));
    }
    agent->alive_fd = alive[0];
    fflush(NULL); /* otherwise each worker would write the buffered output again */
    agent->pid = fork();
    if (agent->pid == 0) {
        close(sockets[0]);
        close(alive[0]);
        become_agent(options, sockets[1], children, controller);
    }
    int error = errno;
    close(sockets[1]);
    close(alive[1]);
    return agent->pid > 0 ? FL_OK : fl_fail(FL_EIO, "cannot start the agent: %s", strerror(error));
}

static void release_agent(fl_agent **agent)
{
    fl_agent *a = *agent;
    if (a->socket >= 0) {
        close(a->socket);
    }
    if (a->alive_fd >= 0) {
        close(a->alive_fd);
    }
    for (int i = 0; a->requests != NULL && i < a->n_workers; i++) {
        fl_free(a->requests[i].records);
    }
    fl_free(a->requests);
    fl_free(a);
    *agent = NULL;
}

fl_status fl_agent_open(const fl_agent_options *options, fl_worker *workers, fl_agent **out)
{
    fl_agent *agent = NULL;
    fl_agent_child *children = NULL;
    size_t n = (size_t)options->n_workers;
    FL_TRY(fl_alloc(sizeof *agent, (void **)&agent));
    *agent = (fl_agent){.socket = -1,
                        .alive_fd = -1,
                        .awaits_hosts = options->hosts != NULL,
                        .dir_fd = options->dir_fd,
                        .flight = options->flight,
                        .n_near =
                            options->hosts == NULL ? options->n_workers : options->hosts->host[0].n,
                        .hosts = options->hosts,
                        .host_records = options->host_records,
                        .host_sight = options->host_sight,
                        .n_workers = options->n_workers,
                        .workers = workers};
    fl_status status = fl_alloc_array(n, sizeof *agent->requests, (void **)&agent->requests);
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *children, (void **)&children);
    }
    if (agent->awaits_hosts) {
        fl_wait_record_clear(agent->dir_fd); /* of a head that was killed */
    }
    if (status == FL_OK) {
        status = fork_agent(options, agent, children);
    }
    fl_free(children); /* the agent has its copy */
    if (status != FL_OK) {
        release_agent(&agent);
        return status;
    }
    *out = agent;
    return FL_OK;
}

/* ---- end ---- */

static void reap_agent(fl_agent *agent)
{
    if (!fl_child_reap(agent->pid, GONE_MS, &agent->wait_status)) {
        fl_log(FL_LOG_WARN, "process %d, the agent, " FL_CHILD_LEFT, (int)agent->pid, GONE_MS);
        agent->wait_status = SIGKILL;
    }
    agent->is_lost = true;
}

/* The kernel kills the workers of a dead agent. They are not this process's children: the pipe that
 * they all hold shows when the last one has ended. */
void fl__agent_bury(fl_agent *agent)
{
    kill(agent->pid, SIGKILL); /* if it has only closed its socket, or is stopped */
    reap_agent(agent);
    if (!fl__agent_wait_readable(agent->alive_fd, fl_deadline_us(GONE_MS))) {
        fl_log(FL_LOG_WARN, "a worker process, or one that it has started, still runs");
    }
    for (int i = 0; i < agent->n_workers; i++) {
        fl_worker *w = &agent->workers[i];
        if (w->incarnation > 0 && w->exited_us == 0) {
            w->exited_us = fl_now_us();
            w->wait_status = SIGKILL;
        }
    }
}

/* Read what the agent still reports, until it closes its socket. False: it does not, in time. */
static bool await_end(fl_agent *agent)
{
    int64_t deadline_us = fl_deadline_us(agent->hosts == NULL ? END_MS : END_HOSTS_MS);
    unsigned char byte;
    while (fl__agent_wait_readable(agent->socket, deadline_us)) {
        if (recv(agent->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
            return true;
        }
        fl__agent_read(agent);
        if (agent->is_lost) {
            return true;
        }
    }
    return false;
}

/* Whether the agent has reported the end of each worker that it has started. */
static bool all_have_ended(const fl_agent *agent)
{
    for (int i = 0; i < agent->n_workers; i++) {
        const fl_worker *w = &agent->workers[i];
        if (w->incarnation > 0 && w->exited_us == 0) {
            return false;
        }
    }
    return true;
}

void fl_agent_close(fl_agent **agent, fl_agent_ending ending)
{
    fl_agent *a = *agent;
    if (a == NULL) {
        return;
    }
    if (!a->is_lost &&
        fl__agent_send(a, &(fl_agent_frame){.type = FL_AGENT_END, .ending = ending}) &&
        await_end(a)) {
        if (!a->is_lost && all_have_ended(a)) {
            reap_agent(a);
        } else if (!a->is_lost) {
            fl__agent_bury(a);
        }
    } else if (!a->is_lost) {
        fl_log(FL_LOG_WARN, "killed %s: it did not end in time",
               a->hosts == NULL ? "the agent, the parent of the workers"
                                : "the gate, which ends the agents of all hosts");
        fl__agent_bury(a);
    }
    if (a->awaits_hosts) {
        fl_wait_record_clear(a->dir_fd);
    }
    release_agent(agent);
}
