/* frostline run and frostline validate: the same way, to its end or to the last check. */
#include "control/agent/process/signals.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "device/text/shown_text.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/commands/run_continue.h"
#include "launcher/cli/hosts/run_hosts.h"
#include "launcher/cli/job_context.h"
#include "launcher/cli/output_path.h"
#include "launcher/job/job.h"
#include "launcher/job/text/number.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/run.h"
#include "launcher/run/runs/recording_job.h"
#include "launcher/run/runs/run_ending.h"
#include "launcher/run/runs/runs.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define RESUME_OPTION                                                                              \
    {                                                                                              \
        "--resume", 0, "RUN", "continue this run, which was interrupted"                           \
    }
static const fl_cli_option resume_option = RESUME_OPTION;

/* ---- --resume ---- */

static fl_status refuse_with(const fl_args *args, const char *what, const char *why)
{
    bool given = what == NULL ? args->operand != NULL : fl_args_has(args, what);
    return given ? fl_fail(FL_EINVAL, "--resume: %s is given, too: %s",
                           what == NULL ? args->operand : what, why)
                 : FL_OK;
}

/* "500" of --checkpoint 500. */
static fl_status read_wanted(const fl_args *args, int64_t *wanted)
{
    const char *text = fl_args_value(args, "--checkpoint");
    char shown[FL_SHOWN_MAX];
    *wanted = -1;
    return text == NULL || (fl_read_integer(text, wanted) && *wanted >= 0)
               ? FL_OK
               : fl_fail(FL_EINVAL, "--checkpoint: found %s, allowed: a number of steps",
                         fl_shown(text, strlen(text), shown));
}

static fl_status open_resume(const fl_args *args, fl_resume *resume)
{
    char path[PATH_MAX];
    int64_t wanted;
    FL_TRY(refuse_with(args, NULL, "the job is the run's; change fields of it with --set"));
    FL_TRY(refuse_with(args, "--replay", "a run is continued, or repeated"));
    FL_TRY(refuse_with(args, "--run-dir", "the run continues in its own directory"));
    FL_TRY(read_wanted(args, &wanted));
    fl_status status = fl_run_find_dir(fl_args_value(args, "--resume"), path);
    if (status != FL_OK) {
        return fl_fail(status, "--resume: %s", fl_errmsg());
    }
    status = fl_resume_open(path, resume);
    resume->wanted = wanted;
    return status;
}

/* Batch systems learn from the code that the run can be continued. */
static int finish_run(fl_status status, const fl_run_result *result)
{
    int code = fl_job_context_finish(status);
    return status == FL_ESTOPPED && result->terminated ? FL_EXIT_TERMINATED : code;
}

/* On the hosts that are given now, whichever the run had before: its job has the number of devices
 * that those had. */
static fl_status take_job(const fl_args *args, const fl_resume *resume, fl_job *job,
                          fl_run_hosts *hosts)
{
    const char *overrides[FL_ARGS_MAX + 1] = {"devices.count=auto"};
    int n = fl_job_context_overrides(args, overrides + 1); /* the last of several holds */
    FL_TRY(fl_resume_load_job(resume, overrides, n + 1, job));
    if (!fl_run_hosts_are_given(args, job, hosts)) {
        return fl_resume_load_job(resume, overrides + 1, n, job);
    }
    return fl_run_hosts_take(args, job, hosts);
}

static fl_status continue_run(const fl_args *args, fl_resume *resume, fl_job_context *w,
                              fl_run_hosts *hosts, fl_run_result *result)
{
    FL_TRY(open_resume(args, resume));
    if (resume->before.model.kind == FL_MODEL_PROGRAM) {
        return fl_fail(FL_EINVAL,
                       "--resume: %s: a program gave the model to fl_run; that program continues "
                       "the run with fl_run_resume",
                       resume->dir);
    }
    FL_TRY(take_job(args, resume, &w->job, hosts));
    FL_TRY(fl_resume_check_job(resume, &w->job)); /* before data of another job are read */
    FL_TRY(fl_job_context_make(w));
    return fl_run_continue(w->model, &w->dataset, &w->job, resume, hosts->hosts,
                           hosts->hosts == NULL ? NULL : hosts->file, result);
}

static int resume_run(const fl_args *args, fl_run_hosts *hosts)
{
    fl_job_context w = {0};
    fl_resume *resume = NULL;
    fl_run_result result = {0};
    fl_status status = fl_alloc(sizeof *resume, (void **)&resume);
    if (status == FL_OK) {
        status = continue_run(args, resume, &w, hosts, &result);
    }
    int code = finish_run(status, &result);
    if (resume != NULL) {
        fl_resume_close(resume);
    }
    fl_free(resume);
    fl_job_context_fini(&w);
    return code;
}

/* ---- run ---- */

static fl_status run_new(const fl_args *args, const char *recorded_dir, fl_job_context *w,
                         fl_run_hosts *hosts, fl_run_result *result)
{
    const char *run_dir = fl_args_value(args, "--run-dir");
    if (!fl_run_hosts_are_given(args, &w->job, hosts)) {
        return fl_run_again(w->model, &w->dataset, &w->job, run_dir, recorded_dir, result);
    }
    FL_TRY(fl_run_hosts_take(args, &w->job, hosts));
    return fl_run_on_hosts(w->model, &w->dataset, &w->job, run_dir, hosts->hosts, hosts->file,
                           result);
}

/* The job of the command line, or that of the run which is repeated. */
static fl_status load_and_run(const fl_args *args, fl_job_context *w, fl_run_hosts *hosts,
                              fl_run_result *result)
{
    char recorded_path[PATH_MAX], recorded_job[PATH_MAX + 16];
    fl_args with_job = *args;
    const char *recorded = fl_args_value(args, "--replay");
    if (args->operand == NULL && recorded == NULL) {
        return fl_fail(FL_EINVAL, "frostline run: JOB.yaml is missing; see frostline run --help");
    }
    if (recorded != NULL) {
        FL_TRY(fl_run_find_dir(recorded, recorded_path));
        recorded = recorded_path;
        FL_TRY(fl_recording_check_job_file(recorded));
    }
    if (args->operand == NULL) {
        snprintf(recorded_job, sizeof recorded_job, "%s/job.yaml", recorded);
        with_job.operand = recorded_job;
    }
    FL_TRY(fl_job_context_init(&with_job, w));
    return run_new(args, recorded, w, hosts, result);
}

static int run_or_resume(const fl_args *args, fl_run_hosts *hosts)
{
    fl_job_context w = {0};
    fl_run_result result = {0};
    if (fl_args_has(args, "--resume")) {
        return resume_run(args, hosts);
    }
    if (fl_args_has(args, "--checkpoint")) {
        fl_complain("frostline run: --checkpoint is an option of --resume");
        return FL_EXIT_BAD_INPUT;
    }
    fl_status status = load_and_run(args, &w, hosts, &result);
    fl_job_context_fini(&w);
    return finish_run(status, &result);
}

/* A scheduler may start the run again while the process before this one ends it. */
static void await_former(const fl_args *args, fl_run_hosts *hosts)
{
    char path[PATH_MAX];
    bool is_task = hosts->task.engine != NULL; /* else a signal ends this process at once */
    const char *dir = fl_args_has(args, "--continue") ? fl_args_value(args, "--run-dir")
                      : fl_args_has(args, "--resume") &&
                              fl_run_find_dir(fl_args_value(args, "--resume"), path) == FL_OK
                          ? path
                          : NULL;
    if (dir != NULL) {
        hosts->stopped_by =
            fl_run_await_end(dir, FL_RUN_ENDING_MS, is_task ? fl_signals_take_stop : NULL);
    }
}

static int run_or_continue(const fl_args *args, fl_run_hosts *hosts)
{
    fl_run_begin begin = FL_RUN_BEGIN_NEW;
    fl_args other = *args;
    char job[PATH_MAX] = "";
    await_former(args, hosts);
    if (hosts->stopped_by != 0) {
        return FL_EXIT_STOPPED;
    }
    fl_status status =
        fl_args_has(args, "--continue") ? fl_run_continue_look(args, &begin, job) : FL_OK;
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return fl_exit_of(status);
    }
    if (begin == FL_RUN_BEGIN_OVER) {
        char shown[FL_SHOWN_PATH_BYTES];
        fl_log(FL_LOG_INFO, "--continue: the run in %s has finished",
               fl_text_shown(fl_args_value(args, "--run-dir"), shown, sizeof shown));
        return FL_EXIT_DONE;
    }
    if (begin == FL_RUN_BEGIN_NEW) {
        other.operand = job[0] != '\0' ? job : args->operand;
    } else {
        fl_run_continue_args(args, &resume_option, &other);
    }
    return run_or_resume(&other, hosts);
}

/* One of several tasks of an engine. The others are to be told of its end. */
static int run_task(const fl_args *args, fl_run_hosts *hosts)
{
    fl_signals_hold_stops();
    fl_status status = fl_run_hosts_meet(args, hosts);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return fl_exit_of(status);
    }
    if (hosts->task.rank > 0) {
        return fl_run_hosts_serve(args, hosts);
    }
    int code = run_or_continue(args, hosts);
    if (hosts->stopped_by != 0) {
        fl_log(FL_LOG_INFO, "stopped before the training began");
    }
    code = hosts->stopped_by == SIGTERM ? FL_EXIT_TERMINATED : code;
    fl_run_hosts_end(hosts, code);
    return code;
}

/* A signal waits until it is known whether this is a task of an engine, to which others wait. */
static int run_job(const fl_args *args)
{
    fl_run_hosts hosts;
    sigset_t stops, before;
    const char *run_dir = fl_args_value(args, "--run-dir");
    if (run_dir != NULL && fl_output_folder_check("--run-dir", run_dir) != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return FL_EXIT_BAD_INPUT;
    }
    fl_signals_stops(&stops);
    sigprocmask(SIG_BLOCK, &stops, &before);
    fl_status status = fl_run_hosts_init(args, &hosts);
    bool is_task = status == FL_OK && hosts.task.engine != NULL;
    if (!is_task) {
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    int code = FL_EXIT_BAD_INPUT;
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    } else {
        code = is_task ? run_task(args, &hosts) : run_or_continue(args, &hosts);
    }
    fl_run_hosts_fini(&hosts);
    return code;
}

/* "  hosts  a, 2 devices; b, 2 devices, memory 1.0 GiB, speed 0.5" */
static void print_hosts(const fl_run_hosts *hosts)
{
    char devices[FL_COUNT_BYTES], stated[FL_HOST_STATED_MAX];
    for (int i = 0; hosts->hosts != NULL && i < hosts->hosts->n; i++) {
        const fl_host *host = &hosts->hosts->host[i];
        fl_cluster_file_stated(hosts->file, i, stated);
        printf("%s%s, %s%s%s", i == 0 ? "  hosts  " : "; ", host->name,
               fl_count(host->n, "device", devices), stated[0] == '\0' ? "" : ", stated: ", stated);
    }
    printf(hosts->hosts == NULL ? "" : "\n");
}

static void print_good(const char *path, const fl_job_context *w)
{
    const fl_dataset *d = &w->dataset;
    int64_t all = d->ops->count(d->self, FL_TRAIN);
    int64_t used = w->job.data.samples > 0 ? w->job.data.samples : all;
    int64_t n_validation = fl_job_n_validation(&w->job, used);
    char of_all[48] = "", to_validate[48] = "", shown[FL_SHELL_PATH_BYTES];
    used -= n_validation;
    if (n_validation > 0) {
        snprintf(to_validate, sizeof to_validate, ", %" PRId64 " to validate on", n_validation);
    }
    if (used < all) {
        snprintf(of_all, sizeof of_all, " (of %" PRId64 ")", all);
    }
    printf("%s: good\n", fl_shell_shown(path, shown, sizeof shown));
    char layers[FL_COUNT_BYTES], blocks[FL_COUNT_BYTES], params[FL_COUNT_BYTES];
    printf("  model  %s, %s in %s, %s\n", fl_model_name(w->model),
           fl_count(fl_model_n_layers(w->model), "layer", layers),
           fl_count(fl_model_n_blocks(w->model), "block", blocks),
           fl_count(fl_model_n_params(w->model), "parameter", params));
    printf("  data   %s, %" PRId64 " samples%s to train on%s, %" PRId64 " to test on\n",
           d->ops->kind, used, of_all, to_validate, d->ops->count(d->self, FL_TEST));
}

/* As run_new, up to the first worker. */
static fl_status check_job(const fl_args *args, fl_job_context *w, fl_run_hosts *hosts)
{
    FL_TRY(fl_job_context_init(args, w));
    if (w->job.n_hosts > 0) {
        FL_TRY(fl_run_hosts_take(args, &w->job, hosts));
    }
    return fl_check_on_hosts(w->model, &w->dataset, &w->job, hosts->hosts, hosts->file);
}

static int validate(const fl_args *args)
{
    fl_job_context w = {0};
    fl_run_hosts hosts = {.file = NULL}; /* of the job: an engine has more to say when it starts */
    fl_status status = check_job(args, &w, &hosts);
    if (status == FL_OK) {
        print_good(args->operand, &w);
        print_hosts(&hosts);
    }
    fl_run_hosts_fini(&hosts);
    fl_job_context_fini(&w);
    return fl_job_context_finish(status);
}

const fl_cli_command fl_cli_command_run = {
    .name = "run",
    .is_stopped = true,
    .operand = "JOB.yaml",
    .operand_is_optional = true,
    .summary = "Train the model that a job file describes.",
    .details = "Starts one worker process per device, shows the progress, and writes the run's\n"
               "files into a run directory. Ctrl-C ends the run after the current step. A second\n"
               "Ctrl-C ends it at once. SIGTERM does the same, with exit code 5.\n"
               "\n"
               "--replay repeats every decision of an earlier run at its step, so that both runs\n"
               "are equal to the last bit on the same hardware. Without JOB.yaml, the job of the\n"
               "earlier run is used.\n"
               "--resume continues an interrupted run in its own directory, from its newest\n"
               "whole checkpoint. --set train.epochs=N makes the run longer.\n"
               "--continue is for batch scripts that may be started again. It resumes the run\n"
               "in --run-dir DIR, or begins it if there is none. It leaves a finished run as it\n"
               "is.\n"
               "\n"
               "If the job names hosts, this host must be the first of them. The run starts\n"
               "`frostline agent` on each other host by ssh. With --hosts FILE, the run waits\n"
               "for agents that you start, or starts them itself with --ssh. Under srun or\n"
               "mpirun, start one task on each host: task 0 is the first host, and the other\n"
               "tasks are agents.\n",
    .options = {{"--run-dir", 0, "DIR", "the run directory; default: RUN.DIR/NAME-DATE-TIME"},
                {"--replay", 0, "RUN", "repeat the decisions of this run"},
                RESUME_OPTION,
                {"--continue", 0, NULL, "continue the run in --run-dir DIR, if there is one"},
                {"--checkpoint", 0, "STEP", "continue from the checkpoint after this many steps"},
                {"--hosts", 0, "FILE", "train on these hosts, not the job's; this one is first"},
                {"--listen", 0, "ADDRESS",
                 "agents join at tcp://ADDRESS:PORT; default: a free port"},
                {"--ssh", 0, NULL, "with --hosts: start the agents by ssh"},
                {"--key", 0, "FILE", "head.key of frostline manifest; starts no agents"},
                {"--interface", 0, "NAME", "under Slurm or mpirun: the network between hosts"},
                {"--grace", 0, "SECONDS", "under Slurm or mpirun: --grace of each agent"},
                {"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"}},
    .run = run_job,
    .result_is_files = true,
};

const fl_cli_command fl_cli_command_validate = {
    .name = "validate",
    .operand = "JOB.yaml",
    .summary = "Check a job file, its model, data and plan, and start nothing.",
    .details = "Makes every check that `run` makes before it starts a worker. If the job names\n"
               "hosts, this host must be the first of them, as for `run`.\n",
    .options = {{"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"}},
    .run = validate,
};
