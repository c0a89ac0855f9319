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
 * nothing queues up here but one frame SPAWN for each rank of a host that has not joined yet.
 * ① is in gate_join.c, ② and ③ for other hosts in gate_hosts.c, ④ in gate_watch.c and gate_news.c;
 * gate_reach.c has the hosts that do not reach each other. */
#include "control/agent/gate/gate.h"

#include "control/agent/gate/gate_state.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/child.h"
#include "device/system/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

enum {
    MESSAGES_A_TURN = 64,
    TURN_MS = 50,      /* between two looks at the clock */
    STILL_US = 500000, /* a turn that takes so much longer than it waits */
    LONG_US = 2000000, /* such a turn that is told each time; of shorter ones, the first few */
    SHORT_TOLD = 3,
    LOCAL_MS = 500,    /* from the end of the local agent's socket to that of the agent */
    END_MS = 1000,     /* for the hosts to end, after END */
    LATE_US = 2000000, /* and for one that was left out to ask to join, so that it is told, too; */
    CUT_US = 5000000,  /* and for one whose network is cut to hear of it: fault.detect by default */
};

/* ---- to the controller ---- */

static bool is_writable(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLOUT};
    return poll(&item, 1, 0) == 1 && (item.revents & POLLOUT) != 0;
}

/* ---- ② ---- */

static void send_to_local(fl__gate *g, const void *bytes, size_t n)
{
    if (g->local >= 0 && send(g->local, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n &&
        errno == EAGAIN) {
        /* The controller is not read before it has gone. */
        (void)fl__gate_keep_frame(&g->held, bytes, n);
    }
}

/* ⑤ */
static void begin_end(fl__gate *g, fl_host_type type, const char *why)
{
    fl_host_message last = {.type = type};
    snprintf(last.text, sizeof last.text, "%s", why);
    g->last = type;
    snprintf(g->last_why, sizeof g->last_why, "%s", why);
    g->end_us = fl_deadline_us(END_MS);
    g->again = type == FL_HOST_AGAIN;
    fl__gate_tell_hosts(g, &last);
}

static void pass_frame(fl__gate *g, const void *bytes, size_t n)
{
    fl_agent_frame frame;
    if (fl_agent_wire_get(bytes, n, &frame) != FL_OK || frame.rank >= g->o->n_workers) {
        fl_log_counted(&g->n_dropped[FL__GATE_DROP_FRAME], 1,
                       "dropped %zu bytes from the controller", n);
        return;
    }
    bool is_of_all = frame.type == FL_AGENT_END || frame.type == FL_AGENT_HIDE;
    if (frame.type == FL_AGENT_END) {
        static const fl_host_type last[FL_AGENT_ENDINGS] = {
            [FL_AGENT_ENDS_OVER] = FL_HOST_LEAVE,    [FL_AGENT_ENDS_AGAIN] = FL_HOST_AGAIN,
            [FL_AGENT_ENDS_STOPPED] = FL_HOST_STOP,  [FL_AGENT_ENDS_QUIT] = FL_HOST_QUIT,
            [FL_AGENT_ENDS_FAILED] = FL_HOST_FAILED,
        };
        begin_end(g, last[frame.ending], "");
    }
    if (frame.type == FL_AGENT_RELEASE) {
        fl__gate_release_host(g, &frame);
    } else if (frame.type == FL_AGENT_REACH) {
        fl__gate_reach_ask(g, &frame);
    } else if (frame.type == FL_AGENT_APART) {
        fl__gate_leave_out(g, &frame);
    } else if (is_of_all || fl_hosts_of(g->hosts, frame.rank) == 0) {
        send_to_local(g, bytes, n); /* another host has no file of the control link */
    } else {
        fl__gate_pass_to_host(g, &frame, bytes, n);
    }
}

static _Noreturn void end_gate(fl__gate *g, int code)
{
    fl_host_socket_close(&g->socket); /* after LEAVE is sent */
    fl_run_proof_sweep(g->o->dir_fd);
    fl__gate_end_starters(g);
    _exit(code);
}

static void read_controller(fl__gate *g)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX + 1];
    for (int i = 0; i < MESSAGES_A_TURN && g->held.bytes == NULL; i++) {
        ssize_t n = recv(g->controller, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            begin_end(g, FL_HOST_LEAVE, "its controller has died");
            end_gate(g, 1);
        }
        pass_frame(g, bytes, (size_t)n);
    }
}

/* ---- ③ ---- */

/* The agent of this host has closed its socket, so that it has ended, or is about to. */
static int code_of_local(const fl__gate *g)
{
    int how = 0;
    bool killed = fl_child_await(g->local_pid, LOCAL_MS, &how) && WIFSIGNALED(how);
    return killed ? FL_GATE_AGENT_KILLED + WTERMSIG(how) : 1;
}

static void read_local(fl__gate *g)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    if (g->held.bytes != NULL &&
        send(g->local, g->held.bytes, g->held.n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        fl__gate_drop_frame(&g->held);
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
                begin_end(g, FL_HOST_LEAVE, "the agent of the head has died");
                end_gate(g, code_of_local(g));
            }
            return;
        }
        (void)send(g->controller, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* ---- the loop ---- */

/* The gate holds its connections until each host has left, or counts as lost: the system resets one
 * that nobody holds once the host sends something, and forgets that it is to say END. */
static bool has_ended(const fl__gate *g)
{
    bool joined = false, late = false;
    for (int i = 1; i < g->hosts->n; i++) {
        joined = joined || g->remote[i].state == FL__HOST_JOINED;
        late = late || g->remote[i].owes_join;
    }
    int64_t more_us = joined && !g->again ? CUT_US : late ? LATE_US : 0;
    return g->end_us != 0 &&
           ((g->local < 0 && !joined && !late) || fl_left_ms(g->end_us + more_us) == 0);
}

static void tell_still(fl__gate *g, int64_t still_us)
{
    static const char text[] =
        "this machine was overloaded, or stopped: the process that speaks with the other hosts "
        "(the gate) did not run for %.1f s";
    double s = (double)still_us * 1e-6;
    if (still_us >= LONG_US) {
        fl_log(FL_LOG_WARN, text, s);
    } else {
        fl_log_counted(&g->n_still, SHORT_TOLD, text, s);
    }
}

/* The time since the turn before, in which nobody read the hosts' messages: the controller took
 * none, or this process did not run, as one that was stopped, or whose machine slept. */
static void excuse_hosts(fl__gate *g, bool takes)
{
    int64_t now_us = fl_now_us(), still_us = now_us - g->turned_us - TURN_MS * 1000;
    if (!takes) {
        fl__gate_excuse_hosts(g, now_us - g->turned_us);
    } else if (still_us > STILL_US) {
        fl__gate_excuse_hosts(g, still_us);
        tell_still(g, still_us);
    }
    g->turned_us = now_us;
}

static void turn_gate(fl__gate *g)
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
    for (int i = 0; i < MESSAGES_A_TURN && is_writable(g->controller) && fl__gate_read_host(g);
         i++) {
    }
    excuse_hosts(g, takes);
    fl__gate_watch_hosts(g, fl_now_us());
    fl__gate_reach_turn(g);
    fl_reach_door_turn(&g->door);
    fl__gate_send_owed(g);
    fl__gate_reach_send_owed(g);
}

/* ---- opening ---- */

static _Noreturn void become_local(const fl__gate *g, int socket, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    close(g->controller);
    for (int i = 1; g->o->starters != NULL && i < g->hosts->n; i++) {
        fl_host_starter_forget(&g->o->starters[i]);
    }
    fl__agent_run(g->o, socket, g->children);
}

/* Before the gate has threads: the agent forks. */
static bool fork_local(fl__gate *g)
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
    g->local_pid = pid;
    return pid > 0;
}

static bool make_tables(fl__gate *g)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", g->o->dir_fd);
    ssize_t n = readlink(link, g->run_dir, sizeof g->run_dir - 1);
    return n > 0 && getcwd(g->cwd, sizeof g->cwd) != NULL &&
           fl_alloc_array((size_t)g->o->n_workers, sizeof *g->remote, (void **)&g->remote) ==
               FL_OK &&
           fl_alloc_array((size_t)g->o->n_workers, sizeof *g->kept, (void **)&g->kept) == FL_OK;
}

_Noreturn void fl__gate_run(const fl_agent_options *options, int socket, fl_agent_child *children)
{
    fl__gate g = {.o = options,
                  .hosts = options->hosts,
                  .n_first_hosts =
                      options->n_first_hosts > 0 ? options->n_first_hosts : options->hosts->n,
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
    if (!fl__agent_leave_terminal()) {
        fl_log(FL_LOG_ERROR, "the gate cannot leave the terminal: %s", strerror(errno));
        _exit(1);
    }
    fl__gate_take_starters(&g);
    fl_status status = fl_host_socket_open(g.hosts, FL_OWN_PORT_MS, &g.socket);
    if (status != FL_OK) {
        fl_log(FL_LOG_ERROR, "%s", fl_errmsg());
        _exit(status == FL_EBUSY ? FL_GATE_PORT_TAKEN : 1);
    }
    fl_run_proof_sweep(options->dir_fd);
    fl__gate_reach_open(&g);
    fl__gate_await_hosts(&g);
    g.turned_us = fl_now_us();
    while (!has_ended(&g)) {
        turn_gate(&g);
    }
    end_gate(&g, 0);
}
