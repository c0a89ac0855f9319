#include "control/agent/measure/process_look.h"

#include "device/system/proc.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WAS_SIGNALED = 0x400 }; /* PF_SIGNALED of the kernel: a signal ends it */

bool fl_process_look_parse(const char *line, fl_thread_line *out)
{
    const char *open = strchr(line, '('), *close = strrchr(line, ')'); /* a name may hold both */
    long long faults = 0;
    unsigned long flags = 0, pending = 0;
    if (open == NULL || close == NULL ||
        sscanf(close + 1,
               " %c %*s %*s %*s %*s %*s %18lu %*s %*s %18lld %*s %*s %*s %*s %*s %*s %*s %*s %*s "
               "%*s %*s %*s %*s %*s %*s %*s %*s %*s %18lu",
               &out->state, &flags, &faults, &pending) != 4) {
        return false;
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)(close - open - 1), open + 1);
    out->n_major_faults = faults;
    out->is_ending = (flags & WAS_SIGNALED) != 0 || (pending & 1UL << (SIGKILL - 1)) != 0;
    return true;
}

static bool is_of_link(const char *name)
{
    return strcmp(name, "fl-link") == 0 || strncmp(name, "ZMQbg/", 6) == 0;
}

typedef struct looking {
    fl_process_look look;
    int n_threads;
    bool is_ending;
} looking;

static bool read_cpu_time(pid_t pid, int64_t *cpu_us)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) {
        return false;
    }
    *cpu_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return true;
}

static void add_thread(void *context, int tasks, const char *thread)
{
    char path[64], text[512];
    looking *l = context;
    fl_thread_line line;
    snprintf(path, sizeof path, "%.20s/stat", thread);
    if (fl_proc_read(tasks, path, text, sizeof text) > 0 && fl_process_look_parse(text, &line)) {
        fl_thread_look *threads_of = is_of_link(line.name) ? &l->look.link : &l->look.work;
        l->n_threads++;
        l->is_ending = l->is_ending || line.is_ending;
        threads_of->n_major_faults += line.n_major_faults;
        threads_of->is_runnable = threads_of->is_runnable || line.state == 'R';
    }
}

bool fl_process_look_at(pid_t pid, fl_process_look *out, bool *is_ending)
{
    looking l = {0};
    bool any = read_cpu_time(pid, &l.look.cpu_us) && fl_proc_threads(pid, add_thread, &l);
    if (l.is_ending) { /* what it still wants a processor for is to end */
        l.look.work.is_runnable = l.look.link.is_runnable = false;
    }
    *out = l.look;
    *is_ending = l.is_ending;
    return any && l.n_threads > 0;
}
