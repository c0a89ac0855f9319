#include "control/events/fields.h"
#include "control/socket/ctl.h"
#include "device/system/clock.h"

#include <math.h>
#include <unistd.h>

static void plan_fields(const fl_run_view *view, fl_json *j)
{
    const fl_plan *plan = view->run->plan;
    fl_json_object(j, "plan");
    fl_json_integer(j, "generation", plan->generation);
    fl_fields_plan(j, plan);
    fl_json_integer(j, "frozen_layers", view->n_frozen_layers);
    fl_json_rounded(j, "predicted_step_ms", plan->predicted_step_us * 1e-3, 3);
    fl_json_close(j, '}');
    fl_json_integer(j, "blocks", view->n_blocks);
    fl_json_array(j, "pinned");
    for (int i = 0; i < view->n_blocks; i++) {
        if (view->pinned[i]) {
            fl_json_integer(j, NULL, i + 1);
        }
    }
    fl_json_close(j, ']');
}

static double mean_at(const fl_metric_means *means, int i)
{
    return i < means->n ? means->mean[i] : (double)NAN;
}

static void loss_metric_fields(const fl_run_progress *p, fl_json *j)
{
    const fl_metric_means *evaluated = p->validates ? &p->validation_metrics : &p->test_metrics;
    fl_json_array(j, "loss_metrics");
    for (int i = 0; i < p->metrics.n; i++) {
        fl_json_object(j, NULL);
        fl_json_text(j, "name", p->metrics.metric[i].name);
        fl_json_bool(j, "share", p->metrics.metric[i].is_share);
        fl_json_real(j, "train", mean_at(&p->train_metrics, i));
        fl_json_real(j, "evaluated", mean_at(evaluated, i));
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void progress_fields(const fl_run_progress *p, fl_json *j)
{
    fl_json_integer(j, "step", p->steps);
    fl_json_integer(j, "steps", p->planned_steps);
    fl_json_integer(j, "epoch", p->epoch);
    fl_json_integer(j, "epochs", p->planned_epochs);
    fl_json_integer(j, "steps_per_epoch", p->steps_per_epoch);
    fl_json_integer(j, "samples", p->samples);
    fl_json_real(j, "loss", p->loss);
    fl_json_real(j, "grad_norm", p->grad_norm);
    fl_json_real(j, "lr", p->lr);
    fl_json_rounded(j, "step_ms", p->step_ms, 3);
    fl_json_rounded(j, "samples_per_s", p->samples_per_s, 1);
    fl_json_rounded(j, "left_s", p->left_s, 1);
    fl_json_real(j, "validation_loss", p->validation_loss);
    fl_json_real(j, "validation_accuracy", p->validation_accuracy);
    fl_json_real(j, "test_loss", p->test_loss);
    fl_json_real(j, "test_accuracy", p->test_accuracy);
    fl_json_text(j, "evaluated_on", p->validates ? "validation" : "test");
    loss_metric_fields(p, j);
}

static void cache_fields(const fl_run_view *view, fl_json *j)
{
    const fl_cache_stats *store = &view->cache_store;
    fl_json_object(j, "cache");
    fl_json_text(j, "state", !view->has_cache ? "none" : view->cache_used ? "on" : "off");
    fl_json_integer(j, "hits", view->cache.n_hits);
    fl_json_integer(j, "upgrades", view->cache.n_upgrades);
    fl_json_integer(j, "misses", view->cache.n_misses);
    fl_json_integer(j, "device_hits", view->cache.n_device);
    fl_json_integer(j, "pinned_hits", view->cache.n_pinned);
    fl_json_integer(j, "values", store->n_values);
    fl_json_integer(j, "used_bytes", store->used_bytes);
    fl_json_integer(j, "memory_bytes", store->memory_bytes);
    fl_json_integer(j, "disk_bytes", store->disk_bytes);
    fl_json_close(j, '}');
}

/* step -1: no checkpoint is durable. */
static void checkpoint_fields(const fl_run_view *view, fl_json *j)
{
    const fl_checkpoint_sums *sums = &view->checkpoints;
    fl_json_object(j, "checkpoints");
    fl_json_integer(j, "written", sums->n_written);
    fl_json_integer(j, "failed", sums->n_failed);
    fl_json_integer(j, "step", sums->any ? sums->last_step : -1);
    fl_json_integer(j, "best_step", sums->any && sums->best_step > 0 ? sums->best_step : -1);
    fl_json_rounded(j, "age_s", view->checkpoint_age_s, 3);
    fl_json_integer(j, "bytes", sums->last_bytes);
    fl_json_rounded(j, "seconds", sums->last_seconds, 3);
    fl_json_close(j, '}');
}

/* Only where some pair of workers may use NCCL. */
static void transport_fields(const fl_run_view *view, fl_json *j)
{
    if (view->comm == NULL) {
        return;
    }
    fl_json_object(j, "transport");
    fl_json_integer(j, "generation", view->comm->generation);
    fl_fields_comm(j, view->comm);
    fl_json_close(j, '}');
}

static void recovery_fields(const fl_run_view *view, fl_json *j)
{
    const fl_recovery_sums *sums = &view->recovery;
    fl_json_object(j, "recovery");
    fl_json_integer(j, "losses", sums->n_losses);
    fl_json_integer(j, "recoveries", sums->n_recoveries);
    fl_json_integer(j, "returns", sums->n_returns);
    fl_json_integer(j, "repeated_steps", sums->n_repeated);
    fl_json_integer(j, "snapshots", view->n_snapshots);
    fl_json_integer(j, "snapshot_step", view->snapshot_step);
    fl_json_rounded(j, "seconds", (double)sums->lost_us * 1e-6, 3);
    fl_json_rounded(j, "last_seconds", (double)sums->last_us * 1e-6, 3);
    fl_json_close(j, '}');
}

static void worker_fields(const fl_run_view *view, int rank, fl_json *j)
{
    const fl_worker *w = &view->run->workers[rank];
    fl_json_object(j, NULL);
    fl_json_integer(j, "rank", w->rank);
    fl_fields_host(j, view->run->hosts, rank);
    fl_json_integer(j, "pid", w->departed && w->exited_us != 0 ? 0 : w->pid);
    fl_json_text(j, "state", fl_worker_state_text(w));
    if (w->departed && w->restarts_us > 0) {
        int64_t left_us = w->restarts_us - fl_now_us();
        fl_json_rounded(j, "restarts_in_s", left_us > 0 ? (double)left_us * 1e-6 : 0.0, 1);
    }
    fl_json_integer(j, "replica", w->place.active ? w->place.replica : -1);
    fl_json_integer(j, "stage", w->place.active ? w->place.stage : -1);
    fl_fields_gpu(j, w);
    fl_json_integer(j, "steps", w->steps);
    fl_json_text(j, "operation", fl_worker_operation(w));
    fl_json_integer(j, "memory_used_bytes", w->memory.used_bytes);
    fl_json_integer(j, "memory_peak_bytes", w->memory.peak_bytes);
    fl_json_integer(j, "memory_parked_bytes", w->memory.parked_bytes);
    fl_json_integer(j, "memory_workspace_bytes", w->memory.workspace_bytes);
    fl_fields_times(j, &view->times->recent[rank]);
    fl_json_close(j, '}');
}

static void status_fields(const fl_run_view *view, fl_json *j)
{
    const fl_controller_options *options = view->run->options;
    fl_json_text(j, "job", options->job->name);
    fl_json_text(j, "run_dir", options->run_dir);
    if (view->metrics_url != NULL) {
        fl_json_text(j, "metrics", view->metrics_url);
    }
    fl_json_integer(j, "controller_pid", getpid());
    fl_json_text(j, "state", view->state);
    fl_json_rounded(j, "time", view->time_s, 3);
    fl_json_integer(j, "events", view->counts.events);
    progress_fields(&view->progress, j);
    plan_fields(view, j);
    fl_fields_mfu(j, &view->mfu);
    cache_fields(view, j);
    checkpoint_fields(view, j);
    recovery_fields(view, j);
    transport_fields(view, j);
    fl_ctl_host_fields(view, j);
    fl_json_text(j, "transition", view->transition);
    fl_json_integer(j, "straggler", view->straggler);
    fl_json_rounded(j, "times_s", view->times_s, 3);
    fl_json_array(j, "workers");
    for (int rank = 0; rank < view->run->n_started; rank++) {
        worker_fields(view, rank, j);
    }
    fl_json_close(j, ']');
}

/* Built once in a turn, and again after a request that changed the run. */
void fl_ctl_status(fl_ctl *ctl, fl_ctl_call *call)
{
    fl_json *fields = &ctl->status;
    if (fields->n == 0) {
        status_fields(ctl->look(ctl->context), fields);
    }
    fl_json_fields(call->result, fields);
}
