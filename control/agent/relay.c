/* The loop of the relay.
 *
 *     ① JOIN to the head, until WELCOME or REFUSE; the welcome goes to the agent's process. Before
 *       it, the head may have the links between hosts measured: PROBE to that process, PROBED back;
 *       and what layers cost here: MEASURE to that process, PROFILE or UNMEASURED back
 *     ② frames go both ways
 *     ③ LEAVE from the head: the run is over; END to the agent
 *     ④ the head is silent, or a signal: the agent's process is killed, and its workers with it
 *     ⑤ the agent's process has ended: LEAVE to the head, with the reason
 *     ⑦ AGAIN from the head: the run goes back; as ③, then from ① with a new process of the agent
 *     ⑥ the first SIGTERM: DRAIN to the head, until RELEASE, which is as ③; without it as ④
 *     ⑧ standard input has ended, which ssh of the head held: before ① is done as ④; after it, once
 *       the connection to the head is closed, too
 *     ⑨ APART from the head: the run goes on without this host, which does not reach another one;
 *       as ⑦, and the head takes it in once it does. REACH: which hosts does this one reach? */
#include "control/agent/relay.h"

#include "control/agent/relay_child.h"
#include "control/agent/relay_input.h"
#include "control/link/greeting.h"
#include "control/link/zmq_socket.h"
#include "device/child.h"
#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#define EVENTS_ENDPOINT "inproc://relay-events"

enum {
    MESSAGES_A_TURN = 64,
    ALIVES = 8,                /* in the time after which silence counts as loss */
    TURN_MS = 50,              /* between two looks at the clock */
    REACH_TURN_MS = 5,         /* the same while connections to other hosts are tried */
    END_MS = 1000,             /* for the agent to end, after END */
    REAP_MS = 2000,            /* for its process to be gone after that */
    LINGER_MS = 200,           /* for LEAVE to be sent */
    SAME_REQUEST_US = 1000000, /* timeout(1) sends SIGTERM to its child and to the whole group */
    RECONNECT_MS = 100,
    JOIN_EVERY_US = 300000,
    AGAIN_MS = 300000, /* for the head to choose where the run goes back to */
    HANDSHAKE_EVENTS = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH,
    /* A head with another key closes the connection without a word, and so does one that ends. */
    FAILED_HANDSHAKES = 3,
    GREETING_MS = 1000,
    STILL_US = 1000000, /* a turn that takes so much longer than it waits */
    STOOD_TEXT = 64,
};

typedef struct relay {
    const fl_relay_options *o;
    int socket, signal_fd;
    int job_fd;        /* a file in memory: the agent's process reads the job there */
    int64_t job_bytes; /* that have come */
    pid_t agent;
    void *zmq, *head, *events;
    int n_failed;      /* handshakes, one after the other, with a head that greets */
    bool joined, over; /* over: the head has said so */
    bool surveyed;     /* the head has measured links, and listens anew before its welcome */
    bool measures;     /* the head has ordered it, and answers all the time until all have done */
    bool drained;      /* the same, because this host is drained */
    bool again;        /* the same, because the run goes back */
    bool stopped;      /* the same, because SIGTERM has ended the run */
    bool failed;       /* the same, because the run has failed */
    bool apart;        /* the run goes on without this host, which waits to join again */
    bool was_in;       /* it has joined, now or before the run went back */
    bool disconnected; /* since it has joined */
    fl_relay_input input;
    int64_t join_ms;  /* to wait for the head's answer */
    int64_t asked_us; /* when the head was asked to drain this host; 0: it was not */
    int64_t silence_ms;
    int64_t heard_us, alive_us;
    int64_t stood_us, stood_at_us; /* this process stood still for so long, until then */
    int64_t end_us;                /* until when the agent may take to end; 0: it need not */
    int signal_number;
    char why[FL_HOST_WHY_MAX + 1]; /* this host cannot take part; "": nobody has said that */
    fl_reach_door door;
    fl_reach_round *round; /* NULL: the head has never asked */
} relay;

/* ---- the agent's process ---- */

static fl_status fork_agent(relay *r, const sigset_t *before)
{
    int sockets[2];
    pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return fl_fail(FL_EIO, "cannot make a socket for the agent: %s", strerror(errno));
    }
    r->socket = sockets[0];
    r->job_fd = memfd_create("job", MFD_CLOEXEC);
    r->job_bytes = 0;
    fflush(NULL);
    r->agent = fork();
    if (r->agent == 0) {
        close(sockets[0]);
        close(r->signal_fd);
        fl_reach_door_close(&r->door);
        fl__relay_child(r->o, r->job_fd, sockets[1], self, before);
    }
    int error = errno;
    close(sockets[1]);
    return r->agent > 0 && r->job_fd >= 0
               ? FL_OK
               : fl_fail(FL_EIO, "cannot start the agent: %s", strerror(error));
}

/* False: it cannot be ended, and is left behind. */
static bool reap_agent(relay *r, int *how)
{
    bool ended = fl_child_reap(r->agent, REAP_MS, how);
    if (!ended) {
        fl_log(FL_LOG_WARN,
               "process %d, the parent of this host's workers, does not end: it is left behind",
               (int)r->agent);
    }
    r->agent = -1;
    return ended;
}

static void kill_agent(relay *r)
{
    if (r->agent > 0) {
        kill(r->agent, SIGKILL); /* the kernel ends its workers */
        (void)reap_agent(r, NULL);
    }
}

/* ---- the head ---- */

static void send_message(const relay *r, const fl_host_message *message)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n = fl_host_wire_put(message, bytes);
    if (zmq_send(r->head, bytes, n, ZMQ_DONTWAIT) < 0) { /* the head's silence will show it */
        fl_log(FL_LOG_DEBUG, "the head takes no message: %s", zmq_strerror(zmq_errno()));
    }
}

static void send_text(const relay *r, fl_host_type type, const char *text)
{
    fl_host_message message = {.type = type};
    snprintf(message.text, sizeof message.text, "%s", text);
    send_message(r, &message);
}

static fl_status open_head(relay *r)
{
    const fl_relay_options *o = r->o;
    r->zmq = zmq_ctx_new();
    r->head = r->zmq == NULL ? NULL : zmq_socket(r->zmq, ZMQ_DEALER);
    r->events = r->head == NULL ? NULL : zmq_socket(r->zmq, ZMQ_PAIR);
    if (r->events == NULL || !fl_curve_client(o->keys, r->head) ||
        !fl_zmq_set(r->head, ZMQ_LINGER, LINGER_MS) ||
        !fl_zmq_set(r->head, ZMQ_RECONNECT_IVL, RECONNECT_MS) ||
        !fl_zmq_limit_messages(r->head, FL_HOST_MESSAGE_MAX) ||
        zmq_socket_monitor(r->head, EVENTS_ENDPOINT, HANDSHAKE_EVENTS | ZMQ_EVENT_DISCONNECTED) !=
            0 ||
        zmq_connect(r->events, EVENTS_ENDPOINT) != 0 || zmq_connect(r->head, o->endpoint) != 0) {
        return fl_fail(FL_EIO, "--join: cannot connect to %s: %s", o->endpoint,
                       zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

static void close_head(relay *r)
{
    if (r->head != NULL) {
        (void)zmq_socket_monitor(r->head, NULL, 0);
        zmq_close(r->head);
    }
    if (r->events != NULL) {
        zmq_close(r->events);
    }
    if (r->zmq != NULL) {
        zmq_ctx_term(r->zmq);
    }
}

/* The events of handshakes since the last call. One is two parts, its number first. */
static int read_events(const relay *r)
{
    int events = 0;
    zmq_msg_t part;
    zmq_msg_init(&part);
    while (zmq_msg_recv(&part, r->events, ZMQ_DONTWAIT) >= 0) {
        if (zmq_msg_more(&part) && zmq_msg_size(&part) >= sizeof(uint16_t)) {
            uint16_t event;
            memcpy(&event, zmq_msg_data(&part), sizeof event);
            events |= event;
        }
    }
    zmq_msg_close(&part);
    return events;
}

/* ① Whether the head has refused the key. A connection that is closed or that nobody answers is
 * no refusal: the head may end, or a proxy may stand before one that is not there yet. */
static bool is_refused(relay *r)
{
    int events = read_events(r); /* the last head may close while it listens */
    r->disconnected = r->disconnected || (events & ZMQ_EVENT_DISCONNECTED) != 0;
    bool waits = !r->joined && !r->again && !r->surveyed;
    if (!waits || (events & HANDSHAKE_EVENTS) == 0) {
        return false;
    }
    if ((events & ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) != 0) {
        return true;
    }
    r->n_failed = fl_greets_with_curve(r->o->endpoint, GREETING_MS) ? r->n_failed + 1 : 0;
    return r->n_failed >= FAILED_HANDSHAKES;
}

static void send_join(const relay *r)
{
    fl_host_message message = {.type = FL_HOST_JOIN, .join = {.n_devices = r->o->n_devices}};
    snprintf(message.join.name, sizeof message.join.name, "%s", r->o->name);
    snprintf(message.join.address, sizeof message.join.address, "%s", r->o->address);
    message.join.chosen = r->o->address_chosen;
    message.join.n_own = r->o->n_own;
    memcpy(message.join.own, r->o->own, (size_t)r->o->n_own * sizeof *r->o->own);
    snprintf(message.join.version, sizeof message.join.version, "%s", FL_VERSION);
    message.join.kind = r->o->kind;
    message.join.door = r->door.port;
    send_message(r, &message);
}

static void send_time(const relay *r, int64_t sent_ns)
{
    send_message(r, &(fl_host_message){.type = FL_HOST_PONG,
                                       .clock = {.sent_ns = sent_ns,
                                                 .there_ns = fl_now_ns(),
                                                 .wall_ns = fl_now_wall_ns()}});
}

static void send_drain(const relay *r)
{
    send_message(r, &(fl_host_message){.type = FL_HOST_DRAIN, .grace_ms = r->o->grace_ms});
}

/* To the agent's process, as it came. */
static bool pass_to_agent(const relay *r, const fl_host_message *message)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n = fl_host_wire_put(message, bytes);
    return send(r->socket, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

static fl_status take_welcome(relay *r, const fl_host_message *message)
{
    const fl_host_welcome *welcome = &message->welcome;
    if (r->joined) {
        return FL_OK;
    }
    if (r->job_bytes != welcome->job_bytes) {
        return fl_fail(FL_EIO, "--join: %lld of %lld bytes of the job have come",
                       (long long)r->job_bytes, (long long)welcome->job_bytes);
    }
    r->joined = r->was_in = true;
    r->again = r->measures = r->apart = false;
    (void)read_events(r); /* of connections before this one */
    r->disconnected = false;
    r->silence_ms = welcome->silence_ms;
    if (r->asked_us != 0) { /* while nobody listened */
        send_drain(r);
    }
    fl_log(FL_LOG_INFO, "joined the run %s as host %s, workers %d .. %d", welcome->run_dir,
           welcome->host.name, welcome->host.first, welcome->host.first + welcome->host.n - 1);
    return pass_to_agent(r, message)
               ? FL_OK
               : fl_fail(FL_EIO, "cannot pass the welcome on: %s", strerror(errno));
}

/* ③ */
static void begin_end(relay *r)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    size_t n = fl_agent_wire_put(&(fl_agent_frame){.type = FL_AGENT_END}, bytes);
    r->over = true;
    r->end_us = fl_deadline_us(END_MS);
    (void)send(r->socket, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ⑦ */
static void begin_again(relay *r, const char *why)
{
    fl_log(FL_LOG_INFO, "%s", why);
    r->again = true;
    begin_end(r);
}

/* ⑨ */
static void stand_apart(relay *r, const char *why)
{
    fl_log(FL_LOG_WARN, "the run goes on without this host: %s; it joins again when they do", why);
    r->apart = true;
    begin_again(r, "its workers end");
}

static void begin_reach(relay *r, const fl_reach_order *order)
{
    if (fl_reach_round_begin(&r->round, order) != FL_OK) {
        fl_log(FL_LOG_WARN, "cannot try which hosts this one reaches: %s", fl_errmsg());
    }
}

static void watch_reach(relay *r)
{
    fl_host_message message = {.type = FL_HOST_REACHED};
    fl_reach_door_serve(&r->door);
    if (fl_reach_round_turn(r->round, &message.reached)) {
        send_message(r, &message);
    }
}

/* ④ */
static fl_status end_for_signal(relay *r, int number, const char *why)
{
    char text[FL_HOST_TEXT_MAX];
    r->signal_number = number;
    snprintf(text, sizeof text, "stopped by signal %d%s%.180s", number, why[0] == '\0' ? "" : ": ",
             why);
    kill_agent(r);
    send_text(r, FL_HOST_LEAVE, text);
    return fl_fail(FL_ESTOPPED, "%s", text);
}

/* ⑥ */
static fl_status take_release(relay *r, const char *why)
{
    if (why[0] != '\0') {
        return r->asked_us == 0 ? FL_OK : end_for_signal(r, SIGTERM, why);
    }
    fl_log(FL_LOG_INFO, "drained: the run goes on without this host");
    r->drained = true;
    begin_end(r);
    return FL_OK;
}

static void ask_for_drain(relay *r)
{
    r->asked_us = fl_now_us();
    if (r->joined) {
        send_drain(r);
    }
    fl_log(FL_LOG_INFO,
           "SIGTERM: asked the head to go on without this host, within %.1f s; a second SIGTERM "
           "ends it at once",
           (double)r->o->grace_ms * 1e-3);
}

/* Its pieces come in order, before the welcome, which says how many bytes they are. */
static void take_job(relay *r, const unsigned char *bytes, size_t n)
{
    bool fits = !r->joined && r->job_bytes + (int64_t)n <= FL_HOST_JOB_MAX;
    if (fits && pwrite(r->job_fd, bytes, n, r->job_bytes) == (ssize_t)n) {
        r->job_bytes += (int64_t)n;
    }
}

/* Before the welcome: an order for the agent's process. silence_ms: after which the head that gave
 * it counts as lost. */
static void pass_order(relay *r, const fl_host_message *order, int64_t silence_ms)
{
    if (!r->joined) {
        r->surveyed = r->measures = true;
        r->silence_ms = silence_ms;
        (void)pass_to_agent(r, order);
    }
}

/* The job has come before it, and comes again before the welcome. */
static void take_measure(relay *r, const fl_host_message *message)
{
    const fl_host_measure_order *order = &message->measure;
    bool is_there = r->job_bytes == order->job_bytes;
    if (r->joined) {
        return;
    }
    r->job_bytes = 0;
    if (is_there) {
        fl_log(FL_LOG_INFO, "measures what the layers of the job cost on this host");
        pass_order(r, message, order->silence_ms);
        return;
    }
    send_message(r, &(fl_host_message){.type = FL_HOST_UNMEASURED,
                                       .unmeasured = {.number = order->number,
                                                      .text = "the job has not come whole"}});
}

/* Why the head is not heard, as far as this process knows: a stopped one blames nobody else. */
static const char *say_stood(const relay *r, char text[STOOD_TEXT])
{
    bool stood = r->stood_us != 0 && fl_now_us() - r->stood_at_us < 2 * r->silence_ms * 1000;
    text[0] = '\0';
    if (stood) {
        snprintf(text, STOOD_TEXT, ", after this agent itself stood still for %.1f s",
                 (double)r->stood_us * 1e-6);
    }
    return text;
}

static fl_status fail_lost(const relay *r, const char *why)
{
    char stood[STOOD_TEXT];
    return fl_fail(FL_EPEER,
                   "the head at %s counts this host as lost%s: %s; the workers of this host were "
                   "ended",
                   r->o->endpoint, say_stood(r, stood), why);
}

static fl_status fail_silent(const relay *r, int64_t silence_us)
{
    char stood[STOOD_TEXT];
    return fl_fail(FL_EPEER, "the head at %s has been silent for %.1f s%s%s", r->o->endpoint,
                   (double)silence_us * 1e-6, say_stood(r, stood),
                   r->joined ? ": the workers of this host were ended" : "");
}

/* This process did not run, as one that was stopped, or whose machine slept: the head could not be
 * heard, which is no silence of the head. */
static void note_still(relay *r, int64_t us)
{
    if (us < STILL_US) {
        return;
    }
    r->stood_us = us;
    r->stood_at_us = fl_now_us();
    r->heard_us = r->heard_us + us < r->stood_at_us ? r->heard_us + us : r->stood_at_us;
    fl_log(FL_LOG_WARN, "this agent stood still for %.1f s", (double)us * 1e-6);
}

static fl_status take_message(relay *r, const unsigned char *bytes, size_t n)
{
    fl_host_message m;
    fl_status status = fl_host_wire_get(bytes, n, &m);
    if (status == FL_ENOTSUP && !r->joined) {
        return fl_fail(FL_EINVAL, "--join: %s has another version of frostline: %.150s",
                       r->o->endpoint, fl_errmsg());
    }
    if (status != FL_OK) {
        fl_log(FL_LOG_WARN, "dropped a message from the head: %s", fl_errmsg());
        return FL_OK;
    }
    r->heard_us = fl_now_us();
    switch (m.type) {
    case FL_HOST_JOB:
        take_job(r, m.frame.bytes, m.frame.n);
        break;
    case FL_HOST_WELCOME:
        return take_welcome(r, &m);
    case FL_HOST_REFUSE:
        return fl_fail(FL_EINVAL, "--join: %s refuses host '%s': %s", r->o->endpoint, r->o->name,
                       m.text);
    case FL_HOST_FRAME:
        (void)send(r->socket, m.frame.bytes, m.frame.n, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case FL_HOST_LEAVE:
        if (m.text[0] != '\0') {
            return fl_fail(FL_EPEER, "the run has ended: %s", m.text);
        }
        r->again = false;
        begin_end(r);
        break;
    case FL_HOST_STOP:
        fl_log(FL_LOG_INFO, "SIGTERM has ended the run");
        r->stopped = true;
        r->again = false;
        begin_end(r);
        break;
    case FL_HOST_FAILED:
        fl_log(FL_LOG_ERROR, "the run has failed: the head says why");
        r->failed = true;
        r->again = false;
        begin_end(r);
        break;
    case FL_HOST_LOST:
        return fail_lost(r, m.text);
    case FL_HOST_NEXT:
        r->measures = false;
        break;
    case FL_HOST_AGAIN: /* ⑦ */
        begin_again(r, "the run goes back to an earlier step: joins it again");
        break;
    case FL_HOST_APART:
        stand_apart(r, m.text);
        break;
    case FL_HOST_REACH:
        begin_reach(r, &m.reach);
        break;
    case FL_HOST_RELEASE:
        return take_release(r, m.text);
    case FL_HOST_PING:
        send_time(r, m.clock.sent_ns);
        break;
    case FL_HOST_PROBE:
        pass_order(r, &m, m.order.silence_ms);
        break;
    case FL_HOST_MEASURE:
        take_measure(r, &m);
        break;
    case FL_HOST_ALIVE: /* before the welcome: the head waits for other hosts */
        r->surveyed = r->surveyed || !r->joined;
        break;
    case FL_HOST_JOIN:
    case FL_HOST_PONG:
    case FL_HOST_DRAIN:
    case FL_HOST_PROBED:
    case FL_HOST_REACHED:
    case FL_HOST_PROFILE:
    case FL_HOST_UNMEASURED:
    case FL_HOST_UNFIT:
        break;
    }
    return FL_OK;
}

static bool is_writable(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLOUT};
    return poll(&item, 1, 0) == 1 && (item.revents & POLLOUT) != 0;
}

static fl_status read_head(relay *r)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    for (int i = 0; i < MESSAGES_A_TURN && is_writable(r->socket); i++) {
        int n = zmq_recv(r->head, bytes, sizeof bytes, ZMQ_DONTWAIT);
        if (n < 0) {
            return FL_OK;
        }
        FL_TRY(take_message(r, bytes, (size_t)n < sizeof bytes ? (size_t)n : sizeof bytes));
    }
    return FL_OK;
}

/* ---- ② and ⑤ ---- */

/* What the agent's process has measured before the host joins goes to the head as it is. */
static bool pass_measured(const relay *r, const unsigned char *bytes, size_t n)
{
    fl_host_message m;
    if (r->joined) {
        return false;
    }
    bool is_one =
        fl_host_wire_get(bytes, n, &m) == FL_OK &&
        (m.type == FL_HOST_PROBED || m.type == FL_HOST_PROFILE || m.type == FL_HOST_UNMEASURED);
    if (is_one) {
        send_message(r, &m);
    }
    return is_one;
}

/* False: the agent has ended, or closes. */
static bool read_agent(relay *r)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    for (int i = 0; i < MESSAGES_A_TURN; i++) {
        ssize_t n = recv(r->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return true;
        }
        if (n < 0 && errno == ECONNRESET) {
            continue; /* it has ended with frames unread, once; what it said lies behind */
        }
        if (n <= 0) {
            return false;
        }
        fl_agent_frame frame;
        if (pass_measured(r, bytes, (size_t)n)) {
            continue;
        }
        if (fl_agent_wire_get(bytes, (size_t)n, &frame) == FL_OK && frame.type == FL_AGENT_REFUSE) {
            memcpy(r->why, frame.text, sizeof r->why);
            continue;
        }
        fl_host_message message = {.type = FL_HOST_FRAME,
                                   .frame = {.bytes = bytes, .n = (size_t)n}};
        send_message(r, &message);
    }
    return true;
}

static fl_status note_agent_end(relay *r, fl_relay_end *end)
{
    int how = 0;
    char text[FL_HOST_TEXT_MAX];
    bool ended = reap_agent(r, &how);
    if (r->over) {
        send_text(r, FL_HOST_LEAVE, "");
        return FL_OK;
    }
    end->exit_code = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
    if (r->why[0] != '\0') {
        snprintf(text, sizeof text, "%s", r->why);
    } else if (!ended) {
        snprintf(text, sizeof text, "its agent does not answer and does not end");
    } else if (WIFSIGNALED(how)) {
        snprintf(text, sizeof text, "its agent was killed by signal %d", WTERMSIG(how));
    } else {
        snprintf(text, sizeof text, "its agent ended with exit code %d; its terminal says why",
                 end->exit_code);
    }
    send_text(r, r->why[0] != '\0' ? FL_HOST_UNFIT : FL_HOST_LEAVE, text);
    return fl_fail(FL_EFAILED, "%s", text);
}

/* ④ or ⑥ */
static fl_status stop_for_signal(relay *r)
{
    struct signalfd_siginfo info;
    if (read(r->signal_fd, &info, sizeof info) != (ssize_t)sizeof info) {
        return FL_OK;
    }
    int number = (int)info.ssi_signo;
    bool in_run = r->joined || (r->again && !r->apart);
    bool waits = number == SIGTERM && in_run && r->o->grace_ms > 0;
    if (waits && ((r->over && !r->again) || r->asked_us > fl_now_us() - SAME_REQUEST_US)) {
        return FL_OK;
    }
    if (waits && r->asked_us == 0) {
        ask_for_drain(r);
        return FL_OK;
    }
    return end_for_signal(r, number, "");
}

/* Once more: a head that was ending has not taken it. */
static void ask_to_join(relay *r, int64_t now_us)
{
    if (now_us - r->alive_us > JOIN_EVERY_US) {
        send_join(r);
        r->alive_us = now_us;
    }
}

static fl_status watch_clock(relay *r, int64_t now_us)
{
    int64_t silence_us = now_us - r->heard_us;
    if (r->asked_us != 0 && !r->over && now_us - r->asked_us > r->o->grace_ms * 1000) {
        return end_for_signal(r, SIGTERM,
                              "the head did not drain this host in the time of --grace");
    }
    if (!r->joined) {
        ask_to_join(r, now_us);
        if (r->measures && silence_us > r->silence_ms * 1000) {
            return fail_silent(r, silence_us);
        }
        return silence_us < r->join_ms * 1000
                   ? FL_OK
                   : fl_fail(FL_EPEER, "--join: no answer from %s in %lld s", r->o->endpoint,
                             (long long)r->join_ms / 1000);
    }
    if (now_us - r->alive_us > r->silence_ms * 1000 / ALIVES) {
        send_message(r, &(fl_host_message){.type = FL_HOST_ALIVE});
        r->alive_us = now_us;
    }
    if (silence_us > r->silence_ms * 1000) {
        return fail_silent(r, silence_us);
    }
    return FL_OK;
}

/* ⑧ */
static fl_status watch_input(relay *r)
{
    fl_relay_input_look(&r->input);
    if (!r->input.ended || r->over || (r->was_in && !(r->joined && r->disconnected))) {
        return FL_OK;
    }
    return fl_fail(FL_EPEER, r->was_in ? "the head has ended, and so has the ssh that started this "
                                         "agent: the workers of this host were ended"
                                       : "the ssh that started this agent has ended before this "
                                         "host had joined");
}

/* ---- the loop ---- */

static fl_status turn_relay(relay *r, bool *ended, fl_relay_end *end)
{
    bool takes = is_writable(r->socket);
    int64_t begun_us = fl_now_us();
    zmq_pollitem_t items[] = {{r->head, 0, (short)(takes ? ZMQ_POLLIN : 0), 0},
                              {r->events, 0, ZMQ_POLLIN, 0},
                              {NULL, r->signal_fd, ZMQ_POLLIN, 0},
                              {NULL, r->socket, ZMQ_POLLIN, 0},
                              {NULL, STDIN_FILENO, ZMQ_POLLIN, 0}};
    zmq_poll(items, r->input.watched ? 5 : 4,
             fl_reach_round_runs(r->round) ? REACH_TURN_MS : TURN_MS);
    note_still(r, fl_now_us() - begun_us - TURN_MS * 1000);
    watch_reach(r);
    if (is_refused(r)) {
        return fl_fail(FL_EIO, "--join: %s refuses the key: it is another run's", r->o->endpoint);
    }
    FL_TRY(read_head(r));
    if (!read_agent(r)) {
        *ended = true;
        return note_agent_end(r, end);
    }
    if (r->end_us != 0 && fl_left_ms(r->end_us) == 0) {
        kill_agent(r); /* it does not end by itself */
        *ended = true;
        send_text(r, FL_HOST_LEAVE, "");
        return FL_OK;
    }
    FL_TRY(stop_for_signal(r));
    FL_TRY(watch_input(r));
    if (!takes && r->joined) { /* nobody read the head's messages: that is no silence */
        int64_t now_us = fl_now_us(), heard_us = r->heard_us + now_us - begun_us;
        r->heard_us = heard_us < now_us ? heard_us : now_us;
    }
    return watch_clock(r, fl_now_us());
}

static fl_status serve_run(relay *r, fl_relay_end *end)
{
    bool ended = false;
    FL_TRY(open_head(r));
    r->heard_us = r->alive_us = fl_now_us();
    send_join(r);
    while (!ended) {
        FL_TRY(turn_relay(r, &ended, end));
    }
    return FL_OK;
}

/* ⑦ The agent's process has ended; the next one is forked without the threads of ZeroMQ. */
static void leave_head(relay *r)
{
    close_head(r);
    if (r->socket >= 0) {
        close(r->socket);
    }
    if (r->job_fd >= 0) {
        close(r->job_fd);
    }
    kill_agent(r);
    r->job_fd = -1;
    r->zmq = r->head = r->events = NULL;
    r->socket = -1;
    r->joined = r->over = r->measures = false;
    r->end_us = 0;
    r->join_ms = r->again ? AGAIN_MS : r->o->join_ms;
}

fl_status fl_relay_run(const fl_relay_options *options, fl_relay_end *end)
{
    relay r = {
        .o = options, .socket = -1, .signal_fd = -1, .job_fd = -1, .agent = -1, .door = {.fd = -1}};
    r.input = (fl_relay_input){.watched = options->until_eof, .spoke = options->input_spoke};
    sigset_t stops, before;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, &before);
    r.signal_fd = signalfd(-1, &stops, SFD_NONBLOCK | SFD_CLOEXEC);
    fl_status status = r.signal_fd >= 0 ? FL_OK : fl_fail(FL_EIO, "signalfd: %s", strerror(errno));
    if (!fl_reach_door_open(&r.door)) {
        fl_log(FL_LOG_WARN, "other hosts cannot try whether they reach this one: %s",
               strerror(errno));
    }
    do {
        leave_head(&r);
        status = status == FL_OK ? fork_agent(&r, &before) : status;
        status = status == FL_OK ? serve_run(&r, end) : status;
    } while (status == FL_OK && r.over && r.again);
    end->signal_number = r.signal_number;
    end->stopped = status == FL_OK && r.stopped;
    end->failed = status == FL_OK && r.failed;
    end->drained = status == FL_OK && r.drained;
    fl_reach_round_end(&r.round);
    fl_reach_door_close(&r.door);
    close_head(&r);
    kill_agent(&r);
    if (r.socket >= 0) {
        close(r.socket);
    }
    if (r.job_fd >= 0) {
        close(r.job_fd);
    }
    if (r.signal_fd >= 0) {
        close(r.signal_fd);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}
