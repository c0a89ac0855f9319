/* The events with which a run begins, and continues from a checkpoint. */
#include "control/events/begun.h"
#include "control/events/fields.h"
#include "control/events/log/event_log.h"

#include "autodp/sampler.h"
#include "device/device.h"
#include "device/machine/survey.h"
#include "device/system/machine_name.h"
#include "device/text/plural.h"
#include "nn/model.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* The loss, and what its metrics are called. */
static void loss_fields(fl_json *j, const fl_model *model)
{
    const fl_metric_list metrics = fl_model_metrics(model);
    fl_json_text(j, "loss", fl_model_loss(model)->ops->kind);
    fl_json_array(j, "metrics");
    for (int i = 0; i < metrics.n; i++) {
        fl_json_object(j, NULL);
        fl_json_text(j, "name", metrics.metric[i].name);
        fl_json_bool(j, "share", metrics.metric[i].is_share);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void model_fields(fl_json *j, const fl_controller_options *o)
{
    static const char *const from[] = {[FL_MODEL_VIT] = "vit",
                                       [FL_MODEL_PLUGIN] = "plugin",
                                       [FL_MODEL_HF] = "hf",
                                       [FL_MODEL_GPT2] = "gpt2",
                                       [FL_MODEL_PROGRAM] = "program"};
    if (o->model == NULL || o->dataset == NULL) {
        return;
    }
    const fl_dataset *d = o->dataset;
    fl_json_object(j, "model");
    fl_json_text(j, "kind", from[o->job->model.kind]);
    fl_json_text(j, "name", fl_model_name(o->model));
    fl_json_integer(j, "layers", fl_model_n_layers(o->model));
    fl_json_integer(j, "blocks", fl_model_n_blocks(o->model));
    fl_json_integer(j, "parameters", fl_model_n_params(o->model));
    loss_fields(j, o->model);
    fl_json_close(j, '}');
    fl_json_object(j, "data");
    fl_json_text(j, "kind", d->ops->kind);
    if (d->ops->fingerprint != NULL) {
        char fingerprint[24];
        snprintf(fingerprint, sizeof fingerprint, "%016llx",
                 (unsigned long long)d->ops->fingerprint(d->self));
        fl_json_text(j, "fingerprint", fingerprint);
    }
    fl_json_integer(j, "test_samples", d->ops->count(d->self, FL_TEST) - o->n_validation);
    fl_json_close(j, '}');
}

/* The devices that workers share. */
static void device_fields(fl_event_log *log, const fl_controller_options *o)
{
    fl_json *j = &log->files.event;
    if (o->devices == NULL || o->devices->n == 0) {
        return;
    }
    fl_json_array(j, "gpus");
    for (int i = 0; i < o->devices->n; i++) {
        fl_json_object(j, NULL);
        fl_json_text(j, "name", o->devices->device[i].name);
        fl_json_integer(j, "memory_bytes", (int64_t)o->devices->device[i].memory_bytes);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void note_machine(fl_event_log *log, const fl_controller_options *o, const char *metrics_url)
{
    char line[FL_SURVEY_TEXT_BYTES];
    if (metrics_url != NULL) {
        fl_progress_note(&log->progress, "metrics at %s", metrics_url);
    }
    if (o->devices != NULL && o->devices->n > 0) {
        fl_progress_note(&log->progress, "%s",
                         fl_device_survey_line(o->devices, o->n_devices, line));
    }
}

/* What may differ each time that the run is started. */
static void machine_fields(fl_event_log *log, const fl_run_facts *run, const char *metrics_url)
{
    const fl_controller_options *o = run->options;
    fl_json *j = &log->files.event;
    char hostname[FL_HOSTNAME_BYTES], boot[FL_BOOT_ID_BYTES];
    fl_json_text(j, "version", FL_VERSION);
    fl_json_text(j, "run_dir", o->run_dir);
    if (metrics_url != NULL) {
        fl_json_text(j, "metrics", metrics_url);
    }
    fl_json_integer(j, "devices", o->n_devices);
    fl_json_integer(j, "max_workers", run->n_workers);
    fl_json_text(j, "device_kind", fl_device_kind_name(o->job->devices.kind));
    device_fields(log, o);
    if (o->kernels != NULL) {
        fl_json_text(j, "kernels", o->kernels);
    }
    fl_json_integer(j, "processors", processors());
    fl_json_integer(j, "controller_pid", getpid());
    fl_json_text(j, "hostname", fl_hostname(hostname));
    fl_json_text(j, "boot_id", fl_boot_id(boot));
    fl_json_integer(j, "steps", o->n_steps);
    fl_json_integer(j, "epochs", o->n_epochs);
}

static void worker_fields(fl_json *j, const fl_run_facts *run)
{
    fl_json_array(j, "workers");
    for (int i = 0; i < run->n_started; i++) {
        const fl_worker *w = &run->workers[i];
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", w->rank);
        fl_fields_host(j, run->hosts, w->rank);
        fl_json_integer(j, "pid", w->pid);
        fl_json_integer(j, "replica", w->place.replica);
        fl_json_integer(j, "stage", w->place.stage);
        fl_fields_gpu(j, w);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

/* Of a run on several hosts. */
static void host_fields(fl_json *j, const fl_run_facts *run)
{
    if (run->hosts == NULL) {
        return;
    }
    fl_json_array(j, "hosts");
    for (int i = 0; i < run->hosts->n; i++) {
        const fl_host *host = &run->hosts->host[i];
        fl_json_object(j, NULL);
        fl_json_text(j, "host", host->name);
        fl_json_text(j, "address", host->address);
        fl_json_integer(j, "first_worker", host->first);
        fl_json_integer(j, "workers", host->n);
        fl_fields_host_costs(j, run->options, host);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

/* A run that begins again has both events, and says it once. */
void fl_event_log_started(fl_event_log *log, const fl_run_facts *run, const char *metrics_url)
{
    const fl_controller_options *o = run->options;
    const fl_run_moment start = {.time_s = 0.0, .wall_s = log->files.start_wall_s};
    char begun[FL_BEGUN_TEXT];
    fl_json *j = fl_event_log_begin_at(log, "run.started", &start);
    fl_json_text(j, "job", o->job->name);
    if (log->files.begun_ms > 0) {
        fl_json_text(j, "begun", fl_begun_text(log->files.begun_ms, begun));
    }
    machine_fields(log, run, metrics_url);
    model_fields(j, o);
    fl_json_integer(j, "samples", o->n_samples);
    if (o->n_validation > 0) {
        fl_json_integer(j, "validation_samples", o->n_validation);
    }
    fl_json_integer(j, "batch", fl_sampler_batch(o->job));
    fl_json_integer(j, "seed", (int64_t)o->job->train.seed);
    worker_fields(j, run);
    host_fields(j, run);
    fl_event_log_end(log);
    if (o->origin == NULL) {
        note_machine(log, o, metrics_url);
    }
}

static void skipped_fields(fl_json *j, const fl_resume_origin *origin)
{
    fl_json_array(j, "refused");
    for (int i = 0; i < origin->n_refused; i++) {
        fl_json_object(j, NULL);
        fl_json_integer(j, "step", origin->refused[i].step);
        fl_json_text(j, "why", origin->refused[i].why);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void note_resume(fl_event_log *log, const fl_run_facts *run)
{
    const fl_resume_origin *origin = run->options->origin;
    char n[FL_COUNT_BYTES];
    for (int i = 0; i < origin->n_refused; i++) {
        fl_progress_note(&log->progress, "not used: the state after %s: %s",
                         fl_count(origin->refused[i].step, "step", n), origin->refused[i].why);
    }
    if (origin->plan_why == NULL) {
        fl_progress_note(&log->progress, "started again from step 0; steps again: %lld",
                         (long long)origin->n_repeated);
        return;
    }
    if (origin->why != NULL) {
        fl_progress_note(
            &log->progress, "the run goes on from step %lld, from %s; steps again: %lld",
            (long long)origin->step, origin->checkpoint, (long long)origin->n_repeated);
        return;
    }
    fl_progress_note(&log->progress, "resumed from %s; before: %s; cut off: %s; %s",
                     origin->checkpoint, origin->ended,
                     fl_count(origin->n_cut_steps, "later step", n), origin->plan_why);
    if (run->stats->ended_early) {
        fl_progress_note(&log->progress,
                         "no improvement for %s before the checkpoint (train.stop_after): no step "
                         "follows",
                         fl_count(origin->step - run->stats->stop.best_step, "step", n));
    }
}

/* Of a run that goes back, whose clock goes on meanwhile. */
static void put_return(fl_json *j, const fl_event_log *log, const fl_run_facts *run)
{
    const fl_resume_origin *origin = run->options->origin;
    int64_t after_us = run->losses->returns_us - log->files.start_us;
    if (origin->why != NULL) {
        fl_json_text(j, "why", origin->why);
        fl_json_rounded(j, "lost_at", fmax((double)after_us * 1e-6, 0.0), 6);
        fl_json_integer(j, "repeated_steps", origin->n_repeated);
    }
}

void fl_event_log_resumed(fl_event_log *log, const fl_run_facts *run, const char *metrics_url)
{
    const fl_resume_origin *origin = run->options->origin;
    fl_json *j = fl_event_log_begin(log, "run.resumed");
    fl_json_text(j, "checkpoint", origin->checkpoint);
    fl_json_integer(j, "step", origin->step);
    fl_json_integer(j, "cut_steps", origin->n_cut_steps);
    fl_json_integer(j, "cut_events", origin->n_cut_events);
    fl_json_text(j, "ended", origin->ended);
    put_return(j, log, run);
    skipped_fields(j, origin);
    fl_json_array(j, "changed");
    for (int i = 0; i < origin->n_changed; i++) {
        fl_json_text(j, NULL, origin->changed[i]);
    }
    fl_json_close(j, ']');
    machine_fields(log, run, metrics_url);
    worker_fields(j, run);
    host_fields(j, run);
    fl_event_log_end(log);
    note_machine(log, run->options, metrics_url);
    note_resume(log, run);
}
