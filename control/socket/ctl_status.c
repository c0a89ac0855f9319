#include "control/events/fields.h"
#include "control/socket/ctl.h"
#include "pipe/plan/plan.h"

#include "device/clock.h"
#include "pipe/plan/migrate_schedule.h"

#include <math.h>
#include <unistd.h>

enum { RATE_MS = 10000 }; /* speed is that of the last ten seconds */

const char *fl_ctl_state_text(const fl_controller *controller)
{
    static const char *const text[] = {"starting", "running", "finishing", "ending", "over"};
    if (controller->state != FL_CONTROLLER_RUNNING) {
        return text[controller->state];
    }
    if (controller->n_stops > 0) {
        return "stopping";
    }
    return controller->ctl->paused ? "paused" : "running";
}

static int frozen_layers(const fl_controller *controller)
{
    const fl_plan_input *input = controller->options->plan_input;
    return input == NULL ? 0 : fl_frozen_layers(input->model, controller->plan.F);
}

static void plan_fields(const fl_controller *controller, fl_json *j)
{
    const fl_plan *plan = &controller->plan;
    fl_json_object(j, "plan");
    fl_json_integer(j, "generation", plan->generation);
    fl_fields_plan(j, plan);
    fl_json_integer(j, "frozen_layers", frozen_layers(controller));
    fl_json_rounded(j, "predicted_step_ms", plan->predicted_step_us * 1e-3, 3);
    fl_json_close(j, '}');
}

static void progress_fields(const fl_controller *controller, fl_json *j)
{
    const fl_run_stats *t = &controller->stats;
    double ms_per_step, rate = fl_run_stats_rate(t, RATE_MS, &ms_per_step);
    bool any = t->steps > 0;
    fl_json_integer(j, "step", t->steps);
    fl_json_integer(j, "steps", t->n_steps);
    fl_json_integer(j, "epoch", any ? t->last.epoch : 0);
    fl_json_integer(j, "epochs", t->n_epochs);
    fl_json_integer(j, "steps_per_epoch", t->steps_per_epoch);
    fl_json_integer(j, "samples", t->samples);
    fl_json_real(j, "loss", any ? t->last.loss : NAN);
    fl_json_real(j, "grad_norm", any ? t->last.grad_norm : NAN);
    fl_json_real(j, "lr", any ? t->last.lr : NAN);
    fl_json_rounded(j, "step_ms", any ? ms_per_step : NAN, 3);
    fl_json_rounded(j, "samples_per_s", rate, 1);
    fl_json_rounded(j, "left_s", fl_run_stats_left_s(t), 1);
    fl_json_real(j, "test_loss", t->any_eval ? t->last_eval.loss : NAN);
    fl_json_real(j, "test_accuracy", t->any_eval ? t->last_eval.accuracy : NAN);
}

static void cache_fields(const fl_controller *controller, fl_json *j)
{
    const fl_activations *a = controller->options->activations;
    const fl_cache_sums *sums = &controller->cache;
    fl_cache_stats stats = {0};
    if (a != NULL) {
        fl_activations_stats(a, &stats);
    }
    fl_json_object(j, "cache");
    fl_json_text(j, "state",
                 a == NULL                                ? "none"
                 : fl_event_log_cache_is_used(controller) ? "on"
                                                          : "off");
    fl_json_integer(j, "hits", sums->n_hits);
    fl_json_integer(j, "upgrades", sums->n_upgrades);
    fl_json_integer(j, "misses", sums->n_misses);
    fl_json_integer(j, "values", stats.n_values);
    fl_json_integer(j, "used_bytes", stats.used_bytes);
    fl_json_integer(j, "memory_bytes", stats.memory_bytes);
    fl_json_integer(j, "disk_bytes", stats.disk_bytes);
    fl_json_close(j, '}');
}

const char *fl_ctl_worker_state(const fl_worker *worker)
{
    if (worker->departed) {
        return worker->exited_us != 0 ? "left" : "leaving";
    }
    if (worker->exited_us != 0 || worker->done) {
        return worker->done ? "done" : "gone";
    }
    if (!worker->ready) {
        return "starting";
    }
    return worker->place.active ? "active" : "standby";
}

static void worker_fields(const fl_controller *controller, int rank, fl_json *j)
{
    const fl_worker *w = &controller->workers[rank];
    fl_json_object(j, NULL);
    fl_json_integer(j, "rank", w->rank);
    fl_json_integer(j, "pid", w->pid);
    fl_json_text(j, "state", fl_ctl_worker_state(w));
    fl_json_integer(j, "replica", w->place.active ? w->place.replica : -1);
    fl_json_integer(j, "stage", w->place.active ? w->place.stage : -1);
    fl_json_integer(j, "steps", w->steps);
    fl_json_text(j, "operation", w->operation);
    fl_json_integer(j, "memory_used_bytes", w->memory_used_bytes);
    fl_json_integer(j, "memory_peak_bytes", w->memory_peak_bytes);
    fl_fields_times(j, &controller->times[rank]);
    fl_json_close(j, '}');
}

static void tell(const fl_controller *controller, fl_json *j)
{
    static const char *const transition[] = {"idle", "preparing", "committing"};
    fl_json_text(j, "job", controller->options->job->name);
    fl_json_text(j, "run_dir", controller->options->run_dir);
    if (fl_metrics_url(controller) != NULL) {
        fl_json_text(j, "metrics", fl_metrics_url(controller));
    }
    fl_json_integer(j, "head_pid", getpid());
    fl_json_text(j, "state", fl_ctl_state_text(controller));
    fl_json_rounded(j, "time", (double)(fl_now_us() - controller->files.start_us) * 1e-6, 3);
    fl_json_integer(j, "events", controller->ctl->sequence);
    progress_fields(controller, j);
    plan_fields(controller, j);
    fl_json_integer(j, "blocks", controller->decide.norms.L);
    fl_json_array(j, "pinned");
    for (int i = 0; i < controller->decide.norms.L; i++) {
        if (controller->pinned[i]) {
            fl_json_integer(j, NULL, i + 1);
        }
    }
    fl_json_close(j, ']');
    fl_mfu_tell(controller, j);
    cache_fields(controller, j);
    fl_json_text(j, "transition", transition[controller->elastic.state]);
    fl_json_integer(j, "straggler", fl_stragglers_named(controller)); /* -1: none */
    int64_t since_us = controller->times_us == 0 ? 0 : fl_now_us() - controller->times_us;
    fl_json_rounded(j, "times_s", (double)since_us * 1e-6, 3);
    fl_json_array(j, "workers");
    for (int i = 0; i < controller->n_workers; i++) {
        worker_fields(controller, i, j);
    }
    fl_json_close(j, ']');
}

void fl_ctl_status(fl_controller *controller, fl_ctl_call *call)
{
    fl_json *told = &controller->ctl->status;
    if (told->n == 0) {
        tell(controller, told);
    }
    fl_json_fields(call->result, told);
}
