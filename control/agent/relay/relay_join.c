/* The relay's connection to the head, and how the host joins: ① of control/agent/relay/relay.c. */
#include "autodp/net/zmq_event.h"
#include "control/agent/relay/relay_state.h"
#include "control/link/keys/greeting.h"
#include "control/link/keys/zmq_socket.h"
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/text/plural.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define EVENTS_ENDPOINT "inproc://relay-events"

enum {
    LINGER_MS = 200, /* for LEAVE to be sent */
    RECONNECT_MS = 100,
    JOIN_EVERY_US = 300000,
    HANDSHAKE_EVENTS = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH,
    /* A head with another key closes the connection without a word, and so does one that ends. */
    FAILED_HANDSHAKES = 3,
    GREETING_MS = 1000,
    TELL_US = 1000000,       /* of silence, before the user is told that the head is awaited */
    TELL_LATER_US = 5000000, /* the same after the survey: the head makes a plan first */
    LOOK_US = 500000,        /* between two questions whether the head has ended */
    GONE_MS = 10000, /* without a connection, after which a head that makes a plan counts as dead */
    /* The kernel of a head that lives takes connections, whatever its processes do. */
    CLOSED_US = 5000000,       /* the same of a head that measures or trains */
    CLOSED_WAIT_US = 1000000,  /* the same of one that waits for hosts: this one waits on */
    SILENT_WAIT_US = 10000000, /* it answers three times a second */
};

void fl__relay_send(const fl__relay *r, const fl_host_message *message)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n = fl_host_wire_put(message, bytes);
    if (zmq_send(r->head, bytes, n, ZMQ_DONTWAIT) < 0) { /* the head's silence will show it */
        fl_log(FL_LOG_DEBUG, "the head takes no message: %s", zmq_strerror(zmq_errno()));
    }
}

void fl__relay_send_text(const fl__relay *r, fl_host_type type, const char *text)
{
    fl_host_message message = {.type = type};
    snprintf(message.text, sizeof message.text, "%s", text);
    fl__relay_send(r, &message);
}

fl_status fl__relay_open_head(fl__relay *r)
{
    const fl_relay_options *o = r->o;
    r->zmq = zmq_ctx_new();
    r->head = r->zmq == NULL ? NULL : zmq_socket(r->zmq, ZMQ_DEALER);
    r->events = r->head == NULL ? NULL : zmq_socket(r->zmq, ZMQ_PAIR);
    if (r->events == NULL || !fl_curve_client(o->keys, r->head) ||
        !fl_zmq_set(r->head, ZMQ_LINGER, LINGER_MS) ||
        !fl_zmq_set(r->head, ZMQ_RECONNECT_IVL, RECONNECT_MS) ||
        !fl_zmq_limit_messages(r->head, FL_HOST_MESSAGE_MAX) ||
        zmq_socket_monitor(r->head, EVENTS_ENDPOINT, fl_head_watch_events) != 0 ||
        zmq_connect(r->events, EVENTS_ENDPOINT) != 0 || zmq_connect(r->head, o->endpoint) != 0) {
        return fl_fail(FL_EIO, "--join: cannot connect to %s: %s", o->endpoint,
                       zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

void fl__relay_close_head(fl__relay *r)
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

/* The events of the connection since the last call. */
static int read_events(fl__relay *r)
{
    int events = 0, event;
    while ((event = fl_zmq_event_read(r->events)) != 0) {
        events |= event;
        fl_head_watch_note(&r->watch, event, fl_now_us());
    }
    return events;
}

/* ① Whether the head has refused the key. A connection that is closed or that nobody answers is
 * no refusal: the head may end, or a proxy may stand before one that is not there yet. */
bool fl__relay_is_refused(fl__relay *r)
{
    int events = read_events(r); /* the last head may close while it listens */
    bool waits = !r->joined && !r->again && !r->surveyed;
    if (!waits || (events & HANDSHAKE_EVENTS) == 0) {
        return false;
    }
    if ((events & ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) != 0 || r->refused_us != 0) {
        return true;
    }
    r->n_failed = fl_greets_with_curve(r->o->endpoint, GREETING_MS) ? r->n_failed + 1 : 0;
    return r->n_failed >= FAILED_HANDSHAKES;
}

void fl__relay_send_join(const fl__relay *r)
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
    fl__relay_send(r, &message);
}

void fl__relay_send_drain(const fl__relay *r)
{
    fl__relay_send(r, &(fl_host_message){.type = FL_HOST_DRAIN, .grace_ms = r->o->grace_ms});
}

void fl__relay_open_door(fl__relay *r, const uint16_t ports[2])
{
    fl_reach_door_close(&r->door);
    if (!fl_reach_door_open(&r->door, ports)) {
        fl_log(FL_LOG_WARN, "other hosts cannot try whether they reach this one: %s",
               strerror(errno));
    }
}

static void move_door(fl__relay *r, const uint16_t ports[2])
{
    bool fits = ports[0] == 0 || (r->door.port >= ports[0] && r->door.port <= ports[1]);
    if (!fits) {
        fl__relay_open_door(r, ports);
    }
    if (!fits && r->door.port != 0) {
        fl__relay_send(r, &(fl_host_message){.type = FL_HOST_DOOR, .door = r->door.port});
    }
}

fl_status fl__relay_take_welcome(fl__relay *r, const fl_host_message *message)
{
    char workers[FL_COUNT_BYTES];
    const fl_host_welcome *welcome = &message->welcome;
    if (r->joined || r->over || r->held_number != 0) {
        return FL_OK;
    }
    if (r->job_bytes != welcome->job_bytes) {
        return fl_fail(FL_EIO, "--join: %lld of %lld bytes of the job have come",
                       (long long)r->job_bytes, (long long)welcome->job_bytes);
    }
    r->joined = r->was_in = true;
    r->again = r->measures = r->plans = r->apart = false;
    r->silence_ms = welcome->silence_ms;
    move_door(r, welcome->ports);
    if (r->asked_us != 0) { /* while nobody listened */
        fl__relay_send_drain(r);
    }
    fl_log(FL_LOG_INFO, "joined the run %s as host %s, %s", welcome->run_dir, welcome->host.name,
           fl_count_range(welcome->host.first, welcome->host.n, "worker", workers));
    return fl__relay_tell_agent(r, message)
               ? FL_OK
               : fl_fail(FL_EIO, "cannot pass the welcome on: %s", strerror(errno));
}

/* Its pieces come in order, before the welcome, which says how many bytes they are. */
void fl__relay_take_job(fl__relay *r, const unsigned char *bytes, size_t n)
{
    bool fits = !r->joined && r->job_bytes + (int64_t)n <= FL_HOST_JOB_MAX;
    if (fits && pwrite(r->job_fd, bytes, n, r->job_bytes) == (ssize_t)n) {
        r->job_bytes += (int64_t)n;
    }
}

/* Before the welcome: an order for the agent's process. silence_ms: after which the head that gave
 * it counts as lost. */
void fl__relay_pass_order(fl__relay *r, const fl_host_message *order, int64_t silence_ms)
{
    if (!r->joined) {
        r->surveyed = r->measures = true;
        r->silence_ms = silence_ms;
        (void)fl__relay_tell_agent(r, order);
    }
}

/* The job has come before it, and comes again before the welcome. */
void fl__relay_take_measure(fl__relay *r, const fl_host_message *message)
{
    const fl_host_measure_order *order = &message->measure;
    bool is_there = r->job_bytes == order->job_bytes;
    if (r->joined) {
        return;
    }
    r->job_bytes = 0;
    if (is_there) {
        fl_log(FL_LOG_INFO, "measures what the layers of the job cost on this host");
        fl__relay_pass_order(r, message, order->silence_ms);
        return;
    }
    fl__relay_send(r, &(fl_host_message){.type = FL_HOST_UNMEASURED,
                                         .unmeasured = {.number = order->number,
                                                        .text = "the job has not come whole"}});
}

/* ---- the wait for the head ---- */

/* Once more: a head that was ending has not taken it. A host that a signal ends does not join: it
 * would count as lost. */
static void ask_to_join(fl__relay *r, int64_t now_us)
{
    if (r->held_number == 0 && now_us - r->alive_us > JOIN_EVERY_US) {
        fl__relay_send_join(r);
        r->alive_us = now_us;
    }
}

/* Once for each wait: for what, and for how long. */
static void tell_wait(fl__relay *r, int64_t now_us)
{
    bool silent = now_us - r->heard_us > (r->surveyed ? TELL_LATER_US : TELL_US);
    if (!r->told_wait && !r->awaits && !r->over && !r->apart && (r->again || silent)) {
        r->told_wait = true;
        fl_log(FL_LOG_INFO, "waits up to %lld s for the head at %s%s (Ctrl-C ends it)",
               (long long)r->join_ms / 1000, r->o->endpoint,
               r->again ? ", which chooses where the run goes back to" : " to answer");
    }
}

/* The head holds its port while it makes the first plan, or chooses where the run goes back to. */
static fl_status check_head(const fl__relay *r, int64_t now_us)
{
    int64_t closed_us = fl_head_watch_closed_us(&r->watch, now_us);
    int64_t most_ms = r->silence_ms > GONE_MS ? r->silence_ms : GONE_MS;
    bool holds_port = r->again || r->plans;
    return !holds_port || closed_us <= most_ms * 1000
               ? FL_OK
               : fl_fail(FL_EPEER,
                         "the head at %s has ended %s: it has taken no connection for %.1f s%s",
                         r->o->endpoint,
                         r->again ? "while the run went back" : "before the run began",
                         (double)closed_us * 1e-6,
                         r->again ? "; the workers of this host were ended" : "");
}

fl_status fl__relay_check_connection(const fl__relay *r, int64_t now_us)
{
    int64_t closed_us = fl_head_watch_closed_us(&r->watch, now_us);
    bool answers = (r->joined || r->measures) && !r->over;
    return !answers || closed_us <= CLOSED_US
               ? FL_OK
               : fl_fail(FL_EPEER,
                         "the head at %s has ended: it has taken no connection for %.1f s%s",
                         r->o->endpoint, (double)closed_us * 1e-6,
                         r->joined ? "; the workers of this host were ended" : "");
}

void fl__relay_note_wait(fl__relay *r)
{
    if (r->joined) {
        return;
    }
    if (r->head_gone) {
        fl_log(FL_LOG_INFO, "the head at %s answers again: it waits for other hosts",
               r->o->endpoint);
    }
    r->surveyed = r->awaits = true;
    r->head_gone = r->told_wait = r->plans = false;
}

/* The head that has taken this host in has ended, or its host or the network is gone. It may be
 * started again, with other keys. */
static void watch_wait(fl__relay *r, int64_t now_us)
{
    bool closed = fl_head_watch_closed_us(&r->watch, now_us) > CLOSED_WAIT_US;
    int64_t silent_us = now_us - r->heard_us;
    bool waits = r->awaits && !r->measures && !r->again && !r->goes_back && !r->over;
    if (!waits || (!closed && silent_us <= SILENT_WAIT_US)) {
        return;
    }
    char what[64] = "has ended before the run began";
    if (!closed) {
        snprintf(what, sizeof what, "has not answered for %.0f s", (double)silent_us * 1e-6);
    }
    fl_log(FL_LOG_WARN,
           "the head at %s %s; waits up to %lld s for it to come back (Ctrl-C ends it)",
           r->o->endpoint, what, (long long)r->join_ms / 1000);
    r->awaits = r->surveyed = false;
    r->head_gone = r->told_wait = true;
    r->heard_us = now_us;
}

/* A head that ends before this host has joined may have no connection to say so. */
static fl_status look_for_end(fl__relay *r, int64_t now_us)
{
    bool due =
        r->o->check_head != NULL && !r->was_in && !r->over && now_us - r->looked_us > LOOK_US;
    r->looked_us = due ? now_us : r->looked_us;
    return due ? r->o->check_head(r->o->head_context, &r->head_code) : FL_OK;
}

fl_status fl__relay_await_head(fl__relay *r, int64_t now_us)
{
    FL_TRY(look_for_end(r, now_us));
    watch_wait(r, now_us);
    tell_wait(r, now_us);
    if (!r->over) {
        ask_to_join(r, now_us);
    }
    FL_TRY(check_head(r, now_us));
    return now_us - r->heard_us < r->join_ms * 1000 ? FL_OK : fl__relay_fail_unanswered(r);
}
