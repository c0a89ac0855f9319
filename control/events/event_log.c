/* The events of a run, as events.jsonl tells them. */
#include "control/controller/parts.h"
#include "control/events/fields.h"

#include "device/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static fl_json *begin(fl_controller *controller, const char *event)
{
    return fl_event_log_begin(controller, event);
}

static void end(fl_controller *controller)
{
    fl_event_log_end(controller);
}

fl_json *fl_event_log_begin(fl_controller *controller, const char *event)
{
    controller->telling = event;
    return fl_runfiles_event(&controller->files, event, controller->plan.generation);
}

void fl_event_log_end(fl_controller *controller)
{
    fl_runfiles_event_end(&controller->files);
    fl_ctl_publish(controller, controller->telling);
}

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void model_and_data(fl_json *j, const fl_controller_options *o)
{
    static const char *const from[] = {"vit", "plugin", "program"};
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
    fl_json_close(j, '}');
    fl_json_object(j, "data");
    fl_json_text(j, "kind", d->ops->kind);
    fl_json_integer(j, "train_samples", d->ops->count(d->self, FL_TRAIN));
    fl_json_integer(j, "test_samples", d->ops->count(d->self, FL_TEST));
    fl_json_close(j, '}');
}

void fl_event_log_started(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    fl_json *j = begin(controller, "run.started");
    fl_json_text(j, "job", o->job->name);
    fl_json_text(j, "version", FL_VERSION);
    fl_json_text(j, "run_dir", o->run_dir);
    if (fl_metrics_url(controller) != NULL) {
        fl_json_text(j, "metrics", fl_metrics_url(controller));
        fl_progress_note(&controller->progress, "metrics at %s", fl_metrics_url(controller));
    }
    model_and_data(j, o);
    fl_json_integer(j, "processors", processors());
    fl_json_integer(j, "head_pid", getpid());
    fl_json_integer(j, "samples", o->n_samples);
    fl_json_integer(j, "batch", o->job->train.batch);
    fl_json_integer(j, "steps", o->n_steps);
    fl_json_integer(j, "epochs", o->n_epochs);
    fl_json_integer(j, "seed", (int64_t)o->job->train.seed);
    fl_json_array(j, "workers");
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", w->rank);
        fl_json_integer(j, "pid", w->pid);
        fl_json_integer(j, "replica", w->place.replica);
        fl_json_integer(j, "stage", w->place.stage);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    end(controller);
}

static void candidate(fl_json *j, const fl_candidate *c)
{
    fl_json_object(j, NULL);
    fl_fields_candidate(j, c, 1.0);
    fl_json_rounded(j, "reduce_ms", c->reduce_us * 1e-3, 3);
    if (c->why_not != FL_OK) {
        fl_json_text(j, "why_not", fl_status_text(c->why_not));
    }
    fl_json_close(j, '}');
}

void fl_event_log_costs(fl_controller *controller)
{
    const fl_costs_origin *c = controller->options->costs;
    if (c == NULL) {
        return;
    }
    fl_json *j = begin(controller, "costs");
    fl_json_text(j, "from", c->from);
    fl_json_text(j, "measured", c->measured);
    fl_json_integer(j, "live_steps", c->live_steps);
    if (c->path != NULL) {
        fl_json_text(j, "file", c->path);
    }
    if (c->note != NULL) {
        fl_json_text(j, "file_refused", c->note);
    }
    end(controller);
}

void fl_event_log_plan(fl_controller *controller)
{
    const fl_plan *plan = &controller->plan;
    char text[256], why[128];
    int n_fit = 0;
    for (int i = 0; i < controller->options->n_candidates; i++) {
        n_fit += controller->options->candidates[i].why_not == FL_OK;
    }
    snprintf(why, sizeof why,
             n_fit > 1 ? "the shortest predicted step of the %d candidates that fit"
                       : "the only candidate that fits",
             n_fit);
    fl_json *j = begin(controller, "plan.chosen");
    fl_json_text(j, "plan", fl_plan_text(plan, text, sizeof text));
    fl_fields_plan(j, plan);
    fl_json_text(j, "schedule", fl_schedule_text(plan->schedule));
    fl_json_rounded(j, "step_ms", plan->predicted_step_us * 1e-3, 3);
    fl_json_rounded(j, "bubble", plan->predicted_bubble, 4);
    fl_mfu_tell(controller, j);
    fl_json_text(j, "why", why);
    fl_json_array(j, "candidates");
    for (int i = 0; i < controller->options->n_candidates; i++) {
        candidate(j, &controller->options->candidates[i]);
    }
    fl_json_close(j, ']');
    end(controller);
}

void fl_event_log_ready(fl_controller *controller, const fl_worker *worker)
{
    fl_json *j = begin(controller, "worker.ready");
    fl_json_integer(j, "rank", worker->rank);
    fl_json_integer(j, "pid", worker->pid);
    fl_json_integer(j, "memory_peak_bytes", worker->memory_peak_bytes);
    end(controller);
}

void fl_event_log_left(fl_controller *controller, const fl_worker *worker)
{
    bool exited = WIFEXITED(worker->wait_status);
    fl_json *j = begin(controller, "worker.left");
    fl_json_integer(j, "rank", worker->rank);
    fl_json_integer(j, "steps", worker->steps);
    fl_json_integer(j, "generation", controller->plan.generation);
    fl_json_integer(j, exited ? "exit_code" : "signal",
                    exited ? WEXITSTATUS(worker->wait_status) : WTERMSIG(worker->wait_status));
    end(controller);
    fl_progress_note(&controller->progress, "worker %d has left; %d stay", worker->rank,
                     fl_plan_members(&controller->plan));
}

void fl_event_log_running(fl_controller *controller)
{
    controller->times_us = fl_now_us();
    (void)begin(controller, "run.running");
    end(controller);
}

static void shares(fl_controller *controller, fl_json *j)
{
    fl_json_array(j, "workers");
    for (int i = 0; i < controller->n_workers; i++) {
        fl_time_sums *t = &controller->times[i];
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", i);
        fl_fields_times(j, t);
        fl_json_close(j, '}');
        *t = (fl_time_sums){0};
    }
    controller->times_us = fl_now_us();
    fl_json_close(j, ']');
}

void fl_event_log_epoch(fl_controller *controller)
{
    const fl_epoch_stats *e = &controller->stats.past;
    fl_json *j = begin(controller, "epoch.finished");
    fl_json_integer(j, "epoch", e->epoch);
    fl_json_integer(j, "steps", e->steps);
    fl_json_integer(j, "samples", e->samples);
    fl_json_real(j, "train_loss", fl_run_stats_loss(e));
    if (e->n_skipped > 0) {
        fl_json_integer(j, "skipped_steps", e->n_skipped);
    }
    fl_json_rounded(j, "seconds", e->ms * 1e-3, 3);
    fl_json_rounded(j, "samples_per_s", e->ms > 0 ? (double)e->samples / e->ms * 1e3 : 0, 1);
    if (e->evaluated) {
        fl_json_real(j, "test_loss", e->eval.loss);
        fl_json_real(j, "test_accuracy", e->eval.accuracy);
        fl_json_integer(j, "test_samples", e->eval.samples);
        fl_json_rounded(j, "eval_seconds", e->eval.ms * 1e-3, 3);
    }
    fl_mfu_tell(controller, j);
    shares(controller, j);
    end(controller);
    fl_progress_epoch(&controller->progress, &controller->stats);
}

void fl_event_log_stopping(fl_controller *controller, const char *signal_name)
{
    fl_json *j = begin(controller, "run.stopping");
    fl_json_text(j, "why", signal_name);
    fl_json_integer(j, "steps", controller->stats.steps);
    end(controller);
}

void fl_event_log_setting_done(fl_controller *controller, const fl_setting *setting,
                               const fl_setting_done_report *report)
{
    static const char *const what[] = {"",           "run.paused",  "run.resumed",
                                       "run.ending", "job.changed", "job.changed"};
    static const char *const field[] = {NULL, NULL, NULL, NULL, "train.lr", "log.level"};
    fl_json *j = begin(controller, what[setting->kind]);
    fl_json_integer(j, "step", report->step);
    if (field[setting->kind] != NULL) {
        fl_json_text(j, "field", field[setting->kind]);
        fl_json_real(j, "value", setting->value);
    }
    fl_json_integer(j, "last_step", report->end_step);
    end(controller);
}

void fl_event_log_stalled(fl_controller *controller, int64_t now_us)
{
    double seconds = (double)(now_us - controller->moved_us) * 1e-6;
    const fl_worker *last = NULL;
    char waits[FL_FLIGHT_DUMP_BYTES];
    fl_flight_dump_explain(controller, -1, waits, sizeof waits);
    fl_json *j = begin(controller, "run.stalled");
    fl_json_rounded(j, "seconds", seconds, 1);
    fl_json_text(j, "waits", waits);
    fl_json_array(j, "workers");
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        bool behind = !w->departed && (last == NULL || w->steps < last->steps);
        last = behind ? w : last;
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", w->rank);
        fl_json_integer(j, "steps", w->steps);
        fl_json_text(j, "operation", w->operation);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    end(controller);
    if (last == NULL) {
        return; /* all have departed: somebody else says so */
    }
    fl_progress_note(
        &controller->progress,
        "no step for %.0f s; worker %d is furthest behind, after step %lld, in: %s%s%s", seconds,
        last->rank, (long long)last->steps, last->operation, waits[0] == 0 ? "" : "; ", waits);
}

static fl_json *begin_loss(fl_controller *controller, const fl_worker *w, fl_loss_kind how,
                           bool goes_on)
{
    fl_json *j = begin(controller, "worker.lost");
    fl_json_integer(j, "rank", w->rank);
    fl_json_integer(j, "pid", w->pid);
    fl_json_bool(j, "goes_on", goes_on);
    fl_json_text(j, "how", fl_watch_kind_text(how));
    if (how == FL_LOSS_KILLED) {
        fl_json_integer(j, "signal", WTERMSIG(w->wait_status));
    } else if (how == FL_LOSS_EXITED) {
        fl_json_integer(j, "exit_code", WEXITSTATUS(w->wait_status));
    } else if (how == FL_LOSS_REPORTED) {
        fl_json_text(j, "status", fl_status_text(w->failure));
    }
    fl_json_integer(j, "steps", w->steps);
    fl_json_text(j, "operation", w->operation);
    return j;
}

void fl_event_log_lost(fl_controller *controller)
{
    fl_json *j =
        begin_loss(controller, &controller->workers[controller->lost], controller->loss, false);
    fl_json_text(j, "waits", controller->waits);
    fl_json_text(j, "message", controller->message);
    end(controller);
}

void fl_event_log_survived(fl_controller *controller)
{
    const fl_survived_loss *s = &controller->spared;
    fl_json *j = begin_loss(controller, &controller->workers[s->rank], s->kind, true);
    fl_json_text(j, "message", s->text);
    end(controller);
    fl_progress_note(&controller->progress, "%s; the run goes on without it", s->text);
}

static void result_fields(fl_json *j, const fl_run_result *result)
{
    fl_json_integer(j, "steps", result->steps);
    fl_json_integer(j, "epochs", result->epochs);
    fl_json_integer(j, "skipped_steps", result->skipped_steps);
    fl_json_real(j, "train_loss", result->train_loss);
    fl_json_real(j, "test_loss", result->test_loss);
    fl_json_real(j, "test_accuracy", result->test_accuracy);
    fl_json_rounded(j, "seconds", result->seconds, 6);
    fl_json_rounded(j, "samples_per_s", result->samples_per_s, 1);
}

void fl_event_log_over(fl_controller *controller, const fl_run_result *result, const char *missing)
{
    bool good = controller->status == FL_OK || controller->status == FL_ESTOPPED;
    fl_json *j = begin(controller, controller->status == FL_OK ? "run.finished"
                                   : good                      ? "run.stopped"
                                                               : "run.failed");
    fl_json_text(j, "status", fl_status_text(controller->status));
    if (!good) {
        fl_json_text(j, "message", controller->message);
    }
    result_fields(j, result);
    if (controller->ledger_text[0] != 0) {
        fl_json_text(j, "ledger", controller->ledger_text);
    }
    if (missing[0] != 0) {
        fl_json_text(j, "record_missing", missing);
    }
    end(controller);
}
