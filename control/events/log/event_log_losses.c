/* Events of workers that are lost, that come back, and of the run that goes on. */
#include "control/events/log/event_log.h"

#include "device/text/number_text.h"
#include "device/text/plural.h"

#include <sys/wait.h>

/* Later ones of the worker are unknown. */
static void put_last_graphs(fl_json *j, const fl_graph_sums *sums)
{
    const fl_graph_counts total = fl_graph_sums_total(sums);
    if (sums->any) {
        fl_json_object(j, "graphs");
        fl_json_integer(j, "up_to_step", sums->step);
        fl_json_integer(j, "captures", total.captures);
        fl_json_integer(j, "launches", total.launches);
        fl_json_integer(j, "calls", total.calls);
        fl_json_close(j, '}');
    }
}

static fl_json *begin_loss(fl_event_log *log, const fl_worker *w, const fl_worker_loss *loss,
                           bool goes_on)
{
    fl_json *j = fl_event_log_begin(log, "worker.lost");
    fl_json_integer(j, "rank", w->rank);
    fl_fields_host(j, log->hosts, w->rank);
    fl_json_integer(j, "pid", w->pid);
    fl_json_bool(j, "goes_on", goes_on);
    fl_json_text(j, "how", loss->how);
    if (loss->kind == FL_LOSS_KILLED) {
        fl_json_integer(j, "signal", WTERMSIG(w->wait_status));
    } else if (loss->kind == FL_LOSS_EXITED) {
        fl_json_integer(j, "exit_code", WEXITSTATUS(w->wait_status));
    } else if (loss->kind == FL_LOSS_REPORTED) {
        fl_json_text(j, "status", fl_status_text(w->failure));
    }
    fl_json_integer(j, "step", loss->step);
    fl_json_integer(j, "steps", w->steps);
    fl_json_text(j, "operation", w->operation);
    put_last_graphs(j, &w->graphs);
    return j;
}

void fl_event_log_lost(fl_event_log *log, const fl_worker *worker, const fl_worker_loss *loss,
                       const char *waits, const fl_return_choice *back)
{
    fl_json *j = begin_loss(log, worker, loss, back->returns);
    if (back->returns) {
        fl_json_integer(j, "goes_back_to", back->step);
    }
    fl_json_text(j, "waits", waits);
    fl_json_text(j, "message", loss->text);
    fl_event_log_end(log);
}

void fl_event_log_missing(fl_event_log *log, const fl_worker *worker, const fl_worker_loss *loss)
{
    fl_json *j = begin_loss(log, worker, loss, true);
    fl_json_text(j, "message", loss->text);
    fl_event_log_end(log);
}

void fl_event_log_survived(fl_event_log *log, const fl_worker *worker, const fl_worker_loss *loss)
{
    fl_event_log_missing(log, worker, loss);
    fl_progress_note(&log->progress, "%s; the run goes on without it", loss->text);
}

void fl_event_log_restarted(fl_event_log *log, int rank, int64_t step, int n, int most,
                            fl_restart_why why)
{
    static const char *const text[] = {"lost", "requested", "host joined"};
    fl_json *j = fl_event_log_begin(log, "worker.restarted");
    fl_json_integer(j, "rank", rank);
    fl_fields_host(j, log->hosts, rank);
    fl_json_integer(j, "step", step);
    fl_json_integer(j, "restarts", n);
    fl_json_integer(j, "most", most);
    fl_json_text(j, "why", text[why]);
    fl_event_log_end(log);
    if (why == FL_RESTART_LOST) {
        fl_progress_note(&log->progress, "worker %d is started again (%d of %d times)", rank, n,
                         most);
    } else {
        fl_progress_note(&log->progress, "worker %d is started again, %s", rank,
                         why == FL_RESTART_HOST ? "with its host" : "as requested");
    }
}

void fl_event_log_grown(fl_event_log *log, int rank, bool by_host)
{
    fl_json *j = fl_event_log_begin(log, "worker.started");
    fl_json_integer(j, "rank", rank);
    fl_fields_host(j, log->hosts, rank);
    fl_event_log_end(log);
    fl_progress_note(&log->progress, "worker %d is started, %s", rank,
                     by_host ? "with its host" : "as requested");
}

void fl_event_log_joined(fl_event_log *log, const fl_worker *worker, int64_t step)
{
    fl_json *j = fl_event_log_begin(log, "worker.joined");
    fl_json_integer(j, "rank", worker->rank);
    fl_fields_host(j, log->hosts, worker->rank);
    fl_json_integer(j, "pid", worker->pid);
    fl_json_integer(j, "step", step);
    fl_event_log_end(log);
    fl_progress_note(&log->progress, "worker %d has joined the run, as standby", worker->rank);
}

void fl_event_log_agent_lost(fl_event_log *log, const char *text)
{
    fl_json *j = fl_event_log_begin(log, "agent.lost");
    fl_json_text(j, "message", text);
    fl_event_log_end(log);
}

static void lost_moments_field(fl_json *j, const fl_recovered *r)
{
    if (r->n_no_moments > 0) {
        fl_json_array(j, "lost_moments");
        for (int i = 0; i < r->n_no_moments; i++) {
            fl_json_text(j, NULL, r->no_moments[i]);
        }
        fl_json_close(j, ']');
    }
}

/* This time, and all times so far. */
static void without_training_fields(fl_json *j, const fl_recovery_sums *sums)
{
    fl_json_rounded(j, "without_training_ms", (double)sums->last_us * 1e-3, 3);
    fl_json_rounded(j, "all_without_training_ms", (double)sums->lost_us * 1e-3, 3);
}

void fl_event_log_recovered(fl_event_log *log, const fl_recovered *r, const fl_recovery_sums *sums,
                            const fl_plan *plan)
{
    double seconds = (double)(r->detect_us + r->collect_us + r->move_us) * 1e-6;
    char workers[FL_COUNT_BYTES], after[FL_NUMBER_TEXT_MAX];
    fl_json *j = fl_event_log_begin(log, "run.recovered");
    fl_json_text(j, "why", r->why);
    fl_json_integer(j, "step", r->step);
    fl_fields_plan(j, plan);
    fl_fields_places(j, plan);
    lost_moments_field(j, r);
    fl_json_rounded(j, "detect_ms", (double)r->detect_us * 1e-3, 3);
    fl_json_rounded(j, "collect_ms", (double)r->collect_us * 1e-3, 3);
    fl_json_rounded(j, "move_ms", (double)r->move_us * 1e-3, 3);
    without_training_fields(j, sums);
    fl_event_log_end(log);
    fl_progress_note(
        &log->progress, "%s;\n  after %s s the run goes on from step %lld with %s (K=%d R=%d M=%d)",
        r->why, fl_number_text(seconds, 2, after), (long long)r->step,
        fl_count(fl_plan_n_active(plan), "worker", workers), plan->K, plan->R, plan->M);
}

void fl_event_log_returned(fl_event_log *log, int64_t step, const fl_recovery_sums *sums)
{
    fl_json *j = fl_event_log_begin(log, "run.returned");
    fl_json_integer(j, "step", step);
    without_training_fields(j, sums);
    fl_event_log_end(log);
    fl_progress_note(&log->progress, "after %.1f s without training the run goes on from step %lld",
                     (double)sums->last_us * 1e-6, (long long)step);
}

void fl_event_log_returning(fl_event_log *log, const char *why, int64_t steps,
                            const fl_return_choice *back)
{
    const char *to = back->to_snapshot ? "snapshot" : back->step > 0 ? "checkpoint" : "first step";
    fl_json *j = fl_event_log_begin(log, "run.returning");
    fl_json_text(j, "why", why);
    fl_json_text(j, "to", to);
    fl_json_integer(j, "step", back->step);
    fl_json_integer(j, "steps", steps);
    fl_json_integer(j, "repeated_steps", steps - back->step);
    fl_event_log_end(log);
}
