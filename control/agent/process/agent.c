/* The loop of the agent.
 *
 *     controller ─ SPAWN, KILL, LOOK ─> ① obey_frame ──> fork, SIGKILL, /proc
 *                ─ END, or no controller ──> ② end_workers
 *     kernel ───── SIGCHLD ──────────────> ③ note_exits
 *     controller <─ SPAWNED, EXITED, LOOKED ── ④ send_owed
 *     controller <─ FLIGHT ── ⑤ show_operations, on another host than the controller's
 *                ─ READ ─> ⑥ read_records ──> RECORDS, on the same
 *
 * The agent waits in one poll and never in a send: a controller that is stopped does not read, and
 * its workers' exits must still be seen. It reaps a worker after it has told the exit. What it owes
 * the controller is a flag for each worker and kind of frame, so nothing queues up here, and
 * nothing is lost. */
#include "control/agent/process/agent.h"

#include "control/agent/wire/agent_socket.h"
#include "device/errors/log.h"
#include "device/system/child.h"
#include "device/system/clock.h"
#include "device/system/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define IPC "ipc://"

enum {
    FRAMES_A_TURN = 64, /* then it answers, and reaps */
    REAP_TURN_MS = 2,   /* between two looks at killed workers */
    REAP_MS = 800,      /* for killed workers to end; less than whoever sends END waits */
};

/* What is dropped, and counted. */
enum { DROP_JUNK, DROP_RANK, DROP_TYPE, DROPS };

typedef struct agent {
    const fl_agent_options *o;
    int socket, signal_fd;
    fl_agent_child *children; /* [n_workers] */
    char endpoint[FL_AGENT_ENDPOINT_MAX];
    int64_t n_dropped[DROPS]; /* frames */
    int64_t shown_us;         /* when operations were shown last */
} agent;

/* ---- ④ ---- */

/* Which GPU of this host the worker has. */
static void name_gpu(const agent *a, fl_agent_frame *frame)
{
    const fl_device_survey *devices = a->o->devices;
    if (devices == NULL || devices->n == 0) {
        return;
    }
    frame->spawned.gpu = fl_device_survey_number(devices, frame->rank);
    snprintf(frame->spawned.gpu_name, sizeof frame->spawned.gpu_name, "%s",
             devices->device[frame->spawned.gpu].name);
}

static bool send_owed_of(const agent *a, int rank)
{
    fl_agent_child *c = &a->children[rank];
    fl_agent_frame frame = {.rank = rank, .incarnation = c->incarnation};
    if (c->owes_spawned) {
        frame.type = FL_AGENT_SPAWNED;
        frame.spawned.pid = c->error == 0 ? c->pid : 0;
        frame.spawned.error = c->error;
        name_gpu(a, &frame);
        c->owes_spawned = !fl_agent_socket_send(a->socket, &frame);
    }
    if (!c->owes_spawned && c->owes_looked) {
        frame.type = FL_AGENT_LOOKED;
        frame.looked.is_known = c->look_is_known;
        frame.looked.process = c->look;
        c->owes_looked = !fl_agent_socket_send(a->socket, &frame);
    }
    if (!c->owes_spawned && !c->owes_looked && c->owes_exited) {
        frame.type = FL_AGENT_EXITED;
        frame.wait_status = c->wait_status;
        c->owes_exited = !fl_agent_socket_send(a->socket, &frame);
    }
    return !c->owes_spawned && !c->owes_looked && !c->owes_exited;
}

/* Whether all was sent. */
static bool send_owed(const agent *a)
{
    bool all = true;
    for (int rank = 0; rank < a->o->n_workers && all; rank++) {
        all = send_owed_of(a, rank);
    }
    return all;
}

/* ---- ⑤ ---- */

/* What the socket does not take is shown the next time. */
static void show_operations_of(const agent *a, int rank, bool has_ended)
{
    fl_agent_child *c = &a->children[rank];
    fl_shown_until until = c->shown;
    fl_agent_frame frame = {.type = FL_AGENT_FLIGHT, .rank = rank, .incarnation = c->incarnation};
    if (fl_flight_shown_make(a->o->flight, rank, has_ended, &until, &frame.flight) &&
        fl_agent_socket_send(a->socket, &frame)) {
        c->shown = until;
    }
}

static void show_operations(agent *a)
{
    int64_t now_us = fl_now_us();
    if (a->o->flight_ms == 0 || now_us - a->shown_us < a->o->flight_ms * 1000) {
        return;
    }
    a->shown_us = now_us;
    for (int rank = 0; rank < a->o->n_workers; rank++) {
        if (a->children[rank].lives && !a->children[rank].owes_spawned) {
            show_operations_of(a, rank, false);
        }
    }
}

/* ---- ⑥ ---- */

/* An answer that the socket does not take is left out: the controller asks again. */
static void read_records(const agent *a, const fl_agent_frame *request)
{
    fl_agent_frame frame = {
        .type = FL_AGENT_RECORDS, .rank = request->rank, .incarnation = request->incarnation};
    fl_flight_records_make(a->o->flight, request->rank, &request->read, &frame.records);
    (void)fl_agent_socket_send(a->socket, &frame);
}

/* ---- ③ ---- */

/* The last that it did goes before its end. */
static void note_exit(const agent *a, int rank, int wait_status)
{
    fl_agent_child *c = &a->children[rank];
    c->lives = false;
    c->is_unreaped = true;
    c->wait_status = wait_status;
    c->owes_exited = true;
    if (a->o->flight_ms > 0 && !c->owes_spawned) {
        show_operations_of(a, rank, true);
    }
}

/* The signals of several exits may merge, so each child is asked for. Whether all have ended. */
static bool note_exits(const agent *a)
{
    bool all = true;
    for (int rank = 0; rank < a->o->n_workers; rank++) {
        fl_agent_child *c = &a->children[rank];
        int wait_status = 0;
        if (c->lives && fl_child_has_ended(c->pid, &wait_status)) {
            note_exit(a, rank, wait_status);
        }
        all = all && !c->lives;
    }
    return all;
}

/* After their exits were told to a controller that reads: the kernel may hold this process here. */
static void reap_children(const agent *a)
{
    for (int rank = 0; rank < a->o->n_workers; rank++) {
        fl_agent_child *c = &a->children[rank];
        if (c->is_unreaped) {
            c->is_unreaped = false;
            (void)waitpid(c->pid, NULL, WNOHANG);
        }
    }
}

/* ---- ② ---- */

/* Where another program keeps its processor busy, a pinned thread may wait long for its end. */
static void unpin(pid_t pid)
{
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) == 0) {
        (void)fl_proc_unpin(pid, &own);
    }
}

static void kill_child(pid_t pid)
{
    kill(pid, SIGKILL);
    unpin(pid);
}

static void kill_children(const agent *a)
{
    for (int rank = 0; rank < a->o->n_workers; rank++) {
        if (a->children[rank].lives) {
            kill_child(a->children[rank].pid);
        }
    }
}

static _Noreturn void end_workers(const agent *a)
{
    kill_children(a);
    int64_t deadline_us = fl_deadline_us(REAP_MS);
    while (!note_exits(a) && fl_left_ms(deadline_us) > 0) {
        (void)poll(NULL, 0, REAP_TURN_MS);
    }
    for (int rank = 0; rank < a->o->n_workers; rank++) {
        if (a->children[rank].lives) {
            fl_log(FL_LOG_WARN, "worker %d, process %d, " FL_CHILD_LEFT, rank,
                   (int)a->children[rank].pid, REAP_MS);
        }
    }
    (void)send_owed(a); /* the controller still reads, and wants to know how they ended */
    reap_children(a);
    _exit(0);
}

/* ---- ① ---- */

static void spawn_worker(const agent *a, const fl_agent_frame *frame)
{
    fl_agent_child *c = &a->children[frame->rank];
    if (c->lives || c->owes_exited || frame->incarnation <= c->incarnation) {
        fl_log(FL_LOG_WARN, "did not start process %u of worker %d: process %u %s",
               frame->incarnation, frame->rank, c->incarnation, c->lives ? "runs" : "has been");
        return;
    }
    pid_t self = getpid();
    *c = (fl_agent_child){
        .incarnation = frame->incarnation, .owes_spawned = true, .shown = c->shown};
    fl_flight_clear(a->o->flight, frame->rank); /* of what the process before has left open */
    c->pid = fork();
    if (c->pid == 0) {
        close(a->socket);
        close(a->signal_fd);
        fl__agent_become_worker(a->o, &frame->birth, a->endpoint, self);
    }
    c->lives = c->pid > 0;
    c->error = c->lives ? 0 : errno;
}

static void look_at_worker(const agent *a, const fl_agent_frame *frame)
{
    fl_agent_child *c = &a->children[frame->rank];
    bool is_ending = false;
    c->look_is_known = c->lives && fl_process_look_at(c->pid, &c->look, &is_ending);
    c->owes_looked = true;
    if (is_ending) {
        unpin(c->pid);
    }
}

/* From now on no other process can connect to the control link, and no file of it remains, however
 * the controller ends. Workers that are started later reach it through a descriptor. */
static void hide_link(agent *a)
{
    const char *path = a->o->endpoint + strlen(IPC);
    if (strncmp(a->o->endpoint, "tcp://", 6) == 0) {
        return; /* of another host: it has no file here */
    }
    int fd = strncmp(a->o->endpoint, IPC, strlen(IPC)) == 0 ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (fd < 0 || unlink(path) != 0) {
        fl_log(FL_LOG_WARN, "cannot remove the control link's socket: %s", strerror(errno));
    }
    if (fd >= 0) {
        snprintf(a->endpoint, sizeof a->endpoint, IPC "/proc/self/fd/%d", fd);
    }
}

static void obey_frame(agent *a, const fl_agent_frame *frame)
{
    if (frame->rank >= a->o->n_workers) {
        fl_log_counted(&a->n_dropped[DROP_RANK], 1, "dropped a frame about rank %d of %d",
                       frame->rank, a->o->n_workers);
        return;
    }
    const fl_agent_child *c = &a->children[frame->rank];
    switch (frame->type) {
    case FL_AGENT_SPAWN:
        spawn_worker(a, frame);
        break;
    case FL_AGENT_KILL:
        if (c->lives && c->incarnation == frame->incarnation) {
            kill_child(c->pid);
        }
        break;
    case FL_AGENT_LOOK:
        if (c->incarnation == frame->incarnation) {
            look_at_worker(a, frame);
        }
        break;
    case FL_AGENT_READ:
        if (c->incarnation == frame->incarnation) {
            read_records(a, frame);
        }
        break;
    case FL_AGENT_END:
        end_workers(a);
    case FL_AGENT_HIDE:
        hide_link(a);
        break;
    case FL_AGENT_SPAWNED:
    case FL_AGENT_EXITED:
    case FL_AGENT_LOOKED:
    case FL_AGENT_FLIGHT:
    case FL_AGENT_RECORDS:
    case FL_AGENT_REFUSE:
    case FL_AGENT_SHARES:
    case FL_AGENT_HOST:
    case FL_AGENT_REACHED:
    case FL_AGENT_RELEASE: /* for the gate */
    case FL_AGENT_REACH:
    case FL_AGENT_APART:
        fl_log_counted(&a->n_dropped[DROP_TYPE], 1,
                       "dropped a frame of type %d: the agent gets no such frame",
                       (int)frame->type);
    }
}

/* Without the controller the workers end at once. The kernel kills them as well (PR_SET_PDEATHSIG)
 * as soon as this process has ended; whoever adopts them reaps them. */
static _Noreturn void end_without_controller(const agent *a)
{
    kill_children(a);
    _exit(1);
}

static void read_frames(agent *a)
{
    fl_agent_frame frame;
    size_t n;
    for (int i = 0; i < FRAMES_A_TURN; i++) {
        switch (fl_agent_socket_read(a->socket, &frame, &n)) {
        case FL_AGENT_GOT_NOTHING:
            return;
        case FL_AGENT_GOT_FRAME:
            obey_frame(a, &frame);
            break;
        case FL_AGENT_GOT_JUNK:
            fl_log_counted(&a->n_dropped[DROP_JUNK], 1, "dropped %zu bytes from the controller: %s",
                           n, fl_errmsg());
            break;
        case FL_AGENT_GOT_END:
            end_without_controller(a);
        }
    }
}

/* ---- the loop ---- */

/* Signals for the whole process group are the controller's: it ends the run, and then its agent. */
static bool prepare_process(agent *a)
{
    sigset_t all, child;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    a->signal_fd = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    bool good = a->signal_fd >= 0 && fl__agent_leave_terminal();
    if (!good) {
        fl_log(FL_LOG_ERROR, "the agent cannot start: %s", strerror(errno));
    }
    return good;
}

static void drain_signals(const agent *a)
{
    struct signalfd_siginfo info;
    while (read(a->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
    }
}

_Noreturn void fl__agent_run(const fl_agent_options *options, int socket, fl_agent_child *children)
{
    agent a = {.o = options, .socket = socket, .signal_fd = -1, .children = children};
    fl_log_name("agent");
    snprintf(a.endpoint, sizeof a.endpoint, "%s", options->endpoint);
    if (options->release != NULL) {
        options->release(options->release_context);
    }
    if (!prepare_process(&a)) {
        _exit(1);
    }
    for (bool all_sent = true;;) {
        struct pollfd items[] = {{.fd = socket, .events = POLLIN},
                                 {.fd = a.signal_fd, .events = POLLIN}};
        items[0].events |= all_sent ? 0 : POLLOUT;
        /* Without a deadline: the end of the controller, of a worker, or of the relay wakes it. */
        (void)poll(items, 2, a.o->flight_ms > 0 ? (int)a.o->flight_ms : -1);
        drain_signals(&a);
        (void)note_exits(&a);
        read_frames(&a);
        show_operations(&a);
        (void)note_exits(&a); /* one that was forked just now may have ended already */
        all_sent = send_owed(&a);
        reap_children(&a);
    }
}
