/* Whether the other hosts live, and ssh of their agents: ④ of control/agent/gate/gate.c. */
#include "control/agent/gate/gate_state.h"

#include "control/agent/join/awaited.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <stdio.h>

enum {
    CLOSED_US = 100000,  /* to read what came before a connection was closed */
    STARTERS_MS = 2000,  /* for ssh to end after its agent */
    SILENT_PERCENT = 85, /* of fault.detect: in the rest, the others go on without a lost host */
};

/* ---- signs of life ---- */

void fl__gate_excuse_hosts(fl__gate *g, int64_t us)
{
    int64_t now_us = fl_now_us();
    for (int i = 1; i < g->hosts->n; i++) {
        fl__remote_host *r = &g->remote[i];
        r->heard_us = fl_excused_us(r->heard_us, us, now_us);
    }
}

/* Their answers show that they live. The kernel of a host whose agent was killed closes its
 * connection. */
static void ping_hosts(fl__gate *g, int64_t now_us)
{
    fl_host_message ping = {.type = FL_HOST_PING, .clock = {.sent_ns = fl_now_ns()}};
    for (int i = 1; i < g->hosts->n; i++) {
        fl__remote_host *r = &g->remote[i];
        if (r->state != FL__HOST_JOINED) {
            continue;
        }
        r->n_first_pings += r->n_first_pings < FL__GATE_FIRST_PINGS;
        if (!fl__gate_send_to_host(g, &r->peer, &ping) && fl_host_socket_found_closed() &&
            r->closed_us == 0) {
            r->closed_us = now_us;
        }
    }
}

/* Its network may be cut, or its machine off: nobody can tell. */
static void lose_silent_host(fl__gate *g, int i, int64_t now_us)
{
    fl__remote_host *r = &g->remote[i];
    char why[64];
    int64_t silent_us = now_us - r->heard_us;
    snprintf(why, sizeof why, "it has not answered for %.1f s", (double)silent_us * 1e-6);
    fl__gate_lose_host(g, i, why);
    r->silent_ms = silent_us / 1000;
}

static void watch_host(fl__gate *g, int i, int64_t now_us)
{
    const fl__remote_host *r = &g->remote[i];
    bool joined = r->state == FL__HOST_JOINED;
    if (joined && r->closed_us != 0 && now_us - r->closed_us > CLOSED_US) {
        fl__gate_lose_host(g, i, "the connection of its agent was closed");
    } else if (joined && now_us - r->heard_us > g->hosts->detect_ms * 10 * SILENT_PERCENT) {
        lose_silent_host(g, i, now_us);
    } else if (joined) {
        fl__gate_watch_proof(g, i, now_us);
    } else if (r->state == FL__HOST_AWAITED) {
        fl__gate_check_awaited(g, i, now_us);
    }
}

static void watch_clock(fl__gate *g, int64_t now_us)
{
    if (now_us - g->alive_us > fl__gate_between_pings_us(g)) {
        ping_hosts(g, now_us);
        g->alive_us = now_us;
    }
    fl__gate_tell_awaited(g, now_us);
    for (int i = 1; i < g->hosts->n; i++) {
        watch_host(g, i, now_us);
    }
}

/* ---- ssh ---- */

/* Also of hosts that are lost: their agents may wait to join again. */
void fl__gate_take_starters(fl__gate *g)
{
    for (int i = 1; g->o->starters != NULL && i < g->hosts->n; i++) {
        g->remote[i].starter = g->o->starters[i];
    }
}

/* When the run goes back, agents join again that users have started by hand in place of a task. */
static void watch_tasks(fl__gate *g, int64_t now_us)
{
    if (g->hosts->again || !fl_awaited_looks_at_tasks(g->hosts, now_us, &g->looked_us)) {
        return;
    }
    for (int i = 1; i < g->hosts->n; i++) {
        bool is_awaited = g->remote[i].state == FL__HOST_AWAITED, unfit = false;
        if (is_awaited && g->hosts->has_lost(g->hosts->meeting, i, &unfit)) {
            g->remote[i].unfit = unfit;
            fl__gate_lose_host(g, i, FL_AWAITED_TASK_LOST);
        }
    }
}

/* ssh that ends before its agent has joined could not start it. When the run goes back, the agent
 * was started long ago, and may live without its ssh: the gate waits for it all the same. */
static void watch_starters(fl__gate *g)
{
    for (int i = 1; i < g->hosts->n; i++) {
        fl__remote_host *r = &g->remote[i];
        char why[FL_HOST_STARTER_WHY];
        fl_host_starter_read(&r->starter, true);
        if (fl_host_starter_ended(&r->starter, g->hosts->ssh[i], true, why) &&
            r->state == FL__HOST_AWAITED && !g->hosts->again) {
            r->unfit = r->starter.unfit;
            fl__gate_lose_host(g, i, why);
        }
    }
}

/* Nobody tells the agent of a lost host that the run is over, unless it waits to join again: its
 * ssh may hang, as on a host that has vanished. */
static void cut_starter(fl__gate *g, int i)
{
    fl__remote_host *r = &g->remote[i];
    bool is_lost = r->state == FL__HOST_GONE && r->held.n == 0 && !r->released && !r->parted;
    if (is_lost && r->starter.pid > 0) {
        fl_log(FL_LOG_INFO, "ends the ssh of host %s, which is lost", g->hosts->host[i].name);
    }
    if (is_lost || r->state == FL__HOST_AWAITED) {
        fl_host_starter_cut(&r->starter);
    }
}

void fl__gate_end_starters(fl__gate *g)
{
    int64_t until_us = fl_deadline_us(STARTERS_MS);
    if (g->again) { /* the next gate reads on what they say */
        return;
    }
    for (int i = 1; i < g->hosts->n; i++) {
        cut_starter(g, i);
    }
    for (int i = 1; i < g->hosts->n; i++) {
        fl_host_starter_close(&g->remote[i].starter, fl_left_ms(until_us), true);
    }
}

/* ---- all of it ---- */

void fl__gate_watch_hosts(fl__gate *g, int64_t now_us)
{
    watch_clock(g, now_us);
    watch_starters(g);
    watch_tasks(g, now_us);
}
