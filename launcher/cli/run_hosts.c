#include "launcher/cli/run_hosts.h"

#include "device/alloc.h"
#include "device/failure.h"
#include "launcher/job/job.h"
#include "launcher/run/hosts.h"

/* ---- what is given ---- */

fl_status fl_run_hosts_check_options(const fl_args *args)
{
    bool hosts = fl_args_has(args, "--hosts");
    if (fl_args_has(args, "--ssh") && !hosts) {
        return fl_fail(FL_EINVAL, "--ssh: an option of --hosts, which is missing; the hosts of a "
                                  "job are started by ssh without it");
    }
    return !hosts || !fl_args_has(args, "--replay")
               ? FL_OK
               : fl_fail(FL_EINVAL, "--hosts: --replay is given, too: a run on several hosts "
                                    "repeats no other one");
}

bool fl_run_hosts_are_given(const fl_args *args, const fl_job *job)
{
    return fl_args_has(args, "--hosts") || fl_args_has(args, "--listen") || job->n_hosts > 0;
}

/* ---- finding them ---- */

/* Those of --hosts, or else of the job. */
static fl_status load_file(const fl_args *args, const fl_job *job, fl_cluster_file *file)
{
    if (fl_args_has(args, "--hosts")) {
        return fl_cluster_file_load(fl_args_value(args, "--hosts"), file);
    }
    if (job->n_hosts == 0) {
        return fl_fail(
            FL_EINVAL,
            "--listen: the run has one host; allowed: with hosts in the job, or --hosts");
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

static fl_status find_hosts(const fl_args *args, fl_job *job, const fl_run_hosts *out)
{
    bool is_file = fl_args_has(args, "--hosts");
    const fl_hosts_source source = {.name = is_file ? "--hosts" : "hosts",
                                    .listen = fl_args_value(args, "--listen")};
    FL_TRY(load_file(args, job, out->file));
    FL_TRY(fl_hosts_make(out->file, &source, job, out->hosts));
    out->hosts->by_ssh = !is_file || fl_args_has(args, "--ssh");
    return fl_hosts_take_job(out->hosts, job);
}

fl_status fl_run_hosts_take(const fl_args *args, fl_job *job, fl_run_hosts *out)
{
    FL_TRY(fl_alloc(sizeof *out->file, (void **)&out->file));
    FL_TRY(fl_alloc(sizeof *out->hosts, (void **)&out->hosts));
    return fl_job_locate(job, find_hosts(args, job, out));
}

void fl_run_hosts_free(fl_run_hosts *hosts)
{
    fl_free(hosts->hosts);
    fl_free(hosts->file);
}
