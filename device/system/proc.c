#include "device/system/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

ptrdiff_t fl_proc_read(int folder, const char *path, char *text, size_t room)
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t more = fd < 0 ? -1 : 1;
    while (more > 0 && n < room - 1) {
        more = read(fd, text + n, room - 1 - n);
        n += more > 0 ? (size_t)more : 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    text[n] = '\0';
    return more < 0 ? -1 : (ptrdiff_t)n;
}

bool fl_proc_threads(pid_t pid, fl_proc_visit *visit, void *context)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL) {
        return false;
    }
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] != '.') {
            visit(context, dirfd(tasks), entry->d_name);
        }
    }
    closedir(tasks);
    return true;
}

typedef struct unpinning {
    const cpu_set_t *cpus;
    bool done;
} unpinning;

/* A thread that has ended meanwhile needs no processor. */
static void unpin_thread(void *context, int tasks, const char *thread)
{
    unpinning *u = context;
    int tid = (int)strtol(thread, NULL, 10);
    if (sched_setaffinity(tid, sizeof *u->cpus, u->cpus) != 0 &&
        faccessat(tasks, thread, F_OK, 0) == 0) {
        u->done = false;
    }
}

bool fl_proc_unpin(pid_t pid, const cpu_set_t *cpus)
{
    unpinning u = {.cpus = cpus, .done = true};
    return fl_proc_threads(pid, unpin_thread, &u) && u.done;
}
