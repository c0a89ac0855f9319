/* The two sockets: requests in, replies and events out. Nothing here waits: a client that does not
 * read loses replies, and a subscriber that does not read loses events, once a bounded queue is
 * full. */
#include "control/socket/ctl.h"

#include "device/errors/log.h"
#include "device/system/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum {
    REQUESTS_A_TURN = 128,
    REST_US = 20000, /* least time between two turns that answer requests of a client that polls */
    BURST = 10,      /* turns with requests that need no such pause, for occasional requests */
};

/* ---- replies ---- */

void fl_ctl_refuse(fl_ctl_call *call, fl_ctl_error error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(call->message, sizeof call->message, format, args);
    va_end(args);
    call->error = error;
}

void fl_ctl_refuse_ending(const fl_ctl *ctl, fl_ctl_call *call, const char *over)
{
    const fl_return_choice *back = &ctl->run->phase->back;
    if (back->returns) {
        fl_ctl_refuse(call, FL_CTL_RECOVERING,
                      "a worker was lost, and the run goes back to step %" PRId64
                      "; ask again when it trains",
                      back->step);
    } else {
        fl_ctl_refuse(call, FL_CTL_OVER, "%s", over);
    }
}

/* ---- sending ---- */

/* The client is gone or does not read: the reply is dropped. */
static void send_text(const fl_ctl_call *call, const char *text, size_t n)
{
    void *socket = call->socket;
    if (zmq_send(socket, call->client.bytes, call->client.n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
        (!call->delimited || zmq_send(socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)) {
        (void)zmq_send(socket, text, n, ZMQ_DONTWAIT);
    }
}

static void begin_reply(fl_ctl *ctl, fl_ctl_call *call, bool ok)
{
    fl_json *j = &ctl->reply;
    fl_json_reset(j);
    fl_json_object(j, NULL);
    fl_json_integer(j, "v", FL_CTL_VERSION);
    if (call->request.id[0] != 0) {
        fl_json_text(j, "id", call->request.id);
    } else {
        fl_json_null(j, "id");
    }
    fl_json_bool(j, "ok", ok);
    fl_json_object(j, ok ? "result" : "error");
    call->result = j;
}

static void end_reply(fl_ctl *ctl, fl_ctl_call *call)
{
    fl_json *j = &ctl->reply;
    const fl_ctl_request *r = &call->request;
    ctl->counts.answered += call->error == FL_CTL_OK;
    ctl->counts.refused += call->error != FL_CTL_OK;
    if (call->error != FL_CTL_OK) {
        begin_reply(ctl, call, false);
        fl_json_text(j, "code", fl_ctl_error_text(call->error));
        fl_json_text(j, "message", call->message);
    }
    fl_json_close(j, '}');
    fl_json_close(j, '}');
    if (j->broken) {
        fl_log(FL_LOG_WARN, "out of memory for a reply to request \"%s\"", r->id);
        return;
    }
    send_text(call, j->text, j->n);
    /* A refused request has changed nothing, and may be sent again. */
    if (call->error == FL_CTL_OK && r->command->changes) {
        fl_ctl_replies_keep(ctl->replies, &call->client, r->id, r->fingerprint, j->text, j->n);
    }
}

static void forget_call(fl_ctl *ctl, int i)
{
    fl_ctl_call *call = &ctl->pending[i];
    ctl->n_pending--;
    memmove(call, call + 1, (size_t)(ctl->n_pending - i) * sizeof *call);
}

/* Run the handler of pending[i] again: what was in its way is gone. */
static void retry(fl_ctl *ctl, int i)
{
    fl_ctl_call *call = &ctl->pending[i];
    call->wait = FL_CTL_WAIT_NONE;
    begin_reply(ctl, call, true);
    call->request.command->run(ctl, call);
    if (call->error != FL_CTL_OK || call->wait == FL_CTL_WAIT_NONE) {
        end_reply(ctl, call);
        forget_call(ctl, i);
    }
}

void fl_ctl_settle(fl_ctl *ctl, int i, const fl_setting_done_report *report)
{
    fl_ctl_call *call = &ctl->pending[i];
    begin_reply(ctl, call, true);
    if (call->error == FL_CTL_OK && call->wait == FL_CTL_WAIT_PLAN) {
        fl_ctl_plan_result(ctl, call);
    } else if (call->error == FL_CTL_OK && call->wait == FL_CTL_WAIT_HOST) {
        fl_ctl_host_result(ctl, call);
    } else if (call->error == FL_CTL_OK && call->wait == FL_CTL_WAIT_CHECKPOINT) {
        fl_ctl_checkpoint_result(ctl, call);
    } else if (call->error == FL_CTL_OK) {
        fl_ctl_setting_result(ctl, call, report);
    }
    end_reply(ctl, call);
    forget_call(ctl, i);
}

/* Settle what the state of the run has settled, and begin what waited for it. */
static void drive_pending(fl_ctl *ctl)
{
    if (ctl->n_pending == 0) {
        return;
    }
    for (int i = ctl->n_pending - 1; i >= 0; i--) {
        fl_ctl_call *call = &ctl->pending[i];
        /* While workers open connections, a stop ends the run without them. */
        bool stopped = call->wait == FL_CTL_WAIT_STOP && ctl->run->phase->lost < 0 &&
                       ctl->run->phase->state > FL_CONTROLLER_RUNNING;
        /* The last checkpoint of a run becomes durable when its workers have left. */
        bool last = call->wait == FL_CTL_WAIT_CHECKPOINT;
        if (stopped || fl_ctl_plan_has_ended(ctl, call) || fl_ctl_host_has_ended(ctl, call) ||
            fl_ctl_checkpoint_has_ended(ctl, call)) {
            fl_ctl_settle(ctl, i, NULL);
        } else if ((ctl->run->phase->state > FL_CONTROLLER_RUNNING && !last) ||
                   (ctl->run->phase->n_stops > 0 && call->wait == FL_CTL_WAIT_TURN)) {
            fl_ctl_refuse_ending(ctl, call, "the run ended before it took effect");
            fl_ctl_settle(ctl, i, NULL);
        }
    }
    bool idle = ctl->run->phase->state != FL_CONTROLLER_STARTING &&
                ctl->elastic->transition.state == FL_ELASTIC_IDLE;
    for (int i = 0; i < ctl->n_pending && idle; i++) {
        if (ctl->pending[i].wait == FL_CTL_WAIT_IDLE) {
            retry(ctl, i);
            break; /* the others have their turn when this one is over */
        }
    }
    fl_ctl_send_setting(ctl);
}

fl_ctl_counts fl_ctl_count(const fl_ctl *ctl)
{
    fl_ctl_counts counts = ctl->counts;
    counts.events = ctl->sequence;
    return counts;
}

/* ---- requests ---- */

static bool is_pending(const fl_ctl *ctl, const fl_ctl_call *call)
{
    for (int i = 0; i < ctl->n_pending; i++) {
        const fl_ctl_call *p = &ctl->pending[i];
        if (p->client.n == call->client.n &&
            memcmp(p->client.bytes, call->client.bytes, call->client.n) == 0 &&
            strcmp(p->request.id, call->request.id) == 0) {
            return true;
        }
    }
    return false;
}

/* True when this request has arrived before and needs nothing further. */
static bool answer_again(fl_ctl *ctl, fl_ctl_call *call)
{
    bool same = false;
    const char *text = fl_ctl_replies_find(ctl->replies, &call->client, &call->request, &same);
    if (text != NULL && same) {
        send_text(call, text, strlen(text));
        return true;
    }
    if (text != NULL) {
        fl_ctl_refuse(call, FL_CTL_ID_REUSED, "id \"%s\" was another request's", call->request.id);
    }
    return text == NULL && is_pending(ctl, call); /* its reply is pending */
}

static void answer_request(fl_ctl *ctl, fl_ctl_call *call, const char *text, size_t n)
{
    call->error = fl_ctl_request_read(text, n, &call->request, call->message);
    if (call->error == FL_CTL_OK && call->request.command->changes && answer_again(ctl, call)) {
        return;
    }
    begin_reply(ctl, call, true);
    if (call->error == FL_CTL_OK && call->request.command->changes &&
        ctl->run->phase->back.returns) {
        fl_ctl_refuse_ending(ctl, call, "");
    }
    if (call->error == FL_CTL_OK) {
        call->request.command->run(ctl, call);
        if (call->request.command->changes) {
            fl_json_reset(&ctl->status);
        }
    }
    if (call->error == FL_CTL_OK && call->wait != FL_CTL_WAIT_NONE) {
        if (ctl->n_pending < FL_CTL_PENDING) {
            ctl->pending[ctl->n_pending++] = *call;
            return;
        }
        fl_ctl_refuse(call, FL_CTL_BUSY, "%d requests wait already", FL_CTL_PENDING);
    }
    end_reply(ctl, call);
}

/* Split a message into its parts: the client, perhaps an empty one, the request. A message with
 * other parts comes from no client that could read a reply. */
static void dispatch_parts(fl_ctl *ctl, void *socket, fl_ctl_call *call, zmq_msg_t *parts,
                           int n_parts)
{
    int last = n_parts - 1;
    bool delimited = n_parts == 3 && zmq_msg_size(&parts[1]) == 0;
    size_t n = zmq_msg_size(&parts[0]);
    if ((n_parts != 2 && !delimited) || n > FL_CTL_CLIENT_MAX) {
        fl_log(FL_LOG_DEBUG, "dropped a request of %d parts", n_parts);
        return;
    }
    memset(call, 0, sizeof *call);
    call->socket = socket;
    call->delimited = delimited;
    call->client.n = n;
    memcpy(call->client.bytes, zmq_msg_data(&parts[0]), n);
    answer_request(ctl, call, zmq_msg_data(&parts[last]), zmq_msg_size(&parts[last]));
}

/* Read one message of any number of parts; the fourth and later ones are dropped. False when no
 * message is waiting. */
static bool read_request(fl_ctl *ctl, void *socket, fl_ctl_call *call)
{
    enum { PARTS = 4 };
    zmq_msg_t parts[PARTS];
    int n_parts = 0;
    bool more = true;
    for (int i = 0; i < PARTS; i++) {
        zmq_msg_init(&parts[i]);
    }
    while (more) {
        zmq_msg_t *part = &parts[n_parts < PARTS ? n_parts : PARTS - 1];
        int n = zmq_msg_recv(part, socket, ZMQ_DONTWAIT);
        if (n < 0 && zmq_errno() == EINTR && n_parts > 0) {
            continue; /* the rest of the message is there already */
        }
        more = n >= 0 && zmq_msg_more(part) != 0;
        n_parts += n >= 0;
    }
    if (n_parts > 0) {
        dispatch_parts(ctl, socket, call, parts, n_parts);
    }
    for (int i = 0; i < PARTS; i++) {
        zmq_msg_close(&parts[i]);
    }
    return n_parts > 0;
}

static bool is_resting(const fl_ctl *ctl, int64_t now_us)
{
    return now_us < ctl->rest_us;
}

int fl_ctl_poll(const fl_ctl *ctl, zmq_pollitem_t items[FL_CTL_POLL_MAX])
{
    bool resting = is_resting(ctl, fl_now_us());
    int n = 0;
    if (!resting) {
        items[n++] = (zmq_pollitem_t){ctl->requests, 0, ZMQ_POLLIN, 0};
    }
    if (!resting && ctl->guard != NULL) {
        items[n++] = (zmq_pollitem_t){ctl->far_requests, 0, ZMQ_POLLIN, 0};
    }
    if (ctl->guard != NULL) {
        items[n++] = (zmq_pollitem_t){fl_zap_auth_socket(ctl->guard), 0, ZMQ_POLLIN, 0};
    }
    return n;
}

int fl_ctl_turn_ms(const fl_ctl *ctl, int turn_ms)
{
    int64_t now_us = fl_now_us(), left_ms = (ctl->rest_us - now_us + 999) / 1000;
    return is_resting(ctl, now_us) && left_ms < turn_ms ? (int)left_ms : turn_ms;
}

static int read_requests(fl_ctl *ctl, void *socket)
{
    fl_ctl_call call;
    int n = 0;
    while (n < REQUESTS_A_TURN && read_request(ctl, socket, &call)) {
        n++;
    }
    return n;
}

/* Each turn that finds requests interrupts this thread, ZeroMQ's thread and mostly a worker's
 * processor; ten requests in one turn cost hardly more than one. A client that polls continuously
 * is therefore served at 50 Hz, as often as workers report, with all its requests at once. */
static void rest_from_requests(fl_ctl *ctl, int64_t now_us)
{
    int64_t earliest_us = now_us - (int64_t)BURST * REST_US;
    ctl->rest_us = (ctl->rest_us > earliest_us ? ctl->rest_us : earliest_us) + REST_US;
}

void fl_ctl_watch(fl_ctl *ctl)
{
    int64_t now_us = fl_now_us();
    fl_ctl_events_release(ctl, now_us);
    if (ctl->guard != NULL) {
        fl_zap_auth_watch(ctl->guard);
    }
    if (!is_resting(ctl, now_us)) {
        fl_json_reset(&ctl->status);
        int n = read_requests(ctl, ctl->requests);
        n += ctl->guard == NULL ? 0 : read_requests(ctl, ctl->far_requests);
        if (n > 0) {
            rest_from_requests(ctl, now_us);
        }
    }
    drive_pending(ctl);
}
