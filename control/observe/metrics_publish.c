/* What the controller knows, as metrics. */
#include "control/controller/parts.h"
#include "control/observe/metrics_http.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PUBLISH_MS = 500 };

struct fl_metrics_desk {
    fl_metrics_server *server;
    fl_metrics values; /* with workers of its own */
    int64_t due_us;
};

static void gather_run(const fl_controller *controller, fl_metrics *m)
{
    const char *slash = strrchr(controller->options->run_dir, '/');
    snprintf(m->version, sizeof m->version, "%s", FL_VERSION);
    snprintf(m->job, sizeof m->job, "%s", controller->options->job->name);
    snprintf(m->run, sizeof m->run, "%s", slash == NULL ? controller->options->run_dir : slash + 1);
    snprintf(m->state, sizeof m->state, "%s", fl_ctl_state_text(controller));
    m->n_workers = controller->n_workers;
    m->memory_budget_bytes = controller->options->job->devices.memory_bytes;
}

static void gather_progress(const fl_controller *controller, fl_metrics *m)
{
    const fl_run_stats *t = &controller->stats;
    bool any = t->steps > 0;
    m->steps = t->steps;
    m->planned_steps = t->n_steps;
    m->epochs = t->epochs;
    m->planned_epochs = t->n_epochs;
    m->samples = t->samples;
    m->tokens = t->tokens;
    m->step_seconds_sum = t->step_ms * 1e-3;
    m->loss = any ? t->last.loss : NAN;
    m->gradient_norm = any ? t->last.grad_norm : NAN;
    m->learning_rate = any ? t->last.lr : NAN;
    m->test_loss = t->any_eval ? t->last_eval.loss : NAN;
    m->test_accuracy = t->any_eval ? t->last_eval.accuracy : NAN;
}

static void gather_plan(const fl_controller *controller, fl_metrics *m)
{
    const fl_plan *plan = &controller->plan;
    const fl_elastic_sums *sums = &controller->elastic.sums;
    m->generation = plan->generation;
    m->blocks = controller->decide.norms.L;
    m->frozen = plan->F;
    m->stages = plan->K;
    m->replicas = plan->R;
    m->micro_batches = plan->M;
    m->predicted_step_seconds =
        plan->predicted_step_us > 0.0 ? plan->predicted_step_us * 1e-6 : NAN;
    m->mfu = fl_mfu_now(controller).share;
    m->n_committed = sums->n_committed;
    m->n_cancelled = sums->n_cancelled;
    m->stall_seconds_sum = (double)sums->stall_us * 1e-6;
    m->last_stall_seconds = sums->n_committed > 0 ? (double)sums->last_stall_us * 1e-6 : NAN;
    m->migrated_bytes = sums->moved_bytes;
}

static void gather_cache(const fl_controller *controller, fl_metrics *m)
{
    const fl_activations *a = controller->options->activations;
    fl_cache_stats stats = {0};
    if (a != NULL) {
        fl_activations_stats(a, &stats);
    }
    m->cache_used = fl_event_log_cache_is_used(controller);
    m->cache_hits = controller->cache.n_hits;
    m->cache_upgrades = controller->cache.n_upgrades;
    m->cache_misses = controller->cache.n_misses;
    m->cache_values = stats.n_values;
    m->cache_evicted = stats.n_evicted;
    m->cache_used_bytes = stats.used_bytes;
    m->cache_memory_bytes = stats.memory_bytes;
    m->cache_disk_bytes = stats.disk_bytes;
}

static void gather_control(const fl_controller *controller, fl_metrics *m)
{
    fl_ctl_counts counts = fl_ctl_count(controller);
    m->n_stragglers = fl_stragglers_count(controller);
    m->n_events = counts.events;
    m->n_events_dropped = counts.dropped;
    m->n_requests = counts.answered;
    m->n_requests_refused = counts.refused;
}

static void gather_worker(const fl_controller *controller, int rank, fl_metrics_worker *out)
{
    const fl_worker *w = &controller->workers[rank];
    const fl_time_sums *t = &controller->all_times[rank];
    const int64_t us[FL_METRICS_PARTS] = {t->compute_us, t->wait_us, t->reduce_wait_us,
                                          t->optimizer_us, t->data_us};
    snprintf(out->state, sizeof out->state, "%s", fl_ctl_worker_state(w));
    out->replica = w->place.active ? w->place.replica : -1;
    out->stage = w->place.active ? w->place.stage : -1;
    out->slow = fl_stragglers_named(controller) == rank;
    out->steps = w->steps;
    out->memory_used_bytes = w->memory_used_bytes;
    out->memory_peak_bytes = w->memory_peak_bytes;
    for (int part = 0; part < FL_METRICS_PARTS; part++) {
        out->seconds[part] = (double)us[part] * 1e-6;
    }
}

static void gather(const fl_controller *controller, fl_metrics *m)
{
    gather_run(controller, m);
    gather_progress(controller, m);
    gather_plan(controller, m);
    gather_cache(controller, m);
    gather_control(controller, m);
    for (int rank = 0; rank < controller->n_workers; rank++) {
        gather_worker(controller, rank, &m->workers[rank]);
    }
}

void fl_metrics_watch(fl_controller *controller)
{
    fl_metrics_desk *desk = controller->metrics;
    int64_t now_us = fl_now_us();
    if (desk != NULL && now_us >= desk->due_us) {
        desk->due_us = now_us + PUBLISH_MS * 1000;
        gather(controller, &desk->values);
        fl_metrics_publish(desk->server, &desk->values);
    }
}

fl_status fl_metrics_open(fl_controller *controller)
{
    fl_metrics_listener *listener = controller->options->metrics;
    fl_metrics_desk *desk = NULL;
    struct timespec now;
    if (listener == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *desk, (void **)&desk));
    controller->metrics = desk;
    clock_gettime(CLOCK_REALTIME, &now);
    desk->values.start_time_s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    FL_TRY(fl_alloc_array((size_t)controller->n_workers, sizeof *desk->values.workers,
                          (void **)&desk->values.workers));
    FL_TRY(fl_metrics_serve(listener, controller->n_workers, &desk->server));
    fl_metrics_watch(controller);
    return FL_OK;
}

void fl_metrics_close(fl_controller *controller)
{
    fl_metrics_desk *desk = controller->metrics;
    if (desk != NULL) {
        fl_metrics_stop(&desk->server);
        fl_free(desk->values.workers);
        fl_free(desk);
        controller->metrics = NULL;
    }
}

const char *fl_metrics_url(const fl_controller *controller)
{
    return controller->options->metrics == NULL ? NULL : controller->options->metrics->url;
}
