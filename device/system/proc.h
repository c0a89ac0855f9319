/* The threads of a process of this user, as /proc shows them. */
#ifndef FL_DEVICE_SYSTEM_PROC_H
#define FL_DEVICE_SYSTEM_PROC_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The text of a file, as far as there is room, with a zero behind it.
 *   folder   the descriptor that `path` is below, or AT_FDCWD
 * Returns its length; -1: it cannot be read. Threads: any. */
ptrdiff_t fl_proc_read(int folder, const char *path, char *text, size_t room);

/* thread: its number, as the name of its folder below `tasks`. */
typedef void fl_proc_visit(void *context, int tasks, const char *thread);

/* Call `visit` for each thread of a process. False: there is no such process, or the system does
 * not tell its threads. Threads: any. */
bool fl_proc_threads(pid_t pid, fl_proc_visit *visit, void *context);

/* Let all threads of a process run on these processors. Whether all of them may now. A thread that
 * is to end waits for as long as others keep the processor busy that it is pinned to, and whoever
 * reaps the process waits for that thread inside the kernel, where no signal reaches it. Linux 6.18
 * has kept a thread waiting for minutes. Threads: any. */
bool fl_proc_unpin(pid_t pid, const cpu_set_t *cpus);

#ifdef __cplusplus
}
#endif

#endif
