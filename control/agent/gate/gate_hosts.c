/* What goes between the controller and the other hosts: ②, ③ and ④ of control/agent/gate/gate.c. */
#include "control/agent/gate/gate_state.h"

#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/text/plural.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* ---- to hosts ---- */

bool fl__gate_send_to_host(const fl__gate *g, const fl_host_peer *to,
                           const fl_host_message *message)
{
    return fl_host_socket_send(&g->socket, to, message);
}

bool fl__gate_send_frame_to_host(const fl__gate *g, const fl__remote_host *r, const void *bytes,
                                 size_t n)
{
    fl_host_message message = {.type = FL_HOST_FRAME, .frame = {.bytes = bytes, .n = n}};
    return fl__gate_send_to_host(g, &r->peer, &message);
}

void fl__gate_tell_hosts(const fl__gate *g, const fl_host_message *message)
{
    for (int i = 1; i < g->hosts->n; i++) {
        const fl__remote_host *r = &g->remote[i];
        if (r->state == FL__HOST_JOINED) {
            (void)fl__gate_send_to_host(g, &r->peer, message); /* its silence shows a failure */
        } else if (r->held.n > 0 && message->type != FL_HOST_PING) {
            (void)fl__gate_send_to_host(g, &r->held, message);
        }
    }
}

void fl__gate_release_host(fl__gate *g, const fl_agent_frame *frame)
{
    int i = fl_hosts_of(g->hosts, frame->rank);
    fl_host_message message = {.type = FL_HOST_RELEASE};
    if (i <= 0 || g->remote[i].state != FL__HOST_JOINED) {
        return;
    }
    fl__remote_host *r = &g->remote[i];
    snprintf(message.text, sizeof message.text, "%s", frame->text);
    r->released = frame->text[0] == '\0';
    (void)fl__gate_send_to_host(g, &r->peer, &message);
}

/* ---- a host that is lost ---- */

/* ④ A worker without a process yet never gets one; of one that runs, the end is reported. */
void fl__gate_lose_worker(fl__gate *g, int rank)
{
    fl_agent_child *c = &g->children[rank];
    fl__gate_drop_frame(&g->kept[rank]);
    c->owes_exited = c->owes_exited || (c->lives && c->pid > 0);
    c->owes_spawned = c->owes_spawned || (c->lives && c->pid == 0);
    c->lives = false;
}

/* The run that has not begun ends if a host cannot take part, and says then why. */
static void say_lost(const fl_host *host, const fl__remote_host *r)
{
    char workers[FL_COUNT_BYTES];
    if (r->unfit && !r->late) {
        return;
    }
    if (r->unfit) {
        fl_log(FL_LOG_WARN, "host %s (%s) cannot take part: %s", host->name, host->address, r->why);
    } else {
        fl_log(FL_LOG_WARN, "host %s (%s) is lost, and its %s with it: %s", host->name,
               host->address, fl_count_range(host->first, host->n, "worker", workers), r->why);
    }
}

void fl__gate_lose_host(fl__gate *g, int i, const char *why)
{
    const fl_host *host = &g->hosts->host[i];
    fl__remote_host *r = &g->remote[i];
    r->owes[FL_HOST_NEWS_LOST] = !r->released;
    r->silent_ms = 0;
    snprintf(r->why, sizeof r->why, "%s", why);
    if (g->end_us == 0 && !r->released &&
        r->apart_from == 0) { /* else the controller has said it */
        say_lost(host, r);
    }
    r->state = FL__HOST_GONE;
    r->late = true;
    r->owes[FL_HOST_NEWS_CLOCK] = false;
    fl_run_proof_remove(g->o->dir_fd, r->proof);
    for (int rank = host->first; rank < host->first + host->n && rank < g->o->n_workers; rank++) {
        fl__gate_lose_worker(g, rank);
    }
}

/* ---- ② ---- */

void fl__gate_drop_frame(fl__kept_frame *kept)
{
    fl_free(kept->bytes);
    *kept = (fl__kept_frame){.bytes = NULL};
}

bool fl__gate_keep_frame(fl__kept_frame *kept, const void *bytes, size_t n)
{
    fl__gate_drop_frame(kept);
    if (fl_alloc(n, &kept->bytes) != FL_OK) {
        return false;
    }
    kept->n = n;
    memcpy(kept->bytes, bytes, n);
    return true;
}

void fl__gate_send_kept(fl__gate *g, int i)
{
    const fl_host *host = &g->hosts->host[i];
    for (int rank = host->first; rank < host->first + host->n && rank < g->o->n_workers; rank++) {
        fl__kept_frame *kept = &g->kept[rank];
        if (kept->bytes != NULL &&
            !fl__gate_send_frame_to_host(g, &g->remote[i], kept->bytes, kept->n)) {
            fl__gate_lose_worker(g, rank);
        }
        fl__gate_drop_frame(kept);
    }
}

void fl__gate_pass_to_host(fl__gate *g, const fl_agent_frame *frame, const void *bytes, size_t n)
{
    int i = fl_hosts_of(g->hosts, frame->rank);
    const fl__remote_host *r = i < 0 ? NULL : &g->remote[i];
    fl_agent_child *c = &g->children[frame->rank];
    if (frame->type == FL_AGENT_SPAWN) {
        *c = (fl_agent_child){.incarnation = frame->incarnation, .lives = true};
    }
    bool joined = r != NULL && r->state == FL__HOST_JOINED;
    bool may_have = joined && fl__gate_is_proven(r);
    bool is_to = r != NULL && (joined || r->state == FL__HOST_AWAITED);
    bool sent = may_have && fl__gate_send_frame_to_host(g, r, bytes, n);
    bool waits = is_to && !may_have && frame->type == FL_AGENT_SPAWN &&
                 fl__gate_keep_frame(&g->kept[frame->rank], bytes, n);
    if (frame->type == FL_AGENT_SPAWN && !sent && !waits) {
        fl__gate_lose_worker(g, frame->rank);
    }
}

/* ---- ③ ---- */

static bool is_report(fl_agent_type type)
{
    return (type >= FL_AGENT_SPAWNED && type <= FL_AGENT_FLIGHT) || type == FL_AGENT_RECORDS;
}

/* The start of a process is reported once, and its end once after that: the controller waits for a
 * start, and the gate reports the end of what it knows to run. */
static bool is_in_turn(const fl_agent_child *c, const fl_agent_frame *frame)
{
    bool runs = frame->incarnation == c->incarnation && c->lives;
    return frame->type == FL_AGENT_SPAWNED  ? runs && c->pid == 0
           : frame->type == FL_AGENT_EXITED ? runs && c->pid > 0
                                            : true;
}

/* A host speaks for its own workers only. */
static void take_host_frame(fl__gate *g, int i, const void *bytes, size_t n)
{
    const fl_host *host = &g->hosts->host[i];
    fl_agent_frame frame;
    bool good = fl_agent_wire_get(bytes, n, &frame) == FL_OK && frame.rank >= host->first &&
                frame.rank < host->first + host->n && frame.rank < g->o->n_workers &&
                (is_report(frame.type) || frame.type == FL_AGENT_SHARES) &&
                is_in_turn(&g->children[frame.rank], &frame);
    if (!good) {
        fl_log_counted(&g->n_dropped[FL__GATE_DROP_REPORT], 1,
                       "dropped %zu bytes from host %s: no report of its workers, or not in turn",
                       n, host->name);
        return;
    }
    if (frame.type == FL_AGENT_SHARES) {
        fl__gate_take_answer(g, i);
        return;
    }
    fl_agent_child *c = &g->children[frame.rank];
    if (frame.type == FL_AGENT_SPAWNED) {
        c->pid = (pid_t)frame.spawned.pid;
        c->lives = c->pid > 0;
    } else if (frame.type == FL_AGENT_EXITED) {
        c->lives = false;
    }
    (void)send(g->controller, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int find_peer(const fl__gate *g, const fl_host_peer *from)
{
    for (int i = 1; i < g->hosts->n; i++) {
        const fl__remote_host *r = &g->remote[i];
        if (r->state == FL__HOST_JOINED && fl_host_peer_is(&r->peer, from)) {
            return i;
        }
    }
    return -1;
}

/* To an agent that takes itself for one of the run, as one that stood still: its host is lost. */
static void tell_lost(const fl__gate *g, const fl_host_peer *from)
{
    fl_host_message lost = {.type = FL_HOST_LOST};
    const char *why = "the connection by which it joined was closed";
    for (int i = 1; i < g->hosts->n; i++) {
        const fl__remote_host *r = &g->remote[i];
        bool is_it = r->state == FL__HOST_GONE && fl_host_peer_is(&r->peer, from);
        if (is_it && r->apart_from != 0) {
            return; /* it has been told, and joins again */
        }
        why = is_it ? r->why : why;
    }
    snprintf(lost.text, sizeof lost.text, "%s", why);
    (void)fl__gate_send_to_host(g, from, &lost);
}

/* A message of an agent that asks to join, or that is no host's any more. */
static void take_from_stranger(fl__gate *g, const fl_host_peer *from,
                               const fl_host_message *message)
{
    if (message->type == FL_HOST_JOIN) {
        fl__gate_take_join(g, from, &message->join);
    } else if (message->type == FL_HOST_ALIVE && g->end_us == 0) {
        tell_lost(g, from);
    } else if (message->type == FL_HOST_REACHED) {
        fl__gate_reach_answered(g, -1, from, &message->reached);
    }
}

static void take_from_host(fl__gate *g, int i, const fl_host_message *message)
{
    fl__remote_host *r = &g->remote[i];
    r->heard_us = fl_now_us();
    if (message->type == FL_HOST_FRAME) {
        take_host_frame(g, i, message->frame.bytes, message->frame.n);
    } else if (message->type == FL_HOST_PONG) {
        fl__gate_take_time(g, i, message);
    } else if (message->type == FL_HOST_REACHED) {
        fl__gate_reach_answered(g, i, &r->peer, &message->reached);
    } else if (message->type == FL_HOST_DOOR) {
        g->remote[i].door = message->door;
    } else if (message->type == FL_HOST_DRAIN) {
        r->grace_ms = message->grace_ms;
        r->owes[FL_HOST_NEWS_NOTICE] = true;
    } else if (message->type == FL_HOST_LEAVE || message->type == FL_HOST_UNFIT) {
        r->unfit = message->type == FL_HOST_UNFIT;
        r->parted = !r->unfit && g->end_us != 0;
        fl__gate_lose_host(g, i, message->text[0] == '\0' ? "its agent has ended" : message->text);
    }
}

void fl__gate_take_message(fl__gate *g, const fl_host_peer *from, const unsigned char *bytes,
                           size_t n)
{
    fl_host_message message;
    int i = find_peer(g, from);
    fl_status status = fl_host_wire_get(bytes, n, &message);
    if (status == FL_ENOTSUP && i < 0 && g->end_us == 0) {
        char why[FL_HOST_TEXT_MAX + 1], name[FL_HOST_TEXT] = "";
        fl_join_other_version(why);
        bool asks = fl_host_wire_asked(bytes, n, name);
        fl__gate_refuse_version(g, from, asks ? name : "", why);
        return;
    }
    if (status != FL_OK) {
        fl_log_counted(&g->n_dropped[FL__GATE_DROP_MESSAGE], 1, "dropped a message from %s%s: %s",
                       i < 0 ? "an agent that has not joined" : "host ",
                       i < 0 ? "" : g->hosts->host[i].name, fl_errmsg());
        return;
    }
    if (i < 0) {
        take_from_stranger(g, from, &message);
    } else {
        take_from_host(g, i, &message);
    }
}

bool fl__gate_read_host(fl__gate *g)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_peer from;
    size_t n;
    if (!fl_host_socket_read(&g->socket, &from, bytes, &n)) {
        return false;
    }
    fl__gate_take_message(g, &from, bytes, n);
    return true;
}
