/* How the two sockets open and close. */
#include "control/socket/ctl.h"

#include "control/link/keys/zmq_socket.h"
#include "control/state/lasting.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include <zmq.h>

enum {
    QUEUE_REQUESTS = 128,    /* messages a client, each way */
    QUEUE_EVENTS = 1024,     /* messages a subscriber */
    MESSAGE_MAX = 32 * 1024, /* bytes; a client that sends more is disconnected */
    LINGER_MS = 200,         /* for the last replies and events */
};

static void *close_unless(bool good, void *socket)
{
    if (!good && socket != NULL) {
        zmq_close(socket);
    }
    return good ? socket : NULL;
}

static void *open_requests(const fl_ctl *ctl)
{
    void *socket = zmq_socket(ctl->zmq, ZMQ_ROUTER);
    bool good = socket != NULL && fl_zmq_set(socket, ZMQ_LINGER, LINGER_MS) &&
                fl_zmq_set(socket, ZMQ_SNDHWM, QUEUE_REQUESTS) &&
                fl_zmq_set(socket, ZMQ_RCVHWM, QUEUE_REQUESTS) &&
                fl_zmq_limit_messages(socket, MESSAGE_MAX);
    return close_unless(good, socket);
}

static void *open_events(const fl_ctl *ctl)
{
    void *socket = zmq_socket(ctl->zmq, ZMQ_PUB);
    bool good = socket != NULL && fl_zmq_set(socket, ZMQ_LINGER, LINGER_MS) &&
                fl_zmq_set(socket, ZMQ_XPUB_NODROP, 1) &&
                fl_zmq_set(socket, ZMQ_SNDHWM, QUEUE_EVENTS) &&
                fl_zmq_limit_messages(socket, MESSAGE_MAX);
    return close_unless(good, socket);
}

/* A run is live once its control socket takes connections; by then, events can be had, too. */
static bool open_near(fl_ctl *ctl, int dir_fd)
{
    ctl->requests = open_requests(ctl);
    ctl->events = open_events(ctl);
    return ctl->requests != NULL && ctl->events != NULL &&
           fl_door_bind_file(ctl->door, ctl->zmq, ctl->events, dir_fd, FL_CTL_EVENTS_SOCKET) &&
           fl_door_bind_file(ctl->door, ctl->zmq, ctl->requests, dir_fd, FL_CTL_SOCKET);
}

static bool bind_far(fl_zap_auth *guard, void *zmq, void *socket, const char *listen, int plus)
{
    char endpoint[FL_TEXT_MAX + 8];
    return socket != NULL && fl_zap_auth_endpoint(listen, plus, endpoint, sizeof endpoint) &&
           fl_zap_auth_protect(guard, socket) &&
           fl_zap_auth_bind(guard, zmq, socket, endpoint) == FL_OK;
}

/* A network socket requires a key from every client. */
static fl_status open_far(fl_ctl *ctl, const char *listen)
{
    if (ctl->guard == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_zap_auth_open(ctl->guard, ctl->zmq));
    ctl->far_requests = open_requests(ctl);
    ctl->far_events = open_events(ctl);
    if (!bind_far(ctl->guard, ctl->zmq, ctl->far_requests, listen, 0) ||
        !bind_far(ctl->guard, ctl->zmq, ctl->far_events, listen, 1)) {
        return fl_fail_field(FL_EIO, FL_FIELDS("control.listen"),
                             "cannot listen at %s and the next port: %s", listen,
                             zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

/* From the controller before, of a run that has gone back. */
static void take_over(fl_ctl *ctl)
{
    const fl_lasting *before = ctl->run->options->lasting;
    if (before != NULL && before->any) {
        ctl->counts = before->counts;
        ctl->sequence = before->counts.events;
        ctl->paused = before->paused;
        ctl->paused_us = fl_now_us();
        fl_ctl_events_open(ctl);
    }
}

fl_status fl_ctl_open(const fl_ctl_uses *uses, fl_ctl **out)
{
    fl_ctl *ctl = NULL;
    FL_TRY(fl_alloc(sizeof *ctl, (void **)&ctl));
    *out = ctl;
    ctl->run = uses->run;
    ctl->stats = uses->stats;
    ctl->elastic = uses->elastic;
    ctl->checkpoints = uses->checkpoints;
    ctl->router = uses->router;
    ctl->log = uses->log;
    ctl->tracer = uses->tracer;
    ctl->flight_dump = uses->flight_dump;
    ctl->look = uses->look;
    ctl->stop = uses->stop;
    ctl->grow = uses->grow;
    ctl->drain_host = uses->drain_host;
    ctl->context = uses->context;
    take_over(ctl);
    FL_TRY(fl_ctl_replies_create(&ctl->replies));
    FL_TRY(fl_zap_auth_create(ctl->run->options->job, &ctl->guard));
    FL_TRY(fl_door_open(FL_DOOR_FOLDER, &ctl->door));
    ctl->zmq = zmq_ctx_new();
    if (ctl->zmq != NULL) {
        /* The sockets' thread gets a lower priority, so that computing threads keep the processor.
         */
        (void)zmq_ctx_set(ctl->zmq, ZMQ_THREAD_SCHED_POLICY, SCHED_BATCH);
    }
    if (ctl->zmq == NULL || !open_near(ctl, ctl->run->options->dir_fd)) {
        return fl_fail(FL_EIO, "cannot open the control socket in %s: %s",
                       ctl->run->options->run_dir, zmq_strerror(zmq_errno()));
    }
    return open_far(ctl, ctl->run->options->job->control.listen);
}

void fl_ctl_close(fl_ctl **out)
{
    fl_ctl *ctl = *out;
    if (ctl == NULL) {
        return;
    }
    fl_ctl_events_release(ctl, INT64_MAX);
    while (ctl->n_pending > 0) {
        fl_ctl_refuse_ending(ctl, &ctl->pending[0], "the run is over");
        fl_ctl_settle(ctl, 0, NULL);
    }
    void *const sockets[] = {ctl->requests, ctl->events, ctl->far_requests, ctl->far_events};
    for (int i = 0; i < 4; i++) {
        (void)close_unless(false, sockets[i]);
    }
    fl_door_close(&ctl->door);
    if (ctl->guard != NULL) {
        fl_zap_auth_close(ctl->guard);
    }
    if (ctl->zmq != NULL) {
        zmq_ctx_term(ctl->zmq);
        /* ZeroMQ has removed both already, unless something failed. */
        (void)unlinkat(ctl->run->options->dir_fd, FL_CTL_SOCKET, 0);
        (void)unlinkat(ctl->run->options->dir_fd, FL_CTL_EVENTS_SOCKET, 0);
    }
    fl_zap_auth_destroy(&ctl->guard);
    fl_ctl_replies_destroy(&ctl->replies);
    fl_json_fini(&ctl->reply);
    fl_json_fini(&ctl->status);
    fl_free(ctl);
    *out = NULL;
}
