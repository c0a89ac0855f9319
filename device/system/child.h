/* A function in a process of its own: what it does to that process ends with it, and a crash or an
 * endless loop there becomes a fact that the caller can report. Its answer goes through memory that
 * both processes share. */
#ifndef FL_DEVICE_SYSTEM_CHILD_H
#define FL_DEVICE_SYSTEM_CHILD_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    FL_CHILD_SLOW_MS = 5000,    /* after so long, one line says that the caller waits */
    FL_CHILD_KILLED_MS = 10000, /* for a killed process to be gone; its GPU memory may be large */
};

/* How the process ended. */
typedef struct fl_child_end {
    bool late;       /* it ran longer than allowed, and was killed */
    bool given_up;   /* it was killed because the caller is to end */
    int wait_status; /* as waitpid gives it */
} fl_child_end;

/* Call act(context) in a child process, and wait for the child's end. The child exits with code 0
 * when `act` returns, ends with its parent, and ignores the signals of a terminal. Processes that
 * `act` starts end with it, unless they leave its process group. What any of them prints goes to
 * standard error: standard output is the caller's.
 * what    begins the message of a failure, and the line after FL_CHILD_SLOW_MS
 * Returns FL_EIO if there is no process or descriptor; FL_ESTOPPED, and the child is gone, if
 *         SIGINT or SIGTERM, which the caller blocks, has been pending for three seconds. Threads:
 * the caller must not have others. */
fl_status fl_child_run(const char *what, void (*act)(void *context), void *context,
                       int64_t timeout_ms, fl_child_end *end) FL_MUST_CHECK;

/* In a child: handlers of the program's for crashes are not meant for this process, whose end tells
 * the parent why. */
void fl_child_forget_handlers(void);

/* In a child: what libraries print there must not come into the output of the program. */
void fl_child_leave_output(void);

/* Whether the child has ended, and how. It is not reaped yet: the kernel may hold its parent while
 * it reaps a child with threads (launcher/worker/processors/crowding.h), so what depends on the end
 * comes first. Never waits. */
bool fl_child_has_ended(pid_t child, int *wait_status);

/* Wait for the end of a child that was told to end, or was killed. False: it has not ended after
 * this time, as a process that is stuck in the kernel, or nobody can know yet that it has: the
 * caller leaves it behind. */
bool fl_child_reap(pid_t child, int64_t timeout_ms, int *wait_status);

/* The words for such a child, after its name, with the time in milliseconds. */
#define FL_CHILD_LEFT                                                                              \
    "was killed, and has not ended within %d ms: nobody waits for it any longer; it ends later "   \
    "if this machine is overloaded"

/* Wait for the end of a child that ends by itself, and kill it after this time. False: it was
 * killed (*wait_status says so, too; if the kernel holds it for FL_CHILD_KILLED_MS more, the caller
 * leaves it behind). */
bool fl_child_await(pid_t child, int64_t timeout_ms, int *wait_status);

/* Why a process has no answer: FL_ENOTSUP. process: "the process that ...". */
fl_status fl_child_refuse(const char *process, const fl_child_end *end,
                          int64_t timeout_ms) FL_MUST_CHECK;

/* Cleared memory that this process shares with those that it forks afterwards; FL_ENOMEM. */
fl_status fl_child_memory_take(const char *what, size_t size_bytes, void **out) FL_MUST_CHECK;
void fl_child_memory_give(void *memory, size_t size_bytes);

#endif
