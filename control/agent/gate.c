/* The loop of the gate.
 *
 *     controller ──socket pair── gate ──socket pair── agent of this host
 *                                  └──── CURVE ────── relay ── agent of host b, c, ...  (relay.h)
 *
 *     ① a host joins: its name and its key are checked, it gets its ranks and the frames that wait
 *     ② frames of the controller go to the host of their rank
 *     ③ frames of a host go to the controller, if they are about ranks of that host
 *     ④ a host that leaves or is silent is lost: its workers are reported as killed
 *     ⑤ END, or no controller: all hosts are told, and the gate ends
 *
 * The gate never waits in a send. It reads from one side only while the other side takes more, so
 * nothing queues up here but one frame SPAWN for each rank of a host that has not joined yet. */
#include "control/agent/gate.h"

#include "control/agent/agent_wire.h"
#include "control/agent/host_socket.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum {
    MESSAGES_A_TURN = 64,
    ALIVES = 8,    /* in the time after which silence counts as loss */
    TURN_MS = 50,  /* between two looks at the clock */
    END_MS = 1000, /* for the hosts to end, after END */
};

typedef enum host_state { HOST_AWAITED, HOST_JOINED, HOST_GONE } host_state;

typedef struct remote_host {
    host_state state;
    fl_host_peer peer;
    int64_t heard_us;
} remote_host;

/* A frame that waits for its host to join, or for the agent of this host to read. */
typedef struct kept_frame {
    void *bytes; /* NULL: none */
    size_t n;
} kept_frame;

typedef struct gate {
    const fl_agent_options *o;
    const fl_hosts *hosts;
    int controller, local;    /* sockets; local -1: the agent of this host has ended */
    fl_agent_child *children; /* [n_workers] those of other hosts */
    remote_host *remote;      /* [hosts->n] the first one, this host, is not used */
    kept_frame *kept;         /* [n_workers] for hosts that have not joined */
    kept_frame held;          /* for the agent of this host */
    fl_host_socket socket;
    char run_dir[PATH_MAX], cwd[PATH_MAX];
    int64_t alive_us; /* when the hosts heard of the head last */
    int64_t end_us;   /* until when the gate waits for the others to end; 0: the run goes on */
} gate;

/* ---- to the hosts ---- */

static bool send_to_host(const gate *g, const remote_host *r, const fl_host_message *message)
{
    return fl_host_socket_send(&g->socket, &r->peer, message);
}

static void send_to_all(const gate *g, const fl_host_message *message)
{
    for (int i = 1; i < g->hosts->n; i++) {
        if (g->remote[i].state == HOST_JOINED) {
            (void)send_to_host(g, &g->remote[i], message); /* its silence shows a failure */
        }
    }
}

static bool send_frame_to_host(const gate *g, const remote_host *r, const void *bytes, size_t n)
{
    fl_host_message message = {.type = FL_HOST_FRAME, .frame = {.bytes = bytes, .n = n}};
    return send_to_host(g, r, &message);
}

/* ---- to the controller ---- */

static bool is_writable(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLOUT};
    return poll(&item, 1, 0) == 1 && (item.revents & POLLOUT) != 0;
}

static bool send_to_controller(const gate *g, const fl_agent_frame *frame)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    size_t n = fl_agent_wire_put(frame, bytes);
    return send(g->controller, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* ④ What the controller is to learn of the workers of lost hosts. */
static void send_owed(const gate *g)
{
    for (int rank = g->hosts->host[0].n; rank < g->o->n_workers; rank++) {
        fl_agent_child *c = &g->children[rank];
        fl_agent_frame frame = {.rank = rank, .incarnation = c->incarnation};
        if (c->owes_spawned) {
            frame.type = FL_AGENT_SPAWNED;
            frame.spawned.error = EHOSTDOWN;
            c->owes_spawned = !send_to_controller(g, &frame);
        }
        if (c->owes_exited) {
            frame.type = FL_AGENT_EXITED;
            frame.wait_status = SIGKILL;
            c->owes_exited = !send_to_controller(g, &frame);
        }
    }
}

static void drop_frame(kept_frame *kept)
{
    fl_free(kept->bytes);
    *kept = (kept_frame){.bytes = NULL};
}

/* ④ A worker without a process yet never gets one; of one that runs, the end is reported. */
static void lose_worker(gate *g, int rank)
{
    fl_agent_child *c = &g->children[rank];
    drop_frame(&g->kept[rank]);
    c->owes_exited = c->owes_exited || (c->lives && c->pid > 0);
    c->owes_spawned = c->owes_spawned || (c->lives && c->pid == 0);
    c->lives = false;
}

static void lose_host(gate *g, int i, const char *why)
{
    const fl_host *host = &g->hosts->host[i];
    if (g->end_us == 0) {
        fl_log(FL_LOG_WARN, "host %s (%s) is lost, and its workers %d .. %d with it: %s",
               host->name, host->address, host->first, host->first + host->n - 1, why);
    }
    g->remote[i].state = HOST_GONE;
    for (int rank = host->first; rank < host->first + host->n && rank < g->o->n_workers; rank++) {
        lose_worker(g, rank);
    }
}

/* ---- ② ---- */

static bool keep_frame(kept_frame *kept, const void *bytes, size_t n)
{
    drop_frame(kept);
    if (fl_alloc(n, &kept->bytes) != FL_OK) {
        return false;
    }
    kept->n = n;
    memcpy(kept->bytes, bytes, n);
    return true;
}

static void send_to_local(gate *g, const void *bytes, size_t n)
{
    if (g->local >= 0 && send(g->local, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n &&
        errno == EAGAIN) {
        (void)keep_frame(&g->held, bytes, n); /* the controller is not read before it has gone */
    }
}

static void pass_to_host(gate *g, const fl_agent_frame *frame, const void *bytes, size_t n)
{
    remote_host *r = &g->remote[fl_hosts_of(g->hosts, frame->rank)];
    fl_agent_child *c = &g->children[frame->rank];
    if (frame->type == FL_AGENT_SPAWN) {
        *c = (fl_agent_child){.incarnation = frame->incarnation, .lives = true};
    }
    bool sent = r->state == HOST_JOINED && send_frame_to_host(g, r, bytes, n);
    bool waits = r->state == HOST_AWAITED && frame->type == FL_AGENT_SPAWN &&
                 keep_frame(&g->kept[frame->rank], bytes, n);
    if (frame->type == FL_AGENT_SPAWN && !sent && !waits) {
        lose_worker(g, frame->rank);
    }
}

/* ⑤ */
static void begin_end(gate *g)
{
    fl_host_message leave = {.type = FL_HOST_LEAVE, .text = ""};
    g->end_us = fl_deadline_us(END_MS);
    send_to_all(g, &leave);
}

static void pass_frame(gate *g, const void *bytes, size_t n)
{
    fl_agent_frame frame;
    if (fl_agent_wire_get(bytes, n, &frame) != FL_OK || frame.rank >= g->o->n_workers) {
        fl_log(FL_LOG_WARN, "dropped %zu bytes from the controller", n);
        return;
    }
    bool is_of_all = frame.type == FL_AGENT_END || frame.type == FL_AGENT_HIDE;
    if (frame.type == FL_AGENT_END) {
        begin_end(g);
    }
    if (is_of_all || fl_hosts_of(g->hosts, frame.rank) == 0) {
        send_to_local(g, bytes, n); /* another host has no file of the control link */
    } else {
        pass_to_host(g, &frame, bytes, n);
    }
}

static _Noreturn void end_gate(gate *g, int code)
{
    fl_host_socket_close(&g->socket); /* after LEAVE is sent */
    _exit(code);
}

static void read_controller(gate *g)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX + 1];
    for (int i = 0; i < MESSAGES_A_TURN && g->held.bytes == NULL; i++) {
        ssize_t n = recv(g->controller, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            begin_end(g); /* the controller is gone: the kernel ends the workers of this host */
            end_gate(g, 1);
        }
        pass_frame(g, bytes, (size_t)n);
    }
}

/* ---- ③ ---- */

static void read_local(gate *g)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    if (g->held.bytes != NULL &&
        send(g->local, g->held.bytes, g->held.n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        drop_frame(&g->held);
    }
    for (int i = 0; i < MESSAGES_A_TURN && is_writable(g->controller); i++) {
        ssize_t n = recv(g->local, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) { /* it has ended: at END, or the run ends with it */
            close(g->local);
            g->local = -1;
            if (g->end_us == 0) {
                begin_end(g);
                end_gate(g, 1);
            }
            return;
        }
        (void)send(g->controller, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* A host speaks for its own workers only. */
static void take_host_frame(gate *g, int i, const void *bytes, size_t n)
{
    const fl_host *host = &g->hosts->host[i];
    fl_agent_frame frame;
    bool good = fl_agent_wire_get(bytes, n, &frame) == FL_OK && frame.rank >= host->first &&
                frame.rank < host->first + host->n && frame.rank < g->o->n_workers &&
                frame.type >= FL_AGENT_SPAWNED;
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

/* ---- ① ---- */

static int find_host(const gate *g, const char *name)
{
    int i = 1;
    while (i < g->hosts->n && strcmp(g->hosts->host[i].name, name) != 0) {
        i++;
    }
    return i;
}

static void send_kept(gate *g, int i)
{
    const fl_host *host = &g->hosts->host[i];
    for (int rank = host->first; rank < host->first + host->n && rank < g->o->n_workers; rank++) {
        kept_frame *kept = &g->kept[rank];
        if (kept->bytes != NULL && !send_frame_to_host(g, &g->remote[i], kept->bytes, kept->n)) {
            lose_worker(g, rank);
        }
        drop_frame(kept);
    }
}

static void welcome_host(gate *g, int i)
{
    const fl_host *host = &g->hosts->host[i];
    fl_host_message message = {.type = FL_HOST_WELCOME};
    message.welcome.host = *host;
    message.welcome.silence_ms = g->hosts->silence_ms;
    snprintf(message.welcome.run_dir, sizeof message.welcome.run_dir, "%s", g->run_dir);
    snprintf(message.welcome.cwd, sizeof message.welcome.cwd, "%s", g->cwd);
    snprintf(message.welcome.links, sizeof message.welcome.links, "%s", g->hosts->links);
    (void)send_to_host(g, &g->remote[i], &message);
    fl_log(FL_LOG_INFO, "host %s (%s) has joined with workers %d .. %d", host->name, host->address,
           host->first, host->first + host->n - 1);
    send_kept(g, i);
}

static void take_join(gate *g, const remote_host *from, const char *name)
{
    fl_host_message refusal = {.type = FL_HOST_REFUSE};
    int i = find_host(g, name);
    bool is_known = i < g->hosts->n;
    if (is_known && g->remote[i].state == HOST_AWAITED) {
        g->remote[i] = *from;
        g->remote[i].state = HOST_JOINED;
        welcome_host(g, i);
        return;
    }
    snprintf(refusal.text, sizeof refusal.text, "%s",
             !is_known ? "the run has no host of this name to wait for"
             : g->remote[i].state == HOST_JOINED
                 ? "a host of this name has joined already"
                 : "this host was lost; the run goes on without it");
    fl_log(FL_LOG_WARN, "refused a host: %s", refusal.text);
    (void)send_to_host(g, from, &refusal);
}

static int find_peer(const gate *g, const fl_host_peer *from)
{
    for (int i = 1; i < g->hosts->n; i++) {
        const remote_host *r = &g->remote[i];
        if (r->state == HOST_JOINED && r->peer.n == from->n &&
            memcmp(r->peer.bytes, from->bytes, from->n) == 0) {
            return i;
        }
    }
    return -1;
}

static void take_message(gate *g, const remote_host *from, const unsigned char *bytes, size_t n)
{
    fl_host_message message;
    int i = find_peer(g, &from->peer);
    if (fl_host_wire_get(bytes, n, &message) != FL_OK) {
        fl_log(FL_LOG_WARN, "dropped a message from a host: %s", fl_errmsg());
        return;
    }
    if (i < 0) {
        if (message.type == FL_HOST_JOIN && g->end_us == 0) {
            take_join(g, from, message.text);
        }
        return; /* of a connection that is no host's any more */
    }
    g->remote[i].heard_us = fl_now_us();
    if (message.type == FL_HOST_FRAME) {
        take_host_frame(g, i, message.frame.bytes, message.frame.n);
    } else if (message.type == FL_HOST_LEAVE) {
        lose_host(g, i, message.text[0] == '\0' ? "its agent has ended" : message.text);
    }
}

static bool read_host(gate *g)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    remote_host from = {.heard_us = fl_now_us()};
    size_t n;
    if (!fl_host_socket_read(&g->socket, &from.peer, bytes, &n)) {
        return false;
    }
    take_message(g, &from, bytes, n);
    return true;
}

/* ---- the loop ---- */

static void watch_clock(gate *g, int64_t now_us)
{
    int64_t silence_us = g->hosts->silence_ms * 1000;
    if (now_us - g->alive_us > silence_us / ALIVES) {
        send_to_all(g, &(fl_host_message){.type = FL_HOST_ALIVE});
        g->alive_us = now_us;
    }
    for (int i = 1; i < g->hosts->n; i++) {
        if (g->remote[i].state == HOST_JOINED && now_us - g->remote[i].heard_us > silence_us) {
            char why[64];
            snprintf(why, sizeof why, "it has been silent for %.1f s", (double)silence_us * 1e-6);
            lose_host(g, i, why);
        }
    }
}

static bool has_ended(const gate *g)
{
    bool all = g->local < 0;
    for (int i = 1; i < g->hosts->n; i++) {
        all = all && g->remote[i].state != HOST_JOINED;
    }
    return g->end_us != 0 && (all || fl_left_ms(g->end_us) == 0);
}

static void turn_gate(gate *g)
{
    bool takes = is_writable(g->controller);
    zmq_pollitem_t items[] = {
        {fl_zap_auth_socket(g->socket.guard), 0, ZMQ_POLLIN, 0},
        {g->socket.socket, 0, (short)(takes ? ZMQ_POLLIN : 0), 0},
        {NULL, g->controller,
         (short)((takes ? 0 : ZMQ_POLLOUT) | (g->held.bytes == NULL ? ZMQ_POLLIN : 0)), 0},
        {NULL, g->local, (short)((takes ? ZMQ_POLLIN : 0) | (g->held.bytes ? ZMQ_POLLOUT : 0)), 0}};
    zmq_poll(items, g->local >= 0 ? 4 : 3, TURN_MS);
    fl_zap_auth_watch(g->socket.guard);
    read_controller(g);
    if (g->local >= 0) {
        read_local(g);
    }
    for (int i = 0; i < MESSAGES_A_TURN && is_writable(g->controller) && read_host(g); i++) {
    }
    watch_clock(g, fl_now_us());
    send_owed(g);
}

/* ---- opening ---- */

static _Noreturn void become_local(const gate *g, int socket, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    close(g->controller);
    fl__agent_run(g->o, socket, g->children);
}

/* Before the gate has threads: the agent forks. */
static bool fork_local(gate *g)
{
    int sockets[2];
    pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return false;
    }
    g->local = sockets[0];
    pid_t pid = fork();
    if (pid == 0) {
        close(sockets[0]);
        become_local(g, sockets[1], self);
    }
    close(sockets[1]);
    return pid > 0;
}

static bool make_tables(gate *g)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", g->o->dir_fd);
    ssize_t n = readlink(link, g->run_dir, sizeof g->run_dir - 1);
    return n > 0 && getcwd(g->cwd, sizeof g->cwd) != NULL &&
           fl_alloc_array((size_t)g->hosts->n, sizeof *g->remote, (void **)&g->remote) == FL_OK &&
           fl_alloc_array((size_t)g->o->n_workers, sizeof *g->kept, (void **)&g->kept) == FL_OK;
}

_Noreturn void fl__gate_run(const fl_agent_options *options, int socket, fl_agent_child *children)
{
    gate g = {.o = options,
              .hosts = options->hosts,
              .controller = socket,
              .local = -1,
              .children = children,
              .alive_us = fl_now_us()};
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); /* signals are the controller's */
    fl_log_name("gate");
    if (!make_tables(&g) || !fork_local(&g)) {
        fl_log(FL_LOG_ERROR, "the gate cannot start: %s", strerror(errno));
        _exit(1);
    }
    if (options->release != NULL) {
        options->release(options->release_context);
    }
    if (!fl__agent_leave_terminal() || !fl_host_socket_open(g.hosts, &g.socket)) {
        fl_log(FL_LOG_ERROR, "--listen: cannot wait for hosts at %s: %s", g.hosts->agents,
               zmq_strerror(zmq_errno()));
        _exit(1);
    }
    fl_log(FL_LOG_INFO, "waits for %d hosts at %s: frostline agent --join %s --key %s/hosts.key",
           g.hosts->n - 1, g.hosts->agents, g.hosts->agents, g.run_dir);
    while (!has_ended(&g)) {
        turn_gate(&g);
    }
    end_gate(&g, 0);
}
