/* Puts a fault into a process that knows nothing of it, as bench/chaos.sh does to workers.
 *
 *   build/release/bench/bench_fault cut PID    shuts down all its sockets, as a broken network does
 *   build/release/bench/bench_fault hang PID   stops its first thread alone, until the process
 * ends: its other threads go on, as behind a deadlock
 *
 * Exit code 0: done, or the process had ended; 77: the system does not allow it; 2: wrong use. */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DONE = 0, WRONG_USE = 2, NOT_ALLOWED = 77 };

static int judge_errno(const char *what)
{
    if (errno == ESRCH || errno == ENOENT) {
        return DONE; /* it has ended */
    }
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return NOT_ALLOWED;
}

/* ---- cut ---- */

static bool is_socket(const char *folder, const char *name)
{
    char path[64 + 256], target[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    return strncmp(target, "socket:", 7) == 0;
}

/* A copy of its descriptor is the same socket. */
static bool shut_socket(int process, int fd)
{
    int own = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    if (own < 0) {
        return errno == EBADF || errno == ESRCH; /* closed meanwhile */
    }
    shutdown(own, SHUT_RDWR);
    close(own);
    return true;
}

static int cut_sockets(pid_t pid)
{
    char folder[64];
    int result = DONE;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    DIR *open_files = opendir(folder);
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (open_files == NULL || process < 0) {
        result = judge_errno("cut");
    }
    const struct dirent *entry;
    while (result == DONE && open_files != NULL && process >= 0 &&
           (entry = readdir(open_files)) != NULL) {
        if (is_socket(folder, entry->d_name) && !shut_socket(process, atoi(entry->d_name))) {
            result = judge_errno("cut");
        }
    }
    if (open_files != NULL) {
        closedir(open_files);
    }
    if (process >= 0) {
        close(process);
    }
    return result;
}

/* ---- hang ---- */

/* It stays stopped while this process traces it, and is reaped here first when it ends. */
static int hang_thread(pid_t pid)
{
    int status;
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0 ||
        ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0) {
        return judge_errno("hang");
    }
    while (waitpid(pid, &status, __WALL) == pid && !WIFEXITED(status) && !WIFSIGNALED(status)) {
        /* it has stopped */
    }
    return DONE;
}

int main(int argc, char **argv)
{
    pid_t pid = argc == 3 ? (pid_t)atoi(argv[2]) : 0;
    if (pid > 1 && strcmp(argv[1], "cut") == 0) {
        return cut_sockets(pid);
    }
    if (pid > 1 && strcmp(argv[1], "hang") == 0) {
        return hang_thread(pid);
    }
    fprintf(stderr, "usage: %s cut|hang PID\n", argv[0]);
    return WRONG_USE;
}
