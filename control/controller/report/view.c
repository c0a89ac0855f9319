#include "control/controller/report/view.h"

#include "control/controller/faults/recovery.h"
#include "control/controller/parts/parts.h"
#include "device/system/clock.h"
#include "pipe/plan/migrate_schedule.h"

#include <math.h>

const char *fl_view_metrics_url(const fl_controller *controller)
{
    const fl_metrics_listener *listener = controller->options->metrics;
    return listener == NULL ? NULL : listener->url;
}

static const char *state_text(const fl_controller *controller)
{
    static const char *const text[] = {"starting", "running", "finishing", "ending", "over"};
    const fl_phase *phase = &controller->shutdown.phase;
    bool trains = phase->state <= FL_CONTROLLER_RUNNING && phase->n_stops == 0;
    if (phase->back.returns || (trains && fl_recovery_is_on(controller))) {
        return "recovering";
    }
    if (phase->state != FL_CONTROLLER_RUNNING) {
        return text[phase->state];
    }
    if (phase->n_stops > 0) {
        return "stopping";
    }
    return fl_ctl_paused(controller->ctl) ? "paused" : "running";
}

static void look_at_plan(const fl_controller *controller, fl_run_view *view)
{
    static const char *const transition[] = {"idle", "preparing", "committing", "recovering"};
    const fl_plan_input *input = controller->options->plan_input;
    view->transition = transition[controller->elastic.transition.state];
    view->transitions = controller->elastic.transition.sums;
    view->recovery = controller->recovery.sums;
    view->n_snapshots = controller->snapshots.n_taken;
    view->snapshot_step = fl_snapshots_step(&controller->snapshots);
    view->n_blocks = controller->elastic.decide.norms.L;
    view->n_frozen_layers =
        input == NULL ? 0 : fl_frozen_layers(input->model, controller->elastic.plan.F);
    view->pinned = controller->elastic.pinned;
    view->mfu = fl_mfu_now(&controller->elastic);
    view->straggler = fl_stragglers_named(&controller->elastic);
    view->n_stragglers =
        controller->n_stragglers_before + fl_stragglers_count(&controller->elastic);
}

static void look_at_cache(const fl_controller *controller, fl_run_view *view)
{
    const fl_activations *activations = controller->options->activations;
    view->has_cache = activations != NULL;
    view->cache = controller->cache;
    view->cache_used = fl_cache_sums_used(&controller->cache, controller->elastic.plan.F);
    view->cache_store = (fl_cache_stats){0};
    if (activations != NULL) {
        fl_activations_stats(activations, &view->cache_store);
    }
}

static void look_at_checkpoints(const fl_controller *controller, int64_t now_us, fl_run_view *view)
{
    const fl_checkpoint_sums *sums = &controller->checkpoints.sums;
    view->checkpoints = *sums;
    view->checkpoint_age_s =
        sums->any && sums->last_us > 0 ? (double)(now_us - sums->last_us) * 1e-6 : NAN;
}

const fl_run_view *fl_view_look(fl_controller *controller)
{
    fl_run_view *view = &controller->view;
    int64_t now_us = fl_now_us(), since_us = controller->times.since_us;
    view->run = &controller->facts;
    view->state = state_text(controller);
    view->metrics_url = fl_view_metrics_url(controller);
    view->time_s = (double)(now_us - controller->log.files.start_us) * 1e-6;
    fl_run_progress_of(&controller->stats, &view->progress);
    look_at_plan(controller, view);
    look_at_cache(controller, view);
    look_at_checkpoints(controller, now_us, view);
    view->comm = controller->comm.comm.n_pairs > 0 ? &controller->comm : NULL;
    view->times = &controller->times;
    view->times_s = since_us == 0 ? 0.0 : (double)(now_us - since_us) * 1e-6;
    view->counts = fl_ctl_count(controller->ctl);
    return view;
}
