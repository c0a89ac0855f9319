/* A pipe whose writing end only the child holds tells the parent of the child's end. */
#include "device/child.h"

#include "device/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

_Noreturn static void run_child(void (*act)(void *context), void *context, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    signal(SIGINT, SIG_IGN); /* a terminal sends both to every process: the parent decides */
    signal(SIGHUP, SIG_IGN);
    act(context);
    _exit(0);
}

/* False: the deadline has passed, and the child still runs. */
static bool wait_for_exit(int exit_fd, int64_t deadline_us)
{
    struct pollfd closing = {.fd = exit_fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&closing, 1, (int)fl_left_ms(deadline_us));
    } while (ready < 0 && errno == EINTR);
    return ready != 0;
}

static fl_child_end follow_child(pid_t child, int exit_fd, int64_t timeout_ms)
{
    fl_child_end end = {.late = !wait_for_exit(exit_fd, fl_deadline_us(timeout_ms))};
    if (end.late) {
        kill(child, SIGKILL);
    }
    while (waitpid(child, &end.wait_status, 0) < 0 && errno == EINTR) {
    }
    return end;
}

fl_status fl_child_run(const char *what, void (*act)(void *context), void *context,
                       int64_t timeout_ms, fl_child_end *end)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fl_fail(FL_EIO, "%s: no pipe: %s", what, strerror(errno));
    }
    fflush(NULL); /* otherwise a child that calls exit() writes the parent's buffered output */
    pid_t child = fork();
    if (child == 0) {
        run_child(act, context, parent);
    }
    fl_status status =
        child < 0 ? fl_fail(FL_EIO, "%s: no process: %s", what, strerror(errno)) : FL_OK;
    close(ends[1]);
    if (status == FL_OK) {
        *end = follow_child(child, ends[0], timeout_ms);
    }
    close(ends[0]);
    return status;
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
