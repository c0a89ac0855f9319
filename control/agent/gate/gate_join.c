/* How a host joins: ① of control/agent/gate/gate.c. */
#include "control/agent/gate/gate_state.h"

#include "control/agent/join/join_address.h"
#include "device/errors/io_status.h"
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/text/plural.h"
#include "device/text/utf8.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the welcome ---- */

static void send_job_piece(const fl__gate *g, const fl__remote_host *r, const void *bytes, size_t n)
{
    fl_host_message m = {.type = FL_HOST_JOB, .frame = {.bytes = bytes, .n = n}};
    (void)fl__gate_send_to_host(g, &r->peer, &m);
}

static int64_t send_job_text(const fl__gate *g, const fl__remote_host *r, const char *text)
{
    size_t all = strlen(text);
    for (size_t at = 0; at < all; at += FL_HOST_JOB_PIECE) {
        size_t left = all - at;
        send_job_piece(g, r, text + at, left < FL_HOST_JOB_PIECE ? left : FL_HOST_JOB_PIECE);
    }
    return (int64_t)all;
}

/* The job as the run directory has it, in pieces; returns its bytes, 0: it cannot be read. */
static int64_t send_job_file(const fl__gate *g, const fl__remote_host *r)
{
    unsigned char piece[FL_HOST_JOB_PIECE];
    int64_t all = 0;
    ssize_t n;
    int fd = openat(g->o->dir_fd, "job.yaml", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    while (fd >= 0 && (n = read(fd, piece, sizeof piece)) > 0 && all <= FL_HOST_JOB_MAX) {
        send_job_piece(g, r, piece, (size_t)n);
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
    char workers[FL_COUNT_BYTES];
    bool late = g->remote[i].late;
    message.welcome.host = *host;
    const char *job = g->o->job_text;
    message.welcome.job_bytes =
        job == NULL ? send_job_file(g, &g->remote[i]) : send_job_text(g, &g->remote[i], job);
    message.welcome.silence_ms = FL_HOST_PATIENCE * g->hosts->detect_ms;
    message.welcome.continues = g->o->continues || late;
    message.welcome.from_snapshot = g->o->from_snapshot && !late;
    message.welcome.state_step = late ? -1 : g->o->state_step;
    message.welcome.facts = *g->o->facts;
    message.welcome.n_stores = g->o->n_stores;
    memcpy(message.welcome.ports, g->hosts->ports, sizeof message.welcome.ports);
    for (int k = 0; k < g->n_first_hosts; k++) {
        message.welcome.first[message.welcome.n_hosts++] = g->hosts->host[k].first;
        message.welcome.n_first_ranks += g->hosts->host[k].n;
    }
    snprintf(message.welcome.run_dir, sizeof message.welcome.run_dir, "%s", g->run_dir);
    snprintf(message.welcome.proof, sizeof message.welcome.proof, "%s", g->remote[i].proof);
    snprintf(message.welcome.cwd, sizeof message.welcome.cwd, "%s", g->cwd);
    snprintf(message.welcome.links, sizeof message.welcome.links, "%s", g->hosts->links);
    (void)fl__gate_send_to_host(g, &g->remote[i].peer, &message);
    fl_log(FL_LOG_INFO, "host %s (%s) has joined with %s", host->name, host->address,
           fl_count_range(host->first, host->n, "worker", workers));
    g->remote[i].owes[FL_HOST_NEWS_JOINED] = true;
    if (fl__gate_is_proven(&g->remote[i])) {
        fl__gate_send_kept(g, i);
    }
}

/* To the agent of a lost host whose name another one has from now on, as one that stood still: it
 * hears of it once it goes on. */
static void tell_former(const fl__gate *g, int i, const fl_host_peer *now)
{
    const fl__remote_host *r = &g->remote[i];
    fl_host_message lost = {.type = FL_HOST_LOST};
    if (r->state == FL__HOST_GONE && r->peer.n > 0 && !fl_host_peer_is(&r->peer, now)) {
        snprintf(lost.text, sizeof lost.text, "%.150s%sanother agent (%s) has joined as host %.60s",
                 r->why, r->why[0] == '\0' ? "" : ", and ", now->address, g->hosts->host[i].name);
        (void)fl__gate_send_to_host(g, &r->peer, &lost);
    }
}

static void take_in(fl__gate *g, int i, const fl_host_peer *peer, const fl_host_join *join)
{
    fl__remote_host *r = &g->remote[i];
    tell_former(g, i, peer);
    r->peer = *peer;
    r->kind = join->kind;
    r->heard_us = fl_now_us();
    r->closed_us = 0;
    r->state = FL__HOST_JOINED;
    r->released = r->unfit = r->parted = false;
    r->rival.since_us = 0;
    r->clock.n = 0;
    r->n_first_pings = 0;
    r->held.n = 0;
    r->apart_from = 0;
    r->owes[FL_HOST_NEWS_CLOCK] = false;
    welcome_host(g, i);
}

/* ---- whether it may join ---- */

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
    if (r->state == FL__HOST_AWAITED) {
        return true;
    }
    if (r->state == FL__HOST_GONE) {
        return !owes_news(g, i);
    }
    *refused = fl_join_rival_is_refused(&r->rival, from, r->heard_us, fl_now_us());
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
    bool awaited[FL_MAX_WORKERS];
    fl__gate_find_awaited(g, awaited);
    if (!fl_join_has_ranks(g->hosts, join, g->o->n_workers, awaited, why)) {
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
    g->remote[i].late = true;
    return i;
}

/* type: REFUSE or BUSY */
static void refuse_host(fl__gate *g, fl_host_type type, const fl_host_peer *from, const char *name,
                        const char *why)
{
    fl_host_message refusal = {.type = type};
    snprintf(refusal.text, sizeof refusal.text, "%s", why);
    fl_refusals_tell(&g->refusals, name, from->address, why, fl_now_us());
    (void)fl__gate_send_to_host(g, from, &refusal);
}

/* ⑤ It hears what the others have heard. */
static void turn_away(fl__gate *g, const fl_host_peer *from, int i)
{
    fl_host_message last = {.type = g->last};
    snprintf(last.text, sizeof last.text, "%s", g->last_why);
    (void)fl__gate_send_to_host(g, from, &last);
    if (i > 0) {
        g->remote[i].owes_join = false;
    }
}

/* The run that is to begin waits for no other agent of that host, unless one is on its way by ssh:
 * the survey of the links does not either. */
void fl__gate_refuse_version(fl__gate *g, const fl_host_peer *from, const char *name,
                             const char *why)
{
    int i = fl_hosts_find(g->hosts, name);
    fl__remote_host *r = i <= 0 ? NULL : &g->remote[i];
    refuse_host(g, FL_HOST_REFUSE, from, name, why);
    if (r != NULL && r->state == FL__HOST_AWAITED && r->starter.pid == 0 && !g->hosts->again &&
        fl_join_speaks_for(g->hosts, i, from)) {
        r->unfit = true;
        fl__gate_lose_host(g, i, why);
    }
}

void fl__gate_take_join(fl__gate *g, const fl_host_peer *from, const fl_host_join *join)
{
    char why[FL_HOST_TEXT_MAX + 1] = "a host of this name has joined already";
    int i = fl_hosts_find(g->hosts, join->name);
    bool refused = i == 0;
    fl_host_type type = FL_HOST_REFUSE;
    if (g->end_us != 0) {
        turn_away(g, from, i);
        return;
    }
    if (i > 0) {
        g->remote[i].owes_join = false;
    }
    if (!fl_join_has_version(join, why)) {
        fl__gate_refuse_version(g, from, join->name, why);
        return;
    }
    if (i < 0) {
        i = add_host(g, join, why);
        refused = i < 0;
    }
    if (!refused && may_take_over(g, i, from, &refused)) {
        refused = !take_address(g, i, join, why);
        g->remote[i].door = join->door; /* the other host may try it before this one is taken in */
        if (!refused && !fl__gate_holds_host(g, i, from)) {
            fl_status status = fl__gate_write_proof(g, i);
            refused = status != FL_OK;
            type = refused && !fl_status_is_bad_input(status) ? FL_HOST_BUSY : type;
            if (refused) {
                fl_text_fit(fl_errmsg(), why, sizeof why);
            } else {
                take_in(g, i, from, join);
            }
        }
    }
    if (refused) {
        refuse_host(g, type, from, join->name, why);
    }
}
