/* What workers of one host speak over: sockets of loopback addresses, and memory that one shows
 * the others. */
#include "launcher/doctor/checks/doctor.h"

#include "device/system/child.h"
#include "device/system/shared.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 2000, CHILD_MS = 10000, SHARED_BYTES = 4096, SHARED_MARK = 0x5A };

/* The ends of one connection; -1: not open. */
typedef struct connection {
    int server, client, peer;
} connection;

/* A filter may drop what is sent: then connect() and accept() would wait for minutes. Linux counts
 * the time that a socket sends as that of connect(), and the time that it receives as that of
 * accept() and recv(). */
static bool limit_wait(int fd)
{
    const struct timeval most = {.tv_sec = CONNECT_MS / 1000};
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0;
}

/* Listen on a free port of the address, connect to it, and pass one byte. Returns the call that
 * failed, with errno, or NULL. */
static const char *pass_byte(connection *c, struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    char byte = 'x';
    c->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->server < 0 || c->client < 0 || !limit_wait(c->server) || !limit_wait(c->client)) {
        return "socket";
    }
    if (bind(c->server, (struct sockaddr *)address, size) != 0) {
        return "bind";
    }
    if (listen(c->server, 1) != 0 ||
        getsockname(c->server, (struct sockaddr *)address, &size) != 0) {
        return "listen";
    }
    if (connect(c->client, (struct sockaddr *)address, size) != 0) {
        return "connect";
    }
    c->peer = accept(c->server, NULL, NULL);
    if (c->peer < 0) {
        return "accept";
    }
    if (send(c->client, &byte, 1, MSG_NOSIGNAL) != 1) {
        return "send";
    }
    struct pollfd waiting = {.fd = c->peer, .events = POLLIN};
    errno = ETIMEDOUT;
    return poll(&waiting, 1, CONNECT_MS) == 1 && recv(c->peer, &byte, 1, 0) == 1 ? NULL : "receive";
}

/* As pass_byte; *error is its errno. */
static const char *try_address(const char *text, int *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    connection c = {.server = -1, .client = -1, .peer = -1};
    inet_pton(AF_INET, text, &address.sin_addr);
    const char *what = pass_byte(&c, &address);
    *error = errno;
    const int fds[] = {c.server, c.client, c.peer};
    for (int i = 0; i < 3; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    return what;
}

/* With these, a call ends whose time is over. */
static bool is_late(int error)
{
    return error == EINPROGRESS || error == EAGAIN || error == ETIMEDOUT;
}

#define ONE_WORKER                                                                                 \
    "one worker alone does not need this, but two or more workers of a host connect to each "      \
    "other there: "

static void look_at_sockets(fl_findings *findings)
{
    int error;
    const char *what = try_address("127.0.0.1", &error);
    if (what != NULL && is_late(error)) {
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_WARNING, FL_DOCTOR_SOCKETS,
                                       "connections to 127.0.0.1 do not get through: %s has not "
                                       "ended in %d s",
                                       what, CONNECT_MS / 1000);
        fl_finding_advise(f, ONE_WORKER
                          "the rules of this host's firewall must accept what goes over the "
                          "interface lo: iptables -I INPUT -i lo -j ACCEPT, and OUTPUT -o lo in "
                          "the same way");
        return;
    }
    if (what != NULL) {
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_WARNING, FL_DOCTOR_SOCKETS,
                                       "TCP over 127.0.0.1: %s: %s", what, strerror(error));
        fl_finding_advise(f, ONE_WORKER
                          "bring up the loopback interface (ip link set lo up), or allow sockets "
                          "in the sandbox");
        return;
    }
    bool own = try_address("127.1.0.1", &error) == NULL;
    fl_finding_add(findings, FL_VERDICT_OK, FL_DOCTOR_SOCKETS, "TCP over 127.0.0.1%s",
                   own ? " and an address of each worker's own" : "; all workers use this address");
}

/* What is wrong at 127.0.0.1 and at the address of the host has one cause, and one advice. */
static void join_sockets(fl_findings *findings)
{
    fl_finding *first = NULL;
    for (int i = 0; i < findings->n; i++) {
        fl_finding *f = &findings->of[i];
        bool is_one = strcmp(f->check, FL_DOCTOR_SOCKETS) == 0 && f->verdict != FL_VERDICT_OK;
        if (is_one && first != NULL) {
            size_t n = strlen(first->found);
            snprintf(first->found + n, sizeof first->found - n, "; %s", f->found);
            first->verdict = f->verdict > first->verdict ? f->verdict : first->verdict;
            findings->n--;
            memmove(f, f + 1, (size_t)(findings->n - i) * sizeof *f);
            i--;
        } else if (is_one) {
            first = f;
        }
    }
}

void fl_doctor_compare_sockets(const char *host, int n_workers, fl_findings *findings)
{
    join_sockets(findings);
    for (int i = 0; i < findings->n; i++) {
        fl_finding *f = &findings->of[i];
        if (n_workers > 1 && strcmp(f->check, FL_DOCTOR_SOCKETS) == 0 &&
            f->verdict == FL_VERDICT_WARNING) {
            size_t n = strlen(f->found);
            f->verdict = FL_VERDICT_ERROR;
            snprintf(f->found + n, sizeof f->found - n, "; the %d workers of %s%s need it",
                     n_workers, host == NULL ? "this host" : "host ", host == NULL ? "" : host);
        }
    }
}

/* ---- memory that processes share ---- */

typedef struct shared_look {
    int64_t pid;
    fl_shared_key key;
    bool *seen; /* shared with the child */
} shared_look;

static void look_into_parent(void *context)
{
    const shared_look *look = context;
    fl_shared_view view = {0};
    if (fl_shared_view_open(look->pid, &look->key, 0, SHARED_BYTES, &view) == FL_OK) {
        *look->seen = *(const unsigned char *)view.data == SHARED_MARK;
        fl_shared_view_close(&view);
    }
}

/* A child looks into this process's memory as one worker does into another's. */
static fl_status try_sharing(bool *works)
{
    fl_shared *shared = NULL;
    shared_look look = {.pid = getpid()};
    fl_child_end end;
    FL_TRY(fl_shared_create(SHARED_BYTES, &shared));
    memset(fl_shared_data(shared), SHARED_MARK, SHARED_BYTES);
    look.key = fl_shared_key_of(shared);
    fl_status status =
        fl_child_memory_take("shared memory", sizeof *look.seen, (void **)&look.seen);
    if (status == FL_OK) {
        status = fl_child_run("shared memory", look_into_parent, &look, CHILD_MS, &end);
        *works = status == FL_OK && *look.seen;
        fl_child_memory_give(look.seen, sizeof *look.seen);
    }
    fl_shared_destroy(&shared);
    return status;
}

static void look_at_sharing(fl_findings *findings)
{
    bool works = false;
    fl_status status = try_sharing(&works);
    if (works) {
        fl_finding_add(findings, FL_VERDICT_OK, "sharing",
                       "processes can look into each other's memory");
        return;
    }
    fl_finding *f = fl_finding_add(
        findings, FL_VERDICT_WARNING, "sharing", "%s",
        status != FL_OK ? fl_errmsg() : "a process cannot look into another one's memory");
    fl_finding_advise(f, "messages between workers take the slower way over sockets; allow "
                         "memfd_create and /proc/PID/fd in the sandbox (--cap-add=SYS_PTRACE, or "
                         "kernel.yama.ptrace_scope=1)");
}

void fl_doctor_look_at_links(fl_findings *findings)
{
    look_at_sockets(findings);
    look_at_sharing(findings);
}
