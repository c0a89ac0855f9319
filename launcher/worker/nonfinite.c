/* Handles a step whose loss or gradient norm is infinite or not a number (⑤ of worker.c). Both
 * values come from the commit point's all-reduce, so all workers that train branch alike here. */
#include "data/view.h"
#include "device/errors/log.h"
#include "launcher/worker/worker_state.h"

/* This many failed steps in a row are not the fault of a few samples. */
enum { IN_A_ROW_MAX = 25 };

static fl_nonfinite_action next_action(const fl_worker_state *w, const fl_nonfinite *found)
{
    if (w->c->job->train.on_nonfinite == FL_ON_NONFINITE_STOP) {
        return FL_NONFINITE_ENDS;
    }
    if (found->where == FL_NONFINITE_WEIGHT) {
        return FL_NONFINITE_ENDS_WEIGHTS;
    }
    return w->n_skipped >= IN_A_ROW_MAX ? FL_NONFINITE_ENDS_ROW : FL_NONFINITE_SKIPS;
}

fl_status fl_worker_nonfinite(fl_worker_state *w, const fl_global_batch *batch,
                              const fl_step_result *r, bool *ends)
{
    fl_nonfinite_report report = {.step = batch->step,
                                  .epoch = batch->epoch,
                                  .loss = r->sums.loss / r->sums.n_targets,
                                  .grad_norm = r->grad_norm,
                                  .n_samples = batch->n};
    fl_link_doing(w->link, "search for a value");
    FL_TRY(fl_pipeline_find_nonfinite(w->now->pipeline, batch, &report.found));
    if (report.found.sample >= 0) {
        report.found.sample = fl_view_own(w->c->dataset, FL_TRAIN, report.found.sample).id;
    }
    w->n_skipped++;
    report.action = next_action(w, &report.found);
    *ends = report.action != FL_NONFINITE_SKIPS;
    while (report.n_ids < batch->n && report.n_ids < FL_NONFINITE_IDS_MAX) {
        report.ids[report.n_ids] =
            fl_view_own(w->c->dataset, FL_TRAIN, batch->ids[report.n_ids]).id;
        report.n_ids++;
    }
    if (w->leads) {
        fl_link_nonfinite(w->link, &report);
    }
    fl_log(FL_LOG_WARN, "step %lld: loss %g, gradient norm %g; the optimizer's step is skipped",
           (long long)batch->step, report.loss, report.grad_norm);
    return FL_OK;
}
