/* The events of a run, as events.jsonl tells them. */
#include "control/controller.h"
#include "control/fields.h"

#include "device/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static fl_json *begin(fl_head *head, const char *event)
{
    return fl_story_begin(head, event);
}

static void end(fl_head *head)
{
    fl_story_end(head);
}

fl_json *fl_story_begin(fl_head *head, const char *event)
{
    head->telling = event;
    return fl_runfiles_event(&head->files, event, head->plan.generation);
}

void fl_story_end(fl_head *head)
{
    fl_runfiles_event_end(&head->files);
    fl_ctl_publish(head, head->telling);
}

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void fl_story_started(fl_head *head)
{
    const fl_head_options *o = head->options;
    fl_json *j = begin(head, "run.started");
    fl_json_text(j, "job", o->job->name);
    fl_json_text(j, "version", FL_VERSION);
    fl_json_text(j, "run_dir", o->run_dir);
    if (fl_metrics_url(head) != NULL) {
        fl_json_text(j, "metrics", fl_metrics_url(head));
        fl_progress_note(&head->progress, "metrics at %s", fl_metrics_url(head));
    }
    fl_json_integer(j, "processors", processors());
    fl_json_integer(j, "head_pid", getpid());
    fl_json_integer(j, "samples", o->n_samples);
    fl_json_integer(j, "batch", o->job->train.batch);
    fl_json_integer(j, "steps", o->n_steps);
    fl_json_integer(j, "epochs", o->n_epochs);
    fl_json_integer(j, "seed", (int64_t)o->job->train.seed);
    fl_json_array(j, "workers");
    for (int i = 0; i < head->n_workers; i++) {
        const fl_worker *w = &head->workers[i];
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", w->rank);
        fl_json_integer(j, "pid", w->pid);
        fl_json_integer(j, "replica", w->place.replica);
        fl_json_integer(j, "stage", w->place.stage);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    end(head);
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

void fl_story_costs(fl_head *head)
{
    const fl_costs_origin *c = head->options->costs;
    if (c == NULL) {
        return;
    }
    fl_json *j = begin(head, "costs");
    fl_json_text(j, "from", c->from);
    fl_json_text(j, "measured", c->measured);
    fl_json_integer(j, "live_steps", c->live_steps);
    if (c->path != NULL) {
        fl_json_text(j, "file", c->path);
    }
    if (c->note != NULL) {
        fl_json_text(j, "file_refused", c->note);
    }
    end(head);
}

void fl_story_plan(fl_head *head)
{
    const fl_plan *plan = &head->plan;
    char text[256], why[128];
    int n_fit = 0;
    for (int i = 0; i < head->options->n_candidates; i++) {
        n_fit += head->options->candidates[i].why_not == FL_OK;
    }
    snprintf(why, sizeof why,
             n_fit > 1 ? "the shortest predicted step of the %d candidates that fit"
                       : "the only candidate that fits",
             n_fit);
    fl_json *j = begin(head, "plan.chosen");
    fl_json_text(j, "plan", fl_plan_text(plan, text, sizeof text));
    fl_fields_plan(j, plan);
    fl_json_text(j, "schedule", fl_schedule_text(plan->schedule));
    fl_json_rounded(j, "step_ms", plan->predicted_step_us * 1e-3, 3);
    fl_json_rounded(j, "bubble", plan->predicted_bubble, 4);
    fl_mfu_tell(head, j);
    fl_json_text(j, "why", why);
    fl_json_array(j, "candidates");
    for (int i = 0; i < head->options->n_candidates; i++) {
        candidate(j, &head->options->candidates[i]);
    }
    fl_json_close(j, ']');
    end(head);
}

void fl_story_ready(fl_head *head, const fl_worker *worker)
{
    fl_json *j = begin(head, "worker.ready");
    fl_json_integer(j, "rank", worker->rank);
    fl_json_integer(j, "pid", worker->pid);
    fl_json_integer(j, "memory_peak_bytes", worker->memory_peak_bytes);
    end(head);
}

void fl_story_left(fl_head *head, const fl_worker *worker)
{
    bool exited = WIFEXITED(worker->wait_status);
    fl_json *j = begin(head, "worker.left");
    fl_json_integer(j, "rank", worker->rank);
    fl_json_integer(j, "steps", worker->steps);
    fl_json_integer(j, "generation", head->plan.generation);
    fl_json_integer(j, exited ? "exit_code" : "signal",
                    exited ? WEXITSTATUS(worker->wait_status) : WTERMSIG(worker->wait_status));
    end(head);
    fl_progress_note(&head->progress, "worker %d has left; %d stay", worker->rank,
                     fl_plan_members(&head->plan));
}

void fl_story_running(fl_head *head)
{
    head->times_us = fl_now_us();
    (void)begin(head, "run.running");
    end(head);
}

static void shares(fl_head *head, fl_json *j)
{
    fl_json_array(j, "workers");
    for (int i = 0; i < head->n_workers; i++) {
        fl_time_sums *t = &head->times[i];
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", i);
        fl_fields_times(j, t);
        fl_json_close(j, '}');
        *t = (fl_time_sums){0};
    }
    head->times_us = fl_now_us();
    fl_json_close(j, ']');
}

void fl_story_epoch(fl_head *head)
{
    const fl_epoch_tally *e = &head->tally.past;
    fl_json *j = begin(head, "epoch.finished");
    fl_json_integer(j, "epoch", e->epoch);
    fl_json_integer(j, "steps", e->steps);
    fl_json_integer(j, "samples", e->samples);
    fl_json_real(j, "train_loss", e->loss_sum / (double)e->steps);
    fl_json_rounded(j, "seconds", e->ms * 1e-3, 3);
    fl_json_rounded(j, "samples_per_s", e->ms > 0 ? (double)e->samples / e->ms * 1e3 : 0, 1);
    if (e->evaluated) {
        fl_json_real(j, "test_loss", e->eval.loss);
        fl_json_real(j, "test_accuracy", e->eval.accuracy);
        fl_json_integer(j, "test_samples", e->eval.samples);
        fl_json_rounded(j, "eval_seconds", e->eval.ms * 1e-3, 3);
    }
    fl_mfu_tell(head, j);
    shares(head, j);
    end(head);
    fl_progress_epoch(&head->progress, &head->tally);
}

void fl_story_stopping(fl_head *head, const char *signal_name)
{
    fl_json *j = begin(head, "run.stopping");
    fl_json_text(j, "why", signal_name);
    fl_json_integer(j, "steps", head->tally.steps);
    end(head);
}

void fl_story_steered(fl_head *head, const fl_steer *steer, const fl_steered_report *report)
{
    static const char *const what[] = {"",           "run.paused",  "run.resumed",
                                       "run.ending", "job.changed", "job.changed"};
    static const char *const field[] = {NULL, NULL, NULL, NULL, "train.lr", "log.level"};
    fl_json *j = begin(head, what[steer->kind]);
    fl_json_integer(j, "step", report->step);
    if (field[steer->kind] != NULL) {
        fl_json_text(j, "field", field[steer->kind]);
        fl_json_real(j, "value", steer->value);
    }
    fl_json_integer(j, "last_step", report->end_step);
    end(head);
}

void fl_story_stalled(fl_head *head, int64_t now_us)
{
    double seconds = (double)(now_us - head->moved_us) * 1e-6;
    const fl_worker *last = NULL;
    char waits[FL_SURVEY_BYTES];
    fl_survey_explain(head, -1, waits, sizeof waits);
    fl_json *j = begin(head, "run.stalled");
    fl_json_rounded(j, "seconds", seconds, 1);
    fl_json_text(j, "waits", waits);
    fl_json_array(j, "workers");
    for (int i = 0; i < head->n_workers; i++) {
        const fl_worker *w = &head->workers[i];
        bool behind = !w->departed && (last == NULL || w->steps < last->steps);
        last = behind ? w : last;
        fl_json_object(j, NULL);
        fl_json_integer(j, "rank", w->rank);
        fl_json_integer(j, "steps", w->steps);
        fl_json_text(j, "operation", w->operation);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    end(head);
    if (last == NULL) {
        return; /* all have departed: somebody else says so */
    }
    fl_progress_note(
        &head->progress,
        "no step for %.0f s; worker %d is furthest behind, after step %lld, in: %s%s%s", seconds,
        last->rank, (long long)last->steps, last->operation, waits[0] == 0 ? "" : "; ", waits);
}

static fl_json *begin_loss(fl_head *head, const fl_worker *w, fl_loss_kind how, bool goes_on)
{
    fl_json *j = begin(head, "worker.lost");
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

void fl_story_lost(fl_head *head)
{
    fl_json *j = begin_loss(head, &head->workers[head->lost], head->loss, false);
    fl_json_text(j, "waits", head->waits);
    fl_json_text(j, "message", head->message);
    end(head);
}

void fl_story_spared(fl_head *head)
{
    const fl_spared *s = &head->spared;
    fl_json *j = begin_loss(head, &head->workers[s->rank], s->kind, true);
    fl_json_text(j, "message", s->text);
    end(head);
    fl_progress_note(&head->progress, "%s; the run goes on without it", s->text);
}

static void result_fields(fl_json *j, const fl_run_result *result)
{
    fl_json_integer(j, "steps", result->steps);
    fl_json_integer(j, "epochs", result->epochs);
    fl_json_real(j, "train_loss", result->train_loss);
    fl_json_real(j, "test_loss", result->test_loss);
    fl_json_real(j, "test_accuracy", result->test_accuracy);
    fl_json_rounded(j, "seconds", result->seconds, 6);
    fl_json_rounded(j, "samples_per_s", result->samples_per_s, 1);
}

void fl_story_over(fl_head *head, const fl_run_result *result)
{
    bool good = head->status == FL_OK || head->status == FL_ESTOPPED;
    fl_json *j = begin(head, head->status == FL_OK ? "run.finished"
                             : good                ? "run.stopped"
                                                   : "run.failed");
    fl_json_text(j, "status", fl_status_text(head->status));
    if (!good) {
        fl_json_text(j, "message", head->message);
    }
    result_fields(j, result);
    if (head->ledger_text[0] != 0) {
        fl_json_text(j, "ledger", head->ledger_text);
    }
    end(head);
}
