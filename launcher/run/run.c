/* From a job to a running controller, and to the end of the run:
 *   ① check model, data and job against each other     fl_preparation_check
 *   ② count memory, measure costs, choose the plan     fl_run_plan_make
 *   ③ the run directory and the resolved job           fl_run_files_open
 *     on several hosts, whose links nothing states
 *     or whose kinds have no profile: they are
 *     measured, and then comes the plan                fl_run_survey
 *   ④ fork the workers and watch them                  fl_controller_run
 *     again from ①, from the newest snapshot or
 *     checkpoint, or with the first step, when a
 *     lost worker had what no other one has            fl_returns_run
 *   ⑤ the model and the callbacks of a program         fl_run_with, fl_run_resume
 * A run that continues takes its checkpoint between ① and ② (fl_resume_choose). */
#include "launcher/run/run.h"

#include "control/link/held_port.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/machine/host_limits.h"
#include "device/system/alloc.h"
#include "device/text/size_text.h"
#include "launcher/job/job.h"
#include "launcher/run/checks/loopback.h"
#include "launcher/run/joined/host_facts.h"
#include "launcher/run/plan/found_kinds.h"
#include "launcher/run/plan/host_options.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/plan/run_plan.h"
#include "launcher/run/plan/run_survey.h"
#include "launcher/run/returns.h"
#include "launcher/run/run_parts.h"
#include "launcher/run/start_stop.h"
#include "nn/optimizer.h"
#include "pipe/cost/time/learn.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- ④ ---- */

/* Whatever made a run fail may have slowed it before, so its times are not kept. */
static void keep_learned(const fl_preparation *p, fl_status status)
{
    fl_costs_options costs = fl_run_plan_costs(p, NULL);
    int64_t comm[2][FL_COMM_WAYS];
    fl_profile_comm_times(p->learned, comm[0]);
    fl_profile_comm_times(p->profile, comm[1]);
    bool more = memcmp(comm[0], comm[1], sizeof comm[0]) != 0 ||
                p->learned->live_steps != p->profile->live_steps ||
                memcmp(p->learned->tuned, p->profile->tuned, sizeof p->profile->tuned) != 0;
    if (more && (status == FL_OK || status == FL_ESTOPPED)) {
        fl_costs_keep(&costs, p->costs, p->learned);
    }
}

static void keep_costs(const fl_preparation *p, const char *path)
{
    fl_costs_options costs = fl_run_plan_costs(p, NULL);
    bool kept = p->resume != NULL && strcmp(p->costs->origin.from, "run") == 0 && p->n_links == 0;
    if (!kept) {
        fl_costs_keep_in(path, &costs, p->costs, p->profile);
    }
}

/* Agents find the keys in the run directory, so it is there before the plan is. */
static fl_status survey_hosts(fl_preparation *p, const fl_run_files *f, fl_run_result *result)
{
    int stopped = 0;
    fl_status status = fl_run_survey(p, f->path, f->job_text, &stopped);
    result->terminated = stopped == SIGTERM;
    return status == FL_OK ? fl_run_plan_settle(p) : status;
}

/* met: whether hosts have joined so far, and wait for the run */
static fl_status open_run(fl_preparation *p, const char *run_dir, fl_run_files *files,
                          fl_run_result *result, bool *met)
{
    fl_start_stop_begin();
    FL_TRY(fl_run_files_open(p, run_dir, files));
    FL_TRY(fl_start_stop_look(p, false, result));
    *met = fl_run_survey_is_wanted(p);
    FL_TRY(*met ? survey_hosts(p, files, result) : FL_OK);
    return fl_start_stop_look(p, *met, result);
}

/* What is to be done when all workers are ready. */
typedef struct readiness {
    fl_preparation *p;
    const char *run_dir;
} readiness;

static void take_run_over(void *context)
{
    const readiness *r = context;
    if (r->p->losses != NULL) {
        r->p->losses->trained = true;
    }
    if (r->p->resume != NULL) {
        fl_resume_take_over(r->p->resume);
        keep_costs(r->p, r->run_dir);
    }
}

static fl_status train(fl_preparation *p, fl_run_files *files, bool met, fl_run_result *result)
{
    fl_worker_birth birth;
    fl_host_facts facts;
    char options[FL_HOST_OPTIONS_BYTES];
    result->K = p->plan->K;
    result->R = p->plan->R;
    result->M = p->plan->M;
    fl_worker_context worker = fl__run_worker_of(p, files);
    fl__run_birth_of(p, &birth);
    fl_controller_options controller = fl__run_controller_of(p, files, &birth, &worker);
    readiness ready = {.p = p, .run_dir = files->path};
    controller.host_facts = &facts;
    controller.host_options = fl_host_options(p, options);
    controller.all_ready = take_run_over;
    controller.ready_context = &ready;
    *p->learned = *p->profile;
    if (p->losses != NULL) {
        snprintf(p->losses->dir, sizeof p->losses->dir, "%s", files->path);
    }
    if (p->resume == NULL) {
        keep_costs(p, files->path);
    }
    FL_TRY(p->hosts == NULL ? FL_OK : fl_host_facts_make(p, &facts));
    FL_TRY(fl_start_stop_look(p, met, result));
    FL_TRY(fl_run_start_agents(p, files->path));
    FL_TRY(p->resume == NULL ? FL_OK : fl_resume_drop_newer(p->resume));
    fl_status status = fl_controller_run(&controller, result);
    keep_learned(p, status);
    return status;
}

static fl_status start_run(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    fl_run_files files;
    fl_failure failure; /* closing may fail at something, too */
    bool met = false;
    fl_status status = open_run(p, run_dir, &files, result, &met);
    if (status == FL_OK) {
        status = train(p, &files, met, result);
    }
    fl_failure_keep(&failure, status);
    if (p->losses != NULL && fl_returns_may_follow(p->losses)) {
        fl_returns_keep_hold(p->losses, p->resume == NULL ? &files.held_fd : &p->resume->held_fd);
        p->losses->keeps_key = p->losses->keeps_key || files.has_key;
        files.has_key = false;
    } else if (p->losses != NULL && files.has_key) {
        p->losses->keeps_key = false; /* it goes with the files */
    }
    if (fl_start_stop_is_early(status, result)) {
        fl_run_files_forget(&files, p->n_ranks);
    }
    fl_run_files_close(&files);
    return fl_failure_raise(&failure);
}

void fl__run_init_result(fl_run_result *result)
{
    *result = (fl_run_result){.train_loss = NAN,
                              .test_loss = NAN,
                              .test_accuracy = NAN,
                              .validation_loss = NAN,
                              .validation_accuracy = NAN,
                              .best = NAN};
}

/* What `auto` takes of the memory that is there. */
enum { SNAPSHOT_SHARE = 4 };

/* Memory for snapshots, for as long as the run lasts. */
static fl_status open_snapshots(const fl_preparation *p)
{
    const fl_job *job = p->job;
    const fl_interval *every = &job->fault.snapshot;
    bool is_auto = every->ms == 0 && every->steps == 0 && every->epochs == 0;
    int n_moments = fl_optimizer_n_moments(job->train.optimizer);
    int64_t bytes = fl_snapshot_bytes(p->model, n_moments);
    fl_host_limits host;
    if (p->kept == NULL || fl__run_has_snapshots(p) || every->ms < 0 ||
        job->fault.on_loss == FL_ON_LOSS_STOP) {
        return FL_OK;
    }
    fl_host_limits_read("", &host);
    int64_t most = host.available_bytes / (is_auto ? SNAPSHOT_SHARE : 1);
    if (host.available_bytes > 0 && bytes > most) {
        char two[FL_SIZE_TEXT_MAX], there[FL_SIZE_TEXT_MAX];
        fl_size_text((double)bytes, two);
        fl_size_text((double)host.available_bytes, there);
        if (!is_auto) {
            return fl_fail_field(FL_EBUDGET, FL_FIELDS("fault.snapshot"),
                                 "two copies of the model's state take %s, %s of memory are "
                                 "available; allowed then: none",
                                 two, there);
        }
        if (!fl_resume_goes_back(p)) {
            fl_log(FL_LOG_INFO, "no snapshots in memory: two take %s, of %s that are available",
                   two, there);
        }
        return FL_OK;
    }
    return fl_snapshot_open(p->model, n_moments, &p->kept->memory);
}

/* Where the user wrote what a host cannot do its part with. */
static fl_status locate_refusals(const fl_job *job, const fl_run_losses *losses, fl_status status)
{
    for (int i = 1; losses != NULL && i < losses->lasting.n_hosts; i++) {
        const fl_host_record *record = &losses->lasting.hosts[i].record;
        if (status != FL_OK && record->unfit && strstr(fl_errmsg(), record->why) != NULL) {
            return fl_job_locate_quoted(job, record->why, status);
        }
    }
    return status;
}

static fl_status run_once(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    const fl_run_losses *losses = p->losses;
    fl__run_init_result(result);
    fl_status status = fl_preparation_check(p);
    if (status == FL_OK) {
        status = fl_loopback_check(p);
    }
    if (status == FL_OK && p->resume != NULL) {
        status = fl_resume_choose(p->resume, p);
        if (status == FL_OK) {
            fl_returns_settle(p->losses, p->resume);
        }
    }
    if (status == FL_OK) {
        status = fl_run_plan_make(p);
    }
    if (status == FL_OK) {
        status = open_snapshots(p);
    }
    if (status == FL_OK) {
        status = start_run(p, run_dir, result);
    }
    fl_preparation_fini(p);
    return locate_refusals(p->job, losses, fl_job_locate(p->job, status));
}

fl_status fl__run_prepared(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    fl_run_losses losses = {
        .most = (int)p->job->fault.restarts, .held_fd = -1, .held_ports = {-1, -1}};
    void *found = NULL;
    sigset_t mask;
    if (p->hosts != NULL) {
        FL_TRY(fl_alloc(sizeof *p->found, &found));
        p->found = found;
    }
    sigprocmask(SIG_BLOCK, NULL, &mask);
    bool stops = p->recorded_dir != NULL || p->job->fault.on_loss == FL_ON_LOSS_STOP;
    fl_status status = stops ? fl_returns_run_once(p, run_dir, result, &losses, run_once)
                             : fl_returns_run(p, run_dir, result, &losses, run_once);
    fl_held_ports_close(&losses.held_ports);
    fl_start_stop_end(status, result, &mask);
    fl_kept_snapshot_fini(&losses.kept);
    fl_free(found);
    return status;
}

fl_status fl_run_again(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                       const char *run_dir, const char *recorded_dir, fl_run_result *result)
{
    fl_run_result own;
    FL_TRY(fl_preparation_check_arguments(model, dataset, job));
    fl_preparation p = {
        .model = model, .dataset = dataset, .job = job, .recorded_dir = recorded_dir};
    return fl__run_prepared(&p, run_dir, result != NULL ? result : &own);
}

fl_status fl_run_in(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                    const char *run_dir, fl_run_result *result)
{
    return fl_run_again(model, dataset, job, run_dir, NULL, result);
}

fl_status fl_run_on_hosts(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                          const char *run_dir, const fl_hosts *hosts,
                          const fl_cluster_file *cluster, fl_run_result *result)
{
    fl_run_result own;
    FL_TRY(fl_preparation_check_arguments(model, dataset, job));
    fl_preparation p = {.model = model,
                        .dataset = dataset,
                        .job = job,
                        .hosts = hosts,
                        .cluster = &cluster->cluster,
                        .cluster_file = cluster};
    return fl__run_prepared(&p, run_dir, result != NULL ? result : &own);
}

fl_status fl_run_continue(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                          fl_resume *resume, const fl_hosts *hosts, const fl_cluster_file *cluster,
                          fl_run_result *result)
{
    fl_run_result own;
    FL_TRY(fl_preparation_check_arguments(model, dataset, job));
    FL_TRY(fl_resume_check_job(resume, job));
    fl_preparation p = {.model = model,
                        .dataset = dataset,
                        .job = job,
                        .resume = resume,
                        .hosts = hosts,
                        .cluster = cluster == NULL ? NULL : &cluster->cluster,
                        .cluster_file = cluster};
    return fl__run_prepared(&p, NULL, result != NULL ? result : &own);
}
