#include "control/agent/relay/relay_child.h"

#include "device/system/child.h"
#include "device/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REAP_MS = 2000,   /* for a killed process to be gone */
    BEYOND_MS = 2000, /* for a process to end after the time of its work */
};

void fl_relay_tell_head(int socket, const fl_host_message *message)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    (void)send(socket, bytes, fl_host_wire_put(message, bytes), MSG_NOSIGNAL);
}

/* Why an order is not carried out. */
static void tell_unmeasured(int socket, uint64_t number, const char *why)
{
    fl_host_message m = {.type = FL_HOST_UNMEASURED, .unmeasured = {.number = number}};
    snprintf(m.unmeasured.text, sizeof m.unmeasured.text, "%s", why);
    fl_relay_tell_head(socket, &m);
}

/* ---- links ---- */

static void tell_result(void *context, const fl_host_link *result)
{
    const fl_host_message m = {.type = FL_HOST_PROBED, .probed = *result};
    fl_relay_tell_head(*(const int *)context, &m);
}

/* In a process of its own, whose threads end with it. */
static void probe_links(const fl_relay_options *o, const fl_host_probe_order *order, int socket)
{
    char why[FL_HOST_PROBE_END];
    int how = 0;
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == self) {
            fl_host_probe(order, o->keys, tell_result, &socket);
        }
        _exit(0);
    }
    if (pid < 0) {
        tell_unmeasured(socket, order->number, strerror(errno));
        return;
    }
    if (!fl_child_await(pid, order->all_ms + BEYOND_MS, &how)) {
        snprintf(why, sizeof why,
                 "the process that measures its links did not end within %lld s, and was killed",
                 (long long)(order->all_ms + BEYOND_MS) / 1000);
        tell_unmeasured(socket, order->number, why);
    } else if (fl_host_probe_failed(how, why)) {
        tell_unmeasured(socket, order->number, why);
    }
}

/* ---- what layers cost ---- */

/* Wait until the measuring process closes its pipe, or the head says something else or closes.
 * False after all_ms without either. */
static bool await_end(int socket, int pipe_fd, int64_t all_ms)
{
    struct pollfd items[] = {{.fd = pipe_fd, .events = POLLIN}, {.fd = socket, .events = POLLIN}};
    int64_t until_us = fl_deadline_us(all_ms);
    int n;
    do {
        n = poll(items, 2, (int)fl_left_ms(until_us));
    } while (n < 0 && errno == EINTR);
    return n != 0;
}

static void measure_costs(const fl_relay_options *o, const fl_host_measure_order *order, int job_fd,
                          int socket)
{
    const char *why = NULL;
    int ends[2], how = 0;
    pid_t self = getpid(), pid;
    if (o->measure == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        tell_unmeasured(socket, order->number, "it cannot measure");
        return;
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        if (getppid() == self) {
            o->measure(o->context, order, job_fd, socket);
        }
        _exit(0);
    }
    close(ends[1]);
    if (pid > 0) {
        why = await_end(socket, ends[0], order->all_ms) ? NULL : "it took too long";
        kill(pid, SIGKILL); /* and, by the kernel, what it has forked */
        bool ended = fl_child_reap(pid, REAP_MS, &how);
        why = ended || why != NULL ? why : "the process that measured does not end";
    }
    close(ends[0]);
    if (pid < 0) {
        tell_unmeasured(socket, order->number, strerror(errno));
    } else if (why != NULL || WIFSIGNALED(how)) {
        tell_unmeasured(socket, order->number,
                        why != NULL ? why : "the process that measured was killed");
    }
}

/* ---- the process ---- */

/* Signals from the terminal are the relay's; a SIGTERM for this process alone ends it. */
static void take_signals(const sigset_t *before)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL); /* the relay may have a handler */
    signal(SIGHUP, SIG_IGN);
    sigprocmask(SIG_SETMASK, before, NULL);
}

/* The next message of the head, which the relay has passed on. False: the relay has closed. Waits
 * without a deadline: the relay has one for the head, and this process ends with the relay. */
static bool read_head(int socket, fl_host_message *out)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    for (;;) {
        ssize_t n = recv(socket, bytes, sizeof bytes, 0);
        if (n > 0 && fl_host_wire_get(bytes, (size_t)n, out) == FL_OK) {
            return true;
        }
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
    }
}

_Noreturn void fl__relay_child(const fl_relay_options *o, int job_fd, int socket, pid_t parent,
                               const sigset_t *before)
{
    fl_host_message m; /* the workers inherit the welcome */
    bool good;
    take_signals(before);
    while ((good = read_head(socket, &m)) && m.type != FL_HOST_WELCOME) {
        if (m.type == FL_HOST_PROBE) {
            probe_links(o, &m.order, socket);
        } else if (m.type == FL_HOST_MEASURE) {
            measure_costs(o, &m.measure, job_fd, socket);
        }
    }
    if (good && getppid() == parent) {
        o->serve(o->context, &m.welcome, job_fd, socket);
    }
    _exit(0); /* it has not joined */
}
