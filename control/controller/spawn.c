#include "control/controller/spawn.h"

#include "control/observe/metrics_http.h"
#include "device/clock.h"
#include "device/log.h"
#include "device/sanitizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOG_NAME_BYTES = 24, TAIL_LINES = 10 };

const char *fl_spawn_log_name(int rank, char *name)
{
    snprintf(name, LOG_NAME_BYTES, "worker-%d.log", rank);
    return name;
}

/* The log of a run that continues goes on. */
static bool redirect(int dir_fd, int rank, bool continues)
{
    char name[LOG_NAME_BYTES];
    int log = openat(dir_fd, fl_spawn_log_name(rank, name),
                     O_WRONLY | O_CREAT | (continues ? 0 : O_TRUNC) | O_APPEND | O_CLOEXEC, 0644);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || nothing < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0 ||
        dup2(nothing, STDIN_FILENO) < 0) {
        fl_log(FL_LOG_ERROR, "cannot open %s: %s", name, strerror(errno));
        return false;
    }
    close(log);
    close(nothing);
    return true;
}

/* In the child. */
static _Noreturn void become_worker(const fl_controller_options *options, const fl_signals *signals,
                                    const char *endpoint, fl_flight *flight, int rank,
                                    pid_t controller)
{
    char name[24];
    snprintf(name, sizeof name, "worker %d", rank);
    fl_log_name(name);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != controller || !redirect(options->dir_fd, rank, options->resume != NULL)) {
        _exit(1); /* the controller died before the worker could watch it, or the log cannot be
                     opened */
    }
    fl_signals_in_worker(signals);
    if (options->metrics != NULL) {
        fl_metrics_listener_close(options->metrics); /* or it would outlive the controller */
    }
    fl_flight_join(flight, rank);
    fl_place place = fl_plan_place(options->plan, rank);
    if (place.active) {
        fl_log(FL_LOG_INFO, "stage %d of replica %d, process %d", place.stage, place.replica,
               (int)getpid());
    } else {
        fl_log(FL_LOG_INFO, "standby, process %d", (int)getpid());
    }
    int code = options->worker(options->context, rank, endpoint);
    fflush(NULL);
    fl_sanitizer_find_leaks();
    _exit(code);
}

fl_status fl_spawn_workers(const fl_controller_options *options, const fl_signals *signals,
                           const char *endpoint, fl_flight *flight, fl_worker *workers)
{
    pid_t controller = getpid();
    fflush(NULL); /* otherwise each worker would write the buffered output again */
    for (int rank = 0; rank < options->plan->n_workers; rank++) {
        fl_worker *w = &workers[rank];
        *w = (fl_worker){.rank = rank, .place = fl_plan_place(options->plan, rank)};
        snprintf(w->operation, sizeof w->operation, "starting");
        w->spawned_us = w->heard_us = fl_now_us();
        w->pid = fork();
        if (w->pid == 0) {
            become_worker(options, signals, endpoint, flight, rank, controller);
        }
        if (w->pid < 0) {
            fl_status status = fl_fail(FL_EFAILED, "cannot start worker %d of %d: %s", rank,
                                       options->plan->n_workers, strerror(errno));
            fl_spawn_kill(workers, rank);
            return status;
        }
    }
    return FL_OK;
}

static void note_exit(fl_worker *worker, int wait_status)
{
    worker->exited_us = fl_now_us();
    worker->wait_status = wait_status;
}

int fl_spawn_reap(fl_worker *workers, int n_workers)
{
    int n_living = 0;
    for (int i = 0; i < n_workers; i++) {
        int wait_status = 0;
        if (workers[i].exited_us == 0 &&
            waitpid(workers[i].pid, &wait_status, WNOHANG) == workers[i].pid) {
            note_exit(&workers[i], wait_status);
        }
        n_living += workers[i].exited_us == 0;
    }
    return n_living;
}

void fl_spawn_kill(fl_worker *workers, int n_workers)
{
    for (int i = 0; i < n_workers; i++) {
        if (workers[i].exited_us == 0) {
            workers[i].killed = true;
            kill(workers[i].pid, SIGKILL);
        }
    }
    for (int i = 0; i < n_workers; i++) {
        int wait_status = 0;
        while (workers[i].exited_us == 0) {
            pid_t pid = waitpid(workers[i].pid, &wait_status, 0);
            if (pid == workers[i].pid || errno != EINTR) {
                note_exit(&workers[i], wait_status);
            }
        }
    }
}

const char *fl_spawn_log_tail(int dir_fd, int rank, char *text, size_t size_bytes)
{
    char name[LOG_NAME_BYTES];
    struct stat info;
    text[0] = 0;
    int fd = openat(dir_fd, fl_spawn_log_name(rank, name), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return text;
    }
    off_t start = info.st_size < (off_t)size_bytes ? 0 : info.st_size - (off_t)size_bytes + 1;
    ssize_t n = pread(fd, text, size_bytes - 1, start);
    close(fd);
    n = n < 0 ? 0 : n;
    while (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    text[n] = 0;
    ssize_t first = n;
    for (int lines = 0; first > 0; first--) {
        if (text[first - 1] == '\n' && ++lines == TAIL_LINES) {
            break;
        }
    }
    if (first == 0 && start > 0) { /* the first line is incomplete: leave it out */
        const char *end = strchr(text, '\n');
        first = end == NULL ? 0 : end - text + 1;
    }
    memmove(text, text + first, (size_t)(n - first) + 1);
    /* Control characters of a log must not reach the terminal of its reader. */
    for (char *c = text; *c != 0; c++) {
        if ((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') {
            *c = '?';
        }
    }
    return text;
}
