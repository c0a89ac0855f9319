/* A worker's reports of its steps to the controller (⑤ of worker.c). */
#include "launcher/worker/worker_state.h"
#include "nn/model.h"

typedef fl_worker_state worker;

void fl_worker_report(worker *w, const fl_global_batch *batch, const fl_step_result *r, double lr,
                      int64_t took_us)
{
    const fl_plan *plan = &w->now->plan;
    const fl_place *place = &w->now->place;
    if (w->leads && w->c->job->freeze.policy != FL_FREEZE_NONE) { /* before their step */
        fl_link_norms(w->link, batch->step, plan->generation, r->block_squares,
                      r->finite ? fl_model_n_blocks(w->c->model) : 0);
    }
    if (w->leads) {
        fl_step_report step = {.step = batch->step,
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
                               .metrics =
                                   fl_loss_sums_means(&r->sums, fl_model_metrics(w->c->model)),
                               .skipped = !r->finite};
        fl_link_step(w->link, &step);
    }
    if (place->stage == plan->K - 1) {
        fl_link_ledger(w->link, batch->epoch, batch->step, plan->generation, place->replica, r->ids,
                       r->n_ids);
    }
    fl_time_report times = {.step = batch->step,
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
