#include "control/agent/join/awaited.h"
#include "control/agent/join/join_address.h"
#include "control/agent/survey/host_survey_parts.h"
#include "control/link/held_port.h"
#include "device/errors/log.h"
#include "device/system/child.h"
#include "device/system/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum {
    TURN_MS = 50,
    STORE_PARTS = 3,
    STILL_US = 500000, /* between two turns */
    REAP_MS = 2000,    /* for a process that has closed its socket to be gone */
};

/* ---- this host's process ---- */

static void tell_result(void *context, const fl_host_link *result)
{
    const int *socket = context;
    (void)send(*socket, result, sizeof *result, MSG_NOSIGNAL);
}

/* Waits for orders without a deadline: the parent sends one or closes the socket, and this process
 * ends with it. */
static _Noreturn void become_probe(const fl__survey *s, int socket, pid_t parent)
{
    fl_host_probe_order order;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent && recv(socket, &order, sizeof order, 0) == (ssize_t)sizeof order) {
        fl_host_probe(&order, &s->o->hosts->keys, tell_result, &socket);
    }
    _exit(0);
}

/* Before there are threads. */
bool fl__survey_fork(fl__survey *s)
{
    int ends[2];
    pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    fflush(NULL);
    s->own = ends[0];
    s->pid = fork();
    if (s->pid == 0) {
        close(ends[0]);
        fl_held_ports_drop_copies(s->o->held_ports);
        become_probe(s, ends[1], self);
    }
    close(ends[1]);
    return s->pid > 0;
}

/* ---- ① ---- */

void fl__survey_send_text(const fl__survey *s, const fl_host_peer *to, fl_host_type type,
                          const char *text)
{
    fl_host_message message = {.type = type};
    snprintf(message.text, sizeof message.text, "%s", text);
    (void)fl_host_socket_send(&s->socket, to, &message);
}

/* The kernel of a host whose agent was killed closes its connection. */
bool fl__survey_finds_closed(const fl__survey *s, int i)
{
    const fl_host_message alive = {.type = FL_HOST_ALIVE};
    return !fl_host_socket_send(&s->socket, &s->host[i].peer, &alive) &&
           fl_host_socket_found_closed();
}

void fl__survey_note_gone(fl__survey *s, int i, bool unfit, const char *why)
{
    s->host[i].joined = s->out->host[i].joined = false;
    s->host[i].gone = true;
    s->host[i].unfit = s->out->host[i].unfit = unfit;
    snprintf(s->out->host[i].why, sizeof s->out->host[i].why, "%s", why);
}

fl_status fl__survey_loss_of(const fl__survey *s, int i)
{
    return s->host[i].gone && s->host[i].unfit ? FL_EINVAL : FL_EPEER;
}

static void refuse_host(fl__survey *s, const fl_host_peer *from, const char *name, const char *why)
{
    if (!s->o->quiet) {
        fl_refusals_tell(&s->refusals, name, from->address, why, fl_now_us());
    }
    fl__survey_send_text(s, from, FL_HOST_REFUSE, why);
}

/* Of another version. Its host does not come before a user corrects that; another agent of the
 * host may be there, or on its way by ssh. */
static void refuse_version(fl__survey *s, const fl_host_peer *from, const char *name,
                           const char *why)
{
    int i = fl_hosts_find(s->o->hosts, name);
    bool awaited = i > 0 && !s->o->hosts->host[i].absent && !s->host[i].joined;
    refuse_host(s, from, name, why);
    if (awaited && s->host[i].starter.pid == 0 && fl_join_speaks_for(s->o->hosts, i, from)) {
        fl__survey_note_gone(s, i, true, why);
    }
}

/* Whether this agent is the host's own, or takes its place. As in the gate, one that has joined
 * keeps its place while its connection is open and it is not silent for as long as loses a host.
 * Another one waits until that is decided: agents ask again. */
static bool may_take_over(fl__survey *s, int i, const fl_host_peer *from, bool *refused)
{
    fl__survey_host *h = &s->host[i];
    int64_t now_us = fl_now_us();
    if (!h->joined || fl_host_peer_is(&h->peer, from)) {
        return true;
    }
    if (fl__survey_finds_closed(s, i)) {
        return true;
    }
    *refused = fl_join_rival_is_refused(&h->rival, from, h->heard_us, now_us);
    return !*refused && now_us - h->heard_us > s->o->hosts->detect_ms * 1000;
}

/* A host that the run knows. */
static void take_known(fl__survey *s, int i, const fl_host_peer *from, const fl_host_join *join)
{
    fl__survey_host *h = &s->host[i];
    if (h->measures && !fl_host_peer_is(&h->peer, from)) {
        fl__survey_take_unmeasured(s, i, s->measure_number, "its agent was started again");
    }
    if (!fl_host_peer_is(&h->peer, from)) {
        fl__survey_take_unlinked(s, i, s->order.number, "its agent was started again");
        h->rival.since_us = h->closed_us = 0;
    }
    h->joined = s->out->host[i].joined = true;
    h->gone = false;
    h->kind = join->kind;
    h->heard_us = fl_now_us();
    h->peer = *from;
    snprintf(h->address, sizeof h->address, "%s", fl_join_address(&s->o->hosts->host[i], join));
}

static bool has_ranks(const fl__survey *s, const fl_host_join *join, char why[FL_HOST_TEXT_MAX + 1])
{
    bool awaited[FL_MAX_WORKERS] = {false};
    for (int i = 1; i < s->o->hosts->n; i++) {
        awaited[i] = !s->o->hosts->host[i].absent && !s->host[i].joined;
    }
    return fl_join_has_ranks(s->o->hosts, join, s->o->n_ranks, awaited, why);
}

/* A host that the run does not know is not measured: it waits for the gate, if the run can grow by
 * it. */
static void take_join(fl__survey *s, const fl_host_peer *from, const fl_host_join *join)
{
    char why[FL_HOST_TEXT_MAX + 1] = "a host of this name has joined already";
    int i = fl_hosts_find(s->o->hosts, join->name);
    bool known = i > 0 && !s->o->hosts->host[i].absent;
    if (known && !fl_join_has_version(join, why)) {
        refuse_version(s, from, join->name, why);
        return;
    }
    if (i == 0 || (i < 0 && !has_ranks(s, join, why))) {
        refuse_host(s, from, join->name, why);
        return;
    }
    bool refused = false;
    if (known && may_take_over(s, i, from, &refused)) {
        const char *address = fl_join_address(&s->o->hosts->host[i], join);
        refused = !fl_join_is_reachable(s->o->hosts, join, address, why);
        if (!refused) {
            take_known(s, i, from, join);
        }
    }
    if (refused) {
        refuse_host(s, from, join->name, why);
        return;
    }
    fl__survey_send_text(s, from, FL_HOST_ALIVE, "");
}

static int find_peer(const fl__survey *s, const fl_host_peer *from)
{
    for (int i = 1; i < s->out->n; i++) {
        if (s->host[i].joined && fl_host_peer_is(&s->host[i].peer, from)) {
            return i;
        }
    }
    return -1;
}

/* ---- messages ---- */

static void take_message(fl__survey *s, const fl_host_peer *from, const unsigned char *bytes,
                         size_t n)
{
    fl_host_message m;
    int i = find_peer(s, from);
    fl_status status = fl_host_wire_get(bytes, n, &m);
    if (i > 0) {
        s->host[i].heard_us = fl_now_us();
    }
    if (status == FL_ENOTSUP) {
        char why[FL_HOST_TEXT_MAX + 1], name[FL_HOST_TEXT] = "";
        fl_join_other_version(why);
        bool asks = fl_host_wire_asked(bytes, n, name);
        refuse_version(s, from, asks ? name : "", why);
    } else if (status != FL_OK) {
        fl_log_counted(&s->n_dropped, 1, "dropped a message from %s%s: %s",
                       i < 0 ? "an agent that has not joined" : "host ",
                       i < 0 ? "" : s->o->hosts->host[i].name, fl_errmsg());
    } else if (m.type == FL_HOST_JOIN) {
        take_join(s, from, &m.join);
    } else if (m.type == FL_HOST_PROBED && i > 0) {
        fl__survey_take_link(s, i, &m.probed);
    } else if (m.type == FL_HOST_PROFILE && i > 0) {
        fl__survey_take_profile(s, i, &m.profile);
    } else if (m.type == FL_HOST_UNMEASURED && i > 0) {
        fl__survey_take_unmeasured(s, i, m.unmeasured.number, m.unmeasured.text);
        fl__survey_take_unlinked(s, i, m.unmeasured.number, m.unmeasured.text);
    } else if ((m.type == FL_HOST_LEAVE || m.type == FL_HOST_UNFIT) && i > 0) {
        fl__survey_note_gone(s, i, m.type == FL_HOST_UNFIT,
                             m.text[0] == '\0' ? "its agent has ended" : m.text);
    }
}

static void read_hosts(fl__survey *s)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_peer from;
    size_t n;
    while (fl_host_socket_read(&s->socket, &from, bytes, &n)) {
        take_message(s, &from, bytes, n);
    }
}

/* ④ */
static void answer_store(void *context, const void *to, size_t to_bytes, const void *message,
                         size_t size_bytes)
{
    const fl__survey *s = context;
    if (zmq_send(s->links, to, to_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
        zmq_send(s->links, "store", 5, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
        (void)zmq_send(s->links, message, size_bytes, ZMQ_DONTWAIT);
    }
}

static void read_store(fl__survey *s)
{
    zmq_msg_t part[STORE_PARTS];
    int n = 0, more = 1;
    for (int i = 0; i < STORE_PARTS; i++) {
        zmq_msg_init(&part[i]);
    }
    while (more) {
        zmq_msg_t *into = &part[n < STORE_PARTS ? n : STORE_PARTS - 1];
        if (zmq_msg_recv(into, s->links, ZMQ_DONTWAIT) < 0) {
            break;
        }
        more = zmq_msg_more(into);
        n++;
    }
    if (n == STORE_PARTS && !more && zmq_msg_size(&part[1]) == 5 &&
        memcmp(zmq_msg_data(&part[1]), "store", 5) == 0) {
        fl_store_handle(s->store, zmq_msg_data(&part[0]), zmq_msg_size(&part[0]),
                        zmq_msg_data(&part[2]), zmq_msg_size(&part[2]), answer_store, s);
    }
    for (int i = 0; i < STORE_PARTS; i++) {
        zmq_msg_close(&part[i]);
    }
}

static void note_own_end(fl__survey *s)
{
    char why[FL_HOST_PROBE_END];
    int how = 0;
    close(s->own);
    s->own = -1;
    if (fl_child_reap(s->pid, REAP_MS, &how)) {
        s->pid = 0;
        if (fl_host_probe_failed(how, why)) {
            snprintf(s->host[0].unlinked, sizeof s->host[0].unlinked, "%s", why);
        }
    }
}

static void read_own(fl__survey *s)
{
    fl_host_link result;
    ssize_t n = 0;
    while (s->own >= 0 &&
           (n = recv(s->own, &result, sizeof result, MSG_DONTWAIT)) == (ssize_t)sizeof result) {
        fl__survey_take_link(s, 0, &result);
    }
    if (s->own >= 0 && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))) {
        note_own_end(s);
    }
}

static void watch_tasks(fl__survey *s)
{
    const fl_hosts *hosts = s->o->hosts;
    if (!fl_awaited_looks_at_tasks(hosts, fl_now_us(), &s->looked_us)) {
        return;
    }
    for (int i = 1; i < hosts->n; i++) {
        bool unfit = false;
        if (!s->host[i].joined && !s->host[i].gone && hosts->has_lost(hosts->meeting, i, &unfit)) {
            fl__survey_note_gone(s, i, unfit, FL_AWAITED_TASK_LOST);
        }
    }
}

static void watch_starters(fl__survey *s)
{
    for (int i = 1; i < s->out->n; i++) {
        char why[FL_HOST_STARTER_WHY];
        fl_host_starter_read(&s->host[i].starter, !s->o->quiet);
        if (fl_host_starter_ended(&s->host[i].starter, s->o->hosts->ssh[i], !s->o->quiet, why) &&
            !s->host[i].gone) {
            fl__survey_note_gone(s, i, s->host[i].starter.unfit, why);
        }
    }
}

/* This process did not run: other hosts could not be heard, which is no silence of theirs. */
static void note_still(fl__survey *s)
{
    int64_t now_us = fl_now_us(), us = now_us - s->turned_us;
    bool stood = s->turned_us != 0 && us > STILL_US;
    for (int i = 1; i < s->out->n && stood; i++) {
        s->host[i].heard_us = fl_excused_us(s->host[i].heard_us, us, now_us);
    }
    s->stood_us += stood ? us : 0;
    s->turned_us = now_us;
}

void fl__survey_turn(fl__survey *s)
{
    struct signalfd_siginfo info;
    zmq_pollitem_t items[] = {{fl_zap_auth_socket(s->socket.guard), 0, ZMQ_POLLIN, 0},
                              {s->socket.socket, 0, ZMQ_POLLIN, 0},
                              {s->links, 0, ZMQ_POLLIN, 0},
                              {NULL, s->signal_fd, ZMQ_POLLIN, 0},
                              {NULL, s->own, ZMQ_POLLIN, 0}};
    zmq_poll(items, s->own < 0 ? 4 : 5, TURN_MS);
    note_still(s);
    fl_zap_auth_watch(s->socket.guard);
    read_hosts(s);
    for (int i = 0; i < 64 && (zmq_poll(&items[2], 1, 0) > 0); i++) {
        read_store(s);
    }
    read_own(s);
    watch_starters(s);
    watch_tasks(s);
    if (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        s->stopped = (int)info.ssi_signo;
    }
    if (s->record_fd >= 0 && fl_wait_record_is_stopped(s->record_fd)) {
        s->stopped = SIGINT;
    }
}
