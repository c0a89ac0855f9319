#include "launcher/cli/hosts/run_hosts.h"

#include "control/agent/process/signals.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "device/text/shown_text.h"
#include "launcher/cli/hosts/engine_host.h"
#include "launcher/job/job.h"
#include "launcher/run/hosts/hosts.h"

#include <stdio.h>

enum { GATHER_MS = 600000 }; /* as long as the head waits for agents */

static bool has_engine(const fl_run_hosts *h)
{
    return h->task.engine != NULL;
}

/* ---- what is given ---- */

/* Options of a run that has its hosts from elsewhere. */
static fl_status check_engine(const fl_args *args, const fl_run_hosts *h)
{
    static const char *const others[] = {"--hosts", "--ssh", "--replay", "--key"};
    static const char *const own[] = {"--interface", "--grace"};
    for (size_t i = 0; has_engine(h) && i < sizeof others / sizeof *others; i++) {
        if (fl_args_has(args, others[i])) {
            return fl_fail(FL_EINVAL,
                           "%s: %s has started %d tasks of this run; allowed: one task, "
                           "or without %s",
                           others[i], h->task.engine, h->task.n, others[i]);
        }
    }
    for (size_t i = 0; !has_engine(h) && i < sizeof own / sizeof *own; i++) {
        if (fl_args_has(args, own[i])) {
            return fl_fail(FL_EINVAL,
                           "%s: an option of a run that Slurm or mpirun starts on "
                           "several hosts",
                           own[i]);
        }
    }
    return FL_OK;
}

fl_status fl_run_hosts_init(const fl_args *args, fl_run_hosts *out)
{
    bool hosts = fl_args_has(args, "--hosts");
    *out = (fl_run_hosts){.file = NULL};
    FL_TRY(fl_engine_find_own(&out->task));
    FL_TRY(check_engine(args, out));
    if (fl_args_has(args, "--ssh") && fl_args_has(args, "--key")) {
        return fl_fail(FL_EINVAL, "--key: --ssh is given, too: ssh passes new keys on");
    }
    if (fl_args_has(args, "--ssh") && !hosts) {
        return fl_fail(FL_EINVAL, "--ssh: an option of --hosts, which is missing; the hosts of a "
                                  "job are started by ssh without it");
    }
    return !hosts || !fl_args_has(args, "--replay")
               ? FL_OK
               : fl_fail(FL_EINVAL, "--hosts: --replay is given, too: a run on several hosts "
                                    "repeats no other one");
}

bool fl_run_hosts_are_given(const fl_args *args, const fl_job *job, const fl_run_hosts *hosts)
{
    return has_engine(hosts) || fl_args_has(args, "--hosts") || fl_args_has(args, "--listen") ||
           fl_args_has(args, "--key") || job->n_hosts > 0;
}

/* ---- finding them ---- */

/* devices.count is of all hosts. */
static fl_status set_devices(const fl_run_hosts *h, const fl_job *job, fl_meeting_host *all)
{
    int64_t wanted = job->devices.count;
    char devices[FL_COUNT_BYTES];
    int n = h->task.n;
    for (int i = 0; wanted != FL_JOB_AUTO && i < n; i++) {
        if (wanted % n != 0 || wanted / n > all[i].n_devices) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS("devices.count"),
                                 "found %lld, but %s gives %d hosts, and host %s has %s; allowed: "
                                 "auto, or as many on each host",
                                 (long long)wanted, h->task.engine, n, all[i].name,
                                 fl_count(all[i].n_devices, "device", devices));
        }
        all[i].n_devices = (int)(wanted / n);
    }
    return FL_OK;
}

static fl_status gather_hosts(const fl_args *args, const fl_job *job, fl_run_hosts *h,
                              fl_meeting_host *all)
{
    FL_TRY(fl_engine_host_enter(args, job, h));
    FL_TRY(fl_meeting_gather(&h->meeting, &h->task, GATHER_MS, fl_signals_take_stop, all,
                             &h->stopped_by));
    FL_TRY(set_devices(h, job, all));
    fl_cluster_file_init(h->file);
    for (int i = 0; i < h->task.n; i++) {
        if (h->file->cluster.n_devices + all[i].n_devices > FL_MAX_WORKERS) {
            return fl_fail(FL_EINVAL,
                           "%s: found more than %d devices, allowed: fewer; "
                           "devices.count limits them",
                           h->task.engine, FL_MAX_WORKERS);
        }
        fl_job_host host = {.devices = all[i].n_devices, .sockets = FL_LIST_ABSENT};
        snprintf(host.name, sizeof host.name, "%s", all[i].name);
        snprintf(host.address, sizeof host.address, "%s", all[i].address);
        fl_cluster_file_add(h->file, &host);
    }
    return FL_OK;
}

static fl_status take_tasks(const fl_args *args, const fl_job *job, fl_run_hosts *h)
{
    void *all = NULL;
    if (job->n_hosts > 0) {
        fl_log(FL_LOG_INFO, "hosts of the job: not used, because %s gives the hosts",
               h->task.engine);
    }
    FL_TRY(fl_alloc_array((size_t)h->task.n, sizeof(fl_meeting_host), &all));
    fl_status status = gather_hosts(args, job, h, all);
    fl_free(all);
    return status;
}

/* Those of --hosts, or else of the job. */
static void tell_replaced(const fl_args *args, const fl_job *job)
{
    char shown[FL_SHOWN_PATH_BYTES], hosts[FL_COUNT_BYTES];
    fl_text_shown(fl_args_value(args, "--hosts"), shown, sizeof shown);
    fl_log(FL_LOG_INFO, "--hosts: the hosts of %s replace the %s of the job%s", shown,
           fl_count(job->n_hosts, "host", hosts),
           fl_args_has(args, "--ssh") ? "" : "; without --ssh, ssh starts no agents");
}

static fl_status load_file(const fl_args *args, const fl_job *job, fl_cluster_file *file)
{
    if (fl_args_has(args, "--hosts")) {
        FL_TRY(fl_cluster_file_load(fl_args_value(args, "--hosts"), file));
        if (job->n_hosts > 0) {
            tell_replaced(args, job);
        }
        return FL_OK;
    }
    if (job->n_hosts == 0) {
        return fl_fail(FL_EINVAL,
                       "%s: the run has one host; allowed: with hosts in the job, or --hosts",
                       fl_args_has(args, "--listen") ? "--listen" : "--key");
    }
    if (fl_args_has(args, "--replay")) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("hosts"),
                             "found %lld, and --replay is given, too: a run on several hosts "
                             "repeats no other one",
                             (long long)job->n_hosts);
    }
    fl_hosts_of_job(job, file);
    return FL_OK;
}

static fl_status find_hosts(const fl_args *args, fl_job *job, fl_run_hosts *h)
{
    bool engine = has_engine(h), is_file = fl_args_has(args, "--hosts");
    bool others_start = fl_args_has(args, "--key"); /* the agents, on hosts that come up */
    const fl_hosts_source source = {.name = engine    ? h->task.engine
                                            : is_file ? "--hosts"
                                                      : FL_HOSTS_OF_JOB,
                                    .listen = fl_args_value(args, "--listen"),
                                    .key = fl_args_value(args, "--key"),
                                    .names_ms = others_start ? GATHER_MS : 0};
    FL_TRY(engine ? take_tasks(args, job, h) : load_file(args, job, h->file));
    FL_TRY(fl_hosts_make(h->file, &source, job, h->hosts));
    h->hosts->by_ssh = !engine && !others_start && (!is_file || fl_args_has(args, "--ssh"));
    if (engine) {
        snprintf(h->hosts->meeting, sizeof h->hosts->meeting, "%s", h->meeting.dir);
        h->hosts->has_lost = fl_meeting_has_lost;
        job->devices.count = FL_JOB_AUTO;
    }
    return fl_hosts_take_job(h->hosts, job);
}

fl_status fl_run_hosts_take(const fl_args *args, fl_job *job, fl_run_hosts *hosts)
{
    FL_TRY(fl_alloc(sizeof *hosts->file, (void **)&hosts->file));
    FL_TRY(fl_alloc(sizeof *hosts->hosts, (void **)&hosts->hosts));
    return fl_job_locate(job, find_hosts(args, job, hosts));
}

void fl_run_hosts_fini(fl_run_hosts *hosts)
{
    fl_free(hosts->hosts);
    fl_free(hosts->file);
}
