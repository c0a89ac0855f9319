/* What the gate itself reports to the controller: hosts, and the workers of lost ones. */
#include "control/agent/gate/gate_state.h"

#include "control/agent/wire/agent_socket.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

bool fl__gate_send_to_controller(const fl__gate *g, const fl_agent_frame *frame)
{
    return fl_agent_socket_send(g->controller, frame);
}

/* A frame with one piece of news of host i. */
static fl_agent_frame news_frame(const fl__gate *g, int i, fl_host_news news)
{
    const fl__remote_host *r = &g->remote[i];
    const fl_host *host = &g->hosts->host[i];
    fl_agent_frame frame = {.type = FL_AGENT_HOST, .rank = host->first, .host = {.news = news}};
    switch (news) {
    case FL_HOST_NEWS_JOINED:
        frame.host.n = host->n;
        frame.host.kind = r->kind;
        snprintf(frame.host.name, sizeof frame.host.name, "%s", host->name);
        snprintf(frame.host.address, sizeof frame.host.address, "%s", host->address);
        break;
    case FL_HOST_NEWS_NOTICE:
        frame.host.grace_ms = r->grace_ms;
        break;
    case FL_HOST_NEWS_LOST:
        frame.host.silent_ms = r->silent_ms;
        frame.host.unfit = r->unfit;
        snprintf(frame.host.text, sizeof frame.host.text, "%s", r->why);
        break;
    case FL_HOST_NEWS_CLOCK:
        frame.host.clock = fl_host_clock_estimate(&r->clock);
        break;
    case FL_HOST_NEWS_KINDS:
        break;
    }
    return frame;
}

/* What the controller is to learn of the hosts, before what follows for their workers. */
static bool send_news(const fl__gate *g)
{
    for (int i = 1; i < g->hosts->n; i++) {
        for (int news = 0; news < FL_HOST_NEWS_KINDS; news++) {
            bool *owes = &g->remote[i].owes[news];
            fl_agent_frame frame;
            if (!*owes) {
                continue;
            }
            frame = news_frame(g, i, (fl_host_news)news);
            if (!fl__gate_send_to_controller(g, &frame)) {
                return false;
            }
            *owes = false;
        }
    }
    return true;
}

/* ④ What the controller is to learn of lost hosts and their workers. */
void fl__gate_send_owed(const fl__gate *g)
{
    if (!send_news(g)) {
        return;
    }
    for (int rank = g->hosts->host[0].n; rank < g->o->n_workers; rank++) {
        fl_agent_child *c = &g->children[rank];
        fl_agent_frame frame = {.rank = rank, .incarnation = c->incarnation};
        if (c->owes_spawned) {
            frame.type = FL_AGENT_SPAWNED;
            frame.spawned.error = EHOSTDOWN;
            c->owes_spawned = !fl__gate_send_to_controller(g, &frame);
        }
        if (c->owes_exited) {
            frame.type = FL_AGENT_EXITED;
            frame.wait_status = SIGKILL;
            c->owes_exited = !fl__gate_send_to_controller(g, &frame);
        }
    }
}
