#include "control/link/router.h"

#include "control/link/held_port.h"
#include "control/link/keys/zmq_socket.h"
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "pipe/cost/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SOCKET_NAME "link"

/* ---- opening ---- */

void fl_router_endpoint(int dir_fd, char text[FL_ROUTER_ENDPOINT_MAX])
{
    snprintf(text, FL_ROUTER_ENDPOINT_MAX, "ipc:///proc/self/fd/%d/" SOCKET_NAME, dir_fd);
}

/* A socket has one kind of security for all its endpoints. A worker that connects again, because
 * its connection broke, takes the place of its old connection. */
static fl_status protect_socket(fl_router *router, const fl_router_far *far)
{
    if (far == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_zap_auth_create_for(far->secret, far->client, &router->guard));
    FL_TRY(fl_zap_auth_open(router->guard, router->zmq));
    return fl_zap_auth_protect(router->guard, router->socket) &&
                   fl_zmq_set(router->socket, ZMQ_ROUTER_HANDOVER, 1)
               ? FL_OK
               : fl_fail(FL_EIO, "%s", zmq_strerror(zmq_errno()));
}

static bool open_socket(fl_router *router)
{
    router->zmq = zmq_ctx_new();
    router->socket = router->zmq == NULL ? NULL : zmq_socket(router->zmq, ZMQ_ROUTER);
    return router->socket != NULL && fl_zmq_set(router->socket, ZMQ_LINGER, 0) &&
           fl_zmq_set(router->socket, ZMQ_ROUTER_MANDATORY, 1) &&
           fl_zmq_limit_messages(router->socket, FL_WIRE_BODY_MAX + 1024 * 1024);
}

static fl_status bind_far(const fl_router *router, const fl_router_far *far)
{
    fl_held_port_close(far->held_fd);
    return fl_zap_auth_bind_own(router->guard, router->zmq, router->socket, far->endpoint,
                                "where the workers of other hosts connect (PORT + 1 of --listen)",
                                FL_OWN_PORT_MS);
}

fl_status fl_router_open(fl_router *router, int dir_fd, const char *run_dir, int n_workers,
                         const fl_router_far *far)
{
    char endpoint[FL_ROUTER_ENDPOINT_MAX];
    *router = (fl_router){.dir_fd = dir_fd, .n_workers = n_workers};
    fl_router_endpoint(dir_fd, endpoint);
    bool opened = open_socket(router);
    if (opened) {
        FL_TRY(protect_socket(router, far));
    }
    if (!opened || !fl_zmq_bind_private(router->socket, endpoint)) {
        return fl_fail(FL_EIO, "cannot open the control link in %s: %s", run_dir,
                       zmq_strerror(zmq_errno()));
    }
    return far == NULL ? FL_OK : bind_far(router, far);
}

void *fl_router_guard(const fl_router *router)
{
    return router->guard == NULL ? NULL : fl_zap_auth_socket(router->guard);
}

void fl_router_watch(fl_router *router)
{
    if (router->guard != NULL) {
        fl_zap_auth_watch(router->guard);
    }
}

static void remove_socket(fl_router *router)
{
    if (unlinkat(router->dir_fd, SOCKET_NAME, 0) != 0 && errno != ENOENT) {
        fl_log(FL_LOG_WARN, "cannot remove the control link's socket: %s", strerror(errno));
    }
}

void fl_router_close(fl_router *router)
{
    if (router->socket != NULL) {
        zmq_close(router->socket);
        remove_socket(router);
    }
    if (router->guard != NULL) {
        fl_zap_auth_close(router->guard);
    }
    if (router->zmq != NULL) {
        zmq_ctx_term(router->zmq);
    }
    fl_zap_auth_destroy(&router->guard);
    for (int rank = 0; rank < FL_MAX_WORKERS; rank++) {
        fl_resend_fini(&router->ends[rank].resend);
    }
    router->socket = router->zmq = NULL;
}

/* ---- sending ---- */

void fl_router_admit(fl_router *router, int rank, uint32_t incarnation)
{
    router->listens[rank] = incarnation;
}

void fl_router_drop(fl_router *router, int rank)
{
    router->listens[rank] = 0;
}

fl_wire_message fl_router_frame(const fl_plan *plan, fl_wire_type type)
{
    return (fl_wire_message){.type = type, .generation = plan->generation, .at_us = fl_now_us()};
}

bool fl_router_send(fl_router *router, const void *to, size_t to_bytes, const char *topic,
                    const void *bytes, size_t n)
{
    return zmq_send(router->socket, to, to_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(router->socket, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(router->socket, bytes, n, ZMQ_DONTWAIT) >= 0;
}

/* Send a part of a message that has begun. */
static bool send_part(fl_router *router, const void *bytes, size_t n, bool more)
{
    return zmq_send(router->socket, bytes, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

/* The transport accepts or refuses a message with its first part. bytes [n]: NULL: only counts. */
static bool send_message(fl_router *router, int rank, uint32_t incarnation,
                         const fl_wire_counts *counts, const void *bytes, size_t n)
{
    char identity[32];
    unsigned char front[FL_WIRE_HEADER_BYTES + FL_WIRE_COUNTS_BYTES];
    int size = snprintf(identity, sizeof identity, FL_WIRE_IDENTITY, rank, incarnation);
    if (!send_part(router, identity, (size_t)size, true) ||
        !send_part(router, FL_WIRE_TOPIC, strlen(FL_WIRE_TOPIC), true)) {
        return false;
    }
    if (counts != NULL) {
        fl_wire_message frame = {
            .type = FL_WIRE_COUNTS, .rank = rank, .at_us = fl_now_us(), .counts = *counts};
        fl_wire_put(&frame, front);
        if (!send_part(router, front, fl_wire_size(&frame), bytes != NULL)) {
            return false;
        }
    }
    return bytes == NULL || send_part(router, bytes, n, false);
}

/* Send what the worker has not taken and the transport does not have. */
static bool send_due(fl_router *router, int rank)
{
    fl_router_end *end = &router->ends[rank];
    const unsigned char *bytes;
    size_t n;
    while ((bytes = fl_resend_due(&end->resend, &n)) != NULL) {
        fl_wire_counts counts = fl_resend_counts(&end->resend, true);
        if (!send_message(router, rank, end->incarnation, &counts, bytes, n)) {
            return false;
        }
        fl_resend_sent(&end->resend);
    }
    return true;
}

/* Where a connection can be lost. A sign of life that is lost is followed by another one. */
static bool send_far(fl_router *router, int rank, fl_wire_type type, const void *bytes, size_t n)
{
    fl_router_end *end = &router->ends[rank];
    if (type != FL_WIRE_ALIVE) {
        end->has_lost |= end->resend.n_bytes + n > FL_ROUTER_KEPT_MAX ||
                         fl_resend_keep(&end->resend, bytes, n) != FL_OK;
        return send_due(router, rank);
    }
    fl_wire_counts counts = fl_resend_counts(&end->resend, false);
    return send_due(router, rank) &&
           send_message(router, rank, end->incarnation, &counts, bytes, n);
}

void fl_router_send_to(fl_router *router, int rank, const fl_wire_message *frame)
{
    unsigned char bytes[FL_WIRE_COMMAND_MAX];
    fl_wire_message message = *frame;
    message.rank = rank;
    if (router->listens[rank] == 0) {
        return;
    }
    fl_wire_put(&message, bytes);
    size_t n = fl_wire_size(&message);
    bool sent = router->guard == NULL
                    ? send_message(router, rank, router->listens[rank], NULL, bytes, n)
                    : send_far(router, rank, message.type, bytes, n);
    if (!sent) {
        /* The worker leaves, connects again, or is stuck and its queue is full: the watch will find
         * out. */
        fl_log(FL_LOG_DEBUG, "worker %d does not accept a frame (%s): %s", rank,
               fl_wire_type_text(frame->type), zmq_strerror(zmq_errno()));
    }
}

void fl_router_send_to_all(fl_router *router, const fl_wire_message *frame)
{
    for (int rank = 0; rank < router->n_workers; rank++) {
        fl_router_send_to(router, rank, frame);
    }
}

void fl_router_wake_standby(fl_router *router, const fl_plan *plan)
{
    fl_wire_message frame = fl_router_frame(plan, FL_WIRE_WAKE);
    for (int rank = 0; rank < router->n_workers; rank++) {
        if (!fl_plan_place(plan, rank).active && !plan->departed[rank]) {
            fl_router_send_to(router, rank, &frame);
        }
    }
}

void fl_router_note_answer(fl_router *router, fl_due_kind kind, int64_t step)
{
    int64_t *answered = &router->answered[kind];
    *answered = step > *answered ? step : *answered;
}

void fl_router_command(fl_router *router, const fl_plan *plan, const fl_command *command)
{
    fl_wire_message frame = fl_router_frame(plan, FL_WIRE_COMMAND);
    frame.command = *command;
    bool may_fail = command->kind == FL_COMMAND_PREPARE || command->kind == FL_COMMAND_COMMIT;
    if (command->due != FL_DUE_NONE && !may_fail) {
        fl_router_note_answer(router, command->due, command->due_step);
    }
    fl_router_send_to(router, fl_plan_leader(plan), &frame);
    fl_router_wake_standby(router, plan);
}

/* ---- receiving ---- */

fl_status fl_router_take(fl_router *router, int rank, uint32_t incarnation, zmq_msg_t *parts,
                         int *first)
{
    fl_router_end *end = &router->ends[rank];
    fl_wire_counts counts;
    bool take = true;
    *first = 0;
    if (router->guard == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_wire_read_counts((const unsigned char *)zmq_msg_data(&parts[0]),
                               zmq_msg_size(&parts[0]), &counts));
    if (end->incarnation != incarnation) {
        fl_resend_fini(&end->resend);
        *end = (fl_router_end){.incarnation = incarnation};
    }
    if (end->has_lost) {
        return fl_fail(FL_EFORMAT, "it takes no commands: %zu bytes wait for it, allowed are %d",
                       end->resend.n_bytes, FL_ROUTER_KEPT_MAX);
    }
    FL_TRY(fl_resend_heard(&end->resend, &counts, &take));
    *first = take ? 1 : 2; /* the numbered part */
    if (router->listens[rank] == incarnation) {
        (void)send_due(router, rank);
    }
    if (end->resend.lacks != 0) { /* even before its hello, which may be lost */
        counts = fl_resend_counts(&end->resend, false);
        (void)send_message(router, rank, incarnation, &counts, NULL, 0);
    }
    return FL_OK;
}

/* ZeroMQ delivers whole messages, so after the first part only an interruption (EINTR) calls for
 * another try. */
static bool read_part(fl_router *router, zmq_msg_t *part, bool first)
{
    int n;
    do {
        n = zmq_msg_recv(part, router->socket, ZMQ_DONTWAIT);
    } while (n < 0 && zmq_errno() == EINTR && !first);
    return n >= 0;
}

bool fl_router_read(fl_router *router, fl_router_handler *handler, void *context)
{
    zmq_msg_t parts[FL_ROUTER_PARTS_MAX];
    int n_parts = 0, n_kept = 0;
    bool more = true;
    while (more) {
        zmq_msg_t *part = &parts[n_kept < FL_ROUTER_PARTS_MAX ? n_kept : FL_ROUTER_PARTS_MAX - 1];
        if (n_kept == FL_ROUTER_PARTS_MAX) { /* only count the rest */
            zmq_msg_close(part);
        } else {
            n_kept++;
        }
        zmq_msg_init(part);
        if (!read_part(router, part, n_parts == 0)) {
            zmq_msg_close(part);
            n_kept--;
            break;
        }
        n_parts++;
        more = zmq_msg_more(part) != 0;
    }
    if (n_parts > 0) {
        handler(context, parts, n_kept, n_parts);
    }
    for (int i = 0; i < n_kept; i++) {
        zmq_msg_close(&parts[i]);
    }
    return n_parts > 0;
}
