#include "device/child.h"

#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REAP_TURN_MS = 2 };

void fl_child_forget_handlers(void)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) {
        signal(crashes[i], SIG_DFL);
    }
}

void fl_child_leave_output(void)
{
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
}

_Noreturn static void run_child(void (*act)(void *context), void *context, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    signal(SIGINT, SIG_IGN); /* a terminal sends both to every process: the parent decides */
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_DFL); /* the parent says what is to be said */
    fl_child_forget_handlers();
    fl_child_leave_output();
    (void)setpgid(0, 0);
    act(context);
    _exit(0);
}

/* False: the deadline has passed, and the child still runs. */
static bool wait_for_exit(int child_fd, int64_t deadline_us)
{
    struct pollfd ended = {.fd = child_fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&ended, 1, (int)fl_left_ms(deadline_us));
    } while (ready < 0 && errno == EINTR);
    return ready != 0;
}

bool fl_child_reap(pid_t child, int64_t timeout_ms, int *wait_status)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    for (;;) {
        pid_t pid = waitpid(child, wait_status, WNOHANG);
        if (pid == child || (pid < 0 && errno != EINTR)) {
            return true;
        }
        if (fl_left_ms(deadline_us) == 0) {
            return false;
        }
        (void)poll(NULL, 0, REAP_TURN_MS);
    }
}

static fl_child_end follow_child(const char *what, pid_t child, int child_fd, int64_t timeout_ms)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    fl_child_end end = {0};
    if (timeout_ms > FL_CHILD_SLOW_MS &&
        !wait_for_exit(child_fd, fl_deadline_us(FL_CHILD_SLOW_MS))) {
        fl_log(FL_LOG_INFO, "%s: this takes long; it may take %lld s", what,
               (long long)(timeout_ms / 1000));
    }
    end.late = !wait_for_exit(child_fd, deadline_us);
    if (end.late) {
        kill(child, SIGKILL);
    }
    (void)kill(-child,
               SIGKILL); /* what it has started; until waitpid, nothing else has this number */
    while (waitpid(child, &end.wait_status, 0) < 0 && errno == EINTR) {
    }
    return end;
}

fl_status fl_child_run(const char *what, void (*act)(void *context), void *context,
                       int64_t timeout_ms, fl_child_end *end)
{
    pid_t parent = getpid();
    fflush(NULL); /* otherwise a child that calls exit() writes the parent's buffered output */
    pid_t child = fork();
    if (child == 0) {
        run_child(act, context, parent);
    }
    if (child < 0) {
        return fl_fail(FL_EIO, "%s: no process: %s", what, strerror(errno));
    }
    (void)setpgid(child, child); /* whoever comes first, parent or child */
    int child_fd = pidfd_open(child, 0);
    if (child_fd < 0) {
        fl_status status = fl_fail(FL_EIO, "%s: no descriptor: %s", what, strerror(errno));
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
        return status;
    }
    *end = follow_child(what, child, child_fd, timeout_ms);
    close(child_fd);
    return FL_OK;
}

fl_status fl_child_refuse(const char *process, const fl_child_end *end, int64_t timeout_ms)
{
    if (end->late) {
        return fl_fail(FL_ENOTSUP, "%s did not end within %.3g s", process,
                       (double)timeout_ms * 1e-3);
    }
    if (WIFSIGNALED(end->wait_status)) {
        int number = WTERMSIG(end->wait_status);
        return fl_fail(FL_ENOTSUP, "%s was killed by signal %d (%s)%s", process, number,
                       strsignal(number),
                       number == SIGBUS ? "; the file may have been cut short" : "");
    }
    return fl_fail(FL_ENOTSUP, "%s ended with exit code %d", process,
                   WEXITSTATUS(end->wait_status));
}

fl_status fl_child_memory_take(const char *what, size_t size_bytes, void **out)
{
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "%s: no %zu bytes to share: %s", what, size_bytes,
                       strerror(errno));
    }
    *out = memory;
    return FL_OK;
}

void fl_child_memory_give(void *memory, size_t size_bytes)
{
    if (memory != NULL) {
        munmap(memory, size_bytes);
    }
}
