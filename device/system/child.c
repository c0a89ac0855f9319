#include "device/system/child.h"

#include "device/errors/log.h"
#include "device/system/clock.h"

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

enum {
    REAP_TURN_MS = 2,
    SIGNAL_MS = 100,   /* between two looks at pending signals */
    PENDING_MS = 3000, /* for a child to end once one is pending */
};

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

/* A caller that blocks signals takes them later. */
static bool is_to_end(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

/* The wait for a child. One that asks the caller to end may find it there for PENDING_MS: a child
 * that works ends meanwhile, and one that is stopped does not. */
typedef struct child_wait {
    int fd;
    int64_t pending_us; /* since when the caller is to end; 0: it is not */
} child_wait;

static bool is_given_up(child_wait *w)
{
    if (w->pending_us == 0 && is_to_end()) {
        w->pending_us = fl_now_us();
    }
    return w->pending_us != 0 && fl_now_us() - w->pending_us > PENDING_MS * 1000;
}

/* False: the deadline has passed, or the wait is given up, and the child still runs. */
static bool wait_for_exit(child_wait *w, int64_t deadline_us)
{
    struct pollfd ended = {.fd = w->fd, .events = POLLIN};
    int ready = 0;
    do {
        int64_t left_ms = fl_left_ms(deadline_us);
        ready = poll(&ended, 1, (int)(left_ms < SIGNAL_MS ? left_ms : SIGNAL_MS));
    } while (ready <= 0 && fl_left_ms(deadline_us) > 0 && !is_given_up(w));
    return ready > 0;
}

/* As waitpid encodes it. */
static int wait_status_of(const siginfo_t *info)
{
    int dumped = info->si_code == CLD_DUMPED ? WCOREFLAG : 0;
    return info->si_code == CLD_EXITED ? (info->si_status & 0xff) << 8 : info->si_status | dumped;
}

bool fl_child_has_ended(pid_t child, int *wait_status)
{
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != child) {
        return false;
    }
    *wait_status = wait_status_of(&info);
    return true;
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

/* Kill it, and wait for its end as long as a killed process may take. */
static void kill_and_reap(pid_t child, int *wait_status)
{
    kill(child, SIGKILL);
    if (!fl_child_reap(child, FL_CHILD_KILLED_MS, wait_status)) {
        *wait_status = SIGKILL;
    }
}

/* Until the child has ended or the deadline has passed; at once if there is no descriptor. */
static void sleep_until_end(pid_t child, int64_t deadline_us)
{
    struct pollfd ended = {.fd = pidfd_open(child, 0), .events = POLLIN};
    while (ended.fd >= 0 && fl_left_ms(deadline_us) > 0 &&
           poll(&ended, 1, (int)fl_left_ms(deadline_us)) <= 0) {
    }
    if (ended.fd >= 0) {
        close(ended.fd);
    }
}

bool fl_child_await(pid_t child, int64_t timeout_ms, int *wait_status)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    sleep_until_end(child, deadline_us);
    bool ended = fl_child_reap(child, fl_left_ms(deadline_us), wait_status);
    if (!ended) {
        kill_and_reap(child, wait_status);
    }
    return ended;
}

static fl_child_end follow_child(const char *what, pid_t child, int child_fd, int64_t timeout_ms)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    fl_child_end end = {0};
    child_wait wait = {.fd = child_fd};
    if (timeout_ms > FL_CHILD_SLOW_MS && !wait_for_exit(&wait, fl_deadline_us(FL_CHILD_SLOW_MS)) &&
        !is_given_up(&wait)) {
        fl_log(FL_LOG_INFO, "%s: this takes long; it may take %lld s", what,
               (long long)(timeout_ms / 1000));
    }
    bool ended = wait_for_exit(&wait, deadline_us);
    end.given_up = !ended && fl_left_ms(deadline_us) > 0;
    end.late = !ended && !end.given_up;
    (void)kill(-child,
               SIGKILL); /* what it has started; until waitpid, nothing else has this number */
    kill_and_reap(child, &end.wait_status);
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
        kill_and_reap(child, &(int){0});
        return status;
    }
    *end = follow_child(what, child, child_fd, timeout_ms);
    close(child_fd);
    return end->given_up ? fl_fail(FL_ESTOPPED, "%s: stopped by a signal", what) : FL_OK;
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
