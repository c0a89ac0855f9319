#include "launcher/run/plan/preparation.h"

#include "autodp/nccl/library.h"
#include "autodp/sampler.h"
#include "autodp/validation.h"
#include "control/link/keys/zap_auth.h"
#include "control/state/sums/early_stop.h"
#include "data/loader.h"
#include "device/cpu/cpu_kernels.h"
#include "device/device.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/machine/host_limits.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "freeze/interval.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/schema.h"
#include "launcher/run/machine/job_demand.h"
#include "launcher/run/machine/open_files.h"
#include "launcher/run/plan/kinds.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/saved/saved_model.h"
#include "nn/model.h"
#include "pipe/cost/time/flops.h"
#include "pipe/measure/dry_run.h"

#include <stdio.h>
#include <string.h>

/* Of a split: each is asked for its size before the run, and has a place in tables. */
static const int64_t SAMPLES_MAX = INT32_MAX;

/* The number of workers that devices.count: auto stands for. */
static int choose_count(const fl_preparation *p)
{
    const fl_job *job = p->job;
    int n = p->devices.n > 0 ? p->devices.n : fl_host_limits_processors() / (int)job->devices.cores;
    int most = job->devices.max == FL_JOB_AUTO ? FL_MAX_WORKERS : (int)job->devices.max;
    return n < 1 ? 1 : n < most ? n : most;
}

const fl_host *fl_preparation_own_host(const fl_preparation *p)
{
    return p->joined != NULL ? p->joined : p->hosts != NULL ? &p->hosts->host[0] : NULL;
}

/* The devices of this host, of several. Ranks that the run may grow by are those of others. */
static fl_status survey_host(fl_preparation *p, const fl_host *host)
{
    const fl_device_demand demand = {.kind = p->job->devices.kind,
                                     .n_workers = host->n,
                                     .count_field = "hosts",
                                     .budget_bytes = (size_t)p->job->devices.memory_bytes,
                                     .apart = true};
    fl_status status = fl_device_survey_make(&demand, &p->devices);
    p->devices.first = host->first;
    return status == FL_OK ? FL_OK : fl_within(status, "host %s", host->name);
}

static fl_status survey_alone(fl_preparation *p)
{
    const fl_job *job = p->job;
    bool grows = job->devices.max != FL_JOB_AUTO;
    const fl_device_demand demand = {.kind = job->devices.kind,
                                     .n_workers =
                                         (int)(grows ? job->devices.max : job->devices.count),
                                     .count_field = grows ? "devices.max" : "devices.count",
                                     .budget_bytes = (size_t)job->devices.memory_bytes};
    return fl_device_survey_make(&demand, &p->devices);
}

/* Before anything takes time: whether there are devices for all workers, also for those that the
 * run may grow by. */
static fl_status survey_devices(fl_preparation *p)
{
    const fl_job *job = p->job;
    const fl_host *host = fl_preparation_own_host(p);
    bool chosen = job->devices.count == FL_JOB_AUTO, grows = job->devices.max != FL_JOB_AUTO;
    FL_TRY(host != NULL ? survey_host(p, host) : survey_alone(p));
    p->n_workers = chosen ? choose_count(p) : (int)job->devices.count;
    p->n_ranks = grows ? (int)job->devices.max : p->n_workers;
    return FL_OK;
}

static bool wants_nccl(const fl_preparation *p)
{
    return p->job->autodp.transport != FL_TRANSPORT_HOST && p->n_ranks > 1 &&
           !fl_device_kind_has_host_memory(p->job->devices.kind);
}

/* No worker loads a library that has not been tried: it might end the worker. */
static fl_status try_nccl(fl_preparation *p)
{
    const fl_job *job = p->job;
    if (!wants_nccl(p)) {
        fl_nccl_refuse(&p->nccl, "this run has no use for NCCL");
        return FL_OK;
    }
    if (p->tried != NULL) {
        p->nccl = *p->tried;
    } else {
        FL_TRY(fl_nccl_try(fl_device_kind_name(job->devices.kind), p->devices.driver_version,
                           FL_NCCL_TRIAL_MS, &p->nccl));
    }
    if (fl_nccl_is_usable(&p->nccl)) {
        return FL_OK;
    }
    const fl_host *host = fl_preparation_own_host(p);
    if (job->autodp.transport == FL_TRANSPORT_NCCL) {
        fl_status status = fl_fail_field(
            FL_ENOTSUP, FL_FIELDS("autodp.transport"),
            "found nccl, but %s; allowed on this machine: auto or host", p->nccl.reason);
        return host == NULL ? status : fl_within(status, "host %s", host->name);
    }
    if (p->nccl.is_broken || fl_nccl_is_named()) { /* every generation tells the other reasons */
        fl_log(FL_LOG_WARN, "%s; workers exchange data without it", p->nccl.reason);
    }
    return FL_OK;
}

const char *fl_preparation_kernels(const fl_preparation *p)
{
    return p->devices.n > 0 ? p->devices.device[0].name : fl_device_cpu_isa();
}

void fl_preparation_fini(fl_preparation *p)
{
    if (p->listens) {
        fl_metrics_listener_close(&p->metrics);
    }
    fl_cores_release(&p->cores);
    fl_init_weights_close(&p->init);
    fl_safetensors_close(&p->weights_file);
    fl_activations_destroy(&p->activations);
    fl_recording_fini(&p->recording);
    fl_dataset_destroy(&p->view);
    fl_memory_model_destroy(&p->ragged);
    fl_sample_sizes_destroy(&p->sizes);
    fl_free(p->batches);
    fl_free(p->memory_one);
    fl_run_kinds_drop(p);
    fl_free(p->profile);
    fl_free(p->learned);
    fl_free(p->costs);
    fl_free(p->plan);
    fl_free(p->candidates);
    fl_free(p->links);
    p->links = NULL;
    p->n_links = 0;
    if (p->islands != NULL) {
        p->cluster = NULL;
        fl_free(p->islands);
        p->islands = NULL;
    }
}

/* n: what the field asks for, in samples. */
static fl_status refuse_validation(const fl_preparation *p, int64_t n)
{
    char found[FL_FIELD_VALUE_MAX], allowed[64] = "none";
    fl_field_format(fl_schema_field(fl_schema_find("data.validation")), p->job, found);
    if (p->n_samples > 1) {
        snprintf(allowed, sizeof allowed, "none, or 1 .. %lld samples",
                 (long long)p->n_samples - 1);
    }
    return fl_fail_field(FL_EINVAL, FL_FIELDS("data.validation"),
                         "found %s, which %s of %lld; allowed: %s", found,
                         n < 1 ? "is less than one sample" : "leaves no training sample",
                         (long long)p->n_samples, allowed);
}

/* From here on, the data set is the view, which has fewer samples to train on. */
static fl_status take_validation(fl_preparation *p)
{
    const fl_span *span = &p->job->data.validation;
    int64_t n = fl_job_n_validation(p->job, p->n_samples);
    if (span->steps == 0 && span->fraction == 0) {
        return FL_OK;
    }
    if (n < 1 || n >= p->n_samples) {
        return refuse_validation(p, n);
    }
    FL_TRY(fl_validation_create(p->dataset, p->n_samples, n, p->job->train.seed, &p->view));
    p->dataset = &p->view;
    p->n_validation = n;
    p->n_samples -= n;
    return FL_OK;
}

/* A batch larger than an epoch. */
static fl_status refuse_batch(const fl_preparation *p)
{
    char samples[FL_COUNT_BYTES], cause[96] = "";
    if (p->n_validation > 0) {
        snprintf(cause, sizeof cause, ": data.validation takes the other %lld of %lld",
                 (long long)p->n_validation, (long long)(p->n_validation + p->n_samples));
    }
    if (p->job->train.accumulate > 1) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("train.accumulate", "train.batch"),
                             "%lld batches of %lld samples (train.batch) a step, but an epoch has "
                             "%s%s; allowed: at most %lld samples a step",
                             (long long)p->job->train.accumulate, (long long)p->job->train.batch,
                             fl_count(p->n_samples, "sample", samples), cause,
                             (long long)p->n_samples);
    }
    return fl_fail_field(FL_EINVAL, FL_FIELDS("train.batch"),
                         "%lld, but an epoch has %s%s; allowed: 1 .. %lld",
                         (long long)p->job->train.batch, fl_count(p->n_samples, "sample", samples),
                         cause, (long long)p->n_samples);
}

/* An evaluation cannot use more samples than the split has. */
static fl_status check_count(const fl_dataset *d, const char *what, int64_t n)
{
    return n <= SAMPLES_MAX
               ? FL_OK
               : fl_fail(FL_EINVAL, "the data set (%s) has %lld %s samples, allowed: at most %lld",
                         d->ops->kind, (long long)n, what, (long long)SAMPLES_MAX);
}

static fl_status check_evaluation(const fl_preparation *p, const fl_dataset *d)
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

static fl_status check_data(fl_preparation *p, fl_sample_shape *sample)
{
    const fl_dataset *d = p->dataset;
    int64_t n = d->ops->count(d->self, FL_TRAIN);
    if (n <= 0) {
        /* Only a data set of the job's own kind depends on data.path. */
        return strcmp(d->ops->kind, "idx") != 0
                   ? fl_fail(FL_EINVAL, "the data set (%s) has no training samples", d->ops->kind)
                   : fl_fail_field(FL_EINVAL, FL_FIELDS("data.path"),
                                   "the %s data set has no training samples", d->ops->kind);
    }
    FL_TRY(check_count(d, "training", n));
    FL_TRY(check_count(d, "test", d->ops->count(d->self, FL_TEST)));
    if (p->job->data.samples > n) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.samples"),
                             "%lld, but the data set has %lld; allowed: all, "
                             "or 1 .. %lld",
                             (long long)p->job->data.samples, (long long)n, (long long)n);
    }
    p->n_samples = p->job->data.samples > 0 ? p->job->data.samples : n;
    FL_TRY(take_validation(p));
    FL_TRY(check_evaluation(p, d));
    if (fl_sampler_batch(p->job) > p->n_samples) {
        return refuse_batch(p);
    }
    p->steps_per_epoch = fl_sampler_steps_per_epoch(p->n_samples, fl_sampler_batch(p->job));
    p->n_steps = p->job->train.epochs * p->steps_per_epoch;
    if (p->job->train.max_steps > 0 && p->job->train.max_steps < p->n_steps) {
        p->n_steps = p->job->train.max_steps;
    }
    return fl_sample_shape_max(d, sample);
}

/* Checked here for the messages; the controller reads them again. */
static fl_status check_keys(const fl_job *job)
{
    fl_zap_auth *guard = NULL;
    FL_TRY(fl_zap_auth_create(job, &guard));
    fl_zap_auth_destroy(&guard);
    return FL_OK;
}

/* Every sample is asked for its size here, so a data set that breaks its promise is refused before
 * anything starts. */
static fl_status look_at_samples(fl_preparation *p)
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
                                   .stores = {.n_stores = 1, .n_workers = p->n_ranks}};
    return FL_OK;
}

/* The weights of the Hugging Face folder; a head that it lacks is drawn. */
static fl_status open_folder(fl_preparation *p)
{
    char drawn[1024];
    const fl_tensor_names *names = fl_model_tensor_names(p->model);
    fl_status status = fl_init_weights_open(p->model, p->job->model.path,
                                            names == NULL ? "" : names->head, &p->init);
    if (status != FL_OK) {
        return fl_fail_field(status, FL_FIELDS("model.path"), "%s", fl_errmsg());
    }
    int n = fl_init_weights_list_drawn(&p->init, p->model, drawn, sizeof drawn);
    if (n > 0 && !fl_resume_goes_back(p)) {
        fl_log(FL_LOG_INFO, "%s has no weights for %s: drawn with train.seed", p->job->model.path,
               drawn);
    }
    return FL_OK;
}

static fl_status open_init(fl_preparation *p)
{
    if (p->weights != NULL) {
        return fl_init_weights_take(p->model, p->weights, "", &p->weights_file, &p->init);
    }
    bool begins = !fl_resume_has_state(p);
    if (p->job->model.kind == FL_MODEL_HF && p->job->model.init[0] == '\0' && begins) {
        return open_folder(p);
    }
    if (p->job->model.init[0] == '\0' || !begins) {
        return FL_OK; /* a run that continues has its weights from the checkpoint */
    }
    char path[PATH_MAX];
    fl_safetensors *file = NULL;
    fl_status status = fl_saved_model_open_init(p->job->model.init, path, &file);
    if (status == FL_OK) {
        status = fl_init_weights_take(p->model, path, p->job->model.init_allow, &file, &p->init);
        fl_safetensors_close(&file);
    }
    return status == FL_OK || fl_failure_field(0) != NULL
               ? status
               : fl_fail_field(status, FL_FIELDS("model.init"), "%s", fl_errmsg());
}

/* The model was made for the job's precision. */
static fl_status check_precision(const fl_preparation *p)
{
    fl_dtype dtype = FL_F32, wanted = fl_job_dtype(p->job);
    char found[FL_FIELD_VALUE_MAX];
    FL_TRY(fl_model_activations(p->model, &p->sizes->longest, &dtype));
    if (dtype == wanted) {
        return FL_OK;
    }
    fl_field_format(fl_schema_field(fl_schema_find("train.precision")), p->job, found);
    return fl_fail_field(FL_EINVAL, FL_FIELDS("train.precision"),
                         "found %s, but the activations of model '%s' are %s; allowed: %s, or a "
                         "model whose first layer is made with fl_job_dtype",
                         found, fl_model_name(p->model), fl_dtype_name(dtype),
                         dtype == FL_BF16 ? "bf16" : "fp32");
}

/* The layers have run once on the largest shape of the data set. Here they run on the longest and
 * the shortest sample, before this process runs them on samples of other lengths. */
static fl_status measure_memory(fl_preparation *p)
{
    const fl_sample_sizes *sizes = p->sizes;
    fl_sample_shape longest = fl_sample_longest(sizes), shortest;
    int64_t timeout_ms = p->job->fault.deadline_ms;
    if (!sizes->equal) {
        FL_TRY(fl_sample_of_length(p->model, sizes, sizes->shortest, &shortest));
        FL_TRY(fl_dry_run_check(p->model, &shortest, timeout_ms, p->memory_one));
    }
    FL_TRY(fl_dry_run_check(p->model, &longest, timeout_ms, p->memory_one));
    FL_TRY(check_precision(p));
    if (sizes->equal) {
        return FL_OK;
    }
    FL_TRY(fl_memory_mean_flops(p->model, sizes, p->memory_one));
    return fl_memory_model_create(p->model, sizes, &p->ragged);
}

fl_status fl_preparation_check_arguments(const fl_model *model, const fl_dataset *dataset,
                                         const fl_job *job)
{
    const char *missing = model == NULL     ? "model"
                          : dataset == NULL ? "data set"
                          : job == NULL     ? "job"
                                            : NULL;
    if (missing != NULL) {
        return fl_fail(FL_EINVAL, "no %s was given (NULL)", missing);
    }
    return fl_dataset_check(dataset->ops);
}

/* Early stopping needs something to evaluate, and a metric that the model has. */
static fl_status check_stop(const fl_preparation *p)
{
    const fl_dataset *d = p->dataset;
    fl_metric_list metrics = fl_model_metrics(p->model);
    fl_stop_rule rule;
    FL_TRY(fl_stop_rule_of(p->job, &metrics, p->steps_per_epoch, p->n_steps, &rule));
    if ((rule.patience > 0 || p->job->train.metric[0] != '\0') &&
        d->ops->count(d->self, FL_TEST) == 0) {
        return fl_fail_field(FL_EINVAL,
                             FL_FIELDS(rule.patience > 0 ? "train.stop_after" : "train.metric"),
                             "the data set has no test samples to evaluate; allowed: none, or with "
                             "data.validation");
    }
    return FL_OK;
}

static void plan_due_steps(fl_preparation *p)
{
    double step_flops = fl_flops_step(p->model, p->memory_one, 0, false, fl_sampler_batch(p->job));
    p->due = (fl_due_steps){.job = p->job,
                            .steps_per_epoch = p->steps_per_epoch,
                            .n_steps = p->n_steps,
                            .recording = p->recorded_dir == NULL ? NULL : &p->recording};
    p->due.lead = fl_due_lead(&p->due, step_flops, p->n_workers * p->job->devices.cores);
}

/* Warn if the freeze policy decides within the run, but too late for a change before its end. */
static void warn_of_no_decision(const fl_preparation *p)
{
    int64_t first = fl_freeze_first(p->job, p->steps_per_epoch, p->n_steps);
    char place[FL_PLACE_MAX];
    bool tells = p->recorded_dir == NULL && !fl_resume_goes_back(p);
    if (tells && first >= 0 && first + p->due.lead >= p->n_steps) {
        fl_log(FL_LOG_WARN,
               "%sfreeze.start: the first decision is made after %lld steps and would take effect "
               "%lld steps later, not before the end of the run after %lld: nothing will freeze",
               fl_job_place(p->job, "freeze.start", place), (long long)first,
               (long long)p->due.lead, (long long)p->n_steps);
    }
}

/* Only the head listens. */
static fl_status allow_files(const fl_preparation *p)
{
    bool control = p->joined == NULL && p->job->control.listen[0] != '\0';
    bool metrics = p->joined == NULL && p->job->control.metrics[0] != '\0';
    const fl_open_files_use use = {.n_workers = p->n_ranks,
                                   .ports = p->hosts != NULL || control,
                                   .n_servers = control + metrics};
    return fl_open_files_allow(&use);
}

fl_status fl_preparation_check(fl_preparation *p)
{
    fl_sample_shape sample;
    p->whole = p->dataset;
    FL_TRY(fl_job_check(p->job)); /* a job that a program filled in was not checked by the parser */
    FL_TRY(check_keys(p->job));
    FL_TRY(fl_device_cpu_check_kernels());
    FL_TRY(survey_devices(p));
    FL_TRY(try_nccl(p));
    FL_TRY(allow_files(p));
    FL_TRY(check_data(p, &sample));
    size_t n_layers = (size_t)fl_model_n_layers(p->model);
    FL_TRY(fl_alloc_array(n_layers, sizeof *p->memory_one, (void **)&p->memory_one));
    FL_TRY(fl_dry_run_check(p->model, &sample, p->job->fault.deadline_ms, p->memory_one));
    FL_TRY(fl_job_check_model(p->job, fl_model_n_blocks(p->model)));
    if (!fl_resume_goes_back(p)) {
        fl_job_warn_length(p->job, p->steps_per_epoch, p->n_steps);
    }
    FL_TRY(fl_job_check_devices(p->job, p->n_workers));
    FL_TRY(look_at_samples(p));
    FL_TRY(check_stop(p));
    plan_due_steps(p);
    warn_of_no_decision(p);
    FL_TRY(open_init(p));
    FL_TRY(fl_alloc(sizeof *p->profile, (void **)&p->profile));
    FL_TRY(fl_alloc(sizeof *p->learned, (void **)&p->learned));
    FL_TRY(fl_alloc(sizeof *p->costs, (void **)&p->costs));
    FL_TRY(fl_alloc(sizeof *p->plan, (void **)&p->plan));
    FL_TRY(fl_alloc_array(FL_PREPARATION_CANDIDATES_MAX, sizeof *p->candidates,
                          (void **)&p->candidates));
    return measure_memory(p);
}

void fl_preparation_warn(const fl_preparation *p)
{
    fl_host_limits machine;
    char text[2][512];
    fl_host_limits_read("", &machine);
    fl_job_demand_compare(&machine, p->job, fl_preparation_own_host(p), p->n_ranks, text[0],
                          text[1], sizeof text[0]);
    for (int i = 0; i < 2; i++) {
        if (text[i][0] != 0) {
            fl_log(FL_LOG_WARN, "%s", text[i]);
        }
    }
}
