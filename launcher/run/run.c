/* From a job to a running controller, and to the end of the run:
 *   ① check model, data and job against each other     fl_preparation_check
 *   ② count memory, measure costs, choose the plan     fl_run_plan_make
 *   ③ the run directory and the resolved job           fl_run_dir_open
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

#include "device/alloc.h"
#include "device/failure.h"
#include "device/host_limits.h"
#include "device/log.h"
#include "launcher/hf/hf_files.h"
#include "launcher/job/job.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/joined/host_facts.h"
#include "launcher/run/model/model_config.h"
#include "launcher/run/plan/found_kinds.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/plan/room.h"
#include "launcher/run/plan/run_dir.h"
#include "launcher/run/plan/run_plan.h"
#include "launcher/run/plan/run_survey.h"
#include "launcher/run/returns.h"
#include "launcher/run/runs/checkpoint_folder.h"
#include "launcher/run/runs/runs.h"
#include "launcher/worker/worker.h"
#include "nn/optimizer.h"
#include "pipe/cost/learn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What a run leaves behind, open while it trains. */
typedef struct run_files {
    char path[PATH_MAX]; /* of the run directory */
    int dir_fd, held_fd; /* the directory; job.yaml, locked */
    int owner_fd;        /* of the folder of checkpoints: its owner, locked */
    fl_checkpoint_store store;
    char *job_text, *config; /* job.yaml as a checkpoint keeps it; text of config.json */
    fl_model_file model;
    fl_snapshot_view from; /* of a run that goes back to its snapshot */
    bool has_key;          /* the directory has the keys of a run on several hosts */
    bool is_new;           /* the directory has job.yaml of a run that begins */
} run_files;

static fl_status open_dir(const fl_preparation *p, const char *run_dir, run_files *f)
{
    if (p->resume == NULL) {
        return fl_run_dir_open(p->job, run_dir, f->path, &f->dir_fd);
    }
    snprintf(f->path, sizeof f->path, "%s", p->resume->dir);
    f->dir_fd = fcntl(p->resume->dir_fd, F_DUPFD_CLOEXEC, 0);
    return f->dir_fd >= 0 ? FL_OK : fl_fail(FL_EIO, "%s: %s", f->path, strerror(errno));
}

/* From here on the directory holds this run; the lock on one that continues is the resume's. */
static fl_status begin_dir(const fl_preparation *p, run_files *f)
{
    if (p->resume != NULL) {
        return fl_resume_begin(p->resume, p);
    }
    FL_TRY(fl_run_dir_write_job(p, f->dir_fd));
    f->is_new = true;
    f->held_fd = fl_run_hold(f->dir_fd);
    return FL_OK;
}

static fl_status make_model_file(const fl_preparation *p, run_files *f)
{
    fl_status status =
        fl_model_file_create(p->model, f->config, f->dir_fd, p->resume != NULL, &f->model);
    if (status != FL_OK) {
        return fl_within(status, "%s", f->path);
    }
    const char *inputs = fl_hf_files_of_job(p->job);
    return inputs[0] != '\0' ? fl_hf_files_copy(inputs, f->model.folder_fd) : FL_OK;
}

/* A run that goes back to a snapshot may have written no checkpoint: its folder, empty, is gone. */
static const char *folder_to_continue(const fl_preparation *p)
{
    const fl_resume *r = p->resume;
    bool may_be_gone = r != NULL && (r->returns || r->begins_again);
    return r == NULL || (may_be_gone && access(r->checkpoints, F_OK) != 0) ? NULL : r->checkpoints;
}

/* job.yaml is last: without room for the model, there is no run. */
static fl_status open_files(const fl_preparation *p, const char *run_dir, run_files *f)
{
    const char *continues = folder_to_continue(p);
    *f = (run_files){.dir_fd = -1, .held_fd = -1, .owner_fd = -1};
    FL_TRY(open_dir(p, run_dir, f));
    FL_TRY(
        fl_checkpoint_folder_open(p->job, f->path, f->dir_fd, continues, &f->store, &f->owner_fd));
    if (p->resume == NULL) {
        fl_room_check_run(p, f->path, f->dir_fd, f->store.dir_fd);
    }
    FL_TRY(fl_checkpoint_job_text(p->job, &f->job_text));
    FL_TRY(fl_model_config_text(p->model, p->whole, p->job, &f->config));
    f->store.config = f->config;
    if (p->job->run.save_model) {
        FL_TRY(make_model_file(p, f));
    }
    if (p->hosts != NULL) {
        f->has_key = true;
        FL_TRY(fl_hosts_write_key(p->hosts, f->dir_fd));
    }
    return begin_dir(p, f);
}

static void close_files(run_files *f)
{
    if (f->is_new) {
        fl_run_dir_forget_job(f->dir_fd);
    }
    if (f->held_fd >= 0) {
        close(f->held_fd);
    }
    if (f->model.model != NULL && f->model.folder_fd >= 0 &&
        faccessat(f->model.folder_fd, FL_MODEL_FILE, F_OK, 0) != 0) {
        fl_hf_files_remove(f->model.folder_fd);
    }
    fl_model_file_fini(&f->model);
    if (f->dir_fd >= 0) {
        if (f->has_key) {
            fl_hosts_remove_key(f->dir_fd);
        }
        fl_checkpoint_folder_close(f->dir_fd, &f->store, f->owner_fd);
        close(f->dir_fd);
    }
    free(f->job_text);
    fl_free(f->config);
}

static void keep_costs(const fl_preparation *p, const char *path)
{
    fl_costs_options costs = fl_run_plan_costs(p, NULL);
    bool kept = p->resume != NULL && strcmp(p->costs->origin.from, "run") == 0;
    if (!kept) {
        fl_costs_keep_in(path, &costs, p->costs, p->profile);
    }
}

static bool has_snapshots(const fl_preparation *p)
{
    return p->kept != NULL && p->kept->memory.slots != NULL;
}

static bool returns(const fl_preparation *p)
{
    return p->resume != NULL && p->resume->returns;
}

static fl_worker_context worker_of(fl_preparation *p, run_files *f)
{
    const fl_interval *every = &p->job->checkpoint.every;
    if (returns(p)) {
        f->from = (fl_snapshot_view){.snapshot = &p->kept->memory, .slot = p->kept->slot};
    }
    return (fl_worker_context){.model = p->model,
                               .dataset = p->dataset,
                               .job = p->job,
                               .cores = &p->cores,
                               .host = p->hosts == NULL ? NULL : &p->hosts->host[0],
                               .n_head = p->hosts == NULL ? 0 : p->hosts->host[0].n,
                               .apart = p->hosts != NULL && !p->job->run.shared,
                               .keys = p->hosts == NULL ? NULL : &p->hosts->keys,
                               .devices = &p->devices,
                               .nccl = &p->nccl,
                               .algorithms = p->costs->algorithms,
                               .activations = p->activations,
                               .due = &p->due,
                               .profile = p->profile,
                               .batches = p->batches,
                               .dir_fd = f->dir_fd,
                               .init = &p->init,
                               .saved_fd = fl_resume_has_state(p) ? &p->resume->folder_fd : NULL,
                               .snapshot = has_snapshots(p) ? &p->kept->memory : NULL,
                               .from = returns(p) ? &f->from : NULL,
                               .store = &f->store,
                               .checkpoints =
                                   every->ms > 0 || every->steps > 0 || every->epochs > 0,
                               .model_file = p->job->run.save_model ? &f->model : NULL,
                               .n_samples = p->n_samples,
                               .n_validation = p->n_validation,
                               .n_steps = p->n_steps};
}

/* What operators want of a run that goes back. */
static void keep_wishes(const fl_preparation *p, fl_worker_birth *birth)
{
    const fl_lasting *l = p->losses == NULL ? NULL : &p->losses->lasting;
    if (l != NULL && l->any) {
        birth->paused = l->paused;
        birth->lr_factor = l->lr / p->job->train.lr;
        birth->end_step = l->end_step < birth->end_step ? l->end_step : birth->end_step;
    }
}

static void birth_of(const fl_preparation *p, fl_worker_birth *birth)
{
    if (!fl_resume_has_state(p)) {
        fl_worker_birth_first(p->plan, p->n_steps, birth);
        keep_wishes(p, birth);
        return;
    }
    *birth = p->resume->start;
    birth->plan = *p->plan;
    memcpy(birth->parked, p->resume->checkpoint->controller.parked, sizeof birth->parked);
    memcpy(birth->since, p->resume->checkpoint->controller.since, sizeof birth->since);
    keep_wishes(p, birth);
}

static fl_controller_options controller_of(fl_preparation *p, run_files *f,
                                           const fl_worker_birth *birth, fl_worker_context *worker)
{
    return (fl_controller_options){.job = p->job,
                                   .model = p->model,
                                   .dataset = p->dataset,
                                   .plan = p->plan,
                                   .birth = birth,
                                   .plan_input = &p->input,
                                   .costs = &p->costs->origin,
                                   .learned = p->learned,
                                   .candidates = p->candidates,
                                   .n_candidates = p->n_candidates,
                                   .activations = p->activations,
                                   .no_cache_why = p->no_cache_why,
                                   .metrics = p->listens ? &p->metrics : NULL,
                                   .run_dir = f->path,
                                   .dir_fd = f->dir_fd,
                                   .job_text = f->job_text,
                                   .checkpoints = &f->store,
                                   .resume = fl_resume_has_state(p) ? p->resume->checkpoint : NULL,
                                   .returns = returns(p),
                                   .snapshot = p->kept,
                                   .recovered = p->recovered,
                                   .lasting = p->losses == NULL ? NULL : &p->losses->lasting,
                                   .find_return = p->losses == NULL ? NULL : fl_returns_find,
                                   .begins_again = p->losses == NULL ? NULL : fl_returns_may_follow,
                                   .find_context = p->losses,
                                   .held_port = p->losses == NULL ? NULL : &p->losses->held_port,
                                   .origin = p->resume == NULL ? NULL : &p->resume->origin,
                                   .model_file = worker->model_file,
                                   .lead = p->due.lead,
                                   .recording = p->due.recording,
                                   .n_devices = p->n_workers,
                                   .hosts = p->hosts,
                                   .links = p->links,
                                   .n_links = p->n_links,
                                   .starters = p->starters,
                                   .devices = &p->devices,
                                   .kernels = fl_preparation_kernels(p),
                                   .n_samples = p->n_samples,
                                   .n_validation = p->n_validation,
                                   .n_steps = p->n_steps,
                                   .n_epochs = p->job->train.epochs,
                                   .callbacks = p->callbacks,
                                   .worker = fl_worker_run,
                                   .context = worker};
}

/* Agents find the keys in the run directory, so it is there before the plan is. */
static fl_status survey_hosts(fl_preparation *p, const run_files *f, fl_run_result *result)
{
    int stopped = 0;
    int job_fd = p->resume == NULL ? f->held_fd : p->resume->held_fd;
    fl_status status = fl_run_survey(p, f->path, job_fd, &stopped);
    result->terminated = stopped == SIGTERM;
    return status == FL_OK ? fl_run_plan_settle(p) : status;
}

static fl_status start_run(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    run_files files;
    fl_failure failure; /* closing may fail at something, too */
    fl_status status = open_files(p, run_dir, &files);
    if (status == FL_OK && fl_run_survey_is_wanted(p)) {
        status = survey_hosts(p, &files, result);
    }
    if (status == FL_OK) {
        result->K = p->plan->K;
        result->R = p->plan->R;
        result->M = p->plan->M;
        fl_worker_context worker = worker_of(p, &files);
        fl_worker_birth birth;
        birth_of(p, &birth);
        fl_controller_options controller = controller_of(p, &files, &birth, &worker);
        fl_host_facts facts;
        controller.host_facts = &facts;
        *p->learned = *p->profile;
        if (p->losses != NULL) {
            snprintf(p->losses->dir, sizeof p->losses->dir, "%s", files.path);
        }
        keep_costs(p, files.path);
        status = p->hosts == NULL ? FL_OK : fl_host_facts_make(p, &facts);
        if (status == FL_OK) {
            status = fl_run_start_agents(p, files.path);
        }
        if (status == FL_OK) {
            status = fl_controller_run(&controller, result);
            keep_learned(p, status);
        }
    }
    fl_failure_keep(&failure, status);
    if (p->losses != NULL && fl_returns_may_follow(p->losses)) {
        fl_returns_keep_hold(p->losses, p->resume == NULL ? &files.held_fd : &p->resume->held_fd);
    }
    close_files(&files);
    return fl_failure_raise(&failure);
}

/* The result of a run that has not begun. */
static void init_result(fl_run_result *result)
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
    if (p->kept == NULL || has_snapshots(p) || every->ms < 0 ||
        job->fault.on_loss == FL_ON_LOSS_STOP) {
        return FL_OK;
    }
    fl_host_limits_read("", &host);
    int64_t most = host.available_bytes / (is_auto ? SNAPSHOT_SHARE : 1);
    if (host.available_bytes > 0 && bytes > most) {
        double gib = (double)bytes / (1 << 30), there = (double)host.available_bytes / (1 << 30);
        if (!is_auto) {
            return fl_fail_field(FL_EBUDGET, FL_FIELDS("fault.snapshot"),
                                 "two copies of the model's state take %.1f GiB, %.1f GiB of "
                                 "memory are available; allowed then: none",
                                 gib, there);
        }
        if (!fl_resume_goes_back(p)) {
            fl_log(FL_LOG_INFO,
                   "no snapshots in memory: two take %.1f GiB, of %.1f GiB that are available", gib,
                   there);
        }
        return FL_OK;
    }
    return fl_snapshot_open(p->model, n_moments, &p->kept->memory);
}

static fl_status run_once(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    init_result(result);
    fl_status status = fl_preparation_check(p);
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
    return fl_job_locate(p->job, status);
}

static fl_status run_prepared(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    fl_run_losses losses = {.most = (int)p->job->fault.restarts, .held_fd = -1, .held_port = -1};
    void *found = NULL;
    if (p->hosts != NULL) {
        FL_TRY(fl_alloc(sizeof *p->found, &found));
        p->found = found;
    }
    bool stops = p->recorded_dir != NULL || p->job->fault.on_loss == FL_ON_LOSS_STOP;
    fl_status status = stops ? run_once(p, run_dir, result)
                             : fl_returns_run(p, run_dir, result, &losses, run_once);
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
    return run_prepared(&p, run_dir, result != NULL ? result : &own);
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
    return run_prepared(&p, run_dir, result != NULL ? result : &own);
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
    return run_prepared(&p, NULL, result != NULL ? result : &own);
}

/* ---- ⑤ ---- */

/* The record of the run does not claim that the model is one of the job's. */
static fl_status run_program(fl_preparation *p, fl_run_result *result)
{
    fl_job *own = NULL;
    FL_TRY(fl_alloc(sizeof *own, (void **)&own));
    *own = *p->job;
    own->model.kind = FL_MODEL_PROGRAM;
    own->model.plugin[0] = 0;
    own->data.kind = FL_DATA_PROGRAM;
    p->job = own;
    fl_status status = p->resume == NULL ? FL_OK : fl_resume_check_program(p->resume, own);
    if (status == FL_OK) {
        status = run_prepared(p, NULL, result);
    }
    fl_free(own);
    return status;
}

static fl_status resume_program(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    fl_resume *resume = NULL;
    FL_TRY(fl_alloc(sizeof *resume, (void **)&resume));
    fl_status status = fl_resume_open(run_dir, resume);
    if (status == FL_OK) {
        p->resume = resume;
        status = run_program(p, result);
    }
    fl_failure failure;
    fl_failure_keep(&failure, status);
    fl_resume_close(resume);
    fl_free(resume);
    return fl_failure_raise(&failure);
}

/* Whether a run of this process is in progress: one at a time has the signals and the terminal. */
static atomic_flag in_progress = ATOMIC_FLAG_INIT;

/* run_dir: of the run to continue; NULL: a new one begins. */
static fl_status run_alone(fl_preparation *p, const char *run_dir, const fl_callbacks *callbacks,
                           fl_run_result *result)
{
    if (atomic_flag_test_and_set(&in_progress)) {
        return fl_fail(FL_EBUSY, "a run of this process is in progress: start another one when "
                                 "it has returned; a callback must not call fl_run");
    }
    fl_run_result own;
    fl_failure failure; /* the callback may fail at something, too */
    fl_run_result *r = result != NULL ? result : &own;
    init_result(r); /* on_end gets it even if memory for the job runs out */
    p->callbacks = callbacks;
    fl_status status = fl_preparation_check_arguments(p->model, p->dataset, p->job);
    if (status == FL_OK) {
        status = run_dir == NULL ? run_program(p, r) : resume_program(p, run_dir, r);
    }
    fl_failure_keep(&failure, status);
    if (callbacks != NULL && callbacks->on_end != NULL) {
        callbacks->on_end(callbacks->context, status, r);
    }
    atomic_flag_clear(&in_progress);
    return fl_failure_raise(&failure);
}

fl_status fl_run_with(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_callbacks *callbacks, fl_run_result *result)
{
    fl_preparation p = {.model = model, .dataset = dataset, .job = job};
    return run_alone(&p, NULL, callbacks, result);
}

fl_status fl_run_resume(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                        const char *run_dir, const fl_callbacks *callbacks, fl_run_result *result)
{
    fl_preparation p = {.model = model, .dataset = dataset, .job = job};
    return run_alone(&p, run_dir == NULL ? "" : run_dir, callbacks, result);
}

fl_status fl_run(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                 fl_run_result *result)
{
    return fl_run_with(model, dataset, job, NULL, result);
}
