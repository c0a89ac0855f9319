/* The link thread of a worker.
 *
 *     training thread ① report ──> queue ② ──> link thread ③ ──> controller
 *                     ④ command <──       <── link thread    <── controller
 *                     on_abort ⑤          <── link thread    <── ABORT, or the agent is gone
 *
 * The link thread sleeps in one poll. It wakes when a command arrives, and at least every 20 ms;
 * then it sends all reports that were queued since as one message. A report costs the training
 * thread a copy of some hundred bytes and never a system call. Only reports that the controller
 * waits for (ready, failed, done) wake the link thread at once. */
#include "control/link/link_thread.h"

#include "autodp/net/zmq_event.h"
#include "control/link/keys/zmq_socket.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

enum {
    SMALL_FRAME_BYTES = FL_WIRE_HEADER_BYTES + FL_WIRE_HEARTBEAT_MAX,
    ORPHAN_MS = 2000,  /* from the controller's death to SIGKILL for this process */
    TERMINATE_MS = 500 /* time for the controller to announce that a SIGTERM is for the whole run */
};

/* ---- what a worker sends ---- */

/* Send one part of a message; the transport accepts a message whole or not at all. */
static bool send_part(fl_link *link, const void *bytes, size_t n, bool more)
{
    return zmq_send(link->socket, bytes, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

static bool send_topic(fl_link *link)
{
    return send_part(link, FL_WIRE_TOPIC, strlen(FL_WIRE_TOPIC), true);
}

fl_wire_message fl_link_frame(const fl_link *link, fl_wire_type type)
{
    return (fl_wire_message){.type = type,
                             .rank = link->rank,
                             .generation = atomic_load(&link->generation),
                             .at_us = fl_now_us()};
}

static bool send_counts(fl_link *link, bool numbered)
{
    unsigned char bytes[SMALL_FRAME_BYTES];
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_COUNTS);
    frame.counts = fl_resend_counts(&link->resend, numbered);
    fl_wire_put(&frame, bytes);
    return send_part(link, bytes, fl_wire_size(&frame), true);
}

static size_t put_heartbeat(fl_link *link, unsigned char *bytes)
{
    fl_wire_message frame = fl_link_frame(link, FL_WIRE_HEARTBEAT);
    frame.heartbeat.steps = atomic_load(&link->steps);
    frame.heartbeat.memory =
        (fl_memory_report){.used_bytes = atomic_load(&link->memory_used_bytes),
                           .peak_bytes = atomic_load(&link->memory_peak_bytes),
                           .parked_bytes = atomic_load(&link->memory_parked_bytes),
                           .workspace_bytes = atomic_load(&link->memory_workspace_bytes)};
    snprintf(frame.heartbeat.operation, sizeof frame.heartbeat.operation, "%s",
             atomic_load(&link->operation));
    if (link->look != NULL) {
        link->look(link->context, &frame.heartbeat.unanswered);
    }
    link->heartbeat_sent_us = frame.at_us;
    fl_wire_put(&frame, bytes);
    return fl_wire_size(&frame);
}

/* ②: take the queued reports. Those that cannot be kept, for want of memory or because the
 * controller has taken none for long, wait in the queue. */
static void take_reports(fl_link *link)
{
    if (link->n_unsent == 0) {
        link->unsent = fl_queue_take(&link->queue, &link->n_unsent);
    }
    fl_resend *resend = &link->resend;
    bool has_room = resend->n_bytes == 0 || resend->n_bytes + link->n_unsent < FL_LINK_LIMIT_BYTES;
    if (link->has_keys && link->n_unsent > 0 && has_room &&
        fl_resend_keep(resend, link->unsent, link->n_unsent) == FL_OK) {
        link->n_unsent = 0;
    }
}

/* The reports to send next; NULL: none wait. */
static const unsigned char *next_reports(const fl_link *link, size_t *size_bytes)
{
    if (link->has_keys) {
        return fl_resend_due(&link->resend, size_bytes);
    }
    *size_bytes = link->n_unsent;
    return link->n_unsent > 0 ? link->unsent : NULL;
}

/* To ③: send the next reports, if any, and a heartbeat with them or when one is due. True when
 * reports went out. */
static bool send_message(fl_link *link)
{
    unsigned char heartbeat[SMALL_FRAME_BYTES];
    size_t size_bytes = 0;
    const unsigned char *reports = next_reports(link, &size_bytes);
    if (reports == NULL && fl_now_us() - link->heartbeat_sent_us < link->heartbeat_us) {
        return false;
    }
    if (!send_topic(link) || (link->has_keys && !send_counts(link, reports != NULL)) ||
        (reports != NULL && !send_part(link, reports, size_bytes, true)) ||
        !send_part(link, heartbeat, put_heartbeat(link, heartbeat), false)) {
        return false; /* the socket's queue is full: the controller is not reading */
    }
    if (reports != NULL && link->has_keys) {
        fl_resend_sent(&link->resend);
    } else if (reports != NULL) {
        link->n_unsent = 0;
    }
    return reports != NULL;
}

/* Without keys, what is queued is one message; with keys, others may have to be sent again. */
static void send_what_is_due(fl_link *link)
{
    size_t size_bytes;
    take_reports(link);
    while (send_message(link) && next_reports(link, &size_bytes) != NULL) {
    }
}

/* Whether some reports have not been sent, or have to be sent again. */
static bool has_unsent(const fl_link *link)
{
    size_t size_bytes;
    return link->n_unsent > 0 || next_reports(link, &size_bytes) != NULL;
}

/* ---- what it receives ---- */

/* ⑤ */
static void abort_once(fl_link *link, uint32_t generation, fl_status why)
{
    if (link->aborted) {
        return;
    }
    link->aborted = true;
    fl_log(FL_LOG_INFO, "generation %u is over: %s", generation, fl_status_text(why));
    if (link->on_abort != NULL) {
        link->on_abort(link->context, generation, why);
    }
}

/* ④ Deliver each command, in the order of arrival: standby workers have been woken once for each.
 * Only STOP is delivered ahead of the others, since no command follows it. */
static void take_order(fl_link *link, const fl_command *command)
{
    pthread_mutex_lock(&link->lock);
    int n = atomic_load(&link->n_commands);
    if (command->kind == FL_COMMAND_STOP) {
        n = 0;
    } else if (n > 0 && link->command[0].kind == FL_COMMAND_STOP) {
        n = FL_LINK_COMMANDS;
    } else if (n == FL_LINK_COMMANDS) {
        fl_log(FL_LOG_ERROR, "a command is lost: %d wait already", n);
    }
    if (n < FL_LINK_COMMANDS) {
        link->command[n] = *command;
        atomic_store(&link->n_commands, n + 1);
        pthread_cond_signal(&link->woken);
    }
    pthread_mutex_unlock(&link->lock);
}

static void take_break(fl_link *link, const fl_break_order *order)
{
    pthread_mutex_lock(&link->lock);
    link->break_serial = order->serial > link->break_serial ? order->serial : link->break_serial;
    pthread_cond_signal(&link->woken);
    pthread_mutex_unlock(&link->lock);
    if (link->on_break != NULL) {
        link->on_break(link->context, order->until);
    }
}

/* Commands and announcements that were sent before it belong to a group that is no more. */
static void take_regroup(fl_link *link, const fl_regroup_order *order)
{
    pthread_mutex_lock(&link->lock);
    atomic_store(&link->n_commands, 0);
    link->n_wakes = 0;
    link->regroup = *order;
    pthread_cond_signal(&link->woken);
    pthread_mutex_unlock(&link->lock);
}

static void obey(fl_link *link, const fl_wire_message *frame)
{
    switch (frame->type) {
    case FL_WIRE_COMMAND:
        take_order(link, &frame->command);
        break;
    case FL_WIRE_WAKE:
        pthread_mutex_lock(&link->lock);
        link->n_wakes++;
        pthread_cond_signal(&link->woken);
        pthread_mutex_unlock(&link->lock);
        break;
    case FL_WIRE_STOPPING:
        link->run_is_stopping = true;
        break;
    case FL_WIRE_ABORT:
        abort_once(link, frame->generation, frame->why);
        break;
    case FL_WIRE_TAKEN:
        atomic_store(&link->owes_last, false);
        break;
    case FL_WIRE_BREAK:
        take_break(link, &frame->break_order);
        break;
    case FL_WIRE_REGROUP:
        take_regroup(link, &frame->regroup);
        break;
    case FL_WIRE_ALIVE:
        atomic_store(&link->n_counted, frame->n_counted);
        break;
    default: /* frame types of later versions */
        break;
    }
}

static void receive_message(fl_link *link, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        fl_wire_message frame;
        if (fl_wire_next(&bytes, &n, &frame) != FL_OK) {
            fl_log_counted(&link->n_dropped, 1, "dropped an order: %s", fl_errmsg());
            return;
        }
        obey(link, &frame);
    }
}

/* What is in front of a message, in a link with keys. False: what follows is not next, or never
 * will be. A heartbeat tells the controller at once that this end lacks a message. */
static bool take_counts(fl_link *link, const unsigned char *bytes, size_t n)
{
    fl_wire_counts counts;
    bool take = false;
    fl_status status = fl_wire_read_counts(bytes, n, &counts);
    if (status == FL_OK) {
        status = fl_resend_heard(&link->resend, &counts, &take);
    }
    if (status != FL_OK) {
        fl_log_counted(&link->n_dropped, 1, "dropped an order: %s", fl_errmsg());
    }
    if (link->resend.lacks != 0) {
        link->heartbeat_sent_us = 0;
    }
    return take;
}

/* ZeroMQ delivers whole messages: a signal is no end of one. */
static bool receive_part(fl_link *link, zmq_msg_t *part)
{
    int n;
    do {
        n = zmq_msg_recv(part, link->socket, ZMQ_DONTWAIT);
    } while (n < 0 && zmq_errno() == EINTR);
    return n >= 0;
}

/* The parts of a message: the topic, counts if the link has keys, orders if there are any. */
static void receive_orders(fl_link *link)
{
    zmq_msg_t part;
    bool take = true;
    int first_order = link->has_keys ? 2 : 1;
    zmq_msg_init(&part);
    for (int i = 0; receive_part(link, &part);) {
        const unsigned char *bytes = (const unsigned char *)zmq_msg_data(&part);
        if (i == 0) {
            atomic_store(&link->heard_us, fl_now_us());
            link->told_of_silence = false;
        } else if (i < first_order) {
            take = take_counts(link, bytes, zmq_msg_size(&part));
        } else if (take) {
            receive_message(link, bytes, zmq_msg_size(&part));
        }
        i = zmq_msg_more(&part) ? i + 1 : 0;
    }
    zmq_msg_close(&part);
}

/* ---- its life ---- */

static void die_of(int signal_number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    signal(signal_number, SIG_DFL);
    kill(getpid(), signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* A SIGTERM for this worker alone kills it. One for the whole process group, as batch systems and
 * timeout(1) send it, has reached the controller too, which then announces that the run is
 * stopping. */
static void watch_signals(fl_link *link, int64_t now_us)
{
    struct signalfd_siginfo info;
    while (read(link->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (link->terminated_us == 0) {
            link->terminated_us = now_us;
        }
    }
    if (link->terminated_us != 0 && !link->run_is_stopping &&
        now_us - link->terminated_us > TERMINATE_MS * 1000) {
        fl_log(FL_LOG_WARN, "terminated by a signal");
        die_of(SIGTERM);
    }
}

/* The kernel kills this process when its parent, the agent, dies (PR_SET_PDEATHSIG). This code
 * covers the case that the worker has switched that off. The agent dies with the controller.
 * Workers simply wait for one that is stopped. */
static void watch_controller(fl_link *link, int64_t now_us)
{
    if (link->orphaned_us == 0 && getppid() != link->agent) {
        fl_log(FL_LOG_ERROR, "the agent (process %d) is gone, and with it the run",
               (int)link->agent);
        link->orphaned_us = now_us;
        fl_queue_close(&link->queue);
        abort_once(link, atomic_load(&link->generation), FL_EPEER);
    }
    if (link->orphaned_us != 0 && now_us - link->orphaned_us > ORPHAN_MS * 1000) {
        die_of(SIGKILL);
    }
    int64_t silence_us = now_us - atomic_load(&link->heard_us);
    if (silence_us > link->patience_us && !link->told_of_silence) {
        fl_log(FL_LOG_WARN, "the controller has been silent for %.1f s; waiting for it",
               (double)silence_us * 1e-6);
        link->told_of_silence = true;
    }
}

/* Whether the controller holds the other end, from what the transport tells. */
static void read_connection_events(fl_link *link)
{
    int event;
    while ((event = fl_zmq_event_read(link->events)) != 0) {
        link->connected = event == ZMQ_EVENT_CONNECTED;
    }
}

static void exchange_messages(fl_link *link)
{
    receive_orders(link);
    read_connection_events(link);
    send_what_is_due(link);
    watch_controller(link, fl_now_us());
}

static void turn_link(fl_link *link)
{
    exchange_messages(link);
    watch_signals(link, fl_now_us());
}

/* At most for a slice. */
static void await_orders(fl_link *link)
{
    zmq_pollitem_t readable = {link->socket, 0, ZMQ_POLLIN, 0};
    zmq_poll(&readable, 1, link->slice_ms);
}

/* Hand all reports to the transport. A controller that does not read, because it was stopped, is
 * waited for, and a signal does not end that; without a connection nobody will ever read them. */
static void flush_reports(fl_link *link)
{
    int64_t deadline_us = fl_deadline_us(FL_LINK_FLUSH_MS);
    exchange_messages(link);
    while (has_unsent(link) && link->orphaned_us == 0 &&
           (link->connected || fl_left_ms(deadline_us) > 0)) {
        await_orders(link);
        exchange_messages(link);
    }
}

static int64_t last_heard_us(const fl_link *link, int64_t begun_us)
{
    int64_t heard_us = atomic_load(&link->heard_us);
    return heard_us > begun_us ? heard_us : begun_us;
}

/* The transport has accepted the last report, which may still wait for a cut of the network to end.
 * A closed connection that receives one more message is reset by the system, which then forgets
 * what was not acknowledged. With keys, a connection that was lost comes again. A controller that
 * shows signs of life is waited for. */
static void await_taken(fl_link *link)
{
    int64_t begun_us = fl_now_us();
    while (atomic_load(&link->owes_last) && (link->connected || link->has_keys) &&
           link->orphaned_us == 0 &&
           fl_now_us() - last_heard_us(link, begun_us) < link->patience_us) {
        await_orders(link);
        turn_link(link);
    }
}

/* The transport, too, waits for a controller that does not read. Should the controller die
 * meanwhile, this process dies with it. */
static void set_linger(fl_link *link)
{
    read_connection_events(link);
    int linger_ms = link->connected && link->orphaned_us == 0 ? -1 : FL_LINK_FLUSH_MS;
    if (!fl_zmq_set(link->socket, ZMQ_LINGER, linger_ms)) {
        fl_log(FL_LOG_WARN, "cannot make the link wait for its last reports: %s",
               zmq_strerror(zmq_errno()));
    }
}

void *fl_link_main(void *argument)
{
    fl_link *link = (fl_link *)argument;
    send_what_is_due(link); /* it says hello */
    zmq_pollitem_t items[] = {{link->socket, 0, ZMQ_POLLIN, 0},
                              {NULL, link->wake_fd, ZMQ_POLLIN, 0},
                              {NULL, link->signal_fd, ZMQ_POLLIN, 0}};
    while (!atomic_load(&link->closing)) {
        zmq_poll(items, 3, link->slice_ms);
        if (fl__link_turn != NULL) {
            fl__link_turn(link->rank);
        }
        uint64_t count;
        if ((items[1].revents & ZMQ_POLLIN) && read(link->wake_fd, &count, sizeof count) < 0) {
            fl_log(FL_LOG_DEBUG, "nothing to read from the wake-up");
        }
        turn_link(link);
    }
    flush_reports(link);
    await_taken(link);
    set_linger(link);
    fl_queue_close(&link->queue);
    return NULL;
}
