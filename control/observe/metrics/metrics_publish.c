/* Copies the view of a run into the values that the metrics server answers with. */
#include "control/observe/metrics/metrics_publish.h"

#include "control/observe/metrics/metrics.h"
#include "device/system/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PUBLISH_MS = 500 };

struct fl_metrics_publisher {
    fl_metrics_server *server;
    fl_metrics values; /* with its own arrays of workers and hosts */
    int64_t due_us;
};

static void gather_run(const fl_run_view *view, fl_metrics *m)
{
    const fl_controller_options *o = view->run->options;
    const char *slash = strrchr(o->run_dir, '/');
    snprintf(m->version, sizeof m->version, "%s", FL_VERSION);
    snprintf(m->job, sizeof m->job, "%s", o->job->name);
    snprintf(m->run, sizeof m->run, "%s", slash == NULL ? o->run_dir : slash + 1);
    snprintf(m->state, sizeof m->state, "%s", view->state);
    m->n_workers = view->run->n_started;
    m->memory_budget_bytes = o->job->devices.memory_bytes;
}

static void gather_progress(const fl_run_progress *p, fl_metrics *m)
{
    m->steps = p->steps;
    m->planned_steps = p->planned_steps;
    m->epochs = p->epochs;
    m->planned_epochs = p->planned_epochs;
    m->samples = p->samples;
    m->tokens = p->tokens;
    m->step_seconds_sum = p->trained_s;
    m->loss = p->loss;
    m->gradient_norm = p->grad_norm;
    m->learning_rate = p->lr;
    m->validation_loss = p->validation_loss;
    m->validation_accuracy = p->validation_accuracy;
    m->test_loss = p->test_loss;
    m->test_accuracy = p->test_accuracy;
    m->loss_metrics = p->metrics;
    m->train_metrics = p->train_metrics;
    m->validation_metrics = p->validation_metrics;
    m->test_metrics = p->test_metrics;
}

static void gather_plan(const fl_run_view *view, fl_metrics *m)
{
    const fl_plan *plan = view->run->plan;
    const fl_transition_sums *sums = &view->transitions;
    m->generation = plan->generation;
    m->blocks = view->n_blocks;
    m->frozen = plan->F;
    m->stages = plan->K;
    m->replicas = plan->R;
    m->micro_batches = plan->M;
    m->predicted_step_seconds =
        plan->predicted_step_us > 0.0 ? plan->predicted_step_us * 1e-6 : NAN;
    m->mfu = view->mfu.share;
    m->n_committed = sums->n_committed;
    m->n_cancelled = sums->n_cancelled;
    m->stall_seconds_sum = (double)sums->stall_us * 1e-6;
    m->last_stall_seconds = sums->n_committed > 0 ? (double)sums->last_stall_us * 1e-6 : NAN;
    m->migrated_bytes = sums->moved_bytes;
    m->n_losses = view->recovery.n_losses;
    m->n_recoveries = view->recovery.n_recoveries;
    m->n_returns = view->recovery.n_returns;
    m->n_repeated = view->recovery.n_repeated;
    m->n_snapshots = view->n_snapshots;
    m->recovery_seconds_sum = (double)view->recovery.lost_us * 1e-6;
}

static void gather_checkpoints(const fl_run_view *view, fl_metrics *m)
{
    const fl_checkpoint_sums *sums = &view->checkpoints;
    m->n_checkpoints = sums->n_written;
    m->n_checkpoints_failed = sums->n_failed;
    m->checkpoint_step = sums->any ? sums->last_step : -1;
    m->checkpoint_bytes = sums->last_bytes;
    m->checkpoint_seconds = sums->last_seconds > 0.0 ? sums->last_seconds : NAN;
    m->checkpoint_age_seconds = view->checkpoint_age_s;
}

static void gather_cache(const fl_run_view *view, fl_metrics *m)
{
    const fl_cache_stats *store = &view->cache_store;
    m->cache_used = view->cache_used;
    m->cache_hits = view->cache.n_hits;
    m->cache_upgrades = view->cache.n_upgrades;
    m->cache_misses = view->cache.n_misses;
    m->cache_device_hits = view->cache.n_device;
    m->cache_pinned_hits = view->cache.n_pinned;
    m->cache_values = store->n_values;
    m->cache_evicted = store->n_evicted;
    m->cache_used_bytes = store->used_bytes;
    m->cache_memory_bytes = store->memory_bytes;
    m->cache_disk_bytes = store->disk_bytes;
}

static void gather_control(const fl_run_view *view, fl_metrics *m)
{
    m->n_stragglers = view->n_stragglers;
    m->n_events = view->counts.events;
    m->n_events_dropped = view->counts.dropped;
    m->n_requests = view->counts.answered;
    m->n_requests_refused = view->counts.refused;
}

static void gather_graphs(const fl_graph_sums *sums, fl_metrics_graphs *out)
{
    const fl_graph_counts total = fl_graph_sums_total(sums);
    *out = (fl_metrics_graphs){.any = sums->any,
                               .captures = total.captures,
                               .launches = total.launches,
                               .calls = total.calls,
                               .n_measured = sums->n_shapes[FL_STAGE_MEASURED],
                               .n_by_graphs = sums->n_shapes[FL_STAGE_BY_GRAPHS],
                               .n_by_calls = sums->n_shapes[FL_STAGE_BY_CALLS],
                               .memory_bytes = sums->memory_bytes};
}

static void gather_host(const fl_run_view *view, int i, fl_metrics_host *out)
{
    const fl_host *host = &view->run->hosts->host[i];
    const fl_host_record *r = &view->run->host_records[i];
    snprintf(out->name, sizeof out->name, "%s", host->name);
    snprintf(out->address, sizeof out->address, "%s", host->address);
    snprintf(out->state, sizeof out->state, "%s", fl_host_state_text(r->state));
    out->apart_from = r->state == FL_HOST_STATE_LOST && r->apart_from != 0
                          ? view->run->hosts->host[r->apart_from - 1].name
                          : NULL;
    out->n_workers = 0;
    out->clock_offset_s = r->clock.known ? (double)r->clock.wall_offset_ns * 1e-9 : (double)NAN;
    out->round_trip_s = r->clock.known ? (double)r->clock.round_trip_ns * 1e-9 : (double)NAN;
    out->end_time_s = r->ended_wall_s > 0.0 ? r->ended_wall_s : (double)NAN;
    for (int k = host->first; k < host->first + host->n && k < view->run->n_workers; k++) {
        out->n_workers += !view->run->workers[k].departed;
    }
}

static void gather_hosts(const fl_run_view *view, fl_metrics *m)
{
    const fl_hosts *hosts = view->run->hosts;
    const fl_plan_input *input = view->run->options->plan_input;
    m->n_hosts = hosts == NULL ? 0 : hosts->n;
    for (int i = 0; i < m->n_hosts; i++) {
        gather_host(view, i, &m->hosts[i]);
    }
    for (int class = 0; class < FL_METRICS_LINKS; class ++) {
        fl_metrics_link *link = &m->links[class];
        fl_link_cost cost = {.latency_us = NAN, .bytes_per_us = NAN};
        if (input != NULL && input->cluster != NULL) {
            cost = fl_cluster_link(input->cluster, input->profile, (fl_link_class) class);
        }
        link->between = fl_link_class_text((fl_link_class) class);
        link->latency_seconds = cost.latency_us / 1e6;
        link->bytes_per_second = cost.bytes_per_us * 1e6;
    }
}

static void gather_worker(const fl_run_view *view, int rank, fl_metrics_worker *out)
{
    const fl_worker *w = &view->run->workers[rank];
    const fl_time_sums *t = &view->times->all[rank];
    const double us[FL_METRICS_PARTS] = {t->compute_us, t->wait_us, t->reduce_wait_us,
                                         t->optimizer_us, t->data_us};
    snprintf(out->state, sizeof out->state, "%s", fl_worker_state_text(w));
    out->replica = w->place.active ? w->place.replica : -1;
    out->stage = w->place.active ? w->place.stage : -1;
    out->host = view->run->hosts == NULL ? -1 : fl_hosts_of(view->run->hosts, rank);
    out->gpu = w->gpu;
    snprintf(out->gpu_name, sizeof out->gpu_name, "%s", w->gpu_name);
    out->slow = view->straggler == rank;
    out->steps = w->steps;
    out->memory_used_bytes = w->memory.used_bytes;
    out->memory_peak_bytes = w->memory.peak_bytes;
    out->memory_parked_bytes = w->memory.parked_bytes;
    out->memory_workspace_bytes = w->memory.workspace_bytes;
    gather_graphs(&w->graphs, &out->graphs);
    for (int part = 0; part < FL_METRICS_PARTS; part++) {
        out->seconds[part] = us[part] * 1e-6;
    }
}

bool fl_metrics_due(const fl_metrics_publisher *publisher, int64_t now_us)
{
    return publisher != NULL && now_us >= publisher->due_us;
}

void fl_metrics_tell(fl_metrics_publisher *publisher, const fl_run_view *view, int64_t now_us)
{
    fl_metrics *m = &publisher->values;
    publisher->due_us = now_us + PUBLISH_MS * 1000;
    gather_run(view, m);
    gather_progress(&view->progress, m);
    gather_plan(view, m);
    gather_checkpoints(view, m);
    gather_cache(view, m);
    gather_control(view, m);
    gather_hosts(view, m);
    for (int rank = 0; rank < view->run->n_started; rank++) {
        gather_worker(view, rank, &m->workers[rank]);
    }
    fl_metrics_publish(publisher->server, m);
}

fl_status fl_metrics_open(fl_metrics_listener *listener, int n_workers, fl_metrics_publisher **out)
{
    fl_metrics_publisher *publisher = NULL;
    struct timespec now;
    if (listener == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *publisher, (void **)&publisher));
    *out = publisher;
    clock_gettime(CLOCK_REALTIME, &now);
    publisher->values.start_time_s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    FL_TRY(fl_alloc_array((size_t)n_workers, sizeof *publisher->values.workers,
                          (void **)&publisher->values.workers));
    FL_TRY(fl_alloc_array((size_t)n_workers, sizeof *publisher->values.hosts,
                          (void **)&publisher->values.hosts)); /* each has a worker */
    return fl_metrics_serve(listener, n_workers, &publisher->server);
}

void fl_metrics_close(fl_metrics_publisher **publisher)
{
    if (*publisher != NULL) {
        fl_metrics_stop(&(*publisher)->server);
        fl_free((*publisher)->values.workers);
        fl_free((*publisher)->values.hosts);
        fl_free(*publisher);
        *publisher = NULL;
    }
}
