/* The loop of the relay. ① is in relay_join.c; what the agent's process says, ② and ⑤, is read in
 * relay_agent.c; ④ and ⑥ are in relay_stop.c.
 *
 *     ① JOIN to the head, until WELCOME or REFUSE; the welcome goes to the agent's process. Before
 *       it, the head may have the links between hosts measured: PROBE to that process, PROBED back;
 *       and what layers cost here: MEASURE to that process, PROFILE or UNMEASURED back
 *     ② frames go both ways
 *     ③ LEAVE from the head: the run is over; END to the agent
 *     ④ the head is silent, or a signal: the agent's process is killed, and its workers with it
 *     ⑤ the agent's process has ended: LEAVE to the head, with the reason. If it refuses to take
 *       part, after this process stood still: first ALIVE, and the head says whether it has lost
 *       this host
 *     ⑦ AGAIN from the head: the run goes back; as ③, then from ① with a new process of the agent
 *     ⑥ the first SIGTERM: DRAIN to the head, until RELEASE, which is as ③; without it as ④
 *     ⑧ standard input has ended, which ssh of the head held: before ① is done for once as ④; after
 *       it, only if the head takes no connection, either
 *     ⑨ APART from the head: the run goes on without this host, which does not reach another one;
 *       as ⑦, and the head answers ALIVE, and takes it in once it does
 *     ⑩ REACH from the head: which hosts does this one reach? REACHED back */
#include "control/agent/relay/relay.h"

#include "control/agent/process/signals.h"
#include "control/agent/relay/relay_state.h"
#include "control/agent/wire/agent_socket.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum {
    ALIVES = 8,         /* in the time after which silence counts as loss */
    TURN_MS = 50,       /* between two looks at the clock */
    REACH_TURN_MS = 5,  /* the same while connections to other hosts are tried */
    END_MS = 1000,      /* for the agent to end, after END */
    AGAIN_MS = 300000,  /* for the head to choose where the run goes back to */
    STILL_US = 1000000, /* a turn that takes so much longer than it waits */
    ENDED_US = 1000000, /* without a connection: the head has ended with its ssh */
    STOOD_TEXT = 64,
};

/* ---- the head ---- */

static void send_time(const fl__relay *r, int64_t sent_ns)
{
    fl__relay_send(r, &(fl_host_message){.type = FL_HOST_PONG,
                                         .clock = {.sent_ns = sent_ns,
                                                   .there_ns = fl_now_ns(),
                                                   .wall_ns = fl_now_wall_ns()}});
}

/* ③ */
void fl__relay_begin_end(fl__relay *r)
{
    r->over = true;
    r->end_us = fl_deadline_us(END_MS);
    (void)fl_agent_socket_send(r->socket, &(fl_agent_frame){.type = FL_AGENT_END});
}

/* The same, with a line for the user. A head that goes back may say so to each JOIN. */
static void end_with(fl__relay *r, fl_log_level level, const char *why)
{
    if (!r->over || r->again) {
        fl_log(level, "%s", why);
    }
    r->again = false;
    fl__relay_begin_end(r);
}

/* ⑦ */
static void begin_again(fl__relay *r, const char *why)
{
    fl_log(FL_LOG_INFO, "%s", why);
    r->again = true;
    r->told_wait = false;
    fl__relay_begin_end(r);
}

/* ⑨ */
static void stand_apart(fl__relay *r, const char *why)
{
    fl_log(FL_LOG_WARN, "the run goes on without this host: %s; it joins again when they do", why);
    r->apart = true;
    r->goes_back = false;
    begin_again(r, "its workers end");
}

/* ⑩ */
static void begin_reach(fl__relay *r, const fl_reach_order *order)
{
    if (fl_reach_round_begin(&r->round, order) != FL_OK) {
        fl_log(FL_LOG_WARN, "cannot try which hosts this one reaches: %s", fl_errmsg());
    }
}

static void watch_reach(fl__relay *r)
{
    fl_host_message message = {.type = FL_HOST_REACHED};
    if (fl_reach_round_turn(r->round, &message.reached)) {
        fl__relay_send(r, &message);
    }
}

bool fl__relay_stood(const fl__relay *r)
{
    return r->stood_us != 0 && fl_now_us() - r->stood_at_us < 2 * r->silence_ms * 1000;
}

/* Why the head is not heard, as far as this process knows: a stopped one blames nobody else. */
static const char *say_stood(const fl__relay *r, char text[STOOD_TEXT])
{
    text[0] = '\0';
    if (fl__relay_stood(r)) {
        snprintf(text, STOOD_TEXT, ", after this agent itself stood still for %.1f s",
                 (double)r->stood_us * 1e-6);
    }
    return text;
}

static fl_status fail_lost(const fl__relay *r, const char *why)
{
    char stood[STOOD_TEXT];
    return fl_fail(FL_EPEER,
                   "the head at %s counts this host as lost%s: %s; the workers of this host were "
                   "ended",
                   r->o->endpoint, say_stood(r, stood), why);
}

static fl_status fail_silent(const fl__relay *r, int64_t silence_us)
{
    char stood[STOOD_TEXT];
    return fl_fail(FL_EPEER, "the head at %s has been silent for %.1f s%s%s", r->o->endpoint,
                   (double)silence_us * 1e-6, say_stood(r, stood),
                   r->joined ? ": the workers of this host were ended" : "");
}

/* This process did not run, as one that was stopped, or whose machine slept: the head could not be
 * heard, which is no silence of the head. */
static void note_still(fl__relay *r, int64_t us)
{
    if (us < STILL_US) {
        return;
    }
    r->stood_us = us;
    r->stood_at_us = fl_now_us();
    fl_head_watch_excuse(&r->watch, us, r->stood_at_us);
    r->first_ns = 0; /* the head may have lost this host only now */
    r->heard_us = fl_excused_us(r->heard_us, us, r->stood_at_us);
    fl_log(FL_LOG_WARN, "this agent stood still for %.1f s", (double)us * 1e-6);
}

static fl_status take_message(fl__relay *r, const unsigned char *bytes, size_t n)
{
    fl_host_message m;
    fl_status status = fl_host_wire_get(bytes, n, &m);
    if (status == FL_ENOTSUP && !r->joined) {
        return fl_fail(FL_EINVAL, "--join: %s has another version of frostline: %.150s",
                       r->o->endpoint, fl_errmsg());
    }
    if (status != FL_OK) {
        fl_log_counted(&r->n_dropped, 1, "dropped a message from the head: %s", fl_errmsg());
        return FL_OK;
    }
    r->heard_us = fl_now_us();
    switch (m.type) {
    case FL_HOST_JOB:
        fl__relay_take_job(r, m.frame.bytes, m.frame.n);
        break;
    case FL_HOST_WELCOME:
        return fl__relay_take_welcome(r, &m);
    case FL_HOST_REFUSE:
        return fl_fail(FL_EINVAL, "--join: %s refuses host '%s': %s", r->o->endpoint, r->o->name,
                       m.text);
    case FL_HOST_BUSY:
        return fl_fail(FL_EPEER, "--join: %s cannot take in host '%s' now: %s; start it again",
                       r->o->endpoint, r->o->name, m.text);
    case FL_HOST_FRAME:
        (void)send(r->socket, m.frame.bytes, m.frame.n, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case FL_HOST_LEAVE:
        if (m.text[0] != '\0') {
            return fl_fail(FL_EPEER, "the run has ended: %s", m.text);
        }
        end_with(r, FL_LOG_INFO, "the run is over: this agent ends");
        break;
    case FL_HOST_STOP:
        r->stopped = true;
        end_with(r, FL_LOG_INFO, "SIGTERM has ended the run");
        break;
    case FL_HOST_QUIT:
        end_with(r, FL_LOG_INFO, "the run was stopped on the head: this agent ends");
        break;
    case FL_HOST_FAILED:
        r->failed = true;
        end_with(r, FL_LOG_ERROR, "the run has failed: the head says why");
        break;
    case FL_HOST_LOST:
        return fail_lost(r, m.text);
    case FL_HOST_NEXT:
        r->measures = r->awaits = false;
        r->plans = true;
        break;
    case FL_HOST_AGAIN: /* ⑦ */
        if (r->joined) {
            begin_again(r, "the run goes back to an earlier step: joins it again");
        }
        r->goes_back = true;
        break;
    case FL_HOST_APART:
        stand_apart(r, m.text);
        break;
    case FL_HOST_REACH:
        begin_reach(r, &m.reach);
        break;
    case FL_HOST_RELEASE:
        return fl__relay_take_release(r, m.text);
    case FL_HOST_PING:
        send_time(r, m.clock.sent_ns);
        fl__relay_note_ping(r, m.clock.sent_ns);
        break;
    case FL_HOST_PROBE:
        fl__relay_pass_order(r, &m, m.order.silence_ms);
        break;
    case FL_HOST_MEASURE:
        fl__relay_take_measure(r, &m);
        break;
    case FL_HOST_ALIVE: /* before the welcome: the head waits for other hosts */
        r->goes_back = false;
        fl__relay_note_wait(r);
        break;
    case FL_HOST_JOIN:
    case FL_HOST_PONG:
    case FL_HOST_DRAIN:
    case FL_HOST_PROBED:
    case FL_HOST_REACHED:
    case FL_HOST_DOOR:
    case FL_HOST_PROFILE:
    case FL_HOST_UNMEASURED:
    case FL_HOST_UNFIT:
        break;
    }
    return FL_OK;
}

/* Whether the agent's process takes a frame. Frames for one that is gone are dropped. */
static bool takes_frame(const fl__relay *r)
{
    struct pollfd item = {.fd = r->socket, .events = POLLOUT};
    return r->socket < 0 || (poll(&item, 1, 0) == 1 && (item.revents & POLLOUT) != 0);
}

static fl_status read_head(fl__relay *r)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    for (int i = 0; i < FL__RELAY_MESSAGES_A_TURN && takes_frame(r); i++) {
        int n = zmq_recv(r->head, bytes, sizeof bytes, ZMQ_DONTWAIT);
        if (n < 0) {
            return FL_OK;
        }
        FL_TRY(take_message(r, bytes, (size_t)n < sizeof bytes ? (size_t)n : sizeof bytes));
    }
    return FL_OK;
}

/* ---- ② and ⑤ ---- */

static fl_status watch_clock(fl__relay *r, int64_t now_us)
{
    int64_t silence_us = now_us - r->heard_us;
    FL_TRY(fl__relay_watch_stop(r, now_us));
    FL_TRY(fl__relay_check_connection(r, now_us));
    if (!r->joined) {
        bool is_answered = r->measures || (r->apart && !r->goes_back);
        return is_answered && silence_us > r->silence_ms * 1000 ? fail_silent(r, silence_us)
                                                                : fl__relay_await_head(r, now_us);
    }
    if (now_us - r->alive_us > r->silence_ms * 1000 / ALIVES) {
        fl__relay_send(r, &(fl_host_message){.type = FL_HOST_ALIVE});
        r->alive_us = now_us;
    }
    if (silence_us > r->silence_ms * 1000) {
        return fail_silent(r, silence_us);
    }
    return FL_OK;
}

/* ⑧ */
static fl_status watch_input(fl__relay *r)
{
    fl_relay_input_look(&r->input);
    bool lives = r->joined ? fl_head_watch_closed_us(&r->watch, fl_now_us()) < ENDED_US
                           : r->was_in; /* fl__relay_await_head ends that wait */
    if (!r->input.ended || r->over || lives) {
        return FL_OK;
    }
    return fl_fail(FL_EPEER, r->was_in ? "the head has ended, and so has the ssh that started this "
                                         "agent: the workers of this host were ended"
                                       : "the ssh that started this agent has ended before this "
                                         "host had joined");
}

/* ---- the loop ---- */

static void await_news(const fl__relay *r, bool takes)
{
    int n = 3;
    zmq_pollitem_t items[5] = {{r->head, 0, (short)(takes ? ZMQ_POLLIN : 0), 0},
                               {r->events, 0, ZMQ_POLLIN, 0},
                               {NULL, r->signal_fd, ZMQ_POLLIN, 0}};
    if (r->socket >= 0) {
        items[n++] = (zmq_pollitem_t){NULL, r->socket, ZMQ_POLLIN, 0};
    }
    if (r->input.watched) {
        items[n++] = (zmq_pollitem_t){NULL, STDIN_FILENO, ZMQ_POLLIN, 0};
    }
    zmq_poll(items, n, fl_reach_round_runs(r->round) ? REACH_TURN_MS : TURN_MS);
}

static fl_status turn_relay(fl__relay *r, bool *ended, fl_relay_end *end)
{
    bool takes = takes_frame(r);
    int64_t begun_us = fl_now_us();
    await_news(r, takes);
    note_still(r, fl_now_us() - begun_us - TURN_MS * 1000);
    watch_reach(r);
    fl_reach_door_turn(&r->door);
    FL_TRY(fl__relay_watch_keys(r));
    if (r->has_new_keys) {
        *ended = true;
        return FL_OK;
    }
    FL_TRY(read_head(r));
    if (!fl__relay_read_agent(r)) {
        *ended = true;
        return fl__relay_note_agent_end(r, end);
    }
    if (r->end_us != 0 && fl_left_ms(r->end_us) == 0) {
        fl__relay_kill_agent(r); /* it does not end by itself */
        *ended = true;
        fl__relay_send_text(r, FL_HOST_LEAVE, "");
        return FL_OK;
    }
    FL_TRY(fl__relay_read_signals(r));
    FL_TRY(watch_input(r));
    if (!takes && r->joined) { /* nobody read the head's messages: that is no silence */
        int64_t now_us = fl_now_us();
        r->heard_us = fl_excused_us(r->heard_us, now_us - begun_us, now_us);
    }
    return watch_clock(r, fl_now_us());
}

static fl_status serve_run(fl__relay *r, fl_relay_end *end)
{
    bool ended = false;
    FL_TRY(fl__relay_open_head(r));
    r->heard_us = r->alive_us = fl_now_us();
    fl_head_watch_begin(&r->watch, r->heard_us);
    fl__relay_send_join(r);
    while (!ended) {
        FL_TRY(turn_relay(r, &ended, end));
    }
    return FL_OK;
}

/* ⑦, or after new keys: the agent's process has ended; the next one is forked without the threads
 * of ZeroMQ. */
static void leave_head(fl__relay *r)
{
    fl__relay_close_head(r);
    if (r->socket >= 0) {
        close(r->socket);
    }
    if (r->job_fd >= 0) {
        close(r->job_fd);
    }
    fl__relay_kill_agent(r);
    r->job_fd = -1;
    r->zmq = r->head = r->events = NULL;
    r->socket = -1;
    r->joined = r->over = r->measures = r->has_new_keys = r->awaits = r->head_gone = false;
    r->plans = false;
    r->n_failed = 0;
    r->refused_us = r->keys_us = r->first_ns = 0;
    r->told_refusal = r->doubted = r->confirmed = false;
    r->why[0] = '\0';
    r->end_us = 0;
    r->join_ms = r->again ? AGAIN_MS : r->o->join_ms;
}

fl_status fl_relay_run(const fl_relay_options *options, fl_relay_end *end)
{
    fl__relay r = {
        .o = options, .socket = -1, .signal_fd = -1, .job_fd = -1, .agent = -1, .door = {.fd = -1}};
    r.input = (fl_relay_input){.watched = options->until_eof, .spoke = options->input_spoke};
    sigset_t stops, before, inner;
    fl_signals_stops(&stops);
    sigprocmask(SIG_BLOCK, &stops, &before);
    inner = before; /* a task of an engine has blocked them earlier */
    fl_signals_remove_stops(&inner);
    signal(SIGPIPE, SIG_IGN); /* who reads what the agent says may end before it */
    r.signal_fd = signalfd(-1, &stops, SFD_NONBLOCK | SFD_CLOEXEC);
    fl_status status = r.signal_fd >= 0 ? FL_OK : fl_fail(FL_EIO, "signalfd: %s", strerror(errno));
    fl__relay_open_door(&r, (const uint16_t[2]){0, 0}); /* the head says which port it may be */
    do {
        leave_head(&r);
        status = status == FL_OK ? fl__relay_fork_agent(&r, &inner) : status;
        status = status == FL_OK ? serve_run(&r, end) : status;
    } while (status == FL_OK && ((r.over && r.again) || r.has_new_keys));
    end->exit_code = r.head_code != 0 ? r.head_code : end->exit_code;
    end->signal_number = r.signal_number;
    end->joined = r.was_in;
    end->stopped = status == FL_OK && r.stopped;
    end->failed = status == FL_OK && r.failed;
    end->drained = status == FL_OK && r.drained;
    fl_reach_round_end(&r.round);
    fl_reach_door_close(&r.door);
    fl__relay_close_head(&r);
    fl__relay_kill_agent(&r);
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
