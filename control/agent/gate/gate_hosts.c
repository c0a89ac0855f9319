/* The gate's part that deals with the other hosts: ①, ③ and ④ of control/agent/gate/gate.c. */
#include "control/agent/gate/gate_state.h"

#include "control/agent/join/join_address.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ALIVES = 8,          /* in the time after which silence counts as loss */
    CLOCK_US = 250000,   /* between two looks at the hosts' clocks, at most */
    CLOCK_FIRST = 8,     /* looks at the clock of a host that has joined just now */
    CLOSED_US = 100000,  /* to read what came before a connection was closed */
    AGAIN_US = 20000000, /* for a host that was in the run to join it again */
    STARTERS_MS = 2000,  /* for ssh to end after its agent */
};

bool fl__gate_send_to_host(const fl__gate *g, const fl_host_peer *to,
                           const fl_host_message *message)
{
    return fl_host_socket_send(&g->socket, to, message);
}

static bool send_to_host(const fl__gate *g, const fl__remote_host *r,
                         const fl_host_message *message)
{
    return fl__gate_send_to_host(g, &r->peer, message);
}

void fl__gate_tell_hosts(const fl__gate *g, const fl_host_message *message)
{
    for (int i = 1; i < g->hosts->n; i++) {
        const fl__remote_host *r = &g->remote[i];
        if (r->state == FL__HOST_JOINED) {
            (void)send_to_host(g, r, message); /* its silence shows a failure */
        } else if (r->held.n > 0 && message->type != FL_HOST_PING) {
            (void)fl__gate_send_to_host(g, &r->held, message);
        }
    }
}

static bool send_frame_to_host(const fl__gate *g, const fl__remote_host *r, const void *bytes,
                               size_t n)
{
    fl_host_message message = {.type = FL_HOST_FRAME, .frame = {.bytes = bytes, .n = n}};
    return send_to_host(g, r, &message);
}

bool fl__gate_send_to_controller(const fl__gate *g, const fl_agent_frame *frame)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    size_t n = fl_agent_wire_put(frame, bytes);
    return send(g->controller, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* What the controller is to learn of the hosts, before what follows for their workers. */
static bool send_news(const fl__gate *g)
{
    for (int i = 1; i < g->hosts->n; i++) {
        fl__remote_host *r = &g->remote[i];
        const fl_host *host = &g->hosts->host[i];
        for (int news = 0; news < FL_HOST_NEWS_KINDS; news++) {
            fl_agent_frame frame = {.type = FL_AGENT_HOST, .rank = host->first};
            frame.host.news = (fl_host_news)news;
            frame.host.grace_ms = news == FL_HOST_NEWS_NOTICE ? r->grace_ms : 0;
            frame.host.silent_ms = news == FL_HOST_NEWS_LOST ? r->silent_ms : 0;
            frame.host.unfit = news == FL_HOST_NEWS_LOST && r->unfit;
            snprintf(frame.host.text, sizeof frame.host.text, "%s",
                     news == FL_HOST_NEWS_LOST ? r->why : "");
            if (news == FL_HOST_NEWS_JOINED) {
                frame.host.n = host->n;
                frame.host.kind = r->kind;
                snprintf(frame.host.name, sizeof frame.host.name, "%s", host->name);
                snprintf(frame.host.address, sizeof frame.host.address, "%s", host->address);
            }
            if (news == FL_HOST_NEWS_CLOCK) {
                frame.host.clock = fl_host_clock_estimate(&r->clock);
            }
            if (r->owes[news] && !fl__gate_send_to_controller(g, &frame)) {
                return false;
            }
            r->owes[news] = false;
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

void fl__gate_drop_frame(fl__kept_frame *kept)
{
    fl_free(kept->bytes);
    *kept = (fl__kept_frame){.bytes = NULL};
}

/* ④ A worker without a process yet never gets one; of one that runs, the end is reported. */
static void lose_worker(fl__gate *g, int rank)
{
    fl_agent_child *c = &g->children[rank];
    fl__gate_drop_frame(&g->kept[rank]);
    c->owes_exited = c->owes_exited || (c->lives && c->pid > 0);
    c->owes_spawned = c->owes_spawned || (c->lives && c->pid == 0);
    c->lives = false;
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
        fl_log(FL_LOG_WARN, "host %s (%s) is lost, and its workers %d .. %d with it: %s",
               host->name, host->address, host->first, host->first + host->n - 1, why);
    }
    r->state = FL__HOST_GONE;
    r->owes[FL_HOST_NEWS_CLOCK] = false;
    for (int rank = host->first; rank < host->first + host->n && rank < g->o->n_workers; rank++) {
        lose_worker(g, rank);
    }
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

void fl__gate_pass_to_host(fl__gate *g, const fl_agent_frame *frame, const void *bytes, size_t n)
{
    int i = fl_hosts_of(g->hosts, frame->rank);
    const fl__remote_host *r = i < 0 ? NULL : &g->remote[i];
    fl_agent_child *c = &g->children[frame->rank];
    if (frame->type == FL_AGENT_SPAWN) {
        *c = (fl_agent_child){.incarnation = frame->incarnation, .lives = true};
    }
    bool sent = r != NULL && r->state == FL__HOST_JOINED && send_frame_to_host(g, r, bytes, n);
    bool waits = r != NULL && r->state == FL__HOST_AWAITED && frame->type == FL_AGENT_SPAWN &&
                 fl__gate_keep_frame(&g->kept[frame->rank], bytes, n);
    if (frame->type == FL_AGENT_SPAWN && !sent && !waits) {
        lose_worker(g, frame->rank);
    }
}

static bool is_report(fl_agent_type type)
{
    return (type >= FL_AGENT_SPAWNED && type <= FL_AGENT_FLIGHT) || type == FL_AGENT_RECORDS;
}

/* A host speaks for its own workers only. */
static void take_host_frame(fl__gate *g, int i, const void *bytes, size_t n)
{
    const fl_host *host = &g->hosts->host[i];
    fl_agent_frame frame;
    bool good = fl_agent_wire_get(bytes, n, &frame) == FL_OK && frame.rank >= host->first &&
                frame.rank < host->first + host->n && frame.rank < g->o->n_workers &&
                is_report(frame.type);
    if (!good) {
        fl_log(FL_LOG_WARN, "dropped %zu bytes from host %s: no report of its workers", n,
               host->name);
        return;
    }
    fl_agent_child *c = &g->children[frame.rank];
    if (frame.incarnation == c->incarnation && frame.type == FL_AGENT_SPAWNED) {
        c->pid = (pid_t)frame.spawned.pid;
        c->lives = c->pid > 0;
    } else if (frame.incarnation == c->incarnation && frame.type == FL_AGENT_EXITED) {
        c->lives = false;
    }
    (void)send(g->controller, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_kept(fl__gate *g, int i)
{
    const fl_host *host = &g->hosts->host[i];
    for (int rank = host->first; rank < host->first + host->n && rank < g->o->n_workers; rank++) {
        fl__kept_frame *kept = &g->kept[rank];
        if (kept->bytes != NULL && !send_frame_to_host(g, &g->remote[i], kept->bytes, kept->n)) {
            lose_worker(g, rank);
        }
        fl__gate_drop_frame(kept);
    }
}

/* The job as the run directory has it, in pieces; returns its bytes, 0: it cannot be read. */
static int64_t send_job(const fl__gate *g, const fl__remote_host *r)
{
    unsigned char piece[FL_HOST_JOB_PIECE];
    int64_t all = 0;
    ssize_t n;
    int fd = openat(g->o->dir_fd, "job.yaml", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    while (fd >= 0 && (n = read(fd, piece, sizeof piece)) > 0 && all <= FL_HOST_JOB_MAX) {
        fl_host_message m = {.type = FL_HOST_JOB, .frame = {.bytes = piece, .n = (size_t)n}};
        (void)send_to_host(g, r, &m);
        all += n;
    }
    if (fd >= 0) {
        close(fd);
    }
    return all;
}

static void welcome_host(fl__gate *g, int i)
{
    const fl_host *host = &g->hosts->host[i];
    fl_host_message message = {.type = FL_HOST_WELCOME};
    bool was_in = g->remote[i].was_in;
    message.welcome.host = *host;
    message.welcome.job_bytes = send_job(g, &g->remote[i]);
    message.welcome.silence_ms = FL_HOST_PATIENCE * g->hosts->silence_ms;
    message.welcome.continues = g->o->continues || was_in;
    message.welcome.from_snapshot = g->o->from_snapshot && !was_in;
    message.welcome.state_step = was_in ? -1 : g->o->state_step;
    message.welcome.facts = *g->o->facts;
    message.welcome.n_stores = g->o->n_stores;
    for (int k = 0; k < g->n_first_hosts; k++) {
        message.welcome.first[message.welcome.n_hosts++] = g->hosts->host[k].first;
        message.welcome.n_first_ranks += g->hosts->host[k].n;
    }
    snprintf(message.welcome.run_dir, sizeof message.welcome.run_dir, "%s", g->run_dir);
    snprintf(message.welcome.cwd, sizeof message.welcome.cwd, "%s", g->cwd);
    snprintf(message.welcome.links, sizeof message.welcome.links, "%s", g->hosts->links);
    (void)send_to_host(g, &g->remote[i], &message);
    fl_log(FL_LOG_INFO, "host %s (%s) has joined with workers %d .. %d", host->name, host->address,
           host->first, host->first + host->n - 1);
    g->remote[i].owes[FL_HOST_NEWS_JOINED] = true;
    send_kept(g, i);
}

/* ---- ① ---- */

static void take_in(fl__gate *g, int i, const fl_host_peer *peer, const fl_host_join *join)
{
    fl__remote_host *r = &g->remote[i];
    r->peer = *peer;
    r->kind = join->kind;
    r->heard_us = fl_now_us();
    r->closed_us = 0;
    r->state = FL__HOST_JOINED;
    r->released = r->unfit = false;
    r->other_us = 0;
    r->clock.n = 0;
    r->held.n = 0;
    r->apart_from = 0;
    r->owes[FL_HOST_NEWS_CLOCK] = false;
    welcome_host(g, i);
    r->was_in = true;
}

static bool owes_news(const fl__gate *g, int i)
{
    const fl_host *host = &g->hosts->host[i];
    bool owes = g->remote[i].owes[FL_HOST_NEWS_LOST];
    for (int rank = host->first; rank < host->first + host->n; rank++) {
        owes = owes || g->children[rank].owes_exited || g->children[rank].owes_spawned;
    }
    return owes;
}

/* Whether another agent of the name may take the host over: once the controller knows of the loss
 * of the one before. That one may be dead, and not silent for long enough yet: the other one waits
 * for a sign of life, and is refused then. Agents ask again until they have an answer. */
static bool may_take_over(fl__gate *g, int i, const fl_host_peer *from, bool *refused)
{
    fl__remote_host *r = &g->remote[i];
    bool is_new = r->other_us == 0 || !fl_host_peer_is(&r->other, from);
    if (r->state == FL__HOST_AWAITED) {
        return true;
    }
    if (r->state == FL__HOST_GONE) {
        return !owes_news(g, i);
    }
    if (is_new) {
        r->other = *from;
        r->other_us = fl_now_us();
    }
    *refused = r->heard_us > r->other_us;
    return false;
}

/* Whether no other host than `self` has this address, or is to come with it; else why not. That of
 * a host that is lost is free. */
static bool is_free(const fl__gate *g, int self, const char *address,
                    char why[FL_HOST_TEXT_MAX + 1])
{
    for (int i = 0; i < g->hosts->n; i++) {
        bool is_there = i == 0 || g->remote[i].state != FL__HOST_GONE;
        if (i != self && is_there && strcmp(g->hosts->host[i].address, address) == 0) {
            snprintf(why, FL_HOST_TEXT_MAX + 1, "the address %s is that of host %s (--address)",
                     address, g->hosts->host[i].name);
            return false;
        }
    }
    return true;
}

/* The address of a known host that may join now: as a pod that was made again, it may have another
 * one than the run knows. False: another host has it. */
static bool take_address(fl__gate *g, int i, const fl_host_join *join,
                         char why[FL_HOST_TEXT_MAX + 1])
{
    fl_host *host = &g->hosts->host[i];
    const char *address = fl_join_address(host, join);
    if (!fl_join_is_reachable(g->hosts, join, address, why)) {
        return false;
    }
    if (strcmp(address, host->address) == 0) {
        return true;
    }
    if (!is_free(g, i, address, why)) {
        return false;
    }
    fl_log(FL_LOG_INFO, "host %s has the address %s now, and had %s", host->name, address,
           host->address);
    snprintf(host->address, sizeof host->address, "%s", address);
    return true;
}

/* The index of a new host, with the next ranks of the run. -1, with the reason why there are none.
 */
static int add_host(fl__gate *g, const fl_host_join *join, char why[FL_HOST_TEXT_MAX + 1])
{
    unsigned char bytes[sizeof(struct in_addr)];
    if (!fl_join_has_ranks(g->hosts, join, g->o->n_workers, why)) {
        return -1;
    }
    if (inet_pton(AF_INET, join->address, bytes) != 1) {
        snprintf(why, FL_HOST_TEXT_MAX + 1, "a new host needs an IPv4 address (--address)");
        return -1;
    }
    if (!fl_join_is_reachable(g->hosts, join, join->address, why) ||
        !is_free(g, -1, join->address, why)) {
        return -1;
    }
    int i = fl_hosts_add(g->hosts, join->name, join->address, join->n_devices);
    g->remote[i].was_in = true;
    return i;
}

static void refuse_host(const fl__gate *g, const fl__remote_host *from, const char *why)
{
    fl_host_message refusal = {.type = FL_HOST_REFUSE};
    snprintf(refusal.text, sizeof refusal.text, "%s", why);
    fl_log(FL_LOG_WARN, "refused a host: %s", refusal.text);
    (void)send_to_host(g, from, &refusal);
}

/* ⑤ It hears what the others have heard. */
static void turn_away(fl__gate *g, const fl__remote_host *from, int i)
{
    fl_host_message last = {.type = g->last};
    snprintf(last.text, sizeof last.text, "%s", g->last_why);
    (void)send_to_host(g, from, &last);
    if (i > 0) {
        g->remote[i].owes_join = false;
    }
}

static void take_join(fl__gate *g, const fl__remote_host *from, const fl_host_join *join)
{
    char why[FL_HOST_TEXT_MAX + 1] = "a host of this name has joined already";
    int i = fl_hosts_find(g->hosts, join->name);
    bool refused = i == 0;
    if (g->end_us != 0) {
        turn_away(g, from, i);
        return;
    }
    if (i > 0) {
        g->remote[i].owes_join = false;
    }
    if (strcmp(join->version, FL_VERSION) != 0) {
        snprintf(why, sizeof why, "it has frostline %.60s, and the head %s", join->version,
                 FL_VERSION);
        refused = true;
    } else if (i < 0) {
        i = add_host(g, join, why);
        refused = i < 0;
    }
    if (!refused && may_take_over(g, i, &from->peer, &refused) &&
        !fl__gate_holds_host(g, i, &from->peer)) {
        refused = !take_address(g, i, join, why);
        if (!refused) {
            g->remote[i].door = join->door;
            take_in(g, i, &from->peer, join);
        }
    }
    if (refused) {
        refuse_host(g, from, why);
    }
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
    (void)send_to_host(g, r, &message);
}

static void take_time(fl__remote_host *r, const fl_host_message *pong)
{
    int64_t got_ns = fl_now_ns(), middle_ns = (got_ns - pong->clock.sent_ns) / 2;
    const fl_clock_sample sample = {.sent_ns = pong->clock.sent_ns,
                                    .got_ns = got_ns,
                                    .there_ns = pong->clock.there_ns,
                                    .wall_offset_ns =
                                        pong->clock.wall_ns - (fl_now_wall_ns() - middle_ns)};
    fl_host_clock_add(&r->clock, &sample);
    r->owes[FL_HOST_NEWS_CLOCK] = r->clock.n > 0;
}

/* To an agent that takes itself for one of the run, as one that stood still: its host is lost. */
static void tell_lost(const fl__gate *g, const fl__remote_host *from)
{
    fl_host_message lost = {.type = FL_HOST_LOST};
    const char *why = "its connection was closed, or another agent has its name";
    for (int i = 1; i < g->hosts->n; i++) {
        const fl__remote_host *r = &g->remote[i];
        bool is_it = r->state == FL__HOST_GONE && fl_host_peer_is(&r->peer, &from->peer);
        if (is_it && r->apart_from != 0) {
            return; /* it has been told, and joins again */
        }
        why = is_it ? r->why : why;
    }
    snprintf(lost.text, sizeof lost.text, "%s", why);
    (void)send_to_host(g, from, &lost);
}

static void take_message(fl__gate *g, const fl__remote_host *from, const unsigned char *bytes,
                         size_t n)
{
    fl_host_message message;
    int i = find_peer(g, &from->peer);
    fl_status status = fl_host_wire_get(bytes, n, &message);
    if (status == FL_ENOTSUP && i < 0 && g->end_us == 0) {
        char why[FL_HOST_TEXT_MAX + 1];
        snprintf(why, sizeof why, "it has another version of frostline: %.150s", fl_errmsg());
        refuse_host(g, from, why);
        return;
    }
    if (status != FL_OK) {
        fl_log(FL_LOG_WARN, "dropped a message from a host: %s", fl_errmsg());
        return;
    }
    if (i < 0) {
        if (message.type == FL_HOST_JOIN) {
            take_join(g, from, &message.join);
        } else if (message.type == FL_HOST_ALIVE && g->end_us == 0) {
            tell_lost(g, from);
        } else if (message.type == FL_HOST_REACHED) {
            fl__gate_reach_answered(g, -1, &from->peer, &message.reached);
        }
        return; /* of a connection that is no host's any more */
    }
    g->remote[i].heard_us = fl_now_us();
    if (message.type == FL_HOST_FRAME) {
        take_host_frame(g, i, message.frame.bytes, message.frame.n);
    } else if (message.type == FL_HOST_PONG) {
        take_time(&g->remote[i], &message);
    } else if (message.type == FL_HOST_REACHED) {
        fl__gate_reach_answered(g, i, &from->peer, &message.reached);
    } else if (message.type == FL_HOST_DRAIN) {
        g->remote[i].grace_ms = message.grace_ms;
        g->remote[i].owes[FL_HOST_NEWS_NOTICE] = true;
    } else if (message.type == FL_HOST_LEAVE || message.type == FL_HOST_UNFIT) {
        g->remote[i].unfit = message.type == FL_HOST_UNFIT;
        fl__gate_lose_host(g, i, message.text[0] == '\0' ? "its agent has ended" : message.text);
    }
}

bool fl__gate_read_host(fl__gate *g)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl__remote_host from = {.heard_us = fl_now_us()};
    size_t n;
    if (!fl_host_socket_read(&g->socket, &from.peer, bytes, &n)) {
        return false;
    }
    take_message(g, &from, bytes, n);
    return true;
}

void fl__gate_excuse_hosts(fl__gate *g, int64_t us)
{
    int64_t now_us = fl_now_us();
    for (int i = 1; i < g->hosts->n; i++) {
        int64_t heard_us = g->remote[i].heard_us + us;
        g->remote[i].heard_us = heard_us < now_us ? heard_us : now_us;
    }
}

/* The time between two messages to all hosts, whose answers also tell their clocks. */
static int64_t between_pings_us(const fl__gate *g)
{
    int64_t us = g->hosts->silence_ms * 1000 / ALIVES;
    for (int i = 1; i < g->hosts->n; i++) {
        if (g->remote[i].state == FL__HOST_JOINED && g->remote[i].clock.n < CLOCK_FIRST) {
            return 0; /* one a turn */
        }
    }
    return us < CLOCK_US ? us : CLOCK_US;
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

/* Their answers show that they live. The kernel of a host whose agent was killed closes its
 * connection. */
static void ping_hosts(fl__gate *g, int64_t now_us)
{
    fl_host_message ping = {.type = FL_HOST_PING, .clock = {.sent_ns = fl_now_ns()}};
    for (int i = 1; i < g->hosts->n; i++) {
        fl__remote_host *r = &g->remote[i];
        if (r->state == FL__HOST_JOINED && !send_to_host(g, r, &ping) &&
            fl_host_socket_found_closed() && r->closed_us == 0) {
            r->closed_us = now_us;
        }
    }
}

static void watch_host(fl__gate *g, int i, int64_t now_us)
{
    const fl__remote_host *r = &g->remote[i];
    bool joined = r->state == FL__HOST_JOINED;
    if (joined && r->closed_us != 0 && now_us - r->closed_us > CLOSED_US) {
        fl__gate_lose_host(g, i, "the connection of its agent was closed");
    } else if (joined && now_us - r->heard_us > g->hosts->silence_ms * 1000) {
        lose_silent_host(g, i, now_us);
    } else if (r->state == FL__HOST_AWAITED && g->hosts->again &&
               now_us - g->opened_us > AGAIN_US) {
        fl__gate_lose_host(g, i, "it has not joined again");
    }
}

static void watch_clock(fl__gate *g, int64_t now_us)
{
    if (now_us - g->alive_us > between_pings_us(g)) {
        ping_hosts(g, now_us);
        g->alive_us = now_us;
    }
    for (int i = 1; i < g->hosts->n; i++) {
        watch_host(g, i, now_us);
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
            fl__gate_lose_host(g, i, why);
        }
    }
}

/* Nobody tells the agent of a lost host that the run is over, unless it waits to join again: its
 * ssh may hang, as on a host that has vanished. */
static void cut_starter(fl__gate *g, int i)
{
    fl__remote_host *r = &g->remote[i];
    bool is_lost = r->state == FL__HOST_GONE && r->held.n == 0 && !r->released;
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

void fl__gate_await_hosts(fl__gate *g)
{
    char awaited[FL_HOST_AWAITED_TEXT];
    int n = 0;
    g->opened_us = fl_now_us();
    for (int i = 1; i < g->hosts->n; i++) {
        n += !g->hosts->host[i].absent;
        g->remote[i].n_apart = g->hosts->host[i].n_apart;
        if (g->hosts->host[i].absent) {
            g->remote[i].state = FL__HOST_GONE;
            g->remote[i].apart_from = g->hosts->host[i].apart_from;
        }
    }
    if (n > 0) {
        fl_log(FL_LOG_INFO, "%s", fl_host_start_awaited(g->hosts, g->run_dir, awaited));
    }
}

/* Also of hosts that are lost: their agents may wait to join again. */
void fl__gate_take_starters(fl__gate *g)
{
    for (int i = 1; g->o->starters != NULL && i < g->hosts->n; i++) {
        g->remote[i].starter = g->o->starters[i];
    }
}

void fl__gate_watch_hosts(fl__gate *g, int64_t now_us)
{
    watch_clock(g, now_us);
    watch_starters(g);
}
