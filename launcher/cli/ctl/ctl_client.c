#include "launcher/cli/ctl/ctl_client.h"

#include "control/link/keys/waiting_room.h"
#include "control/link/keys/zap_auth.h"
#include "control/link/keys/zmq_socket.h"
#include "control/socket/ctl_names.h"
#include "control/socket/ctl_request.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "launcher/run/runs/returning.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/run_look.h"
#include "launcher/run/runs/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum {
    LOOK_MS = 500,  /* how often a silent run is looked at */
    CUT_MS = 50,    /* and one that has closed the connection */
    AGAIN_MS = 200, /* until a request is repeated that a run refused while it goes back */
};

struct fl_ctl_client_link {
    char path[PATH_MAX];
    int dir_fd; /* -1: over a network; a socket's path may have 107 bytes only: it is reached
                   through this */
    void *zmq, *socket;
    void *monitor;     /* of a far link: what becomes of its connection; NULL: none */
    bool reached;      /* somebody accepted the connection once */
    bool taken;        /* the run itself has the connection */
    bool refused;      /* the keys did not fit */
    bool was_cut;      /* the connection broke: the run goes back after a loss, or has ended */
    bool is_back;      /* it was made again after that */
    bool has_repeated; /* a request was sent again, so that a reply may come twice */
    zmq_msg_t last;    /* what was handed out */
    char *text;
    size_t capacity;
};

static bool make_socket(fl_ctl_client_link *link, bool events)
{
    link->zmq = zmq_ctx_new();
    link->socket = link->zmq == NULL ? NULL : zmq_socket(link->zmq, events ? ZMQ_SUB : ZMQ_DEALER);
    return link->socket != NULL && fl_zmq_set(link->socket, ZMQ_LINGER, 0) &&
           (!events || zmq_setsockopt(link->socket, ZMQ_SUBSCRIBE, "", 0) == 0);
}

static fl_status make_link(const char *path, bool events, fl_ctl_client_link **out)
{
    fl_ctl_client_link *link = NULL;
    FL_TRY(fl_alloc(sizeof *link, (void **)&link));
    zmq_msg_init(&link->last);
    snprintf(link->path, sizeof link->path, "%s", path);
    link->dir_fd = -1;
    *out = link;
    return make_socket(link, events)
               ? FL_OK
               : fl_fail(FL_EIO, "%s: cannot make a socket: %s", path, zmq_strerror(zmq_errno()));
}

/* A far run that does not answer does so for one of several reasons, which ZeroMQ knows. A run that
 * goes back after a loss takes new connections, and has forgotten the requests of the old ones. */
static bool watch_connection(fl_ctl_client_link *link)
{
    int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                 ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    if (zmq_socket_monitor(link->socket, "inproc://connection", events) != 0) {
        return false;
    }
    link->monitor = zmq_socket(link->zmq, ZMQ_PAIR);
    return link->monitor != NULL && fl_zmq_set(link->monitor, ZMQ_LINGER, 0) &&
           zmq_connect(link->monitor, "inproc://connection") == 0;
}

/* An event: its number in two bytes and a value; then the address. */
static void read_connection(fl_ctl_client_link *link)
{
    unsigned char event[64];
    char address[256];
    while (link->monitor != NULL &&
           zmq_recv(link->monitor, event, sizeof event, ZMQ_DONTWAIT) > 1) {
        uint16_t number;
        memcpy(&number, event, sizeof number);
        bool shaken = number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
        link->reached = true;
        link->taken = shaken || (link->taken && number != ZMQ_EVENT_DISCONNECTED);
        link->is_back = link->is_back || (shaken && link->was_cut);
        link->was_cut = (link->was_cut || number == ZMQ_EVENT_DISCONNECTED) && !shaken;
        if (number != ZMQ_EVENT_CONNECTED && number != ZMQ_EVENT_DISCONNECTED) {
            link->refused = !shaken;
        }
        (void)zmq_recv(link->monitor, address, sizeof address, ZMQ_DONTWAIT);
    }
}

/* A run has no port then, or does not read it. */
#define WAITS                                                                                      \
    "; a run that waits for its hosts, or goes back after a loss, answers only on hosts that "     \
    "have "                                                                                        \
    "its run directory: `frostline ctl RUN status` there"

static fl_status fail_late(fl_ctl_client_link *link)
{
    read_connection(link);
    if (fl_ctl_client_waits_outside(link)) {
        return fl_fail(FL_EDEADLINE,
                       "%s: no answer in time: the run has no descriptor left for another client "
                       "(its ulimit -n); it answers once other clients have ended",
                       link->path);
    }
    const char *waits = link->dir_fd >= 0 ? "" : WAITS;
    if (link->dir_fd >= 0 || (link->reached && !link->refused)) {
        return fl_fail(FL_EDEADLINE, "%s: connected, but no answer in time%s", link->path, waits);
    }
    if (!link->reached) {
        return fl_fail(FL_EDEADLINE, "%s: nothing listens there (no connection in time)%s",
                       link->path, waits);
    }
    return fl_fail(FL_EDEADLINE,
                   "%s: the keys do not fit: --server is not the run's public key, or the run's "
                   "control.allow does not name the public key of --key",
                   link->path);
}

bool fl_ctl_client_waits_outside(const fl_ctl_client_link *link)
{
    return link->dir_fd >= 0 && !link->taken &&
           fl_waiting_room_is_shut(link->dir_fd, FL_CTL_SOCKET);
}

static fl_status connect_near(fl_ctl_client_link *link, bool events)
{
    char endpoint[64];
    if (!watch_connection(link)) {
        return fl_fail(FL_EIO, "%s: cannot watch the connection: %s", link->path,
                       zmq_strerror(zmq_errno()));
    }
    link->dir_fd = open(link->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(endpoint, sizeof endpoint, "ipc:///proc/self/fd/%d/%s", link->dir_fd,
             events ? FL_CTL_EVENTS_SOCKET : FL_CTL_SOCKET);
    if (link->dir_fd < 0 || zmq_connect(link->socket, endpoint) != 0) {
        return fl_fail(FL_EIO, "%s: cannot reach the run: %s", link->path,
                       link->dir_fd < 0 ? strerror(errno) : zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

static fl_status connect_far(fl_ctl_client_link *link, bool events, const char *key,
                             const char *server)
{
    char endpoint[PATH_MAX], secret[FL_KEY_MAX], own[FL_KEY_MAX], theirs[FL_KEY_MAX];
    if (!fl_zap_auth_endpoint(link->path, events, endpoint, sizeof endpoint)) {
        return fl_fail(FL_EINVAL, "%s: allowed: tcp://ADDRESS:PORT", link->path);
    }
    FL_TRY(fl_zap_auth_read_key(server, false, theirs));
    FL_TRY(fl_zap_auth_read_key(key, true, secret));
    if (!watch_connection(link)) {
        explicit_bzero(secret, sizeof secret);
        return fl_fail(FL_EIO, "%s: cannot watch the connection: %s", link->path,
                       zmq_strerror(zmq_errno()));
    }
    bool good = zmq_curve_public(own, secret) == 0 &&
                zmq_setsockopt(link->socket, ZMQ_CURVE_SERVERKEY, theirs, FL_KEY_MAX) == 0 &&
                zmq_setsockopt(link->socket, ZMQ_CURVE_PUBLICKEY, own, FL_KEY_MAX) == 0 &&
                zmq_setsockopt(link->socket, ZMQ_CURVE_SECRETKEY, secret, FL_KEY_MAX) == 0 &&
                zmq_connect(link->socket, endpoint) == 0;
    explicit_bzero(secret, sizeof secret);
    return good ? FL_OK
                : fl_fail(FL_EIO, "%s: cannot connect: %s", link->path, zmq_strerror(zmq_errno()));
}

static fl_status keep_link(fl_status status, fl_ctl_client_link *link, fl_ctl_client_link **out)
{
    if (status == FL_OK) {
        *out = link;
    } else {
        fl_ctl_client_close(&link);
    }
    return status;
}

fl_status fl_ctl_client_open(const char *path, bool events, fl_ctl_client_link **out)
{
    fl_ctl_client_link *link = NULL;
    fl_status status = make_link(path, events, &link);
    status = status == FL_OK ? connect_near(link, events) : status;
    return keep_link(status, link, out);
}

fl_status fl_ctl_client_open_far(const char *endpoint, bool events, const char *key,
                                 const char *server, fl_ctl_client_link **out)
{
    fl_ctl_client_link *link = NULL;
    fl_status status = make_link(endpoint, events, &link);
    status = status == FL_OK ? connect_far(link, events, key, server) : status;
    return keep_link(status, link, out);
}

void fl_ctl_client_close(fl_ctl_client_link **link)
{
    fl_ctl_client_link *l = *link;
    if (l == NULL) {
        return;
    }
    zmq_msg_close(&l->last);
    if (l->monitor != NULL) {
        zmq_socket_monitor(l->socket, NULL, 0);
        zmq_close(l->monitor);
    }
    if (l->socket != NULL) {
        zmq_close(l->socket);
    }
    if (l->zmq != NULL) {
        zmq_ctx_term(l->zmq);
    }
    if (l->dir_fd >= 0) {
        close(l->dir_fd);
    }
    fl_free(l->text);
    fl_free(l);
    *link = NULL;
}

fl_status fl_ctl_client_send(fl_ctl_client_link *link, const char *request)
{
    if (zmq_send(link->socket, request, strlen(request), ZMQ_DONTWAIT) < 0) {
        return fl_fail(FL_EIO, "%s: %s", link->path, zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

/* A far run only answers, or does not. One that goes back after a loss listens to nobody for a
 * while, but its process lives. */
static bool is_over(const fl_ctl_client_link *link)
{
    return link->dir_fd >= 0 && !fl_run_is_live(link->path) && !fl_run_is_held(link->path);
}

static fl_status fail_over(const fl_ctl_client_link *link)
{
    fl_run_entry run;
    bool lost =
        fl_run_look(link->path, &run) == FL_OK && run.state == FL_RUN_LOST && !run.untrained;
    return lost ? fl_run_fail_lost(FL_EPEER, link->path, link->path)
                : fl_fail(FL_EPEER, "%s: the run has ended", link->path);
}

/* request: sent again if the connection was made again; NULL: none waits for a reply. */
static fl_status wait_part(fl_ctl_client_link *link, const char *request, int64_t deadline_us)
{
    for (;;) {
        zmq_pollitem_t items[2] = {{link->socket, 0, ZMQ_POLLIN, 0},
                                   {link->monitor, 0, ZMQ_POLLIN, 0}};
        int64_t left_ms = fl_left_ms(deadline_us), look_ms = link->was_cut ? CUT_MS : LOOK_MS;
        (void)zmq_poll(items, 2, (long)(left_ms < look_ms ? left_ms : look_ms));
        if ((items[0].revents & ZMQ_POLLIN) != 0) {
            return FL_OK;
        }
        read_connection(link);
        if (link->is_back && request != NULL) {
            link->has_repeated = true;
            FL_TRY(fl_ctl_client_send(link, request));
        }
        link->is_back = false;
        if (is_over(link) && zmq_poll(items, 1, CUT_MS) == 0) { /* nothing is on its way either */
            return fail_over(link);
        }
        if (fl_left_ms(deadline_us) == 0) {
            return fail_late(link);
        }
    }
}

/* Parts of one message come together, so only the first is waited for. */
static fl_status read_part(fl_ctl_client_link *link, const char **text)
{
    if (zmq_msg_recv(&link->last, link->socket, ZMQ_DONTWAIT) < 0) {
        return fl_fail(FL_EIO, "%s: %s", link->path, zmq_strerror(zmq_errno()));
    }
    size_t n = zmq_msg_size(&link->last);
    if (n + 1 > link->capacity) {
        void *larger = link->text;
        FL_TRY(fl_realloc(&larger, link->capacity, n + 1));
        link->text = larger;
        link->capacity = n + 1;
    }
    memcpy(link->text, zmq_msg_data(&link->last), n);
    link->text[n] = 0;
    *text = link->text;
    return FL_OK;
}

fl_status fl_ctl_client_receive(fl_ctl_client_link *link, int64_t timeout_ms, const char **reply)
{
    FL_TRY(wait_part(link, NULL, fl_deadline_us(timeout_ms)));
    return read_part(link, reply);
}

/* A request that no program could read has no id, and its reply neither. */
static bool has_same_id(const char *request, const char *reply)
{
    json_t *asked = json_loads(request, 0, NULL), *answered = json_loads(reply, 0, NULL);
    const json_t *id = json_object_get(asked, "id");
    bool same = !json_is_string(id) || json_equal(id, json_object_get(answered, "id"));
    json_decref(asked);
    json_decref(answered);
    return same;
}

fl_status fl_ctl_client_ask(fl_ctl_client_link *link, const char *request, int64_t timeout_ms,
                            const char **reply)
{
    FL_TRY(fl_ctl_client_send(link, request));
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    do {
        FL_TRY(wait_part(link, request, deadline_us));
        FL_TRY(read_part(link, reply));
    } while (link->has_repeated && !has_same_id(request, *reply));
    return FL_OK;
}

fl_status fl_ctl_client_check_recovering(const fl_ctl_client_link *link)
{
    fl_run_entry entry;
    char known[FL_RETURNING_TEXT];
    bool near = link->dir_fd >= 0, lives = near && fl_run_look(link->path, &entry) == FL_OK &&
                                           fl_run_state_lives(entry.state);
    bool goes_back = lives && (entry.state == FL_RUN_RECOVERING ||
                               fl_run_returning(link->path, known)[0] != '\0');
    return goes_back ? fl_run_fail_recovering(link->path, link->path) : FL_OK;
}

static bool is_recovering(const char *reply)
{
    json_t *answered = json_loads(reply, 0, NULL);
    const json_t *error = json_object_get(answered, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    bool found = code != NULL && strcmp(code, fl_ctl_error_text(FL_CTL_RECOVERING)) == 0;
    json_decref(answered);
    return found;
}

fl_status fl_ctl_client_insist(fl_ctl_client_link *link, const char *request, int64_t timeout_ms,
                               const char **reply)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    for (;;) {
        FL_TRY(fl_ctl_client_ask(link, request, fl_left_ms(deadline_us), reply));
        if (!is_recovering(*reply) || fl_left_ms(deadline_us) <= AGAIN_MS) {
            return FL_OK;
        }
        nanosleep(&(struct timespec){0, AGAIN_MS * 1000000L}, NULL);
    }
}

fl_status fl_ctl_client_event(fl_ctl_client_link *link, int64_t timeout_ms, const char **line,
                              int64_t *sequence)
{
    const char *text;
    FL_TRY(wait_part(link, NULL, fl_deadline_us(timeout_ms)));
    FL_TRY(read_part(link, &text)); /* the event's name, which stands in the line as well */
    FL_TRY(read_part(link, &text));
    *sequence = strtoll(text, NULL, 10);
    return read_part(link, line);
}
