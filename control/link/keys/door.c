#include "control/link/keys/door.h"

#include "control/link/keys/waiting_room.h"
#include "control/link/keys/zmq_socket.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/files/count_files.h"
#include "device/system/tcp_retry.h"
#include "device/system/thread.h"
#include "device/system/thread_priority.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum {
    CONNECTIONS_MAX = 1024,
    SPARE_MIN = 64,
    BACKLOG_MIN = 4,
    BACKLOG_MAX = 128, /* workers that start at once are not sent away for a second */
    PORTS_OF_A_RUN = 4,
    FILES_OF_A_RUN = 2,
    ENDPOINT_BYTES = 64,
    TURN_MS = 100,
    TELL_EVERY_US = 10000000
};

/* A socket that listens. */
typedef struct listener {
    int fd;
    int dir_fd; /* of a file */
    const char *name;
    int room;     /* where clients wait while it is shut; -1 */
    bool removed; /* the file, while clients waited: nobody connects any more */
} listener;

struct fl_door {
    fl_door_kind kind;
    pthread_t thread;
    int epoll, end, most, backlog;
    _Atomic int n;
    listener listener[FL_DOOR_SOCKETS_MAX];
    bool shut;
    int64_t told_us;
};

/* All but a part of the descriptors that no stranger gets. */
static int most_but(uint64_t limit, int part)
{
    int all = limit < INT32_MAX ? (int)limit : INT32_MAX;
    int spare = (all / 4 > SPARE_MIN ? all / 4 : SPARE_MIN) / part;
    return all > spare ? all - spare : 0;
}

int fl_door_most(uint64_t limit, int open)
{
    int most = most_but(limit, 1);
    return most < open + CONNECTIONS_MAX ? most : open + CONNECTIONS_MAX;
}

int fl_door_most_near(uint64_t limit)
{
    return most_but(limit, 4);
}

uint64_t fl_door_limit(uint64_t most)
{
    uint64_t spare = most / 3; /* a quarter of the sum */
    return most + (spare > SPARE_MIN ? spare : SPARE_MIN);
}

int fl_door_backlog(uint64_t limit, int most, int n_sockets)
{
    uint64_t half = limit > (uint64_t)most ? (limit - (uint64_t)most) / 2 : 0;
    uint64_t fair = half / (uint64_t)n_sockets;
    return fair < BACKLOG_MIN ? BACKLOG_MIN : fair > BACKLOG_MAX ? BACKLOG_MAX : (int)fair;
}

/* ---- the thread ---- */

static bool set_port(const listener *l, bool shut)
{
    struct sock_filter nothing = {.code = BPF_RET | BPF_K};
    const struct sock_fprog drop = {.len = 1, .filter = &nothing};
    const int zero = 0;
    int failed = shut ? setsockopt(l->fd, SOL_SOCKET, SO_ATTACH_FILTER, &drop, sizeof drop)
                      : setsockopt(l->fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof zero);
    return failed == 0 || errno == ENOENT;
}

static bool set_file(listener *l, bool shut)
{
    if (shut && !l->removed) {
        l->room = fl_waiting_room_shut(l->dir_fd, l->name);
        return l->room >= 0;
    }
    bool opened = l->room < 0 || fl_waiting_room_open(l->dir_fd, l->name, &l->room);
    l->removed = l->removed || (!opened && l->room < 0);
    return opened;
}

static void tell_failure(const listener *l, bool port, bool shut, int error)
{
    if (!port && !shut && error == ENOENT) {
        fl_log(FL_LOG_WARN,
               "%s.open was removed while clients waited: the run goes on, but takes no new "
               "clients at %s; SIGINT or SIGTERM to process %ld ends the run",
               l->name, l->name, (long)getpid());
    } else {
        fl_log(FL_LOG_WARN, "cannot %s %s: %s", shut ? "shut" : "open", port ? "a port" : l->name,
               strerror(error));
    }
}

static void set_shut(fl_door *d, bool shut)
{
    int n = d->n;
    for (int i = 0; i < n; i++) {
        listener *l = &d->listener[i];
        bool port = d->kind == FL_DOOR_PORTS;
        if (!(port ? set_port(l, shut) : set_file(l, shut))) {
            tell_failure(l, port, shut, errno);
        }
    }
    d->shut = shut;
}

static void look_at_files(fl_door *d)
{
    bool full = fl_count_files() >= d->most;
    if (full == d->shut) {
        return;
    }
    set_shut(d, full);
    int64_t now_us = fl_now_us();
    if (full && now_us >= d->told_us) {
        d->told_us = now_us + TELL_EVERY_US;
        fl_log(FL_LOG_WARN, "%d descriptors are in use: new %s wait until others are closed",
               d->most, d->kind == FL_DOOR_PORTS ? "connections" : "clients in the run directory");
    }
}

static void *watch_sockets(void *door)
{
    fl_door *d = door;
    struct epoll_event event;
    uint64_t ends = 0;
    fl_thread_run_first(); /* ZeroMQ accepts without a pause until the sockets are shut */
    while (read(d->end, &ends, sizeof ends) < 0) {
        (void)epoll_wait(d->epoll, &event, 1, d->shut ? TURN_MS : -1);
        look_at_files(d);
    }
    return NULL;
}

/* ---- opening ---- */

static bool watch_descriptor(fl_door *d, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    return fd >= 0 && epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static fl_status start_thread(fl_door *d)
{
    struct rlimit limit;
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    d->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->epoll < 0 || !watch_descriptor(d, d->end) || getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return fl_fail(FL_EIO, "cannot watch sockets: %s", strerror(errno));
    }
    bool ports = d->kind == FL_DOOR_PORTS;
    d->most =
        ports ? fl_door_most(limit.rlim_cur, fl_count_files()) : fl_door_most_near(limit.rlim_cur);
    d->backlog = fl_door_backlog(limit.rlim_cur, d->most, ports ? PORTS_OF_A_RUN : FILES_OF_A_RUN);
    return fl_thread_start(&d->thread, watch_sockets, d, "the thread that watches sockets");
}

static void give_back(fl_door *d)
{
    for (int i = 0; i < d->n; i++) {
        listener *l = &d->listener[i];
        fl_waiting_room_remove(l->dir_fd, l->name, &l->room);
        close(l->fd);
    }
    if (d->epoll >= 0) {
        close(d->epoll);
    }
    if (d->end >= 0) {
        close(d->end);
    }
    fl_free(d);
}

fl_status fl_door_open(fl_door_kind kind, fl_door **out)
{
    fl_door *d = NULL;
    FL_TRY(fl_alloc(sizeof *d, (void **)&d));
    d->kind = kind;
    d->epoll = d->end = -1;
    fl_status status = start_thread(d);
    if (status != FL_OK) {
        give_back(d);
        return status;
    }
    *out = d;
    return FL_OK;
}

void fl_door_close(fl_door **door)
{
    fl_door *d = *door;
    const uint64_t one = 1;
    if (d != NULL) {
        *door = NULL;
        (void)!write(d->end, &one, sizeof one);
        pthread_join(d->thread, NULL);
        give_back(d);
    }
}

/* ---- sockets ---- */

/* The event of ZeroMQ that tells the descriptor with which it listens: number and value in its
 * first part. */
static int read_listener(void *monitor)
{
    unsigned char event[6];
    int fd = -1;
    if (zmq_recv(monitor, event, sizeof event, ZMQ_DONTWAIT) == (int)sizeof event) {
        memcpy(&fd, event + 2, sizeof fd);
    }
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static bool bind_and_watch(fl_door *d, void *socket, void *monitor, const char *endpoint,
                           const listener *what)
{
    bool port = d->kind == FL_DOOR_PORTS;
    if (port ? zmq_bind(socket, endpoint) != 0 : !fl_zmq_bind_private(socket, endpoint)) {
        return false;
    }
    listener *l = &d->listener[d->n];
    *l = *what;
    l->fd = read_listener(monitor);
    if (!watch_descriptor(d, l->fd)) {
        if (l->fd >= 0) {
            close(l->fd);
        }
        return false;
    }
    if (port) {
        fl_tcp_retry_evenly(l->fd);
    }
    d->n++; /* the thread reads it */
    return true;
}

static bool bind_listener(fl_door *d, void *zmq, void *socket, const char *endpoint,
                          const listener *what)
{
    char name[48];
    snprintf(name, sizeof name, "inproc://door-%p", socket);
    void *monitor = d->n == FL_DOOR_SOCKETS_MAX ? NULL : zmq_socket(zmq, ZMQ_PAIR);
    bool bound = monitor != NULL && fl_zmq_set(monitor, ZMQ_LINGER, 0) &&
                 fl_zmq_set(socket, ZMQ_BACKLOG, d->backlog) &&
                 zmq_socket_monitor(socket, name, ZMQ_EVENT_LISTENING) == 0 &&
                 zmq_connect(monitor, name) == 0 &&
                 bind_and_watch(d, socket, monitor, endpoint, what);
    int error = zmq_errno();
    if (monitor != NULL) {
        (void)zmq_socket_monitor(socket, NULL, 0);
        zmq_close(monitor);
    }
    errno = error;
    return bound;
}

bool fl_door_bind(fl_door *d, void *zmq, void *socket, const char *endpoint)
{
    return bind_listener(d, zmq, socket, endpoint, &(listener){.room = -1});
}

bool fl_door_bind_file(fl_door *d, void *zmq, void *socket, int dir_fd, const char *name)
{
    char endpoint[ENDPOINT_BYTES];
    snprintf(endpoint, sizeof endpoint, "ipc:///proc/self/fd/%d/%s", dir_fd, name);
    fl_waiting_room_forget(dir_fd, name);
    return bind_listener(d, zmq, socket, endpoint,
                         &(listener){.dir_fd = dir_fd, .name = name, .room = -1});
}
