/* The controller's end of an agent: starts it, has it start, kill and watch workers, and keeps the
 * controller's records of them (fl_worker) true. Only fl_agent_kill and the functions that open and
 * close wait, and each of them has a limit. */
#ifndef FL_CONTROL_AGENT_CLIENT_AGENT_CLIENT_H
#define FL_CONTROL_AGENT_CLIENT_AGENT_CLIENT_H

#include "control/agent/measure/flight_copy.h"
#include "control/agent/process/agent.h"
#include "control/agent/wire/agent_wire.h"
#include "control/state/worker.h"

typedef struct fl_agent fl_agent;

/* Fork an agent. The caller must have no threads.
 * workers [n_workers], the caller's for as long as the agent lives */
fl_status fl_agent_open(const fl_agent_options *options, fl_worker *workers,
                        fl_agent **out) FL_MUST_CHECK;

/* Start all workers that have not departed, and wait until each has a process. On failure the
 * others may have started: close the agent.
 * birth  theirs, but for rank and incarnation */
fl_status fl_agent_start_all(fl_agent *agent, const fl_worker_birth *birth) FL_MUST_CHECK;

/* Start the next process of birth->rank, whose last one has ended, with this birth, and make the
 * worker's record that of a worker that joins. Never waits: its pid, or the reason why there is no
 * process, follows. False: the agent takes no request now, and nothing has changed. */
bool fl_agent_start(fl_agent *agent, const fl_worker_birth *birth);

/* Readable when the agent has something to report. */
int fl_agent_fd(const fl_agent *agent);

/* Note what the agent has reported. Never waits. Returns how many workers still run. */
int fl_agent_watch(fl_agent *agent);

/* Whether the agent has died, and its workers with it. If so, `text` says how. */
bool fl_agent_is_lost(const fl_agent *agent, char *text, size_t size_bytes);

/* What the agent saw last of a worker's process, if it is news and less than half a second old; and
 * have it look again. Never waits: the answer to the first call comes with a later one. */
bool fl_agent_look(fl_agent *agent, int rank, fl_process_look *out);

/* Ask the agent of another host what this worker has done in some steps. Never waits; false: the
 * agent takes no request now. */
bool fl_agent_ask_records(fl_agent *agent, int rank, const fl_records_request *request);

/* The answer that has come since then, or else NULL. It lasts until the next call of a function of
 * this agent. */
const fl_flight_records *fl_agent_take_records(fl_agent *agent, int rank);

/* All workers that were started have opened their links: have the file of the control link removed,
 * so that none remains if the controller is killed. */
void fl_agent_hide_link(fl_agent *agent);

/* The run is done with host i: its agent may end. why: it cannot be drained, and its agent should
 * not wait for that; "": it is drained. Never waits; false: the agent takes no request now. */
bool fl_agent_release_host(fl_agent *agent, int i, const char *why);

/* Have all other hosts of the run try whether they reach each other, and the head: the answer comes
 * into options->host_sight. timeout_ms: for each of them. Never waits; false: the agent takes no
 * request now. */
bool fl_agent_ask_reach(fl_agent *agent, int64_t timeout_ms);

/* The run does without host i, because it and host `from` do not reach each other: its workers are
 * ended, and it is lost for this reason. It may join again once the trial has succeeded. Never
 * waits; false: the agent takes no request now. */
bool fl_agent_leave_out_host(fl_agent *agent, int i, int from, const fl_host_trial *trial,
                             const char *why);

/* Have SIGKILL sent to these of its workers [n] that still run, and wait until they have exited:
 * milliseconds, or half a second if the agent is stopped. */
void fl_agent_kill(fl_agent *agent, fl_worker *workers, int n);

/* End the remaining workers and the agent; *agent becomes NULL, which is allowed before, too. When
 * it returns, none of these processes runs, even if the agent was stopped.
 * ending  what the agents of other hosts are to do then */
void fl_agent_close(fl_agent **agent, fl_agent_ending ending);

#endif
