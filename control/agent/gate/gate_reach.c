/* The gate's part that deals with hosts that do not reach each other.
 *
 *     controller ── REACH ──> gate ── REACH ──> each host: tries all others, and the head
 *                <─ REACHED ─      <─ REACHED ─     the gate tries all of them itself
 *     controller ── APART ──> gate ── APART ──> the host that the run does without: ends its
 *                                               workers, and asks to join again
 *     that host waits ── REACH, once a second: what had failed ──> its agent, or the other host
 *       until that has succeeded often enough in a row, or the other host is gone as well
 * A host whose loopback is filtered is its own other host. */
#include "control/agent/gate/gate_state.h"

#include "device/errors/log.h"
#include "device/system/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    ANSWER_MS = 500,  /* for answers, beyond the time of the trials */
    TRY_MS = 1000,    /* of a host that waits, and between two of them */
    MOST_TRIALS = 64, /* in a row; twice as many each time that the host was left out */
};

/* Their numbers are none of the controller's questions. */
static const uint64_t TRIALS = (uint64_t)1 << 63;

void fl__gate_reach_open(fl__gate *g)
{
    if (!fl_reach_door_open(&g->door, g->hosts->ports)) {
        fl_log(FL_LOG_WARN, "other hosts cannot try whether they reach this one: %s",
               strerror(errno));
    }
}

/* ---- trials ---- */

/* port: of a worker that may be gone; 0: the door of the host. */
static bool add_target(const fl__gate *g, int i, uint16_t port, fl_reach_order *order)
{
    struct in_addr address;
    bool is_door = port == 0;
    if (is_door) {
        port = i == 0 ? g->door.port : g->remote[i].door;
    }
    if (port == 0 || inet_pton(AF_INET, g->hosts->host[i].address, &address) != 1) {
        return false;
    }
    order->target[order->n++] = (fl_reach_target){
        .host = (uint16_t)i, .port = port, .is_door = is_door, .address = ntohl(address.s_addr)};
    return true;
}

static bool send_order(const fl__gate *g, const fl_host_peer *to, const fl_reach_order *order)
{
    fl_host_message message = {.type = FL_HOST_REACH, .reach = *order};
    return order->n > 0 && fl__gate_send_to_host(g, to, &message);
}

/* ---- the controller's question ---- */

static void add_others(fl__gate *g, int i)
{
    g->ask.n = 0;
    for (int k = 0; k < g->hosts->n; k++) {
        bool is_there = k == 0 || g->remote[k].state == FL__HOST_JOINED;
        if (k != i && is_there) {
            (void)add_target(g, k, 0, &g->ask);
        }
    }
}

void fl__gate_reach_ask(fl__gate *g, const fl_agent_frame *frame)
{
    g->ask = (fl_reach_order){.number = frame->reach.number, .timeout_ms = frame->reach.timeout_ms};
    g->ask_us = fl_deadline_us(frame->reach.timeout_ms + ANSWER_MS);
    for (int i = 1; i < g->hosts->n; i++) {
        fl__remote_host *r = &g->remote[i];
        r->asked = r->owes_answer = false;
        if (r->state == FL__HOST_JOINED) {
            add_others(g, i);
            r->asked = send_order(g, &r->peer, &g->ask);
        }
    }
    add_others(g, 0);
    g->own = (fl_reach_answer){.number = g->ask.number};
    fl_reach_round_end(&g->round);
    if (g->ask.n > 0 && fl_reach_round_begin(&g->round, &g->ask) != FL_OK) {
        fl_log(FL_LOG_WARN, "cannot try which hosts this one reaches: %s", fl_errmsg());
    }
}

static bool have_answered(const fl__gate *g)
{
    bool all = !fl_reach_round_runs(g->round);
    for (int i = 1; i < g->hosts->n; i++) {
        const fl__remote_host *r = &g->remote[i];
        all = all && !(r->asked && r->state == FL__HOST_JOINED);
    }
    return all || fl_left_ms(g->ask_us) == 0;
}

void fl__gate_reach_send_owed(fl__gate *g)
{
    fl_agent_frame frame = {.type = FL_AGENT_REACHED};
    for (int i = 1; i < g->hosts->n; i++) {
        fl__remote_host *r = &g->remote[i];
        if (r->owes_answer) {
            frame.rank = g->hosts->host[i].first;
            frame.reached = r->answer;
            if (!fl__gate_send_to_controller(g, &frame)) {
                return;
            }
            r->owes_answer = false;
        }
    }
    frame = (fl_agent_frame){.type = FL_AGENT_REACHED, .reached = g->own};
    if (g->ask.number != 0 && have_answered(g) && fl__gate_send_to_controller(g, &frame)) {
        g->ask.number = 0;
    }
}

/* ---- a host that the run does without ---- */

void fl__gate_leave_out(fl__gate *g, const fl_agent_frame *frame)
{
    int i = fl_hosts_of(g->hosts, frame->rank), from = fl_hosts_of(g->hosts, frame->apart.from);
    fl_host_message message = {.type = FL_HOST_APART};
    if (i <= 0 || from < 0 || g->remote[i].state != FL__HOST_JOINED) {
        return;
    }
    fl__remote_host *r = &g->remote[i];
    snprintf(message.text, sizeof message.text, "%s", frame->apart.text);
    (void)fl__gate_send_to_host(g, &r->peer, &message);
    r->held = r->peer; /* until its agent asks by its next connection */
    r->owes_join = true;
    r->apart_from = from + 1;
    r->trial = frame->apart.trial;
    r->n_apart++;
    r->n_reached = 0;
    fl__gate_lose_host(g, i, frame->apart.text);
}

/* How often in a row it has to reach the other host: more often each time that it was left out, so
 * that a link that comes and goes does not disturb the run each time. */
static int trials_of(const fl__remote_host *r)
{
    return r->n_apart < 2 ? 1 : r->n_apart > 6 ? MOST_TRIALS : 1 << (r->n_apart - 1);
}

/* The one that tries: the agent that waits, that of the other host, or this host itself. */
static bool begin_trial(fl__gate *g, int i, int other, const fl_reach_order *order)
{
    const fl__remote_host *r = &g->remote[i];
    if (!r->trial.by_other) {
        return send_order(g, &r->held, order);
    }
    if (other > 0) {
        return send_order(g, &g->remote[other].peer, order);
    }
    return !fl_reach_round_runs(g->round) && order->n > 0 &&
           fl_reach_round_begin(&g->round, order) == FL_OK;
}

static void try_again(fl__gate *g, int i, int other)
{
    fl__remote_host *r = &g->remote[i];
    fl_reach_order order = {.number = TRIALS | ++g->n_tried, .timeout_ms = TRY_MS};
    bool can = add_target(g, r->trial.by_other ? i : other, r->trial.port, &order);
    r->tried_us = fl_now_us();
    r->tried = can && begin_trial(g, i, other, &order) ? order.number : 0;
}

static void say_held(const fl_hosts *hosts, int i, int other)
{
    if (other == i) {
        fl_log(FL_LOG_INFO, "host %s may join once its loopback works", hosts->host[i].name);
    } else {
        fl_log(FL_LOG_INFO, "host %s may join once it reaches host %s", hosts->host[i].name,
               hosts->host[other].name);
    }
}

bool fl__gate_holds_host(fl__gate *g, int i, const fl_host_peer *from)
{
    fl__remote_host *r = &g->remote[i];
    int other = r->apart_from - 1;
    bool is_gone = other > 0 && other != i && g->remote[other].state == FL__HOST_GONE;
    if (other < 0 || is_gone || r->n_reached >= trials_of(r)) {
        r->held.n = 0;
        return false;
    }
    bool is_new = !fl_host_peer_is(&r->held, from);
    fl_host_message alive = {.type = FL_HOST_ALIVE};
    (void)fl__gate_send_to_host(g, from, &alive);
    r->held = *from;
    if (is_new) {
        say_held(g->hosts, i, other);
        r->tried_us = 0;
    }
    bool is_there = other == 0 || other == i || g->remote[other].state == FL__HOST_JOINED;
    bool is_asked = g->ask.number != 0; /* the hosts try something else */
    if (is_there && !is_asked && fl_now_us() - r->tried_us > TRY_MS * INT64_C(1000)) {
        try_again(g, i, other);
    }
    return true;
}

static void take_trial(fl__remote_host *r, const fl_reach_answer *answer)
{
    if (answer->number == r->tried) {
        r->tried = 0;
        r->n_reached = answer->n == 0 ? r->n_reached + 1 : 0;
    }
}

void fl__gate_reach_answered(fl__gate *g, int i, const fl_host_peer *from,
                             const fl_reach_answer *answer)
{
    for (int k = 1; k < g->hosts->n; k++) {
        fl__remote_host *r = &g->remote[k];
        bool tries = r->trial.by_other ? i >= 0 && r->apart_from == i + 1
                                       : i < 0 && fl_host_peer_is(&r->held, from);
        if (r->apart_from > 0 && tries) {
            take_trial(r, answer);
        }
    }
    if (i > 0 && g->remote[i].asked && answer->number == g->ask.number) {
        g->remote[i].asked = false;
        g->remote[i].answer = *answer;
        g->remote[i].owes_answer = true;
    }
}

void fl__gate_reach_turn(fl__gate *g)
{
    fl_reach_answer answer;
    if (!fl_reach_round_turn(g->round, &answer)) {
        return;
    }
    if (answer.number == g->own.number) {
        g->own = answer;
    }
    fl__gate_reach_answered(g, 0, NULL, &answer);
}
