#include "launcher/doctor/command_doctor.h"

#include "device/alloc.h"
#include "launcher/cli/job_context.h"
#include "launcher/doctor/doctor.h"
#include "launcher/doctor/hosts.h"
#include "launcher/job/job.h"

/* The job alone; its model and data may be what is missing. */
static fl_status load_job(const fl_args *args, fl_job *job)
{
    const char *overrides[FL_ARGS_MAX];
    int n = fl_job_context_overrides(args, overrides);
    return fl_job_load(args->operand, overrides, n, job);
}

static void look_at_host(const fl_job *job, fl_nccl_trial *nccl, fl_findings *findings)
{
    fl_doctor_look_at_program(findings);
    fl_doctor_look_at_machine(findings);
    fl_doctor_look_at_clock(findings);
    fl_doctor_look_at_links(findings);
    fl_doctor_look_at_folders(job->run.dir, findings);
    fl_doctor_look_at_gpus(job, nccl, findings);
}

static void refuse_job(const char *advice, fl_findings *findings)
{
    fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "job", "%s", fl_errmsg());
    fl_finding_advise(f, "%s", advice);
}

static void look_at_all(const fl_args *args, fl_job_context *w, fl_findings *findings)
{
    bool loaded = false;
    fl_nccl_trial nccl = {.version = 0};
    fl_job_defaults(&w->job);
    if (args->operand != NULL && load_job(args, &w->job) != FL_OK) {
        refuse_job("change the job; frostline schema lists its fields", findings);
    } else {
        loaded = args->operand != NULL;
    }
    look_at_host(&w->job, &nccl, findings);
    if (loaded && fl_job_context_make(w) != FL_OK) {
        refuse_job("put the file there, or change the path in the job", findings);
    } else if (loaded) {
        fl_doctor_look_at_job(w->model, &w->dataset, &w->job, &nccl, findings);
    }
}

static int exit_of(const fl_findings *findings)
{
    return fl_findings_verdict(findings) == FL_VERDICT_ERROR ? FL_EXIT_BAD_INPUT : FL_EXIT_DONE;
}

static fl_status print_findings(const fl_args *args, const fl_findings *findings)
{
    if (fl_args_has(args, "--json")) {
        return fl_findings_print_json(findings, stdout);
    }
    fl_findings_print(findings, stdout);
    return FL_OK;
}

/* own: of this host, the first of the file. */
static fl_status look_at_file(const fl_args *args, const fl_findings *own, int *code)
{
    fl_cluster_file *file = NULL;
    fl_doctor_host *hosts = NULL;
    fl_status status = fl_alloc(sizeof *file, (void **)&file);
    status = status == FL_OK ? fl_cluster_file_load(fl_args_value(args, "--hosts"), file) : status;
    int n = status == FL_OK ? file->cluster.n_hosts : 0;
    status = status == FL_OK ? fl_alloc_array((size_t)n, sizeof *hosts, (void **)&hosts) : status;
    if (status == FL_OK) {
        hosts[0].findings = *own;
        fl_doctor_look_at_hosts(file, hosts);
        for (int i = 1; i < n; i++) {
            int other = exit_of(&hosts[i].findings);
            *code = other != FL_EXIT_DONE ? other : *code;
        }
        if (fl_args_has(args, "--json")) {
            status = fl_doctor_print_hosts_json(hosts, n, stdout);
        } else {
            fl_doctor_print_hosts(hosts, n, stdout);
        }
        fl_doctor_hosts_fini(hosts, n);
    }
    fl_free(hosts);
    fl_free(file);
    return status;
}

static int run_doctor(const fl_args *args)
{
    fl_job_context w = {0};
    fl_findings *findings = NULL;
    if (args->operand == NULL && fl_args_has(args, "--set")) {
        fl_complain("frostline doctor: --set changes a job, and JOB.yaml is missing");
        return FL_EXIT_BAD_INPUT;
    }
    fl_status status = fl_alloc(sizeof *findings, (void **)&findings);
    int code = FL_EXIT_DONE;
    if (status == FL_OK) {
        look_at_all(args, &w, findings);
        code = exit_of(findings);
        status = fl_args_has(args, "--hosts") ? look_at_file(args, findings, &code)
                                              : print_findings(args, findings);
    }
    fl_job_context_fini(&w);
    fl_free(findings);
    return status == FL_OK ? code : fl_job_context_finish(status);
}

const fl_cli_command fl_cli_command_doctor = {
    .name = "doctor",
    .operand = "JOB.yaml",
    .operand_is_optional = true,
    .summary = "Check what runs need of this host, and what one job needs.",
    .details = "Looks at versions, processors, memory, limits, clocks, sockets, shared memory,\n"
               "folders and GPUs; with JOB.yaml also at its model, its data, its plan, its\n"
               "memory and its ports. Each line is ok, a warning (runs work, but slower, or not\n"
               "all of them) or an error, with what was found; a line below it says what to do.\n"
               "Nothing is trained and no file is left. Ends with 2 if there is an error, else\n"
               "with 0.\n"
               "With --hosts, ssh starts the same checks on the other hosts of FILE, and their\n"
               "versions and clocks are compared with this host's.\n",
    .options = {{"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"},
                {"--hosts", 0, "FILE", "check the hosts of FILE, too, this one the first"},
                {"--json", 0, NULL, "for programs"}},
    .run = run_doctor,
};
