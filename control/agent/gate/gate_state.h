/* The state of the gate, and what its files share; gate.c has the loop and the diagram. */
#ifndef FL_CONTROL_AGENT_GATE_GATE_STATE_H
#define FL_CONTROL_AGENT_GATE_GATE_STATE_H

#include "control/agent/join/awaited.h"
#include "control/agent/join/host_socket.h"
#include "control/agent/join/host_start.h"
#include "control/agent/join/join_claim.h"
#include "control/agent/join/refusals.h"
#include "control/agent/join/wait_record.h"
#include "control/agent/process/agent.h"
#include "control/agent/wire/agent_wire.h"

enum { FL__GATE_FIRST_PINGS = 8 }; /* to a host that has joined just now, one a turn */

typedef enum fl__host_state { FL__HOST_AWAITED, FL__HOST_JOINED, FL__HOST_GONE } fl__host_state;

typedef struct fl__remote_host {
    fl__host_state state;
    fl_host_peer peer;
    fl_host_starter starter; /* ssh, which started its agent */
    int64_t heard_us;
    int64_t closed_us;             /* its connection was found to be closed then; 0: it is not */
    bool owes[FL_HOST_NEWS_KINDS]; /* news that the controller has not got yet */
    int64_t grace_ms;              /* of the notice */
    char why[FL_HOST_WHY_MAX + 1]; /* it is lost, */
    int64_t silent_ms;             /* after it had not answered for this long; 0: otherwise */
    bool unfit;                    /* it cannot take part, for this reason */
    bool released;                 /* the run goes on without it: its end is no loss */
    bool parted;                   /* its agent has ended after the run did */
    bool late; /* it joins after the run has begun, or begun again: its workers get their state
                * from the others */
    fl_join_rival rival;
    char proof[FL_RUN_PROOF_TEXT]; /* the file that is to show it the run directory; "": there is
                                    * none, as the host has answered, or need not */
    int64_t answered_us;           /* when it said that it has answered; 0: it has not */
    fl_host_clock clock;           /* since it joined */
    int n_first_pings;             /* without a pause, since then; answered or not */
    bool told_clock;               /* that its time of day is another one than that of this host */
    fl_machine_kind kind;          /* as it joined last */
    uint16_t door;                 /* where others try whether they reach it; 0: nowhere */
    fl_reach_answer answer;        /* to the question of `asked`; */
    bool asked, owes_answer;       /* the controller has not got it yet */
    int apart_from;      /* 1 + the host that it has to reach before it is taken in; 0: none */
    fl_host_trial trial; /* of that */
    int n_apart;         /* how often it was left out for that */
    int n_reached;       /* trials in a row in which it has reached that host */
    uint64_t tried;      /* the number of the last one, */
    int64_t tried_us;
    fl_host_peer held; /* and its agent, which asks to join; n 0: none does */
    bool owes_join;    /* that has not asked since it was left out */
} fl__remote_host;

/* A frame that waits for its host to join and to answer, or for the agent of this host to read. */
typedef struct fl__kept_frame {
    void *bytes; /* NULL: none */
    size_t n;
} fl__kept_frame;

/* What is dropped, and counted. */
typedef enum fl__gate_drop {
    FL__GATE_DROP_MESSAGE, /* of an agent: it is not one of those that hosts exchange */
    FL__GATE_DROP_REPORT,  /* of a host: none of its workers, or out of turn */
    FL__GATE_DROP_FRAME,   /* of the controller */
    FL__GATE_DROPS
} fl__gate_drop;

typedef struct fl__gate {
    const fl_agent_options *o;
    fl_hosts *hosts;
    int n_first_hosts; /* with which the run began: the stores of the cache are numbered by them */
    pid_t local_pid;   /* the agent of this host */
    int controller, local;    /* sockets; local -1: the agent of this host has ended */
    fl_agent_child *children; /* [n_workers] those of other hosts */
    fl__remote_host *remote;  /* [n_workers] by host; the first one, this host, is not used */
    fl__kept_frame *kept;     /* [n_workers] for hosts that have not joined, or not answered */
    fl__kept_frame held;      /* for the agent of this host */
    fl_host_socket socket;
    char run_dir[PATH_MAX], cwd[PATH_MAX];
    fl_awaited_clock awaited; /* since the gate began to wait for hosts */
    fl_wait_record record;    /* what clients read of that wait */
    int64_t turned_us;        /* the end of the loop's last turn */
    int64_t looked_us;        /* at the tasks of an engine that are to join */
    int64_t alive_us;         /* when the hosts heard of the head last */
    int64_t n_dropped[FL__GATE_DROPS];
    int64_t n_still; /* turns that took too long, though not LONG_US */
    fl_refusals refusals;
    int64_t end_us;    /* until when the gate waits for the others to end; 0: the run goes on */
    fl_host_type last; /* with end_us: what the hosts are told, */
    char last_why[FL_HOST_TEXT_MAX + 1];
    bool again;            /* the run goes back, and the agents join it again */
    fl_reach_door door;    /* of this host */
    fl_reach_order ask;    /* the controller's question; number 0: none is in progress */
    int64_t ask_us;        /* until when its answers may come */
    fl_reach_answer own;   /* that of this host */
    uint64_t n_tried;      /* trials of hosts that wait to join */
    fl_reach_round *round; /* those of this host; NULL: it has tried none */
} fl__gate;

/* ---- gate_hosts.c: what goes between the controller and the other hosts ---- */

/* Keep a copy of a frame, in place of the one that is there; false without memory. */
bool fl__gate_keep_frame(fl__kept_frame *kept, const void *bytes, size_t n);
void fl__gate_drop_frame(fl__kept_frame *kept);

/* Never waits. False: the connection takes no message now, or is gone. */
bool fl__gate_send_to_host(const fl__gate *g, const fl_host_peer *to,
                           const fl_host_message *message);
bool fl__gate_send_frame_to_host(const fl__gate *g, const fl__remote_host *r, const void *bytes,
                                 size_t n);

/* awaited: which of them have not joined, and may still come. */
void fl__gate_find_awaited(const fl__gate *g, bool awaited[FL_MAX_WORKERS]);

/* Record which of them have not joined, and say so from time to time; give one up that comes too
 * late. */
void fl__gate_tell_awaited(fl__gate *g, int64_t now_us);
void fl__gate_check_awaited(fl__gate *g, int i, int64_t now_us);

/* Send a message to all hosts that have joined, or that wait to until they reach another one. */
void fl__gate_tell_hosts(const fl__gate *g, const fl_host_message *message);

/* Pass a frame of the controller on to the host of its rank, or keep it until that may have it. */
void fl__gate_pass_to_host(fl__gate *g, const fl_agent_frame *frame, const void *bytes, size_t n);
void fl__gate_send_kept(fl__gate *g, int i);

/* The controller is done with the host of this first rank: tell its agent to end, or why the host
 * cannot be drained. */
void fl__gate_release_host(fl__gate *g, const fl_agent_frame *frame);

/* Count a host as lost: its workers are reported as killed. */
void fl__gate_lose_host(fl__gate *g, int i, const char *why);

/* The same for one worker: one without a process never gets one. */
void fl__gate_lose_worker(fl__gate *g, int rank);

/* Take one message of a host; false: none is there. The controller's socket takes a frame. */
bool fl__gate_read_host(fl__gate *g);
void fl__gate_take_message(fl__gate *g, const fl_host_peer *from, const unsigned char *bytes,
                           size_t n);

/* ---- gate_join.c: how a host joins ---- */

/* An agent asks to join: it is taken in, refused, or asks again later. */
void fl__gate_take_join(fl__gate *g, const fl_host_peer *from, const fl_host_join *join);

/* An agent of another version asks for the host of this name; "": for none. */
void fl__gate_refuse_version(fl__gate *g, const fl_host_peer *from, const char *name,
                             const char *why);

/* ---- gate_proof.c: whether a host shares the run directory; run_proof.h has the steps ---- */

/* ① For host i, if the run has a shared directory. As fl_run_proof_write */
fl_status fl__gate_write_proof(fl__gate *g, int i) FL_MUST_CHECK;

/* Whether a worker may start on the host, as far as the run directory goes. */
bool fl__gate_is_proven(const fl__remote_host *r);

/* The host has answered; then look whether the answer is here. A host is lost whose answer does not
 * come to light. */
void fl__gate_take_answer(fl__gate *g, int i);
void fl__gate_watch_proof(fl__gate *g, int i, int64_t now_us);

/* ---- gate_news.c: what the gate itself reports to the controller ---- */

bool fl__gate_send_to_controller(const fl__gate *g, const fl_agent_frame *frame);

/* Report news of hosts, and the workers of lost ones, as far as the controller's socket takes
 * frames. */
void fl__gate_send_owed(const fl__gate *g);

/* ---- gate_watch.c: whether the other hosts live, and ssh of their agents ---- */

/* Say which hosts the gate waits for. Those that the run does without are refused. */
void fl__gate_await_hosts(fl__gate *g);

/* Lose hosts that are silent, and those whose agent could not be started; tell the others that the
 * head lives. */
void fl__gate_watch_hosts(fl__gate *g, int64_t now_us);

/* Nobody read the hosts' messages for `us`: that is no silence of theirs. */
void fl__gate_excuse_hosts(fl__gate *g, int64_t us);

/* The gate watches ssh of the agents that the run has started so. */
void fl__gate_take_starters(fl__gate *g);

/* The gate ends: so does ssh, and that of agents that have not joined at once; not if the run goes
 * back. */
void fl__gate_end_starters(fl__gate *g);

/* ---- gate_clock.c: the clocks of the other hosts ---- */

/* The time between two messages to all hosts, whose answers also tell their clocks. */
int64_t fl__gate_between_pings_us(const fl__gate *g);

/* The answer of host i to PING. */
void fl__gate_take_time(fl__gate *g, int i, const fl_host_message *pong);

/* ---- gate_reach.c: hosts that do not reach each other ---- */

void fl__gate_reach_open(fl__gate *g);

/* The controller asks which hosts do not reach each other, or does without one of them. */
void fl__gate_reach_ask(fl__gate *g, const fl_agent_frame *frame);
void fl__gate_leave_out(fl__gate *g, const fl_agent_frame *frame);

/* Whether host i, whose agent asks to join, has to wait, because it does not reach another one. */
bool fl__gate_holds_host(fl__gate *g, int i, const fl_host_peer *from);

/* What a host has reached: i in the run, -1: one that may wait to join it. */
void fl__gate_reach_answered(fl__gate *g, int i, const fl_host_peer *from,
                             const fl_reach_answer *answer);

/* Drive the trials of this host. */
void fl__gate_reach_turn(fl__gate *g);

/* Answers that the controller is to get, as far as its socket takes frames. */
void fl__gate_reach_send_owed(fl__gate *g);

#endif
