/* The two sockets: requests in, replies and events out. Nothing here waits: a client that does not
 * read loses replies, a subscriber that does not read loses events, both beyond a bounded queue. */
#include "control/ctl.h"

#include "device/alloc.h"
#include "device/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum {
    REQUESTS_A_TURN = 64,
    QUEUE_REQUESTS = 64,     /* messages a client, each way */
    QUEUE_EVENTS = 1024,     /* messages a subscriber */
    MESSAGE_MAX = 64 * 1024, /* bytes; who sends more is disconnected */
    LINGER_MS = 200,         /* for the last replies and events */
    LONGEST_PATH = 64,
};

/* ---- opening and closing ---- */

static bool set_option(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool bind_in_dir(void *socket, int dir_fd, const char *name)
{
    char endpoint[LONGEST_PATH];
    snprintf(endpoint, sizeof endpoint, "ipc:///proc/self/fd/%d/%s", dir_fd, name);
    mode_t before = umask(0177);
    bool bound = zmq_bind(socket, endpoint) == 0;
    umask(before);
    return bound;
}

static bool open_requests(fl_ctl *ctl, int dir_fd)
{
    int64_t largest = MESSAGE_MAX;
    ctl->requests = zmq_socket(ctl->zmq, ZMQ_ROUTER);
    return ctl->requests != NULL && set_option(ctl->requests, ZMQ_LINGER, LINGER_MS) &&
           set_option(ctl->requests, ZMQ_SNDHWM, QUEUE_REQUESTS) &&
           set_option(ctl->requests, ZMQ_RCVHWM, QUEUE_REQUESTS) &&
           zmq_setsockopt(ctl->requests, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0 &&
           bind_in_dir(ctl->requests, dir_fd, FL_CTL_SOCKET);
}

static bool open_events(fl_ctl *ctl, int dir_fd)
{
    int64_t largest = MESSAGE_MAX;
    ctl->events = zmq_socket(ctl->zmq, ZMQ_PUB);
    return ctl->events != NULL && set_option(ctl->events, ZMQ_LINGER, LINGER_MS) &&
           set_option(ctl->events, ZMQ_SNDHWM, QUEUE_EVENTS) &&
           zmq_setsockopt(ctl->events, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0 &&
           bind_in_dir(ctl->events, dir_fd, FL_CTL_EVENTS_SOCKET);
}

fl_status fl_ctl_open(fl_head *head)
{
    fl_ctl *ctl = NULL;
    FL_TRY(fl_alloc(sizeof *ctl, (void **)&ctl));
    head->ctl = ctl;
    FL_TRY(fl_ctl_replies_create(&ctl->replies));
    ctl->zmq = zmq_ctx_new();
    if (ctl->zmq == NULL || !open_requests(ctl, head->options->dir_fd) ||
        !open_events(ctl, head->options->dir_fd)) {
        return fl_fail(FL_EIO, "cannot open the control socket in %s: %s", head->options->run_dir,
                       zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

void fl_ctl_close(fl_head *head)
{
    fl_ctl *ctl = head->ctl;
    if (ctl == NULL) {
        return;
    }
    while (ctl->n_pending > 0) {
        fl_ctl_refuse(&ctl->pending[0], FL_CTL_OVER, "the run is over");
        fl_ctl_settle(head, 0, NULL);
    }
    if (ctl->requests != NULL) {
        zmq_close(ctl->requests);
    }
    if (ctl->events != NULL) {
        zmq_close(ctl->events);
    }
    if (ctl->zmq != NULL) {
        zmq_ctx_term(ctl->zmq);
        (void)unlinkat(head->options->dir_fd, FL_CTL_SOCKET, 0); /* ZeroMQ has done so already, */
        (void)unlinkat(head->options->dir_fd, FL_CTL_EVENTS_SOCKET, 0); /* if all went well */
    }
    fl_ctl_replies_destroy(&ctl->replies);
    fl_json_fini(&ctl->reply);
    fl_free(ctl);
    head->ctl = NULL;
}

/* ---- replies ---- */

void fl_ctl_refuse(fl_ctl_call *call, fl_ctl_error error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(call->message, sizeof call->message, format, args);
    va_end(args);
    call->error = error;
}

/* Nobody there, or nobody who reads: dropped. */
static void send_text(const fl_ctl *ctl, const fl_ctl_call *call, const char *text, size_t n)
{
    if (zmq_send(ctl->requests, call->client.bytes, call->client.n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >=
            0 &&
        (!call->delimited || zmq_send(ctl->requests, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)) {
        (void)zmq_send(ctl->requests, text, n, ZMQ_DONTWAIT);
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
    if (call->error != FL_CTL_OK) {
        begin_reply(ctl, call, false);
        fl_json_text(j, "code", fl_ctl_error_text(call->error));
        fl_json_text(j, "message", call->message);
    }
    fl_json_close(j, '}');
    fl_json_close(j, '}');
    if (j->broken) {
        fl_log(FL_LOG_WARN, "out of memory for a reply to %s", r->command->name);
        return;
    }
    send_text(ctl, call, j->text, j->n);
    /* What was refused has changed nothing, and may be asked for again. */
    if (call->error == FL_CTL_OK && r->command->changes) {
        fl_ctl_replies_keep(ctl->replies, &call->client, r->id, r->fingerprint, j->text, j->n);
    }
}

void fl_ctl_settle(fl_head *head, int i, const fl_steered_report *report)
{
    fl_ctl *ctl = head->ctl;
    fl_ctl_call *call = &ctl->pending[i];
    begin_reply(ctl, call, true);
    if (call->error == FL_CTL_OK && call->wait == FL_CTL_WAIT_PLAN) {
        fl_ctl_plan_result(head, call);
    } else if (call->error == FL_CTL_OK) {
        fl_ctl_steer_result(head, call, report);
    }
    end_reply(ctl, call);
    ctl->n_pending--;
    memmove(call, call + 1, (size_t)(ctl->n_pending - i) * sizeof *call);
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

/* True when this request was met before, and what is to be done about it has been done. */
static bool answer_again(fl_ctl *ctl, fl_ctl_call *call)
{
    bool same = false;
    const char *text = fl_ctl_replies_find(ctl->replies, &call->client, &call->request, &same);
    if (text != NULL && same) {
        send_text(ctl, call, text, strlen(text));
        return true;
    }
    if (text != NULL) {
        fl_ctl_refuse(call, FL_CTL_ID_REUSED, "id \"%s\" was another request's", call->request.id);
    }
    return text == NULL && is_pending(ctl, call); /* its answer is on its way */
}

static void answer(fl_head *head, fl_ctl_call *call, const char *text, size_t n)
{
    fl_ctl *ctl = head->ctl;
    call->error = fl_ctl_request_read(text, n, &call->request, call->message);
    if (call->error == FL_CTL_OK && call->request.command->changes && answer_again(ctl, call)) {
        return;
    }
    begin_reply(ctl, call, true);
    if (call->error == FL_CTL_OK) {
        call->request.command->run(head, call);
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

/* The parts of one message: the client, perhaps an empty one, the request. What has other parts is
 * no request of anybody who could read a reply. */
static void dispatch(fl_head *head, fl_ctl_call *call, zmq_msg_t *parts, int n_parts)
{
    int last = n_parts - 1;
    bool delimited = n_parts == 3 && zmq_msg_size(&parts[1]) == 0;
    size_t n = zmq_msg_size(&parts[0]);
    if ((n_parts != 2 && !delimited) || n > FL_CTL_CLIENT_MAX) {
        fl_log(FL_LOG_DEBUG, "dropped a request of %d parts", n_parts);
        return;
    }
    memset(call, 0, sizeof *call);
    call->delimited = delimited;
    call->client.n = n;
    memcpy(call->client.bytes, zmq_msg_data(&parts[0]), n);
    answer(head, call, zmq_msg_data(&parts[last]), zmq_msg_size(&parts[last]));
}

/* One message, however many parts it has; a fourth and later ones are dropped as they come. False
 * when there is none. */
static bool read_request(fl_head *head, fl_ctl_call *call)
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
        int n = zmq_msg_recv(part, head->ctl->requests, ZMQ_DONTWAIT);
        if (n < 0 && zmq_errno() == EINTR && n_parts > 0) {
            continue; /* a message comes whole */
        }
        more = n >= 0 && zmq_msg_more(part) != 0;
        n_parts += n >= 0;
    }
    if (n_parts > 0) {
        dispatch(head, call, parts, n_parts);
    }
    for (int i = 0; i < PARTS; i++) {
        zmq_msg_close(&parts[i]);
    }
    return n_parts > 0;
}

void *fl_ctl_socket(const fl_head *head)
{
    return head->ctl->requests;
}

void fl_ctl_watch(fl_head *head)
{
    fl_ctl_call call;
    for (int i = 0; i < REQUESTS_A_TURN && read_request(head, &call); i++) {
    }
    fl_ctl_drive(head);
}

/* ---- events ---- */

/* [event]["17"][the line]: the name, to subscribe by; a number that counts up, to see what was
 * lost; and the line of events.jsonl without its end. */
void fl_ctl_publish(fl_head *head, const char *event)
{
    fl_ctl *ctl = head->ctl;
    const fl_json *line = &head->files.event;
    char number[24];
    if (ctl == NULL || line->broken) {
        return;
    }
    int n = snprintf(number, sizeof number, "%" PRId64, ++ctl->sequence);
    if (zmq_send(ctl->events, event, strlen(event), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
        zmq_send(ctl->events, number, (size_t)n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
        (void)zmq_send(ctl->events, line->text, line->n - 1, ZMQ_DONTWAIT);
    }
}
