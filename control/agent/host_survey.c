#include "control/agent/host_survey.h"

#include "autodp/net/store.h"
#include "control/agent/host_socket.h"
#include "control/agent/host_start.h"
#include "control/agent/join_address.h"
#include "control/link/zmq_socket.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/failure.h"
#include "device/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

enum {
    TURN_MS = 50,
    PAIR_MS = 400,
    ROUND_MS = PAIR_MS + 3 * FL_HOST_PROBE_OPEN_MS, /* where a pair is not reached */
    SLACK_MS = 10000,                               /* for processes to start */
    DISMISS_MS = 3000,
    STORE_PARTS = 3,
};

typedef struct survey_host {
    bool joined, gone;
    fl_host_peer peer;
    char address[FL_HOST_TEXT]; /* that it has now */
    fl_host_starter starter;
} survey_host;

typedef struct survey {
    const fl_host_survey_options *o;
    fl_host_survey *out;
    survey_host *host; /* [n] */
    fl_host_probe_order order;
    fl_host_socket socket;
    void *links; /* of the store */
    fl_store *store;
    int own, signal_fd; /* the socket of this host's process */
    pid_t pid;
    int stopped;
} survey;

/* ---- this host's process ---- */

static void tell_result(void *context, const fl_host_link *result)
{
    const int *socket = context;
    (void)send(*socket, result, sizeof *result, MSG_NOSIGNAL);
}

static _Noreturn void become_probe(const survey *s, int socket, pid_t parent)
{
    fl_host_probe_order order;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && recv(socket, &order, sizeof order, 0) == (ssize_t)sizeof order) {
        fl_host_probe(&order, &s->o->hosts->keys, tell_result, &socket);
    }
    _exit(0);
}

/* Before there are threads. */
static bool fork_own(survey *s)
{
    int ends[2];
    pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    fflush(NULL);
    s->own = ends[0];
    s->pid = fork();
    if (s->pid == 0) {
        close(ends[0]);
        become_probe(s, ends[1], self);
    }
    close(ends[1]);
    return s->pid > 0;
}

/* ---- ① ---- */

static void send_text(const survey *s, const fl_host_peer *to, fl_host_type type, const char *text)
{
    fl_host_message message = {.type = type};
    snprintf(message.text, sizeof message.text, "%s", text);
    (void)fl_host_socket_send(&s->socket, to, &message);
}

static void note_gone(survey *s, int i, const char *why)
{
    s->host[i].joined = s->out->host[i].joined = false;
    s->host[i].gone = true;
    snprintf(s->out->host[i].why, sizeof s->out->host[i].why, "%s", why);
}

/* A host that the run does not know is none of these, and has to wait for the gate. */
static void take_join(survey *s, const fl_host_peer *from, const fl_host_join *join)
{
    char why[FL_HOST_WHY_MAX + 1];
    int i = fl_hosts_find(s->o->hosts, join->name);
    bool known = i > 0 && !s->o->hosts->host[i].absent;
    if (known && strcmp(join->version, FL_VERSION) != 0) {
        snprintf(why, sizeof why, "it has frostline %.60s, and the head %s", join->version,
                 FL_VERSION);
        send_text(s, from, FL_HOST_REFUSE, why);
        note_gone(s, i, why);
        return;
    }
    if (known) { /* its last connection counts */
        s->host[i].joined = s->out->host[i].joined = true;
        s->host[i].gone = false;
        s->host[i].peer = *from;
        snprintf(s->host[i].address, sizeof s->host[i].address, "%s",
                 fl_join_address(&s->o->hosts->host[i], join));
    }
    send_text(s, from, FL_HOST_ALIVE, "");
}

static int find_peer(const survey *s, const fl_host_peer *from)
{
    for (int i = 1; i < s->out->n; i++) {
        const survey_host *h = &s->host[i];
        if (h->joined && h->peer.n == from->n && memcmp(h->peer.bytes, from->bytes, from->n) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- ④ ---- */

static fl_host_link *find_pair(survey *s, int a, int b)
{
    for (int i = 0; i < s->out->n_pairs; i++) {
        if (s->out->pair[i].a == a && s->out->pair[i].b == b) {
            return &s->out->pair[i];
        }
    }
    return NULL;
}

/* What one of the two has seen of a failure stands; of a measured pair there is one result. */
static void take_result(survey *s, int i, const fl_host_link *result)
{
    bool is_own = result->a == i || (result->b == i && !result->reached);
    if (!is_own || result->b >= s->out->n || find_pair(s, result->a, result->b) != NULL) {
        return;
    }
    s->out->pair[s->out->n_pairs++] = *result;
}

static bool takes_part(const survey *s, int i)
{
    return i == 0 || !s->order.absent[i];
}

static int count_parts(const survey *s)
{
    int n = 0;
    for (int i = 0; i < s->out->n; i++) {
        n += takes_part(s, i);
    }
    return n;
}

/* ---- messages ---- */

static void take_message(survey *s, const fl_host_peer *from, const unsigned char *bytes, size_t n)
{
    fl_host_message m;
    int i = find_peer(s, from);
    fl_status status = fl_host_wire_get(bytes, n, &m);
    if (status == FL_ENOTSUP) {
        char why[FL_HOST_TEXT_MAX + 1];
        snprintf(why, sizeof why, "it has another version of frostline: %.150s", fl_errmsg());
        send_text(s, from, FL_HOST_REFUSE, why);
    } else if (status != FL_OK) {
        fl_log(FL_LOG_WARN, "dropped a message from a host: %s", fl_errmsg());
    } else if (m.type == FL_HOST_JOIN) {
        take_join(s, from, &m.join);
    } else if (m.type == FL_HOST_PROBED && i > 0) {
        take_result(s, i, &m.probed);
    } else if (m.type == FL_HOST_LEAVE && i > 0) {
        note_gone(s, i, m.text[0] == '\0' ? "its agent has ended" : m.text);
    }
}

static void read_hosts(survey *s)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_peer from;
    size_t n;
    while (fl_host_socket_read(&s->socket, &from, bytes, &n)) {
        take_message(s, &from, bytes, n);
    }
}

/* ③ */
static void answer_store(void *context, const void *to, size_t to_bytes, const void *message,
                         size_t size_bytes)
{
    const survey *s = context;
    if (zmq_send(s->links, to, to_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
        zmq_send(s->links, "store", 5, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
        (void)zmq_send(s->links, message, size_bytes, ZMQ_DONTWAIT);
    }
}

static void read_store(survey *s)
{
    zmq_msg_t part[STORE_PARTS];
    int n = 0, more = 1;
    for (int i = 0; i < STORE_PARTS; i++) {
        zmq_msg_init(&part[i]);
    }
    while (more) {
        zmq_msg_t *into = &part[n < STORE_PARTS ? n : STORE_PARTS - 1];
        if (zmq_msg_recv(into, s->links, ZMQ_DONTWAIT) < 0) {
            break;
        }
        more = zmq_msg_more(into);
        n++;
    }
    if (n == STORE_PARTS && !more && zmq_msg_size(&part[1]) == 5 &&
        memcmp(zmq_msg_data(&part[1]), "store", 5) == 0) {
        fl_store_handle(s->store, zmq_msg_data(&part[0]), zmq_msg_size(&part[0]),
                        zmq_msg_data(&part[2]), zmq_msg_size(&part[2]), answer_store, s);
    }
    for (int i = 0; i < STORE_PARTS; i++) {
        zmq_msg_close(&part[i]);
    }
}

static void read_own(survey *s)
{
    fl_host_link result;
    ssize_t n = 0;
    while (s->own >= 0 &&
           (n = recv(s->own, &result, sizeof result, MSG_DONTWAIT)) == (ssize_t)sizeof result) {
        take_result(s, 0, &result);
    }
    if (s->own >= 0 && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))) {
        close(s->own); /* it has ended */
        s->own = -1;
    }
}

static void watch_starters(survey *s)
{
    for (int i = 1; i < s->out->n; i++) {
        char why[FL_HOST_STARTER_WHY];
        fl_host_starter_read(&s->host[i].starter, !s->o->quiet);
        if (fl_host_starter_ended(&s->host[i].starter, s->o->hosts->ssh[i], !s->o->quiet, why) &&
            !s->host[i].gone) {
            note_gone(s, i, why);
        }
    }
}

static void turn_survey(survey *s)
{
    struct signalfd_siginfo info;
    zmq_pollitem_t items[] = {{fl_zap_auth_socket(s->socket.guard), 0, ZMQ_POLLIN, 0},
                              {s->socket.socket, 0, ZMQ_POLLIN, 0},
                              {s->links, 0, ZMQ_POLLIN, 0},
                              {NULL, s->signal_fd, ZMQ_POLLIN, 0},
                              {NULL, s->own, ZMQ_POLLIN, 0}};
    zmq_poll(items, s->own < 0 ? 4 : 5, TURN_MS);
    fl_zap_auth_watch(s->socket.guard);
    read_hosts(s);
    for (int i = 0; i < 64 && (zmq_poll(&items[2], 1, 0) > 0); i++) {
        read_store(s);
    }
    read_own(s);
    watch_starters(s);
    if (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        s->stopped = (int)info.ssi_signo;
    }
}

/* ---- the whole of it ---- */

/* Whether it goes on waiting. A host that was started by ssh and has ended does not come; others
 * may. */
static bool awaits_hosts(const survey *s)
{
    bool waits = false;
    for (int i = 1; i < s->out->n; i++) {
        bool wanted = !s->o->hosts->host[i].absent && !s->host[i].joined;
        if (wanted && s->host[i].gone && !s->o->partial) {
            return false;
        }
        waits = waits || (wanted && !s->host[i].gone);
    }
    return waits;
}

static fl_status gather_hosts(survey *s)
{
    int64_t until_us = fl_deadline_us(s->o->join_ms);
    while (s->stopped == 0 && awaits_hosts(s) && fl_left_ms(until_us) > 0) {
        turn_survey(s);
    }
    for (int i = 1; i < s->out->n && s->stopped == 0; i++) {
        const fl_host *host = &s->o->hosts->host[i];
        if (host->absent || s->host[i].joined) {
            continue;
        }
        if (s->out->host[i].why[0] == '\0') {
            snprintf(s->out->host[i].why, sizeof s->out->host[i].why,
                     "its agent has not reached the head at %.80s in %lld s", s->o->hosts->agents,
                     (long long)s->o->join_ms / 1000);
        }
        if (!s->o->partial) {
            return fl_fail(FL_EPEER, "host %s (%s): %s", host->name, host->address,
                           s->out->host[i].why);
        }
    }
    return FL_OK;
}

static void order_one(survey *s, int i)
{
    fl_host_message message = {.type = FL_HOST_PROBE};
    s->order.index = i;
    snprintf(s->order.address, sizeof s->order.address, "%s",
             i == 0 ? s->o->hosts->host[0].address : s->host[i].address);
    message.order = s->order;
    if (i == 0) {
        (void)send(s->own, &s->order, sizeof s->order, MSG_NOSIGNAL);
    } else {
        (void)fl_host_socket_send(&s->socket, &s->host[i].peer, &message);
    }
}

/* ② */
static void order_all(survey *s)
{
    fl_host_probe_order *o = &s->order;
    int rounds = fl_host_probe_rounds(s->out->n);
    int64_t all_ms = SLACK_MS + (int64_t)ROUND_MS * rounds;
    o->n = s->out->n;
    o->plain = s->o->plain;
    o->number = (uint64_t)fl_now_ns();
    o->pair_ms = PAIR_MS;
    o->all_ms = all_ms < FL_HOST_PROBE_MS_MAX ? all_ms : FL_HOST_PROBE_MS_MAX;
    snprintf(o->links, sizeof o->links, "%s", s->o->hosts->links);
    for (int i = 1; i < o->n; i++) {
        o->absent[i] = !s->host[i].joined;
    }
    for (int i = 0; i < o->n; i++) {
        if (takes_part(s, i)) {
            order_one(s, i);
        }
    }
}

static bool is_part_gone(const survey *s)
{
    for (int i = 1; i < s->out->n; i++) {
        if (takes_part(s, i) && s->host[i].gone) {
            return true;
        }
    }
    return false;
}

/* A pair of which nothing is heard is not reached. */
static void fill_missing(survey *s)
{
    for (int a = 0; a < s->out->n; a++) {
        for (int b = a + 1; b < s->out->n; b++) {
            fl_host_link lost = {.a = a, .b = b};
            snprintf(lost.why, sizeof lost.why, "no answer in time");
            if (takes_part(s, a) && takes_part(s, b) && find_pair(s, a, b) == NULL) {
                s->out->pair[s->out->n_pairs++] = lost;
            }
        }
    }
}

static int compare_pairs(const void *a, const void *b)
{
    const fl_host_link *x = a, *y = b;
    return x->a != y->a ? x->a - y->a : x->b - y->b;
}

static fl_status check_pairs(const survey *s)
{
    for (int i = 0; i < s->out->n_pairs && !s->o->partial; i++) {
        const fl_host_link *p = &s->out->pair[i];
        const fl_host *a = &s->o->hosts->host[p->a], *b = &s->o->hosts->host[p->b];
        if (!p->reached) {
            return fl_fail(FL_EPEER,
                           "hosts %s (%s) and %s (%s) cannot talk to each other: %s; workers "
                           "connect to any port of the other host: let TCP between them through "
                           "the firewall (frostline doctor --hosts checks all pairs)",
                           a->name, a->address, b->name, b->address, p->why);
        }
    }
    return FL_OK;
}

static fl_status measure_pairs(survey *s)
{
    order_all(s);
    int n = count_parts(s), wanted = n * (n - 1) / 2;
    int64_t until_us = fl_deadline_us(s->order.all_ms + SLACK_MS);
    while (s->stopped == 0 && s->out->n_pairs < wanted && !is_part_gone(s) &&
           fl_left_ms(until_us) > 0) {
        turn_survey(s);
    }
    fill_missing(s);
    qsort(s->out->pair, (size_t)s->out->n_pairs, sizeof *s->out->pair, compare_pairs);
    return check_pairs(s);
}

static fl_status start_agents(survey *s)
{
    const fl_hosts *hosts = s->o->hosts;
    for (int i = 1; i < hosts->n && hosts->by_ssh; i++) {
        if (!hosts->host[i].absent &&
            !fl_host_start(hosts, i, s->o->run_dir, &s->host[i].starter)) {
            return fl_fail(FL_EIO, "host %s: cannot start ssh: %s", hosts->host[i].name,
                           strerror(errno));
        }
    }
    return FL_OK;
}

static fl_status open_survey(survey *s)
{
    fl_status status = fork_own(s) ? start_agents(s) : fl_fail(FL_EIO, "%s", strerror(errno));
    FL_TRY(status);
    FL_TRY(fl_store_create(&s->store));
    bool good = fl_host_socket_open(s->o->hosts, &s->socket);
    s->links = good ? zmq_socket(s->socket.zmq, ZMQ_ROUTER) : NULL;
    return s->links != NULL && fl_zmq_set(s->links, ZMQ_LINGER, 0) &&
                   fl_zmq_limit_messages(s->links, FL_HOST_MESSAGE_MAX) &&
                   fl_zap_auth_protect(s->socket.guard, s->links) &&
                   zmq_bind(s->links, s->o->hosts->links) == 0
               ? FL_OK
               : fl_fail(FL_EIO, "--listen: cannot wait for hosts at %s and %s: %s",
                         s->o->hosts->agents, s->o->hosts->links, zmq_strerror(zmq_errno()));
}

/* why: the run does not begin; "": it does, and agents that nobody else starts wait for it. */
static void dismiss_agents(survey *s, const char *why)
{
    int64_t until_us = fl_deadline_us(DISMISS_MS);
    bool ends = s->o->dismiss || s->o->hosts->by_ssh || why[0] != '\0';
    for (int i = 1; i < s->out->n && ends && s->socket.socket != NULL; i++) {
        if (s->host[i].joined) {
            send_text(s, &s->host[i].peer, s->stopped == SIGTERM ? FL_HOST_STOP : FL_HOST_LEAVE,
                      why);
        }
    }
    if (s->links != NULL) {
        zmq_close(s->links);
    }
    fl_host_socket_close(&s->socket);
    for (int i = 1; i < s->out->n; i++) {
        fl_host_starter_close(&s->host[i].starter, fl_left_ms(until_us), !s->o->quiet);
    }
}

static void close_survey(survey *s, const char *why)
{
    dismiss_agents(s, why);
    fl_store_destroy(&s->store);
    if (s->own >= 0) {
        close(s->own);
    }
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (s->signal_fd >= 0) {
        close(s->signal_fd);
    }
    fl_free(s->host);
}

static void announce(const survey *s)
{
    const fl_hosts *hosts = s->o->hosts;
    int n = 0;
    for (int i = 1; i < hosts->n; i++) {
        n += !hosts->host[i].absent;
    }
    fl_log(FL_LOG_INFO,
           "measures the links between hosts; waits for %d other host%s: frostline agent --join %s "
           "--key %s/" FL_HOSTS_KEY_FILE " --name NAME",
           n, n == 1 ? "" : "s", hosts->agents, s->o->run_dir);
}

static fl_status survey_hosts(survey *s)
{
    if (!s->o->quiet) {
        announce(s);
    }
    FL_TRY(fl_alloc_array((size_t)s->out->n, sizeof *s->host, (void **)&s->host));
    FL_TRY(open_survey(s));
    FL_TRY(gather_hosts(s));
    return s->stopped == 0 ? measure_pairs(s) : FL_OK;
}

fl_status fl_host_survey_run(const fl_host_survey_options *options, fl_host_survey *out,
                             int *stopped)
{
    survey s = {.o = options, .out = out, .own = -1, .signal_fd = -1};
    sigset_t stops, before;
    memset(out, 0, sizeof *out);
    out->n = options->hosts->n;
    out->host[0].joined = true;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigprocmask(SIG_BLOCK, &stops, &before);
    s.signal_fd = signalfd(-1, &stops, SFD_NONBLOCK | SFD_CLOEXEC);
    fl_status status =
        s.signal_fd < 0 ? fl_fail(FL_EIO, "signalfd: %s", strerror(errno)) : survey_hosts(&s);
    if (s.stopped != 0) {
        status = fl_fail(FL_ESTOPPED, "stopped before all hosts had joined");
    }
    fl_failure failure; /* closing may fail at something, too */
    fl_failure_keep(&failure, status);
    *stopped = s.stopped;
    close_survey(&s, status == FL_OK ? "" : failure.text);
    if (s.stopped == 0) { /* timeout(1) sends SIGTERM twice: the second one would end it halfway */
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    return fl_failure_raise(&failure);
}

bool fl_host_survey_worst(const fl_host_survey *found, fl_link_cost *out)
{
    bool any = false;
    for (int i = 0; i < found->n_pairs; i++) {
        if (!found->pair[i].reached) {
            continue;
        }
        fl_link_cost cost = fl_far_link_cost(&found->pair[i].link);
        out->latency_us =
            !any || cost.latency_us > out->latency_us ? cost.latency_us : out->latency_us;
        out->bytes_per_us =
            !any || cost.bytes_per_us < out->bytes_per_us ? cost.bytes_per_us : out->bytes_per_us;
        out->reduce_bytes_per_us = !any || cost.reduce_bytes_per_us < out->reduce_bytes_per_us
                                       ? cost.reduce_bytes_per_us
                                       : out->reduce_bytes_per_us;
        any = true;
    }
    return any;
}
