/* Whether hosts reach each other where their data goes: one opens a connection to a port of the
 * other one, which is bound as those of its workers are. The other kernel takes it, also while the
 * process that listens is busy or stopped; a firewall that refuses it in its place does not. That
 * needs both directions, so a cut of one direction shows at both ends.
 *
 *     head ── order: which hosts, and where ──> agent ── a connection to each ──> other agents
 *          <── answer: those that it did not reach ──┘
 */
#ifndef FL_CONTROL_AGENT_MEASURE_REACH_H
#define FL_CONTROL_AGENT_MEASURE_REACH_H

#include <frostline/plan.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    FL_REACH_ANSWER_MAX = 64, /* hosts that one answer names */
    FL_REACH_WHY_MAX = 63,
    FL_REACH_MS_MAX = 60 * 1000,
};

/* ---- to be reached ---- */

/* A port at which connections are taken and closed. */
typedef struct fl_reach_door {
    int fd;        /* -1: closed */
    uint16_t port; /* on all addresses of the host */
} fl_reach_door;

/* ports: as in autodp/net/listen.h. False, with errno. */
bool fl_reach_door_open(fl_reach_door *door, const uint16_t ports[2]);
void fl_reach_door_close(fl_reach_door *door);

/* Close the connections that have come; never waits. To be called a few times a second. */
void fl_reach_door_turn(const fl_reach_door *door);

/* ---- to reach others ---- */

typedef struct fl_reach_target {
    uint16_t host; /* its index in the run's table of hosts */
    uint16_t port;
    bool is_door;     /* somebody listens there; else a port that refuses is reached, too */
    uint32_t address; /* 0x0a000001 is 10.0.0.1 */
} fl_reach_target;

typedef struct fl_reach_order {
    uint64_t number;    /* above 0 */
    int64_t timeout_ms; /* for all of them, 1 .. FL_REACH_MS_MAX */
    int n;
    fl_reach_target target[FL_MAX_WORKERS]; /* [n] */
} fl_reach_order;

typedef struct fl_reach_answer {
    uint64_t number;                    /* of the order */
    int n;                              /* hosts that were not reached, of them at most */
    uint16_t host[FL_REACH_ANSWER_MAX]; /* FL_REACH_ANSWER_MAX */
    char why[FL_REACH_WHY_MAX + 1];     /* the first of them: "port 20017: no answer in 1.2 s" */
} fl_reach_answer;

/* How the time and the descriptors of a process are shared between n_hosts: the answer comes in
 * timeout_ms, also if none of them answers. Pure. */
typedef struct fl_reach_shares {
    int attempts;       /* connections to one host that are being opened at the same time */
    int at_once;        /* hosts that are tried at the same time */
    int64_t timeout_ms; /* for each of them */
} fl_reach_shares;
fl_reach_shares fl_reach_share(int n_hosts, int64_t timeout_ms);

typedef struct fl_reach_round fl_reach_round;

/* Begin to carry out an order, in place of the one before. round: NULL at first. Returns
 * FL_ENOMEM. */
fl_status fl_reach_round_begin(fl_reach_round **round, const fl_reach_order *order) FL_MUST_CHECK;
void fl_reach_round_end(fl_reach_round **round);

/* Drive it; never waits. True, once, when all hosts are reached or given up. */
bool fl_reach_round_turn(fl_reach_round *round, fl_reach_answer *answer);

/* Whether it is in progress: then it wants a turn every few milliseconds. */
bool fl_reach_round_runs(const fl_reach_round *round);

#endif
