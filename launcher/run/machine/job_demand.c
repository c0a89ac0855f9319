#include "launcher/run/machine/job_demand.h"
#include "device/text/size_text.h"

#include <stdio.h>

/* What the number of workers comes from. */
static const char *name_count(const fl_job *job, const fl_host *own, int n_workers)
{
    return own != NULL                     ? "the devices of this host"
           : n_workers == job->devices.max ? "devices.max"
                                           : "devices.count";
}

static void compare_processors(const fl_host_limits *m, const fl_job *job, const fl_host *own,
                               int n_workers, char *text, size_t size_bytes)
{
    int64_t wanted = n_workers * job->devices.cores;
    char limit[64] = "";
    if (m->quota > 0.0 && m->quota < m->affinity) {
        snprintf(limit, sizeof limit, " for the time of %.3g (its control group's quota)",
                 m->quota);
    }
    text[0] = 0;
    if (wanted > m->processors) {
        snprintf(
            text, size_bytes,
            "devices: %d x %lld cores want %lld processors, but this run may use %d%s; workers "
            "share them and the run is slower: lower %s or devices.cores",
            n_workers, (long long)job->devices.cores, (long long)wanted, m->affinity, limit,
            name_count(job, own, n_workers));
    }
}

static void compare_memory(const fl_host_limits *m, const fl_job *job, const fl_host *own,
                           int n_workers, char *text, size_t size_bytes)
{
    bool apart = job->devices.kind == FL_DEVICE_CUDA; /* a GPU's memory is not the machine's */
    double budget = apart ? 0.0 : (double)job->devices.memory_bytes * n_workers;
    char size[3][FL_SIZE_TEXT_MAX];
    double cache = job->cache.policy == FL_CACHE_OFF ? 0.0 : (double)job->cache.memory_bytes;
    text[0] = 0;
    if (m->memory_bytes > 0 && budget + cache > (double)m->memory_bytes) {
        snprintf(text, size_bytes,
                 "devices.memory: %d x %s, and %s of cache.memory, are more than the %s that %s; a "
                 "plan that needs all of it would be killed: lower devices.memory or %s",
                 n_workers, fl_size_text((double)job->devices.memory_bytes, size[0]),
                 fl_size_text(cache, size[1]), fl_size_text((double)m->memory_bytes, size[2]),
                 m->memory_bytes < m->total_bytes ? "this run's control group allows"
                                                  : "this machine has",
                 name_count(job, own, n_workers));
    }
}

void fl_job_demand_compare(const fl_host_limits *machine, const fl_job *job, const fl_host *own,
                           int n_workers, char *processors, char *memory, size_t size_bytes)
{
    int n = own != NULL ? own->n : n_workers;
    compare_processors(machine, job, own, n, processors, size_bytes);
    compare_memory(machine, job, own, n, memory, size_bytes);
}
