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

static void add_pair(int from, int to, const fl_net_unanswered *u, fl_host_sight *sight)
{
    char why[FL_HOST_PAIR_WHY_MAX + 1];
    if (u->error != 0) {
        snprintf(why, sizeof why, "%s", strerror(u->error));
    } else {
        snprintf(why, sizeof why, "no %s in %.1f s", u->connected ? "acknowledgement" : "answer",
                 (double)u->for_ms * 1e-3);
    }
    fl_host_sight_add(sight, from, to, u->port, why);
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
        if (u->for_ms < YOUNG_MS || !is_fresh || from < 0 || to < 0 || from == to ||
            !is_in_run(controller, from) || !is_in_run(controller, to)) {
            continue;
        }
        if (u->for_ms >= least_ms) {
            add_pair(from, to, u, sight);
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
