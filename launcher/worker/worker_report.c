/* A worker's reports of its steps to the controller (⑤ of worker.c). */
#include "launcher/worker/worker_state.h"
#include "nn/model.h"

typedef fl_worker_state worker;

static fl_step_report report_of(const worker *w, const fl_global_batch *batch,
                                const fl_step_result *r, double lr, int64_t took_us)
{
    const fl_plan *plan = &w->now->plan;
    return (fl_step_report){.step = batch->step,
                            .epoch = batch->epoch,
                            .loss = r->sums.loss / r->sums.n_targets,
                            .grad_norm = r->grad_norm,
                            .lr = lr,
                            .ms = (double)took_us * 1e-3,
                            .samples = r->samples,
                            .tokens = r->tokens,
                            .generation = plan->generation,
                            .f = plan->F,
                            .k = plan->K,
                            .r = plan->R,
                            .m = plan->M,
                            .metrics = fl_loss_sums_means(&r->sums, fl_model_metrics(w->c->model)),
                            .skipped = !r->finite};
}

static void report_times(worker *w, int64_t step, const fl_step_result *r)
{
    fl_time_report times = {.step = step,
                            .compute_us = r->compute_us,
                            .wait_us = r->wait_us,
                            .reduce_wait_us = r->reduce_wait_us,
                            .optimizer_us = r->optimizer_us,
                            .data_us = r->data_us};
    const fl_memory_report memory = {.used_bytes = (int64_t)w->device->used_bytes,
                                     .peak_bytes = (int64_t)w->device->peak_bytes,
                                     .parked_bytes = fl_parked_bytes(&w->parked),
                                     .workspace_bytes = (int64_t)w->device->workspace_bytes};
    fl_link_memory(w->link, &memory);
    fl_link_time(w->link, &times);
}

fl_status fl_worker_report(worker *w, const fl_global_batch *batch, const fl_step_result *r,
                           double lr, int64_t took_us)
{
    const fl_step_report step = report_of(w, batch, r, lr, took_us);
    const fl_kept_report *kept = NULL;
    bool norms = w->c->job->freeze.policy != FL_FREEZE_NONE;
    int n_norms = norms && r->finite ? fl_model_n_blocks(w->c->model) : 0;
    fl_kept_reports_drop(&w->kept, fl_link_counted(w->link));
    FL_TRY(fl_kept_reports_add(&w->kept, &step, norms ? r->block_squares : NULL, n_norms,
                               w->now->pipeline, &kept));
    if (w->leads) {
        fl_kept_report_send(kept, w->link);
    }
    report_times(w, batch->step, r);
    return FL_OK;
}

void fl_worker_report_cache(worker *w, int64_t step, int64_t epoch, bool always)
{
    fl_cached_input_report r;
    fl_cache_stats s;
    fl_cache_tiers_report tiers;
    if (fl_cache_tiers_report_take(w->tiers, &tiers)) {
        fl_link_cache_tiers(w->link, &tiers);
    }
    if (!w->now->place.active || !fl_pipeline_cache(w->now->pipeline, always, &r)) {
        return;
    }
    fl_activations_stats(w->c->activations, &s);
    fl_cache_report report = {.step = step,
                              .epoch = epoch,
                              .f = w->now->plan.F,
                              .on = r.on,
                              .decided = r.changed,
                              .n_hits = r.n_hits,
                              .n_upgrades = r.n_upgrades,
                              .n_misses = r.n_misses,
                              .n_device = r.n_device,
                              .n_pinned = r.n_pinned,
                              .read_us = r.read_us,
                              .compute_us = r.compute_us,
                              .n_values = s.n_values,
                              .used_bytes = s.used_bytes,
                              .n_evicted = s.n_evicted,
                              .n_damaged = s.n_damaged,
                              .n_recovered = s.n_recovered};
    fl_link_cache(w->link, &report);
}

void fl_worker_report_graphs(worker *w, int64_t step, bool always)
{
    fl_graphs_report report = {.generation = w->now->plan.generation, .step = step};
    if (w->now->place.active && fl_pipeline_graphs(w->now->pipeline, always, &report.graphs)) {
        fl_link_graphs(w->link, &report);
    }
}

void fl_worker_report_comm(worker *w)
{
    const fl_generation *now = w->now;
    if (now->group == NULL || now->place.replica != 0 || now->place.stage != 0) {
        return;
    }
    const fl_comm_report report = {.generation = now->plan.generation,
                                   .comm = *fl_group_comm_get(now->group)};
    if (report.comm.n_pairs > 0) {
        fl_link_comm(w->link, &report);
    }
}
