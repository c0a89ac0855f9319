/* The agent of a host: a process without threads, parent of the host's workers.
 *
 *     controller ──socket pair── agent ── fork ──> worker 0, worker 1, ...
 *
 * The controller forks it before it starts threads of its own, so the agent can fork workers at
 * any time of the run, each with the model, the data set and the memory that the controller had
 * mapped by then. Where a run has several hosts, a gate stands between (control/agent/gate/gate.h),
 * and the agents of the other hosts are behind it. It owns the processes of its host: their logs,
 * their exits, their ends. Nothing in the controller knows where an agent is;
 * control/agent/client/agent_client.h is its end. */
#ifndef FL_CONTROL_AGENT_PROCESS_AGENT_H
#define FL_CONTROL_AGENT_PROCESS_AGENT_H

#include "control/agent/measure/flight_copy.h"
#include "control/agent/measure/process_look.h"
#include "control/agent/process/signals.h"
#include "control/state/hosts/host_record.h"
#include "control/state/hosts/host_sight.h"
#include "control/state/hosts/hosts.h"
#include "control/state/options.h"
#include "device/machine/survey.h"

enum { FL_AGENT_LOG_NAME_BYTES = 24, FL_AGENT_ENDPOINT_MAX = 128 };

/* What every worker of the host inherits. All borrowed. */
typedef struct fl_agent_options {
    int n_workers;
    int dir_fd;                 /* the run directory */
    bool continues;             /* the run continues an interrupted one: so do the workers' logs */
    const char *job_text;       /* for the agents of other hosts; NULL: job.yaml in the run
                                   directory has it */
    const fl_host_facts *facts; /* of this host, for the agents of other ones; NULL without hosts */
    bool from_snapshot;         /* it continues from a snapshot in the controller's memory */
    int64_t state_step; /* steps of the checkpoint that it continues from, for the agents of other
                           hosts; -1: from none */
    int n_stores;       /* of the cache on each host, for the agents of other hosts; 0: none */
    fl_flight *flight;
    int64_t flight_ms; /* how often the agent shows a worker's operations to a controller that
                          cannot read `flight`; 0: never */
    const fl_signals *signals; /* blocked by fl_signals_block */
    const char *endpoint;      /* of the control link: "ipc://" and a path, or "tcp://..." */
    fl_hosts *hosts; /* of the run, this one the first; new ones are added. NULL: this one alone */
    int n_first_hosts;            /* of them: with which the run began; 0: all */
    fl_host_record *host_records; /* [n_workers] by host, in the controller: kept true; NULL without
                                     hosts */
    fl_host_sight *host_sight;    /* the same: which of them do not reach each other */
    bool hosts_measured;          /* their agents were there to be measured, and join next */
    struct fl_host_starter *starters; /* [hosts->n] ssh of agents, which the gate watches; the
                                         caller keeps them. NULL: ssh has started none */
    const fl_device_survey *devices;  /* of this host; NULL: unknown */
    fl_worker_main *worker;
    void *context;
    /* Called in the agent first: closes what the controller alone may hold. NULL: nothing. */
    void (*release)(void *context);
    void *release_context;
} fl_agent_options;

/* A process of the agent. */
typedef struct fl_agent_child {
    pid_t pid;
    uint32_t incarnation;
    bool lives;
    bool is_unreaped; /* it has ended, and the kernel still has its number */
    bool owes_spawned, owes_exited, owes_looked; /* frames that the controller is to get */
    int error;                                   /* of fork */
    int wait_status;
    bool look_is_known;
    fl_process_look look;
    fl_shown_until shown;
} fl_agent_child;

/* The body of the agent: returns only by _exit. The caller has forked this process and set what it
 * does when its parent dies.
 * socket    connected to the controller, SOCK_SEQPACKET
 * children  [n_workers], cleared */
_Noreturn void fl__agent_run(const fl_agent_options *options, int socket, fl_agent_child *children);

/* In a process that the agent has just forked: become this worker. Standard output and error go to
 * RUN/worker-N.log, standard input is empty, the kernel kills it when the agent dies, it records
 * into options->flight, and it leaves through _exit with what options->worker returns. */
_Noreturn void fl__agent_become_worker(const fl_agent_options *options,
                                       const fl_worker_birth *birth, const char *endpoint,
                                       pid_t agent);

/* In the agent or the gate: standard error stays the user's; the rest must not keep a pipe open.
 * False, with errno, if that fails. */
bool fl__agent_leave_terminal(void);

/* "worker-3.log" into name; returns name. */
const char *fl_agent_log_name(int rank, char name[FL_AGENT_LOG_NAME_BYTES]);

#endif
