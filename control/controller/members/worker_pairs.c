#include "control/controller/members/worker_pairs.h"

#include "control/controller/parts/parts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum {
    FRESH_US = 1500 * 1000, /* a report counts for so long */
    YOUNG_MS = 300,         /* from here on, a connection may have no answer: a lost packet is
                               repeated before, or after a second */
};

/* The host that has this address; -1: none has. */
static int find_host(const fl_hosts *hosts, uint32_t address)
{
    char text[INET_ADDRSTRLEN];
    const struct in_addr in = {htonl(address)};
    if (inet_ntop(AF_INET, &in, text, sizeof text) == NULL) {
        return -1;
    }
    for (int i = 0; i < hosts->n; i++) {
        if (strcmp(hosts->host[i].address, text) == 0) {
            return i;
        }
    }
    return -1;
}

static bool is_in_run(const fl_controller *controller, int host)
{
    fl_host_state state = controller->hosts.records[host].state;
    return host == 0 || state == FL_HOST_STATE_JOINED || state == FL_HOST_STATE_DRAINING;
}

static void add_pair(int rank, int from, int to, const fl_net_unanswered *u, fl_host_sight *sight)
{
    char how[FL_HOST_PAIR_WHY_MAX + 1], why[FL_HOST_PAIR_WHY_MAX + 1];
    if (u->error != 0) {
        snprintf(how, sizeof how, "%.30s", strerror(u->error));
    } else {
        snprintf(how, sizeof how, "no %s in %.1f s", u->connected ? "acknowledgement" : "answer",
                 (double)u->for_ms * 1e-3);
    }
    if (from == to) {
        snprintf(why, sizeof why, "worker %d tries port %u: %.36s", rank, u->port, how);
    }
    fl_host_sight_add(sight, from, to, u->port, from == to ? why : how);
}

/* A worker that joins disturbs nobody: its attempt fails, and the next one follows later. */
static bool awaits_worker(const fl_controller *controller, int host)
{
    bool joins = false;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        joins = joins || (controller->workers[rank].joins &&
                          fl_hosts_of(controller->options->hosts, rank) == host);
    }
    return joins;
}

bool fl_worker_pairs_add(const fl_controller *controller, int64_t least_ms, int64_t now_us,
                         fl_host_sight *sight)
{
    const fl_hosts *hosts = controller->options->hosts;
    bool any = false;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        const fl_worker *w = &controller->workers[rank];
        const fl_net_unanswered *u = &w->unanswered;
        int from = fl_hosts_of(hosts, rank), to = find_host(hosts, u->address);
        bool is_fresh = w->exited_us == 0 && now_us - w->heard_us < FRESH_US;
        if (u->for_ms < YOUNG_MS || !is_fresh || from < 0 || to < 0 ||
            !is_in_run(controller, from) || !is_in_run(controller, to) ||
            (from == to && awaits_worker(controller, from))) {
            continue;
        }
        if (u->for_ms >= least_ms) {
            add_pair(rank, from, to, u, sight);
        } else {
            any = true;
        }
    }
    return any;
}

void fl_worker_pairs_explain(const fl_hosts *hosts, fl_security security, const fl_host_pair *pair,
                             char text[FL_WORKER_PAIRS_TEXT])
{
    char ports[FL_HOSTS_PORTS_TEXT];
    snprintf(text, FL_WORKER_PAIRS_TEXT,
             "port %u of host %s (%s tries: %s); let TCP to %s between the hosts through%s",
             pair->port, hosts->host[pair->b].name, hosts->host[pair->a].name, pair->why,
             fl_hosts_ports_text(hosts->ports, ports),
             hosts->ports[0] == 0 && security != FL_SECURITY_NONE ? ", or set autodp.ports" : "");
}

void fl_worker_pairs_explain_own(const fl_host_pair *pair, char text[FL_WORKER_PAIRS_TEXT])
{
    snprintf(text, FL_WORKER_PAIRS_TEXT,
             "do not reach each other over the interface lo: loopback is filtered (%s; `frostline "
             "doctor` checks it)",
             pair->why);
}
