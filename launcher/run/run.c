/* From a job to a running controller, and to the end of the run:
 *   ① check model, data and job against each other     fl_check
 *   ② count memory, measure costs, choose the plan     make_plan
 *   ③ the run directory and the resolved job           open_run_dir
 *   ④ fork the workers and watch them                  fl_controller_run
 *   ⑤ the model and the callbacks of a program         fl_run_with */
#include "launcher/run/run.h"

#include "autodp/sampler.h"
#include "autodp/validation.h"
#include "control/controller/run.h"
#include "control/observe/metrics_http.h"
#include "control/socket/zap_auth.h"
#include "device/alloc.h"
#include "device/device.h"
#include "device/failure.h"
#include "device/log.h"
#include "device/table_head.h"
#include "launcher/job/job.h"
#include "launcher/job/schema.h"
#include "launcher/run/costs.h"
#include "launcher/run/job_demand.h"
#include "launcher/run/recording_read.h"
#include "launcher/run/runs.h"
#include "launcher/worker/cores.h"
#include "launcher/worker/worker.h"
#include "nn/model.h"
#include "pipe/cost/flops.h"
#include "pipe/cost/memory.h"
#include "pipe/measure/dry_run.h"
#include "pipe/plan/planner.h"
#include "pipe/step/activations.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CANDIDATES_MAX = 256 };

/* Everything that is determined before a process starts. */
typedef struct preparation {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_callbacks *callbacks; /* of the program; NULL: none */
    fl_dataset view;               /* without validation samples; no ops: there are none */
    int64_t n_validation;          /* samples */
    int64_t n_samples, steps_per_epoch, n_steps;
    int n_workers;
    fl_cores cores;
    fl_due_steps due;
    fl_sample_sizes *sizes;
    fl_run_batches *batches;
    fl_memory_model *ragged;  /* NULL: all samples have one length */
    const char *recorded_dir; /* of the run to repeat; NULL: none */
    fl_recording recording;
    fl_layer_memory *memory_one; /* [n_layers] */
    fl_profile *profile, *learned;
    fl_costs *costs;
    fl_plan_input input;
    fl_plan *plan;
    fl_activations *activations; /* NULL: no cache, because of no_cache_why: */
    char no_cache_why[512];
    bool listens; /* the job asks for metrics */
    fl_metrics_listener metrics;
    fl_candidate *candidates; /* [CANDIDATES_MAX] */
    int n_candidates;
} preparation;

static int processors(void)
{
    fl_host_limits machine;
    fl_host_limits_read("", &machine);
    return machine.processors;
}

static int devices(const fl_job *job)
{
    if (job->devices.count != FL_JOB_AUTO) {
        return (int)job->devices.count;
    }
    int n = processors() / (int)job->devices.cores;
    return n < 1 ? 1 : n;
}

static void preparation_fini(preparation *p)
{
    if (p->listens) {
        fl_metrics_listener_close(&p->metrics);
    }
    fl_cores_release(&p->cores);
    fl_activations_destroy(&p->activations);
    fl_recording_fini(&p->recording);
    fl_dataset_destroy(&p->view);
    fl_memory_model_destroy(&p->ragged);
    fl_sample_sizes_destroy(&p->sizes);
    fl_free(p->batches);
    fl_free(p->memory_one);
    fl_free(p->profile);
    fl_free(p->learned);
    fl_free(p->costs);
    fl_free(p->plan);
    fl_free(p->candidates);
}

/* ---- ① ---- */

int64_t fl_run_n_validation(const fl_job *job, int64_t n_used)
{
    const fl_span *span = &job->data.validation;
    return span->steps >= 0 ? span->steps : llround(span->fraction * (double)n_used);
}

/* From here on, the data set is the view, which has fewer samples to train on. */
static fl_status take_validation(preparation *p)
{
    const fl_span *span = &p->job->data.validation;
    int64_t n = fl_run_n_validation(p->job, p->n_samples);
    if (span->steps == 0 && span->fraction == 0) {
        return FL_OK;
    }
    if (n < 1 || n >= p->n_samples) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.validation"),
                             "%lld samples, but %lld are used; allowed: 1 .. %lld", (long long)n,
                             (long long)p->n_samples, (long long)p->n_samples - 1);
    }
    FL_TRY(fl_validation_create(p->dataset, p->n_samples, n, p->job->train.seed, &p->view));
    p->dataset = &p->view;
    p->n_validation = n;
    p->n_samples -= n;
    return FL_OK;
}

/* An evaluation cannot use more samples than the split has. */
static fl_status check_evaluation(const preparation *p, const fl_dataset *d)
{
    bool validates = p->n_validation > 0;
    int64_t n = validates ? p->n_validation : d->ops->count(d->self, FL_TEST);
    int64_t wanted = p->job->train.evaluate_samples;
    if (n > 0 && wanted > n) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("train.evaluate_samples"),
                             "%lld, but there are %lld %s samples; allowed: all, or 1 .. %lld",
                             (long long)wanted, (long long)n, validates ? "validation" : "test",
                             (long long)n);
    }
    return FL_OK;
}

static fl_status check_data(preparation *p, fl_shape *input)
{
    const fl_dataset *d = p->dataset;
    FL_TRY(fl_table_head_check(&d->ops->head, sizeof *d->ops, "fl_dataset_ops"));
    int64_t n = d->ops->count(d->self, FL_TRAIN), n_targets;
    if (n <= 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.path"),
                             "the %s data set has no training samples", d->ops->kind);
    }
    if (p->job->data.samples > n) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.samples"),
                             "%lld, but the data set has %lld; allowed: all, "
                             "or 1 .. %lld",
                             (long long)p->job->data.samples, (long long)n, (long long)n);
    }
    p->n_samples = p->job->data.samples > 0 ? p->job->data.samples : n;
    FL_TRY(take_validation(p));
    FL_TRY(check_evaluation(p, d));
    if (p->job->train.batch > p->n_samples) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("train.batch"),
                             "%lld, but an epoch has %lld samples; allowed: "
                             "1 .. %lld",
                             (long long)p->job->train.batch, (long long)p->n_samples,
                             (long long)p->n_samples);
    }
    p->steps_per_epoch = fl_sampler_steps_per_epoch(p->n_samples, p->job->train.batch);
    p->n_steps = p->job->train.epochs * p->steps_per_epoch;
    if (p->job->train.max_steps > 0 && p->job->train.max_steps < p->n_steps) {
        p->n_steps = p->job->train.max_steps;
    }
    return d->ops->max_shape(d->self, input, &n_targets);
}

/* Checked here for the messages; the controller reads them again. */
static fl_status check_keys(const fl_job *job)
{
    fl_zap_auth *guard = NULL;
    FL_TRY(fl_zap_auth_create(job, &guard));
    fl_zap_auth_destroy(&guard);
    return FL_OK;
}

static void warn_of_too_much(const preparation *p)
{
    fl_host_limits machine;
    char text[2][512];
    fl_host_limits_read("", &machine);
    fl_job_demand_compare(&machine, p->job, p->n_workers, text[0], text[1], sizeof text[0]);
    for (int i = 0; i < 2; i++) {
        if (text[i][0] != 0) {
            fl_log(FL_LOG_WARN, "%s", text[i]);
        }
    }
}

/* Every sample is asked for its size here, so a data set that breaks its promise is refused before
 * anything starts. */
static fl_status look_at_samples(preparation *p)
{
    const fl_dataset *d = p->dataset;
    int64_t n_test = p->job->train.evaluate ? d->ops->count(d->self, FL_TEST) : 0;
    FL_TRY(fl_sample_sizes_create(p->model, d, p->n_samples, n_test, &p->sizes));
    FL_TRY(fl_alloc(sizeof *p->batches, (void **)&p->batches));
    *p->batches = (fl_run_batches){.job = p->job,
                                   .sizes = p->sizes,
                                   .n_samples = p->n_samples,
                                   .n_validation = p->n_validation,
                                   .n_steps = p->n_steps,
                                   .n_stores = 1,
                                   .n_workers = p->n_workers};
    return FL_OK;
}

/* prepare_run has run the layers once on the largest shape of the data set. Here they run on
 * the longest and the shortest sample, before this process runs them on others. */
static fl_status measure_memory(preparation *p)
{
    const fl_sample_sizes *sizes = p->sizes;
    fl_shape shortest = sizes->longest;
    int64_t timeout_ms = p->job->fault.deadline_ms;
    shortest.tokens = sizes->shortest;
    if (!sizes->equal) {
        FL_TRY(fl_dry_run_check(p->model, &shortest, timeout_ms, p->memory_one));
    }
    FL_TRY(fl_dry_run_check(p->model, &sizes->longest, timeout_ms, p->memory_one));
    if (sizes->equal) {
        return FL_OK;
    }
    FL_TRY(fl_memory_mean_flops(p->model, sizes, p->memory_one));
    return fl_memory_model_create(p->model, sizes, &p->ragged);
}

static fl_status prepare_run(preparation *p)
{
    fl_shape input;
    FL_TRY(fl_job_check(p->job)); /* a job that a program filled in was not checked by the parser */
    FL_TRY(check_keys(p->job));
    FL_TRY(fl_device_check(p->job->devices.kind));
    FL_TRY(check_data(p, &input));
    size_t n_layers = (size_t)fl_model_n_layers(p->model);
    FL_TRY(fl_alloc_array(n_layers, sizeof *p->memory_one, (void **)&p->memory_one));
    FL_TRY(fl_dry_run_check(p->model, &input, p->job->fault.deadline_ms, p->memory_one));
    FL_TRY(fl_job_check_model(p->job, fl_model_n_blocks(p->model)));
    fl_job_warn_length(p->job, p->steps_per_epoch, p->n_steps);
    p->n_workers = devices(p->job);
    FL_TRY(fl_job_check_devices(p->job, p->n_workers));
    FL_TRY(look_at_samples(p));
    FL_TRY(fl_alloc(sizeof *p->profile, (void **)&p->profile));
    FL_TRY(fl_alloc(sizeof *p->learned, (void **)&p->learned));
    FL_TRY(fl_alloc(sizeof *p->costs, (void **)&p->costs));
    FL_TRY(fl_alloc(sizeof *p->plan, (void **)&p->plan));
    FL_TRY(fl_alloc_array(CANDIDATES_MAX, sizeof *p->candidates, (void **)&p->candidates));
    return measure_memory(p);
}

/* ---- ② ---- */

static fl_status choose_plan(preparation *p, int F)
{
    p->input = (fl_plan_input){.model = p->model,
                               .job = p->job,
                               .profile = p->profile,
                               .n_processors = processors(),
                               .memory_one = p->memory_one,
                               .ragged = p->ragged,
                               .batches = p->batches,
                               .n_workers = p->n_workers,
                               .F = F,
                               .generation = 1,
                               .cached_read = p->activations == NULL ? NULL : &p->profile->read};
    fl_capacity capacity;
    FL_TRY(fl_plan_choose(&p->input, p->plan, p->candidates, CANDIDATES_MAX, &p->n_candidates));
    FL_TRY(fl_capacity_of_plan(p->batches, p->plan, &capacity));
    return fl_capacity_check_rows(p->sizes, &capacity);
}

/* Costs in proportion to parameters: enough to find out whether any plan fits. */
static void guess_profile(preparation *p)
{
    p->profile->n_layers = fl_model_n_layers(p->model);
    p->profile->link_bytes_per_us = 1000.0;
    p->profile->reduce_bytes_per_us = 1000.0;
    for (int i = 0; i < p->profile->n_layers; i++) {
        int64_t n = fl_model_layer_n_params(p->model, i);
        p->profile->layer[i] = (fl_layer_cost){
            .fwd_us = 1e-3 * (double)(n + 1), .bwd_us = 2e-3 * (double)(n + 1), .n_params = n};
    }
}

fl_status fl_check(const fl_model *model, const fl_dataset *dataset, const fl_job *job)
{
    preparation p = {.model = model, .dataset = dataset, .job = job};
    fl_status status = prepare_run(&p);
    if (status == FL_OK) {
        guess_profile(&p);
        status = choose_plan(&p, 0);
    }
    if (status == FL_OK) {
        warn_of_too_much(&p);
    }
    preparation_fini(&p);
    return fl_job_locate(job, status);
}

static fl_costs_options costs_options(const preparation *p, const char *only)
{
    return (fl_costs_options){.model = p->model,
                              .dataset = p->dataset,
                              .job = p->job,
                              .memory_one = p->memory_one,
                              .sizes = p->sizes->equal ? NULL : p->sizes,
                              .n_workers = p->n_workers,
                              .only = only};
}

/* The processors of all workers, until the end of the run. */
static void take_cores(preparation *p)
{
    fl_cores_take(FL_CORES_NAME, p->n_workers * (int)p->job->devices.cores, &p->cores);
    if (p->cores.n_shared > 0) {
        fl_log(FL_LOG_WARN, "%d of the %d processors that this run uses are another run's, too",
               p->cores.n_shared, p->cores.n);
    }
}

static fl_status get_costs(preparation *p)
{
    cpu_set_t before;
    fl_costs_options costs = costs_options(p, NULL);
    fl_cores_confine(&p->cores, &before);
    fl_status status = fl_costs_get(&costs, p->costs, p->profile);
    (void)sched_setaffinity(0, sizeof before, &before);
    return status;
}

static fl_status open_cache(preparation *p)
{
    FL_TRY(fl_activations_create(p->model, p->dataset, p->job, p->n_samples, p->n_steps,
                                 p->n_workers, &p->activations, p->no_cache_why,
                                 sizeof p->no_cache_why));
    p->batches->n_stores = p->activations == NULL ? 1 : p->activations->n_stores;
    return FL_OK;
}

static fl_status open_metrics(preparation *p)
{
    if (p->job->control.metrics[0] == 0) {
        return FL_OK;
    }
    FL_TRY(fl_metrics_listen(p->job->control.metrics, &p->metrics));
    p->listens = true;
    return FL_OK;
}

/* 0: the caller's own data set has no fingerprint. */
static uint64_t fingerprint_of(const fl_dataset *d)
{
    return d->ops->fingerprint == NULL ? 0 : d->ops->fingerprint(d->self);
}

static void plan_due_steps(preparation *p)
{
    double step_flops = fl_flops_step(p->model, p->memory_one, 0, false, p->job->train.batch);
    p->due = (fl_due_steps){.job = p->job,
                            .steps_per_epoch = p->steps_per_epoch,
                            .n_steps = p->n_steps,
                            .recording = p->recorded_dir == NULL ? NULL : &p->recording};
    p->due.lead = fl_due_lead(&p->due, step_flops, p->n_workers * p->job->devices.cores);
}

static fl_status read_recording(preparation *p)
{
    fl_recording_facts facts = {.job = p->job,
                                .n_layers = fl_model_n_layers(p->model),
                                .n_devices = p->n_workers,
                                .n_samples = p->n_samples,
                                .n_steps = p->n_steps,
                                .data_fingerprint = fingerprint_of(p->dataset),
                                .kernels = fl_device_cpu_isa()};
    return p->recorded_dir == NULL ? FL_OK
                                   : fl_recording_read(p->recorded_dir, &facts, &p->recording);
}

static fl_status make_plan(preparation *p)
{
    FL_TRY(prepare_run(p));
    FL_TRY(read_recording(p)); /* refuse a run that cannot be repeated first */
    FL_TRY(open_cache(p));
    guess_profile(p);
    FL_TRY(choose_plan(p, 0)); /* refuse an impossible job before spending time on measuring */
    warn_of_too_much(p);
    FL_TRY(open_metrics(p));
    take_cores(p);
    FL_TRY(get_costs(p));
    FL_TRY(choose_plan(p, 0));
    plan_due_steps(p);
    if (p->recorded_dir != NULL) {
        *p->plan = p->recording.first;
        return FL_OK;
    }
    if (p->job->elastic.n_script == 0 && p->job->freeze.policy == FL_FREEZE_NONE &&
        !p->job->elastic.enabled) {
        /* No part of this job gives a worker without a stage work later: start without such
         * workers. Otherwise they stand by: a freeze, the script or `frostline ctl scale` may give
         * them one. */
        p->plan->n_workers = p->plan->K * p->plan->R;
    }
    return FL_OK;
}

/* FL_OK if a plan fits for any of frozen [n]; otherwise the first failure. */
static fl_status some_fit(preparation *p, const int *frozen, int n)
{
    fl_failure first;
    fl_status status = choose_plan(p, frozen[0]);
    fl_failure_keep(&first, status);
    for (int i = 1; status == FL_EBUDGET && i < n; i++) {
        status = choose_plan(p, frozen[i]);
    }
    return status == FL_OK ? FL_OK : fl_failure_raise(&first);
}

static fl_status plan_each(preparation *p, const fl_plan_request *request)
{
    FL_TRY(prepare_run(p));
    FL_TRY(open_cache(p));
    guess_profile(p);
    FL_TRY(some_fit(p, request->frozen, request->n));
    fl_costs_options costs = costs_options(p, request->profile);
    FL_TRY(fl_costs_get(&costs, p->costs, p->profile));
    request->costs(request->context, &p->costs->origin);
    for (int i = 0; i < request->n; i++) {
        fl_status status = choose_plan(p, request->frozen[i]);
        if (status != FL_OK && status != FL_EBUDGET) {
            return status;
        }
        p->plan->F = request->frozen[i];
        request->seen(request->context, p->plan, status == FL_OK ? NULL : fl_errmsg(),
                      p->candidates, status == FL_OK ? p->n_candidates : 0);
    }
    return FL_OK;
}

fl_status fl_plan_job(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_plan_request *request)
{
    preparation p = {.model = model, .dataset = dataset, .job = job};
    fl_status status = plan_each(&p, request);
    preparation_fini(&p);
    return fl_job_locate(job, status);
}

/* ---- ③ ---- */

/* given: by --run-dir; otherwise the path comes from the job's run.dir. */
static fl_status fail_dir(bool given, const char *what, const char *path)
{
    return given ? fl_fail(FL_EIO, "--run-dir: %s%s: %s", what, path, strerror(errno))
                 : fl_fail_field(FL_EIO, FL_FIELDS("run.dir"), "%s%s: %s", what, path,
                                 strerror(errno));
}

static fl_status make_dir(bool given, const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return fail_dir(given, "cannot make ", path);
    }
    return FL_OK;
}

static fl_status make_parents(bool given, const char *path)
{
    char part[PATH_MAX];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        FL_TRY(make_dir(given, part));
    }
    return make_dir(given, path);
}

/* runs/<name>-<date>-<time>, with a number appended when two runs start in the same second. */
static fl_status fresh_name(const fl_job *job, char *path, size_t size_bytes)
{
    char when[32];
    struct tm local;
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    FL_TRY(make_parents(false, job->run.dir));
    for (int i = 1; i < 1000; i++) {
        int n = i == 1
                    ? snprintf(path, size_bytes, "%s/%s-%s", job->run.dir, job->name, when)
                    : snprintf(path, size_bytes, "%s/%s-%s-%d", job->run.dir, job->name, when, i);
        if (n < 0 || (size_t)n >= size_bytes) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS("run.dir"),
                                 "the path is longer than %zu bytes", size_bytes);
        }
        if (mkdir(path, 0700) == 0) {
            return FL_OK;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    return fl_fail_field(FL_EIO, FL_FIELDS("run.dir"), "cannot make %s: %s", path, strerror(errno));
}

/* The directory that the user names must not hold a run. */
static fl_status given_name(const char *path)
{
    char file[PATH_MAX];
    FL_TRY(make_parents(true, path));
    snprintf(file, sizeof file, "%s/job.yaml", path);
    if (access(file, F_OK) == 0) {
        return fl_fail(FL_EINVAL, "--run-dir: %s already holds a run; name another directory",
                       path);
    }
    return FL_OK;
}

static fl_status open_run_dir(const fl_job *job, const char *wanted, char *path, int *dir_fd)
{
    char name[PATH_MAX];
    if (wanted != NULL) {
        snprintf(name, sizeof name, "%s", wanted);
        FL_TRY(given_name(name));
    } else {
        FL_TRY(fresh_name(job, name, sizeof name));
    }
    bool given = wanted != NULL;
    if (realpath(name, path) == NULL) {
        return fail_dir(given, "", name);
    }
    *dir_fd = open(path, O_RDONLY | O_DIRECTORY);
    if (*dir_fd < 0) {
        return fail_dir(given, "", path);
    }
    return FL_OK;
}

/* A program's model and data set are in no field of the job. */
static void describe_program(const preparation *p, FILE *file)
{
    const fl_dataset *d = p->dataset;
    fprintf(
        file,
        "# A program gave the model and the data set to fl_run; to train them again, start that\n"
        "# program again.\n"
        "# model: %s, %d layers in %d blocks, %lld parameters\n"
        "# data: %s, %lld samples to train on, %lld to test on\n",
        fl_model_name(p->model), fl_model_n_layers(p->model), fl_model_n_blocks(p->model),
        (long long)fl_model_n_params(p->model), d->ops->kind,
        (long long)d->ops->count(d->self, FL_TRAIN),
        (long long)(d->ops->count(d->self, FL_TEST) - p->n_validation));
}

static fl_status write_job(const preparation *p, int dir_fd)
{
    const fl_job *job = p->job;
    int fd = openat(dir_fd, "job.yaml", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        return fl_fail(FL_EIO, "job.yaml: %s", strerror(errno));
    }
    if (job->model.kind == FL_MODEL_PROGRAM) {
        describe_program(p, file);
    }
    errno = 0;
    bool good = fl_job_write(job, file) == FL_OK;
    int error = errno;
    if (fclose(file) != 0 && good) {
        good = false;
        error = errno;
    }
    return good ? FL_OK : fl_fail(FL_EIO, "job.yaml: %s", strerror(error));
}

/* ---- ④ ---- */

/* Whatever made a run fail may have slowed it before, so its times are not kept. */
static void keep_learned(const preparation *p, fl_status status)
{
    fl_costs_options costs = costs_options(p, NULL);
    bool more = p->learned->live_steps != p->profile->live_steps ||
                memcmp(p->learned->tuned, p->profile->tuned, sizeof p->profile->tuned) != 0;
    if (more && (status == FL_OK || status == FL_ESTOPPED)) {
        fl_costs_keep(&costs, p->costs, p->learned);
    }
}

static fl_status start_run(preparation *p, const char *run_dir, fl_run_result *result)
{
    int dir_fd = -1;
    char path[PATH_MAX];
    FL_TRY(open_run_dir(p->job, run_dir, path, &dir_fd));
    fl_worker_context worker = {.model = p->model,
                                .dataset = p->dataset,
                                .job = p->job,
                                .plan = p->plan,
                                .cores = &p->cores,
                                .activations = p->activations,
                                .due = &p->due,
                                .batches = p->batches,
                                .dir_fd = dir_fd,
                                .n_samples = p->n_samples,
                                .n_validation = p->n_validation,
                                .n_steps = p->n_steps};
    fl_controller_options controller = {.job = p->job,
                                        .model = p->model,
                                        .dataset = p->dataset,
                                        .plan = p->plan,
                                        .plan_input = &p->input,
                                        .costs = &p->costs->origin,
                                        .learned = p->learned,
                                        .candidates = p->candidates,
                                        .n_candidates = p->n_candidates,
                                        .activations = p->activations,
                                        .no_cache_why = p->no_cache_why,
                                        .metrics = p->listens ? &p->metrics : NULL,
                                        .run_dir = path,
                                        .dir_fd = dir_fd,
                                        .lead = p->due.lead,
                                        .recording = p->due.recording,
                                        .n_devices = p->n_workers,
                                        .kernels = fl_device_cpu_isa(),
                                        .n_samples = p->n_samples,
                                        .n_validation = p->n_validation,
                                        .n_steps = p->n_steps,
                                        .n_epochs = p->job->train.epochs,
                                        .callbacks = p->callbacks,
                                        .worker = fl_worker_run,
                                        .context = &worker};
    *p->learned = *p->profile;
    fl_status status = write_job(p, dir_fd);
    if (status == FL_OK) {
        int held_fd = fl_run_hold(dir_fd);
        status = fl_controller_run(&controller, result);
        keep_learned(p, status);
        if (held_fd >= 0) {
            close(held_fd);
        }
    }
    close(dir_fd);
    return status;
}

static fl_status run_prepared(preparation *p, const char *run_dir, fl_run_result *result)
{
    memset(result, 0, sizeof *result);
    fl_status status = make_plan(p);
    if (status == FL_OK) {
        result->K = p->plan->K;
        result->R = p->plan->R;
        result->M = p->plan->M;
        status = start_run(p, run_dir, result);
    }
    preparation_fini(p);
    return fl_job_locate(p->job, status);
}

fl_status fl_run_again(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                       const char *run_dir, const char *recorded_dir, fl_run_result *result)
{
    fl_run_result own;
    preparation p = {.model = model, .dataset = dataset, .job = job, .recorded_dir = recorded_dir};
    return run_prepared(&p, run_dir, result != NULL ? result : &own);
}

fl_status fl_run_in(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                    const char *run_dir, fl_run_result *result)
{
    return fl_run_again(model, dataset, job, run_dir, NULL, result);
}

/* ---- ⑤ ---- */

/* The record of the run does not claim that the model is one of the job's. */
static fl_status run_program(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                             const fl_callbacks *callbacks, fl_run_result *result)
{
    fl_job *own = NULL;
    FL_TRY(fl_alloc(sizeof *own, (void **)&own));
    *own = *job;
    own->model.kind = FL_MODEL_PROGRAM;
    own->model.plugin[0] = 0;
    own->data.kind = FL_DATA_PROGRAM;
    preparation p = {.model = model, .dataset = dataset, .job = own, .callbacks = callbacks};
    fl_status status = run_prepared(&p, NULL, result);
    fl_free(own);
    return status;
}

fl_status fl_run_with(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_callbacks *callbacks, fl_run_result *result)
{
    fl_run_result own;
    fl_failure failure; /* the callback may fail at something, too */
    fl_run_result *r = result != NULL ? result : &own;
    memset(r, 0, sizeof *r); /* on_end gets it even if memory for the job runs out */
    fl_status status = run_program(model, dataset, job, callbacks, r);
    fl_failure_keep(&failure, status);
    if (callbacks != NULL && callbacks->on_end != NULL) {
        callbacks->on_end(callbacks->context, status, r);
    }
    return fl_failure_raise(&failure);
}

fl_status fl_run(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                 fl_run_result *result)
{
    return fl_run_with(model, dataset, job, NULL, result);
}
