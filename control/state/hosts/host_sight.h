/* Which hosts of a run do not reach each other: as their agents have tried it, the answer to one
 * question of the controller; or as their workers have found it. A host whose own workers do not
 * reach each other, because a firewall filters its loopback, is a pair with itself. */
#ifndef FL_CONTROL_STATE_HOSTS_HOST_SIGHT_H
#define FL_CONTROL_STATE_HOSTS_HOST_SIGHT_H

#include <stdbool.h>
#include <stdint.h>

enum { FL_HOST_PAIRS_MAX = 256, FL_HOST_PAIR_WHY_MAX = 63 };

/* Two hosts, by their index, that do not reach each other: `a` has tried, and why it failed. With
 * a == b, `why` names the worker that has tried. */
typedef struct fl_host_pair {
    int a, b;
    uint16_t port; /* of a worker of b: the agents reach each other, the workers do not; else 0 */
    char why[FL_HOST_PAIR_WHY_MAX + 1];
} fl_host_pair;

/* What has to succeed before a host that was left out joins again. */
typedef struct fl_host_trial {
    uint16_t port; /* of a worker, with which it failed; 0: that of the other host's agent */
    bool by_other; /* the other host tries it; else the one that was left out does */
} fl_host_trial;

typedef struct fl_host_sight {
    uint64_t number; /* of the question; answers to another one are dropped */
    bool complete;   /* all hosts have answered, or had the time to */
    int n;
    fl_host_pair pair[FL_HOST_PAIRS_MAX]; /* [n], each pair once */
} fl_host_sight;

/* Add a pair, unless it is there in either order, or there are too many. port: as in the pair.
 * Pure. */
void fl_host_sight_add(fl_host_sight *sight, int a, int b, uint16_t port, const char *why);

/* What the run would be without a host. */
typedef struct fl_host_loss {
    bool keeps_all; /* every layer has an owner on another host: the run need not go back */
    bool has_plan;
    double step_us; /* predicted, with has_plan */
    int n_devices;  /* that go with the host */
} fl_host_loss;

/* Which host of these pairs to leave out; -1: there is no pair, or no host but the head in one.
 * In this order: the host that is in the most pairs, because the others agree about it; the one
 * without which the run loses no layer, has a plan, has the faster one, loses fewer devices; the
 * last one. Never host 0, the head.
 * without  [n_hosts] asked only for hosts that are in pairs
 * Threads  pure; any */
int fl_host_sight_choose(const fl_host_sight *sight, const fl_host_loss *without, int n_hosts);

/* Drop the pairs of this host. Pure. */
void fl_host_sight_drop(fl_host_sight *sight, int host);

#endif
