#include "pipe/measure/probe_nccl.h"

#include "device/errors/failure.h"
#include "device/errors/log.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { LONGEST_CALL_MS = 15000, CALLS_PART = 4 };
enum { CONSEQUENCE = 1, ENDED = 2, LATE = 3, CAUSE = 4 };

int64_t fl_probe_nccl_call_ms(int64_t timeout_ms)
{
    int64_t part_ms = timeout_ms / CALLS_PART;
    return part_ms < LONGEST_CALL_MS ? part_ms : LONGEST_CALL_MS;
}

bool fl_probe_is_in_nccl(const fl_probe *probe)
{
    return __atomic_load_n(&probe->phase, __ATOMIC_ACQUIRE) == FL_PROBE_NCCL;
}

FL_PRINTF(3, 4)
static void note_failure(fl_probe_nccl_watch *watch, int weight, const char *format, ...)
{
    va_list arguments;
    if (weight > watch->weight) {
        watch->weight = weight;
        va_start(arguments, format);
        vsnprintf(watch->failure, sizeof watch->failure, format, arguments);
        va_end(arguments);
    }
}

void fl_probe_nccl_look(fl_probe_nccl_watch *watch, pid_t child, int64_t now_us)
{
    watch->since_us = watch->since_us == 0 ? now_us : watch->since_us;
    if (now_us - watch->since_us > watch->limit_ms * 1000) {
        note_failure(watch, LATE, "a process was still in it after %.3g s",
                     (double)watch->limit_ms * 1e-3);
        kill(child, SIGKILL);
    }
}

void fl_probe_nccl_judge(fl_probe_nccl_watch *watch, const fl_probe *probe, int wait_status)
{
    if (WIFSIGNALED(wait_status)) {
        int number = WTERMSIG(wait_status);
        note_failure(watch, number == SIGKILL ? ENDED : CAUSE,
                     "its process was killed by signal %d (%s)", number, strsignal(number));
    } else if (!__atomic_load_n(&probe->done, __ATOMIC_ACQUIRE)) {
        note_failure(watch, CAUSE, "its process ended with exit code %d", WEXITSTATUS(wait_status));
    } else if (probe->why != FL_OK) {
        int weight = probe->why == FL_EDEADLINE         ? LATE
                     : fl_status_is_regroup(probe->why) ? CONSEQUENCE
                                                        : CAUSE;
        note_failure(watch, weight, "%s", probe->message);
    }
}

fl_status fl_probe_nccl_settle(fl_probe_nccl_watch *watch, const fl_job *job)
{
    if (watch->failure[0] == '\0') {
        return FL_OK;
    }
    fl_nccl_refuse(watch->trial, "NCCL failed when the link between two workers was measured: %s",
                   watch->failure);
    if (job->autodp.transport == FL_TRANSPORT_NCCL) {
        return fl_fail_field(FL_ENOTSUP, FL_FIELDS("autodp.transport"),
                             "found nccl, but %s; allowed on this machine: auto or host",
                             watch->trial->reason);
    }
    fl_log(FL_LOG_WARN, "%s; workers exchange data without it", watch->trial->reason);
    return FL_OK;
}
