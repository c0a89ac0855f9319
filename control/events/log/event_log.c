/* Writes the events of a run to events.jsonl. */
#include "control/events/log/event_log.h"

#include "pipe/cost/plan.h"
#include "pipe/cost/schedule.h"

#include <stdio.h>
#include <sys/wait.h>

fl_status fl_event_log_open(fl_event_log *log, int dir_fd, FILE *terminal, const fl_plan *plan)
{
    *log = (fl_event_log){.plan = plan};
    fl_progress_init(&log->progress, terminal, plan);
    return fl_runfiles_open(&log->files, dir_fd);
}

fl_status fl_event_log_resume(fl_event_log *log, int dir_fd, FILE *terminal, const fl_plan *plan,
                              const fl_runfiles_place *place)
{
    *log = (fl_event_log){.plan = plan};
    fl_progress_init(&log->progress, terminal, plan);
    return fl_runfiles_reopen(&log->files, dir_fd, place);
}

void fl_event_log_close(fl_event_log *log)
{
    if (log->plan != NULL) { /* otherwise it was never opened */
        fl_runfiles_close(&log->files);
    }
}

void fl_event_log_listen(fl_event_log *log, fl_event_listener *listener, void *context)
{
    log->listener = listener;
    log->context = context;
}

fl_json *fl_event_log_begin(fl_event_log *log, const char *event)
{
    log->event = event;
    return fl_runfiles_event(&log->files, event, log->plan->generation);
}

fl_json *fl_event_log_begin_at(fl_event_log *log, const char *event, const fl_run_moment *at)
{
    log->event = event;
    return fl_runfiles_event_at(&log->files, event, log->plan->generation, at);
}

void fl_event_log_end(fl_event_log *log)
{
    fl_runfiles_event_end(&log->files);
    if (log->listener != NULL && !log->files.event.broken) {
        log->listener(log->context, log->event, &log->files.event);
    }
}

static void candidate_fields(fl_json *j, const fl_candidate *c)
{
    fl_json_object(j, NULL);
    fl_fields_candidate(j, c, 1.0);
    fl_json_rounded(j, "reduce_ms", c->reduce_us * 1e-3, 3);
    if (c->why_not != FL_OK) {
        fl_json_text(j, "why_not", fl_status_text(c->why_not));
    }
    fl_json_close(j, '}');
}

static void put_kinds(fl_json *j, const fl_costs_origin *origin)
{
    if (origin->n_kinds == 0) {
        return;
    }
    fl_json_array(j, "kinds");
    for (int i = 0; i < origin->n_kinds; i++) {
        fl_json_object(j, NULL);
        fl_json_text(j, "host", origin->kinds[i].host);
        fl_json_text(j, "from", origin->kinds[i].from);
        if (origin->kinds[i].path != NULL) {
            fl_json_text(j, "file", origin->kinds[i].path);
        }
        fl_json_text(j, "measured", origin->kinds[i].measured);
        fl_json_rounded(j, "speed", origin->kinds[i].speed, 3);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

void fl_event_log_costs(fl_event_log *log, const fl_costs_origin *origin)
{
    if (origin == NULL) {
        return;
    }
    fl_json *j = fl_event_log_begin(log, "costs");
    fl_json_text(j, "from", origin->from);
    fl_json_text(j, "measured", origin->measured);
    fl_json_integer(j, "live_steps", origin->live_steps);
    if (origin->path != NULL) {
        fl_json_text(j, "file", origin->path);
    }
    if (origin->note != NULL) {
        fl_json_text(j, "file_refused", origin->note);
    }
    put_kinds(j, origin);
    fl_event_log_end(log);
}

void fl_event_log_plan(fl_event_log *log, const fl_run_facts *run, const fl_mfu *mfu)
{
    const fl_plan *plan = run->plan;
    const fl_resume_origin *origin = run->options->origin;
    char text[256], why[640];
    int n_fit = 0;
    for (int i = 0; i < run->options->n_candidates; i++) {
        n_fit += run->options->candidates[i].why_not == FL_OK;
    }
    snprintf(why, sizeof why,
             n_fit > 1 ? "the shortest predicted step of the %d candidates that fit"
                       : "the only candidate that fits",
             n_fit);
    if (origin != NULL && origin->plan_why != NULL) {
        snprintf(why, sizeof why, "%s", origin->plan_why);
    }
    fl_json *j = fl_event_log_begin(log, "plan.chosen");
    fl_json_text(j, "plan", fl_plan_text(plan, text, sizeof text));
    fl_fields_plan(j, plan);
    fl_fields_places(j, plan);
    fl_json_text(j, "schedule", fl_schedule_text(plan->schedule));
    fl_json_rounded(j, "step_ms", plan->predicted_step_us * 1e-3, 3);
    fl_json_rounded(j, "bubble", plan->predicted_bubble, 4);
    fl_fields_mfu(j, mfu);
    fl_json_text(j, "why", why);
    fl_json_array(j, "candidates");
    for (int i = 0; i < run->options->n_candidates; i++) {
        candidate_fields(j, &run->options->candidates[i]);
    }
    fl_json_close(j, ']');
    fl_event_log_end(log);
}

void fl_event_log_ready(fl_event_log *log, const fl_worker *worker)
{
    fl_json *j = fl_event_log_begin(log, "worker.ready");
    fl_json_integer(j, "rank", worker->rank);
    fl_fields_host(j, log->hosts, worker->rank);
    fl_json_integer(j, "pid", worker->pid);
    fl_json_integer(j, "memory_peak_bytes", worker->memory.peak_bytes);
    fl_event_log_end(log);
}

void fl_event_log_left(fl_event_log *log, const fl_worker *worker)
{
    bool exited = WIFEXITED(worker->wait_status);
    fl_json *j = fl_event_log_begin(log, "worker.left");
    fl_json_integer(j, "rank", worker->rank);
    fl_fields_host(j, log->hosts, worker->rank);
    fl_json_integer(j, "steps", worker->steps);
    fl_json_integer(j, exited ? "exit_code" : "signal",
                    exited ? WEXITSTATUS(worker->wait_status) : WTERMSIG(worker->wait_status));
    fl_event_log_end(log);
    fl_progress_note(&log->progress, "worker %d has left; %d stay", worker->rank,
                     fl_plan_members(log->plan));
}

void fl_event_log_running(fl_event_log *log)
{
    (void)fl_event_log_begin(log, "run.running");
    fl_event_log_end(log);
}

static void times_fields(fl_json *j, const fl_run_facts *run, const fl_run_times *times)
{
    fl_json_array(j, "workers");
    for (int rank = 0; rank < run->n_started; rank++) {
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", rank);
        fl_fields_host(j, run->hosts, rank);
        fl_fields_times(j, &times->recent[rank]);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void eval_fields(fl_json *j, const fl_metric_list *metrics, const fl_eval_report *e)
{
    fl_json_real(j, e->validation ? "validation_loss" : "test_loss", e->loss);
    fl_fields_metrics(j, e->validation ? "validation" : "test", metrics, &e->metrics);
    fl_json_integer(j, e->validation ? "validation_samples" : "test_samples", e->samples);
    if (e->has_test) {
        fl_json_real(j, "test_loss", e->test_loss);
        fl_fields_metrics(j, "test", metrics, &e->test_metrics);
        fl_json_integer(j, "test_samples", e->test_samples);
    }
}

void fl_event_log_evaluation(fl_event_log *log, const fl_run_stats *stats,
                             const fl_eval_report *eval)
{
    int64_t done = eval->step + 1;
    fl_json *j = fl_event_log_begin(log, "evaluation");
    fl_json_integer(j, "step", eval->step);
    fl_json_integer(j, "epoch", eval->epoch);
    eval_fields(j, &stats->metrics, eval);
    fl_json_rounded(j, "seconds", eval->ms * 1e-3, 3);
    fl_event_log_end(log);
    if (done % stats->steps_per_epoch != 0 && done < stats->n_steps) {
        fl_progress_evaluation(&log->progress, stats, eval); /* otherwise the epoch's line has it */
    }
}

void fl_event_log_epoch(fl_event_log *log, const fl_run_facts *run, const fl_run_times *times,
                        const fl_mfu *mfu)
{
    const fl_run_stats *stats = run->stats;
    const fl_epoch_stats *e = &stats->past;
    fl_json *j = fl_event_log_begin(log, "epoch.finished");
    fl_json_integer(j, "epoch", e->epoch);
    fl_json_integer(j, "steps", e->steps);
    fl_json_integer(j, "samples", e->samples);
    fl_json_real(j, "train_loss", fl_run_stats_loss(e));
    fl_metric_means train = fl_run_stats_metrics(stats, e);
    fl_fields_metrics(j, "train", &stats->metrics, &train);
    if (e->n_skipped > 0) {
        fl_json_integer(j, "skipped_steps", e->n_skipped);
    }
    fl_json_rounded(j, "seconds", e->ms * 1e-3, 3);
    fl_json_rounded(j, "samples_per_s", e->ms > 0 ? (double)e->samples / e->ms * 1e3 : 0, 1);
    if (e->evaluated) {
        eval_fields(j, &stats->metrics, &e->eval);
        fl_json_rounded(j, "eval_seconds", e->eval.ms * 1e-3, 3);
    }
    fl_fields_mfu(j, mfu);
    times_fields(j, run, times);
    fl_event_log_end(log);
    fl_progress_epoch(&log->progress, stats);
}

void fl_event_log_stopping(fl_event_log *log, const char *why, int64_t steps)
{
    fl_json *j = fl_event_log_begin(log, "run.stopping");
    fl_json_text(j, "why", why);
    fl_json_integer(j, "steps", steps);
    fl_event_log_end(log);
}

void fl_event_log_opening_ended(fl_event_log *log, double seconds, const char *calls)
{
    fl_json *j = fl_event_log_begin(log, "opening.ended");
    fl_json_rounded(j, "seconds", seconds, 3);
    fl_json_text(j, "calls", calls);
    fl_event_log_end(log);
    fl_progress_note(&log->progress,
                     "the workers were not connected yet: the run does not wait for them%s%s",
                     calls[0] == 0 ? "" : "; ", calls);
}

void fl_event_log_setting_done(fl_event_log *log, const fl_setting *setting,
                               const fl_setting_done_report *report)
{
    static const char *const what[] = {"",           "run.paused",  "run.continued",
                                       "run.ending", "job.changed", "job.changed"};
    static const char *const field[] = {NULL, NULL, NULL, NULL, "train.lr", "log.level"};
    fl_json *j = fl_event_log_begin(log, what[setting->kind]);
    fl_json_integer(j, "step", report->step);
    if (field[setting->kind] != NULL) {
        fl_json_text(j, "field", field[setting->kind]);
        fl_json_real(j, "value", setting->value);
    }
    fl_json_integer(j, "last_step", report->end_step);
    fl_event_log_end(log);
}

/* A neighbour of the worker that stands still waits after as few steps: so "furthest behind" is
 * said only where no single worker holds up the others. */
static void tell_stall(fl_progress *progress, const fl_worker *last, double seconds,
                       const char *waits, int culprit)
{
    if (culprit >= 0) {
        fl_progress_note(progress, "no step for %.0f s; %s", seconds, waits);
    } else if (last != NULL) { /* else all have departed: another event reports that */
        fl_progress_note(progress,
                         "no step for %.0f s; worker %d is furthest behind, after step %lld, in: "
                         "%s%s%s",
                         seconds, last->rank, (long long)last->steps, last->operation,
                         waits[0] == 0 ? "" : "; ", waits);
    }
}

void fl_event_log_stalled(fl_event_log *log, const fl_run_facts *run, double seconds,
                          const char *waits, int culprit)
{
    const fl_worker *last = NULL;
    fl_json *j = fl_event_log_begin(log, "run.stalled");
    fl_json_rounded(j, "seconds", seconds, 1);
    fl_json_text(j, "waits", waits);
    if (culprit >= 0) {
        fl_json_integer(j, "rank", culprit);
    }
    fl_json_array(j, "workers");
    for (int i = 0; i < run->n_started; i++) {
        const fl_worker *w = &run->workers[i];
        bool behind = !w->departed && (last == NULL || w->steps < last->steps);
        last = behind ? w : last;
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", w->rank);
        fl_fields_host(j, run->hosts, w->rank);
        fl_json_integer(j, "steps", w->steps);
        fl_json_text(j, "operation", fl_worker_operation(w));
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    fl_event_log_end(log);
    tell_stall(&log->progress, last, seconds, waits, culprit);
}
