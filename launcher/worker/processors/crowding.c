#include "launcher/worker/processors/crowding.h"

#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/proc.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    INTERVAL_US = 2000000,
    INTERVALS = 2, /* a moment of foreign work is no reason */
    /* Of an interval. A worker's own threads for messages take less from its computing ones. */
    CROWDED_PERCENT = 30,
    /* /proc/stat, cut behind the last whole line: some hundred processors. */
    STAT_BYTES = 32 * 1024,
};

/* ---- pure ---- */

bool fl_crowding_judge(fl_crowding *c, const fl_crowding_reading *now)
{
    int64_t elapsed_us = now->at_us - c->last.at_us;
    int64_t waited_us = now->waited_us - c->last.waited_us;
    int64_t idle_us = now->idle_us - c->last.idle_us;
    bool crowded = waited_us * 100 >= elapsed_us * CROWDED_PERCENT && idle_us >= waited_us;
    c->last = *now;
    c->n_crowded = crowded ? c->n_crowded + 1 : 0;
    return c->n_crowded >= INTERVALS;
}

/* cpuN user nice system idle iowait ... in ticks */
int64_t fl_crowding_idle_us(const char *stat, const cpu_set_t *cpus, int64_t ticks_a_second)
{
    int64_t sum = 0;
    for (const char *line = stat; line != NULL; line = strchr(line, '\n')) {
        unsigned cpu;
        long long idle, waits;
        line += *line == '\n';
        if (sscanf(line, "cpu%4u %*d %*d %*d %18lld %18lld", &cpu, &idle, &waits) == 3 &&
            cpu < CPU_SETSIZE && CPU_ISSET(cpu, cpus)) {
            sum += idle + waits;
        }
    }
    return sum * 1000000 / ticks_a_second;
}

/* ---- the system ---- */

/* A thread's own folder has: ns on a processor, ns in which it waited for one, how often. */
static int64_t waited_us(int tasks, const char *thread)
{
    char path[64], text[128];
    long long waited_ns = 0;
    snprintf(path, sizeof path, "%.20s/schedstat", thread);
    return fl_proc_read(tasks, path, text, sizeof text) > 0 &&
                   sscanf(text, "%*d %18lld", &waited_ns) == 1
               ? waited_ns / 1000
               : 0;
}

static void add_waited(void *sum_us, int tasks, const char *thread)
{
    *(int64_t *)sum_us += waited_us(tasks, thread);
}

static bool take_reading(const fl_crowding *c, fl_crowding_reading *out)
{
    char stat[STAT_BYTES];
    *out = (fl_crowding_reading){.at_us = fl_now_us()};
    if (fl_proc_read(AT_FDCWD, "/proc/stat", stat, sizeof stat) <= 0) {
        return false;
    }
    out->idle_us = fl_crowding_idle_us(stat, &c->others, sysconf(_SC_CLK_TCK));
    return fl_proc_threads(getpid(), add_waited, &out->waited_us);
}

/* ---- of a worker ---- */

void fl_crowding_init(fl_crowding *c, const int *cpus, int n)
{
    *c = (fl_crowding){0};
    if (cpus == NULL || sched_getaffinity(0, sizeof c->allowed, &c->allowed) != 0) {
        return;
    }
    c->others = c->allowed;
    for (int i = 0; i < n; i++) {
        CPU_CLR((size_t)cpus[i], &c->others);
    }
    c->pinned = CPU_COUNT(&c->others) > 0 && take_reading(c, &c->last);
}

void fl_crowding_check(fl_crowding *c)
{
    fl_crowding_reading now;
    int64_t waited_before_us = c->last.waited_us, at_before_us = c->last.at_us;
    if (!c->pinned || fl_now_us() < at_before_us + INTERVAL_US || !take_reading(c, &now) ||
        !fl_crowding_judge(c, &now)) {
        return;
    }
    c->pinned = false;
    if (fl_proc_unpin(getpid(), &c->allowed)) {
        fl_log(FL_LOG_WARN,
               "waited for its processor for %.1f of %.1f s, while others were idle: it is shared "
               "with another program; from now on on any of the %d that it may use",
               1e-6 * (double)(now.waited_us - waited_before_us),
               1e-6 * (double)(now.at_us - at_before_us), CPU_COUNT(&c->allowed));
    }
}

void fl_crowding_end(fl_crowding *c)
{
    if (c->pinned) {
        c->pinned = false;
        (void)fl_proc_unpin(getpid(), &c->allowed); /* where that fails, it ends as before */
    }
}
