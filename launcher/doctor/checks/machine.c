/* Processors, memory and limits of this process. */
#include "launcher/doctor/checks/doctor.h"

#include "device/device.h"
#include "device/text/size_text.h"
#include "launcher/run/checks/room.h"
#include "launcher/run/machine/open_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FILES_WANTED = FL_OPEN_FILES_WANTED, THREADS_WANTED = 256 };

static const int64_t MEMORY_LEAST = INT64_C(256) << 20;
static const int64_t SHM_WANTED = INT64_C(1) << 30;

/* "1024", "no limit" */
static const char *limit_text(uint64_t limit, char text[32])
{
    if (limit == UINT64_MAX) {
        return "no limit";
    }
    snprintf(text, 32, "%llu", (unsigned long long)limit);
    return text;
}

void fl_doctor_judge_limits(const fl_doctor_limits *l, fl_findings *findings)
{
    char one[32], two[32], locked[FL_SIZE_TEXT_MAX];
    /* A run raises its own limit as far as the hard one; below this, even two workers fail. */
    const fl_open_files_use two_workers = {.n_workers = 2};
    fl_verdict verdict = l->files < fl_open_files_least(&two_workers) ? FL_VERDICT_ERROR
                         : l->files < FILES_WANTED                    ? FL_VERDICT_WARNING
                                                                      : FL_VERDICT_OK;
    fl_finding *f =
        fl_finding_add(findings, verdict, "files", "%s open files (ulimit -n), at most %s",
                       limit_text(l->files, one), limit_text(l->files_most, two));
    if (verdict != FL_VERDICT_OK) {
        fl_finding_advise(f, "ulimit -n %d%s", FILES_WANTED,
                          l->files_most < FILES_WANTED
                              ? ", after the hard limit was raised in /etc/security/limits.conf"
                              : "");
    }
    uint64_t left = l->is_root || l->processes == UINT64_MAX ? UINT64_MAX
                    : l->processes > l->n_threads            ? l->processes - l->n_threads
                                                             : 0;
    f = fl_finding_add(findings, left < THREADS_WANTED ? FL_VERDICT_WARNING : FL_VERDICT_OK,
                       "processes", "%s threads (ulimit -u); all users have %llu%s",
                       limit_text(l->processes, one), (unsigned long long)l->n_threads,
                       l->is_root ? "; root is not limited" : "");
    if (left < THREADS_WANTED) {
        fl_finding_advise(f, "ulimit -u %llu: a worker has some threads for each of its cores",
                          (unsigned long long)(l->n_threads + 4 * THREADS_WANTED));
    }
    fl_finding_add(findings, FL_VERDICT_OK, "locked",
                   "%s (ulimit -l); only NCCL over InfiniBand needs more than a default",
                   l->locked_bytes == UINT64_MAX ? "no limit"
                                                 : fl_size_text((double)l->locked_bytes, locked));
}

void fl_doctor_judge_machine(const fl_host_limits *m, int n_online, bool has_job,
                             fl_findings *findings)
{
    char all[FL_SIZE_TEXT_MAX], allowed[FL_SIZE_TEXT_MAX], available[FL_SIZE_TEXT_MAX];
    bool quota = m->quota > 0.0 && m->quota < m->affinity;
    bool fewer = m->processors < n_online && !has_job;
    fl_finding *f = fl_finding_add(findings, fewer ? FL_VERDICT_WARNING : FL_VERDICT_OK,
                                   "processors", "%d of %d%s", m->affinity, n_online,
                                   m->affinity < n_online ? " (affinity)" : "");
    if (quota) {
        size_t n = strlen(f->found);
        snprintf(f->found + n, sizeof f->found - n, ", for the time of %.3g (control group)",
                 m->quota);
    }
    if (fewer) {
        fl_finding_advise(
            f,
            "if the workers of this host x devices.cores are more than %d, they share "
            "processors: raise the limit of the container, of the batch job or of "
            "taskset, or ask for fewer",
            m->processors);
    }
    bool little = m->available_bytes > 0 && m->available_bytes < MEMORY_LEAST;
    f = fl_finding_add(
        findings, little ? FL_VERDICT_WARNING : FL_VERDICT_OK, "memory",
        "%s available, of %s%s%s%s", fl_size_text((double)m->available_bytes, available),
        fl_size_text((double)m->total_bytes, all),
        m->memory_bytes < m->total_bytes ? "; the control group allows " : "",
        m->memory_bytes < m->total_bytes ? fl_size_text((double)m->memory_bytes, allowed) : "",
        m->total_bytes == 0 ? " (not known: /proc is not there)" : "");
    if (little) {
        fl_finding_advise(f, "end other programs, or raise the limit of the control group");
    }
}

static uint64_t limit_of(int resource, bool hard)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) {
        return UINT64_MAX;
    }
    rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
    return value == RLIM_INFINITY ? UINT64_MAX : (uint64_t)value;
}

/* Threads of all users, from "0.20 0.18 0.12 1/80 11206". */
static uint64_t count_threads(void)
{
    unsigned long long n = 0;
    FILE *file = fopen("/proc/loadavg", "re");
    if (file != NULL) {
        if (fscanf(file, "%*f %*f %*f %*u/%llu", &n) != 1) {
            n = 0;
        }
        fclose(file);
    }
    return n;
}

static void look_at_shm(fl_findings *findings)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) {
        fl_finding_add(findings, FL_VERDICT_OK, "/dev/shm",
                       "not there; only NCCL uses it: workers share memory without a file");
        return;
    }
    fl_doctor_judge_shm((int64_t)fs.f_blocks * (int64_t)fs.f_frsize,
                        (int64_t)fs.f_bavail * (int64_t)fs.f_frsize, findings);
}

void fl_doctor_judge_shm(int64_t size_bytes, int64_t free_bytes, fl_findings *findings)
{
    char all[FL_SIZE_TEXT_MAX], left[FL_SIZE_TEXT_MAX], least[FL_SIZE_TEXT_MAX];
    bool full = free_bytes < FL_ROOM_SHM_BYTES;
    fl_finding *f = fl_finding_add(findings, full ? FL_VERDICT_WARNING : FL_VERDICT_OK, "/dev/shm",
                                   "%s, of which %s are free; only NCCL uses it",
                                   fl_size_text((double)size_bytes, all),
                                   fl_size_text((double)free_bytes, left));
    if (full) {
        fl_finding_advise(f,
                          "remove files from it: NCCL needs %s there for each GPU of a job on "
                          "several GPUs",
                          fl_size_text((double)FL_ROOM_SHM_BYTES, least));
    } else if (size_bytes < SHM_WANTED) {
        fl_finding_advise(f, "for jobs on several GPUs, start the container with --shm-size=1g");
    }
}

void fl_doctor_look_at_machine(bool has_job, fl_findings *findings)
{
    fl_host_limits machine;
    char cpu[128];
    fl_host_limits_read("", &machine);
    fl_finding_add(findings, FL_VERDICT_OK, "kernels", "%s, %s",
                   fl_device_cpu_name(cpu, sizeof cpu), fl_device_cpu_isa());
    fl_doctor_judge_machine(&machine, (int)sysconf(_SC_NPROCESSORS_ONLN), has_job, findings);
    fl_doctor_limits limits = {.files = limit_of(RLIMIT_NOFILE, false),
                               .files_most = limit_of(RLIMIT_NOFILE, true),
                               .locked_bytes = limit_of(RLIMIT_MEMLOCK, false),
                               .processes = limit_of(RLIMIT_NPROC, false),
                               .n_threads = count_threads(),
                               .is_root = geteuid() == 0};
    fl_doctor_judge_limits(&limits, findings);
    look_at_shm(findings);
}
