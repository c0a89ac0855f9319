#include "control/agent/client/agent_client.h"

#include "control/agent/client/host_news.h"
#include "control/agent/gate/gate.h"
#include "control/agent/join/host_start.h"
#include "control/agent/wire/agent_wire.h"
#include "device/alloc.h"
#include "device/child.h"
#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    START_MS = 30000,    /* for the processes of all workers */
    JOIN_MS = 600000,    /* the same, with the time that other hosts take to join */
    SIGNAL_MS = 200,     /* between two looks whether the user has given up waiting for them */
    KILL_MS = 500,       /* from SIGKILL to the report of the exit */
    END_MS = 1500,       /* from END to the agent's exit */
    END_HOSTS_MS = 8000, /* the same of the gate: hosts are told, and ssh of their agents ends */
    GONE_MS = 2000,      /* from the agent's death to the end of the last worker */
    LOOK_US = 500000,    /* age at which a look is too old */
};

/* Requests about one worker. */
typedef struct request {
    bool owes_kill;       /* the socket has not taken the KILL frame yet */
    bool looks, answered; /* a LOOK is on its way; its answer has not been read */
    int64_t asked_us;
    bool look_is_known;
    fl_process_look look;
    bool has_records;
    fl_flight_records *records; /* of another host; NULL: they were never asked for */
} request;

struct fl_agent {
    pid_t pid;
    int socket;
    int alive_fd;      /* ends when neither the agent nor any worker holds the other end */
    bool owes_hide;    /* the socket has not taken the HIDE frame yet */
    bool is_lost;      /* it has died, or has closed the socket */
    int wait_status;   /* of the agent, once it is lost */
    bool awaits_hosts; /* that join */
    fl_flight *flight; /* borrowed */
    int n_near;        /* the ranks below are of this host, and record into `flight` themselves */
    fl_hosts *hosts;   /* borrowed; NULL: this one alone */
    fl_host_record *host_records; /* [n_workers] by host, borrowed */
    fl_host_sight *host_sight;    /* borrowed */
    int n_workers;
    fl_worker *workers; /* [n_workers] */
    request *requests;  /* [n_workers] */
};

/* ---- the agent's end ---- */

static bool wait_readable(int fd, int64_t deadline_us)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&item, 1, (int)fl_left_ms(deadline_us));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

static void reap_agent(fl_agent *agent)
{
    if (!fl_child_reap(agent->pid, GONE_MS, &agent->wait_status)) {
        fl_log(FL_LOG_WARN, "process %d, the agent, does not end: it is left behind",
               (int)agent->pid);
        agent->wait_status = SIGKILL;
    }
    agent->is_lost = true;
}

/* The kernel kills the workers of a dead agent. They are not this process's children: the pipe that
 * they all hold shows when the last one has ended. */
static void bury_agent(fl_agent *agent)
{
    kill(agent->pid, SIGKILL); /* if it has only closed its socket, or is stopped */
    reap_agent(agent);
    if (!wait_readable(agent->alive_fd, fl_deadline_us(GONE_MS))) {
        fl_log(FL_LOG_WARN, "a worker process, or one that it has started, still runs");
    }
    for (int i = 0; i < agent->n_workers; i++) {
        fl_worker *w = &agent->workers[i];
        if (w->incarnation > 0 && w->exited_us == 0) {
            w->exited_us = fl_now_us();
            w->wait_status = SIGKILL;
        }
    }
}

/* ---- frames ---- */

static bool send_frame(const fl_agent *agent, const fl_agent_frame *frame)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    size_t n = fl_agent_wire_put(frame, bytes);
    return !agent->is_lost &&
           send(agent->socket, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* A frame about the present process of a worker. */
static bool send_about(const fl_agent *agent, fl_agent_type type, const fl_worker *w)
{
    return send_frame(
        agent, &(fl_agent_frame){.type = type, .rank = w->rank, .incarnation = w->incarnation});
}

static void send_owed(fl_agent *agent)
{
    if (agent->owes_hide) {
        agent->owes_hide = !send_frame(agent, &(fl_agent_frame){.type = FL_AGENT_HIDE});
    }
    for (int rank = 0; rank < agent->n_workers; rank++) {
        const fl_worker *w = &agent->workers[rank];
        request *r = &agent->requests[rank];
        if (r->owes_kill) {
            r->owes_kill = w->exited_us == 0 && !send_about(agent, FL_AGENT_KILL, w);
        }
    }
}

static void take_spawned(const fl_agent *agent, fl_worker *w, const fl_agent_frame *frame)
{
    w->pid = (pid_t)frame->spawned.pid;
    w->spawn_error = frame->spawned.error;
    w->gpu = frame->spawned.gpu;
    snprintf(w->gpu_name, sizeof w->gpu_name, "%s", frame->spawned.gpu_name);
    if (w->spawn_error != 0) {
        w->exited_us = fl_now_us();
        fl_host_news_of_worker(agent->hosts, agent->host_records, w);
    }
}

static void take_look(request *r, const fl_agent_frame *frame)
{
    r->answered = r->looks;
    r->looks = false;
    r->look_is_known = frame->looked.is_known;
    r->look = frame->looked.process;
}

/* The controller's flight recorders of other hosts are copies. Before the clock of a host is known,
 * what it shows counts as of now. */
static void take_flight(const fl_agent *agent, const fl_agent_frame *frame)
{
    if (frame->rank < agent->n_near) {
        return;
    }
    int host = fl_hosts_of(agent->hosts, frame->rank);
    const fl_clock_estimate *clock = host < 0 ? NULL : &agent->host_records[host].clock;
    bool known = clock != NULL && clock->known;
    fl_flight_shown_take(agent->flight, frame->rank, &frame->flight,
                         known ? clock->offset_ns : frame->flight.now_ns - fl_now_ns());
}

/* Unasked ones are dropped. */
static void take_records(request *r, const fl_agent_frame *frame)
{
    if (r->records != NULL) {
        *r->records = frame->records;
        r->has_records = true;
    }
}

static void take_frame(fl_agent *agent, const fl_agent_frame *frame)
{
    if (frame->type == FL_AGENT_HOST) {
        fl_host_news_take(agent->hosts, agent->host_records, agent->n_workers, frame);
        return;
    }
    if (frame->type == FL_AGENT_REACHED) {
        fl_host_news_of_sight(agent->hosts, agent->host_sight, frame);
        return;
    }
    fl_worker *w = frame->rank < agent->n_workers ? &agent->workers[frame->rank] : NULL;
    if (w == NULL || frame->incarnation != w->incarnation) {
        fl_log(FL_LOG_WARN, "dropped what the agent reports of process %u of rank %d",
               frame->incarnation, frame->rank);
        return;
    }
    switch (frame->type) {
    case FL_AGENT_SPAWNED:
        take_spawned(agent, w, frame);
        break;
    case FL_AGENT_EXITED:
        w->exited_us = fl_now_us();
        w->wait_status = frame->wait_status;
        fl_host_news_of_worker(agent->hosts, agent->host_records, w);
        break;
    case FL_AGENT_LOOKED:
        take_look(&agent->requests[frame->rank], frame);
        break;
    case FL_AGENT_FLIGHT:
        take_flight(agent, frame);
        break;
    case FL_AGENT_RECORDS:
        take_records(&agent->requests[frame->rank], frame);
        break;
    case FL_AGENT_SPAWN:
    case FL_AGENT_KILL:
    case FL_AGENT_LOOK:
    case FL_AGENT_END:
    case FL_AGENT_HIDE:
    case FL_AGENT_RELEASE:
    case FL_AGENT_READ:
    case FL_AGENT_REACH:
    case FL_AGENT_APART:
    case FL_AGENT_HOST:
    case FL_AGENT_REACHED:
    case FL_AGENT_REFUSE:
        fl_log(FL_LOG_WARN, "dropped a frame of type %d: the controller sends these",
               (int)frame->type);
    }
}

static void read_frames(fl_agent *agent)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX + 1]; /* a longer message shows as one byte too many */
    while (!agent->is_lost) {
        fl_agent_frame frame;
        ssize_t n = recv(agent->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            bury_agent(agent);
        } else if (fl_agent_wire_get(bytes, (size_t)n, &frame) == FL_OK) {
            take_frame(agent, &frame);
        } else {
            fl_log(FL_LOG_WARN, "dropped %zd bytes from the agent: %s", n, fl_errmsg());
        }
    }
}

/* ---- opening ---- */

static _Noreturn void become_agent(const fl_agent_options *options, int socket,
                                   fl_agent_child *children, pid_t controller)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != controller) {
        _exit(1); /* the controller died before the agent could watch it */
    }
    if (options->hosts != NULL) {
        fl__gate_run(options, socket, children);
    }
    fl__agent_run(options, socket, children);
}

static fl_status fork_agent(const fl_agent_options *options, fl_agent *agent,
                            fl_agent_child *children)
{
    int sockets[2], alive[2];
    pid_t controller = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return fl_fail(FL_EIO, "cannot make a socket for the agent: %s", strerror(errno));
    }
    agent->socket = sockets[0];
    if (pipe2(alive, O_CLOEXEC) != 0) {
        close(sockets[1]);
        return fl_fail(FL_EIO, "cannot make a pipe for the agent: %s", strerror(errno));
    }
    agent->alive_fd = alive[0];
    fflush(NULL); /* otherwise each worker would write the buffered output again */
    agent->pid = fork();
    if (agent->pid == 0) {
        close(sockets[0]);
        close(alive[0]);
        become_agent(options, sockets[1], children, controller);
    }
    int error = errno;
    close(sockets[1]);
    close(alive[1]);
    return agent->pid > 0 ? FL_OK : fl_fail(FL_EIO, "cannot start the agent: %s", strerror(error));
}

static void release_agent(fl_agent **agent)
{
    fl_agent *a = *agent;
    if (a->socket >= 0) {
        close(a->socket);
    }
    if (a->alive_fd >= 0) {
        close(a->alive_fd);
    }
    for (int i = 0; a->requests != NULL && i < a->n_workers; i++) {
        fl_free(a->requests[i].records);
    }
    fl_free(a->requests);
    fl_free(a);
    *agent = NULL;
}

fl_status fl_agent_open(const fl_agent_options *options, fl_worker *workers, fl_agent **out)
{
    fl_agent *agent = NULL;
    fl_agent_child *children = NULL;
    size_t n = (size_t)options->n_workers;
    FL_TRY(fl_alloc(sizeof *agent, (void **)&agent));
    *agent = (fl_agent){.socket = -1,
                        .alive_fd = -1,
                        .awaits_hosts = options->hosts != NULL,
                        .flight = options->flight,
                        .n_near =
                            options->hosts == NULL ? options->n_workers : options->hosts->host[0].n,
                        .hosts = options->hosts,
                        .host_records = options->host_records,
                        .host_sight = options->host_sight,
                        .n_workers = options->n_workers,
                        .workers = workers};
    fl_status status = fl_alloc_array(n, sizeof *agent->requests, (void **)&agent->requests);
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *children, (void **)&children);
    }
    if (status == FL_OK) {
        status = fork_agent(options, agent, children);
    }
    fl_free(children); /* the agent has its copy */
    if (status != FL_OK) {
        release_agent(&agent);
        return status;
    }
    *out = agent;
    return FL_OK;
}

/* ---- workers ---- */

/* The controller takes signals later: those of a wait for hosts are pending. */
static bool is_given_up(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

/* Whether the agent has something to report before the deadline. */
static bool await_report(const fl_agent *agent, int64_t deadline_us, const char **why)
{
    bool readable = false, given_up = false;
    while (agent->awaits_hosts && !readable && !given_up && fl_left_ms(deadline_us) > 0) {
        given_up = is_given_up();
        readable = !given_up && wait_readable(agent->socket, fl_deadline_us(SIGNAL_MS));
    }
    *why = given_up ? "stopped before all hosts had joined" : "the agent does not answer";
    return readable || (!given_up && wait_readable(agent->socket, deadline_us));
}

/* Whether the host of this worker had joined, and was lost before it started the worker: a loss as
 * one of a worker that runs. One that says that it cannot take part must be mended first. */
static bool is_lost_with_host(const fl_agent *agent, fl_worker *w)
{
    int i = agent->hosts == NULL ? -1 : fl_hosts_of(agent->hosts, w->rank);
    const fl_host_record *record = i < 0 ? NULL : &agent->host_records[i];
    bool lost =
        record != NULL && w->host_why[0] != '\0' && record->joined_us != 0 && !record->unfit;
    if (lost) {
        w->wait_status = SIGKILL;
    }
    return lost;
}

/* A worker of a host that has not joined, or that cannot start it: the host is the reason. */
static fl_status refuse_start(const fl_agent *agent, int rank, const char *why)
{
    int i =
        agent->hosts == NULL || agent->host_records == NULL ? -1 : fl_hosts_of(agent->hosts, rank);
    const char *lost = i < 0 ? "" : agent->host_records[i].why;
    return lost[0] == '\0' ? fl_fail(FL_EFAILED, "cannot start worker %d of %d: %s", rank,
                                     agent->n_workers, why)
                           : fl_fail(FL_EFAILED, "cannot start worker %d of %d on host %s (%s): %s",
                                     rank, agent->n_workers, agent->hosts->host[i].name,
                                     agent->hosts->host[i].address, lost);
}

/* Frames of several workers may still be on their way; the first missing one is named. */
static fl_status await_processes(fl_agent *agent, int64_t deadline_us)
{
    for (int rank = 0; rank < agent->n_workers;) {
        fl_worker *w = &agent->workers[rank];
        char lost[160];
        const char *why = lost;
        if (w->pid > 0 || w->departed || is_lost_with_host(agent, w)) {
            rank++;
            continue;
        }
        bool waits = w->spawn_error == 0 && !fl_agent_is_lost(agent, lost, sizeof lost) &&
                     await_report(agent, deadline_us, &why);
        if (!waits && why != lost && is_given_up()) {
            return fl_fail(FL_ESTOPPED, "%s", why);
        }
        if (!waits) {
            return refuse_start(agent, rank, w->spawn_error != 0 ? strerror(w->spawn_error) : why);
        }
        read_frames(agent);
    }
    return FL_OK;
}

/* The socket takes some hundred frames that the agent has not read yet. */
static bool send_spawn(fl_agent *agent, const fl_agent_frame *frame, int64_t deadline_us)
{
    while (!send_frame(agent, frame)) {
        struct pollfd item = {.fd = agent->socket, .events = POLLIN | POLLOUT};
        if (agent->is_lost || poll(&item, 1, (int)fl_left_ms(deadline_us)) == 0) {
            return false;
        }
        read_frames(agent);
    }
    return true;
}

fl_status fl_agent_start_all(fl_agent *agent, const fl_worker_birth *birth)
{
    int64_t deadline_us = fl_deadline_us(agent->awaits_hosts ? JOIN_MS : START_MS);
    fl_agent_frame frame = {.type = FL_AGENT_SPAWN, .birth = *birth};
    for (int rank = 0; rank < agent->n_workers; rank++) {
        fl_worker *w = &agent->workers[rank];
        if (w->departed) {
            continue;
        }
        w->incarnation++;
        w->spawned_us = w->heard_us = fl_now_us();
        frame.rank = rank;
        frame.incarnation = w->incarnation;
        if (!send_spawn(agent, &frame, deadline_us)) {
            break;
        }
    }
    return await_processes(agent, deadline_us);
}

bool fl_agent_start(fl_agent *agent, const fl_worker_birth *birth)
{
    fl_worker *w = &agent->workers[birth->rank];
    const fl_agent_frame frame = {.type = FL_AGENT_SPAWN,
                                  .rank = birth->rank,
                                  .incarnation = w->incarnation + 1,
                                  .birth = *birth};
    if (w->exited_us == 0 || !send_frame(agent, &frame)) {
        return false;
    }
    fl_worker_begin_again(w, fl_now_us());
    request *r = &agent->requests[birth->rank];
    *r = (request){.records = r->records};
    return true;
}

int fl_agent_fd(const fl_agent *agent)
{
    return agent->socket;
}

int fl_agent_watch(fl_agent *agent)
{
    int n_living = 0;
    read_frames(agent);
    send_owed(agent);
    for (int i = 0; i < agent->n_workers; i++) {
        n_living += agent->workers[i].exited_us == 0;
    }
    return n_living;
}

bool fl_agent_is_lost(const fl_agent *agent, char *text, size_t size_bytes)
{
    int how = agent->wait_status;
    if (!agent->is_lost) {
        return false;
    }
    if (WIFSIGNALED(how)) {
        snprintf(text, size_bytes,
                 "the agent, the parent of the workers, was killed by signal %d "
                 "(%s), and the workers ended with it",
                 WTERMSIG(how), strsignal(WTERMSIG(how)));
    } else {
        snprintf(text, size_bytes,
                 "the agent, the parent of the workers, ended (exit code %d), "
                 "and the workers with it",
                 WEXITSTATUS(how));
    }
    return true;
}

bool fl_agent_look(fl_agent *agent, int rank, fl_process_look *out)
{
    request *r = &agent->requests[rank];
    int64_t now_us = fl_now_us();
    bool is_new = r->answered && r->look_is_known && now_us - r->asked_us < LOOK_US;
    if (is_new) {
        *out = r->look;
    }
    r->answered = false;
    if (!r->looks) {
        r->looks = send_about(agent, FL_AGENT_LOOK, &agent->workers[rank]);
        r->asked_us = now_us;
    }
    return is_new;
}

bool fl_agent_ask_records(fl_agent *agent, int rank, const fl_records_request *asked)
{
    request *r = &agent->requests[rank];
    fl_agent_frame frame = {.type = FL_AGENT_READ,
                            .rank = rank,
                            .incarnation = agent->workers[rank].incarnation,
                            .read = *asked};
    r->has_records = false;
    return (r->records != NULL || fl_alloc(sizeof *r->records, (void **)&r->records) == FL_OK) &&
           send_frame(agent, &frame);
}

const fl_flight_records *fl_agent_take_records(fl_agent *agent, int rank)
{
    request *r = &agent->requests[rank];
    bool has = r->has_records;
    r->has_records = false;
    return has ? r->records : NULL;
}

void fl_agent_hide_link(fl_agent *agent)
{
    agent->owes_hide = true;
    send_owed(agent);
}

bool fl_agent_release_host(fl_agent *agent, int i, const char *why)
{
    fl_agent_frame frame = {.type = FL_AGENT_RELEASE, .rank = agent->hosts->host[i].first};
    snprintf(frame.text, sizeof frame.text, "%s", why);
    return send_frame(agent, &frame);
}

bool fl_agent_ask_reach(fl_agent *agent, int64_t timeout_ms)
{
    fl_agent_frame frame = {.type = FL_AGENT_REACH, .reach = {.timeout_ms = timeout_ms}};
    fl_host_sight *sight = agent->host_sight;
    sight->number++;
    sight->complete = false;
    sight->n = 0;
    frame.reach.number = sight->number;
    return send_frame(agent, &frame);
}

bool fl_agent_leave_out_host(fl_agent *agent, int i, int from, const char *why)
{
    fl_agent_frame frame = {.type = FL_AGENT_APART,
                            .rank = agent->hosts->host[i].first,
                            .apart = {.from = agent->hosts->host[from].first}};
    snprintf(frame.apart.text, sizeof frame.apart.text, "%s", why);
    return send_frame(agent, &frame);
}

static bool have_exited(const fl_worker *workers, int n)
{
    for (int i = 0; i < n; i++) {
        if (workers[i].exited_us == 0) {
            return false;
        }
    }
    return true;
}

void fl_agent_kill(fl_agent *agent, fl_worker *workers, int n)
{
    int64_t deadline_us = fl_deadline_us(KILL_MS);
    for (int i = 0; i < n; i++) {
        if (workers[i].exited_us == 0) {
            workers[i].killed = true;
            agent->requests[workers[i].rank].owes_kill = true;
        }
    }
    send_owed(agent);
    while (!agent->is_lost && !have_exited(workers, n) &&
           wait_readable(agent->socket, deadline_us)) {
        read_frames(agent);
        send_owed(agent);
    }
}

/* Read what the agent still reports, until it closes its socket. False: it does not, in time. */
static bool await_end(fl_agent *agent)
{
    int64_t deadline_us = fl_deadline_us(agent->hosts == NULL ? END_MS : END_HOSTS_MS);
    unsigned char byte;
    while (wait_readable(agent->socket, deadline_us)) {
        if (recv(agent->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
            return true;
        }
        read_frames(agent);
        if (agent->is_lost) {
            return true;
        }
    }
    return false;
}

/* Whether the agent has reported the end of each worker that it has started. */
static bool all_have_ended(const fl_agent *agent)
{
    for (int i = 0; i < agent->n_workers; i++) {
        const fl_worker *w = &agent->workers[i];
        if (w->incarnation > 0 && w->exited_us == 0) {
            return false;
        }
    }
    return true;
}

void fl_agent_close(fl_agent **agent, fl_agent_ending ending)
{
    fl_agent *a = *agent;
    if (a == NULL) {
        return;
    }
    if (!a->is_lost && send_frame(a, &(fl_agent_frame){.type = FL_AGENT_END, .ending = ending}) &&
        await_end(a)) {
        if (!a->is_lost && all_have_ended(a)) {
            reap_agent(a);
        } else if (!a->is_lost) {
            bury_agent(a);
        }
    } else if (!a->is_lost) {
        fl_log(FL_LOG_WARN, "killed %s: it did not end in time",
               a->hosts == NULL ? "the agent, the parent of the workers"
                                : "the gate, which ends the agents of all hosts");
        bury_agent(a);
    }
    release_agent(agent);
}
