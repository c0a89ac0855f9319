/* Evaluation of a run that trains (⑥ of worker.c): a set of samples of the test split in batches,
 * forward only. */
#include "launcher/worker/worker_state.h"

#include "autodp/sampler.h"
#include "device/flight/flight.h"
#include "device/system/clock.h"
#include "launcher/worker/outputs/answers.h"
#include "nn/model.h"
#include "pipe/plan/batch/evaluation.h"

typedef fl_worker_state worker;

/* ---- a set of samples ---- */

fl_global_batch fl_worker_test_batch(worker *w, const fl_evaluation_set *set, int64_t first)
{
    int64_t left = set->n - first, most = fl_sampler_batch(w->c->job);
    int64_t *ids = w->test_ids[(first / most) % 2];
    fl_global_batch batch = {.split = FL_TEST, .ids = ids, .n = left < most ? left : most};
    for (int64_t i = 0; i < batch.n; i++) {
        ids[i] = fl_evaluation_sample(set, first + i);
    }
    return batch;
}

static fl_status evaluate_batches(worker *w, const fl_evaluation_set *set, fl_loss_sums *sums)
{
    int64_t most = fl_sampler_batch(w->c->job);
    fl_global_batch batch = fl_worker_test_batch(w, set, 0);
    *sums = (fl_loss_sums){0};
    FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &batch));
    for (int64_t first = 0; first < set->n; first += most) {
        fl_global_batch next = batch;
        if (first + most < set->n) {
            next = fl_worker_test_batch(w, set, first + most);
            FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &next));
        }
        FL_TRY(fl_pipeline_evaluate(w->now->pipeline, &batch, sums));
        batch = next;
    }
    return fl_pipeline_total(w->now->pipeline, sums);
}

static fl_status evaluate_set(worker *w, const fl_evaluation_set *set, fl_loss_sums *sums)
{
    fl_answers answers;
    fl_pipeline *pipeline = w->now->pipeline;
    FL_TRY(fl_answers_init(&answers, w->c->model, w->c->dataset, fl_evaluation_sample(set, 0)));
    fl_answers_watch(&answers, pipeline);
    fl_status status = evaluate_batches(w, set, sums);
    fl_pipeline_watch_outputs(pipeline, NULL, NULL);
    if (status == FL_OK) {
        status = fl_answers_end(&answers, pipeline, w->leads, sums);
    }
    fl_answers_fini(&answers);
    return status;
}

/* ---- evaluation of a run ---- */

/* In the data set's view, the test samples come after the validation samples. */
static fl_status evaluate_test(worker *w, fl_eval_report *report)
{
    const fl_dataset *d = w->c->dataset;
    fl_evaluation_set set =
        fl_evaluation_set_test(w->c->job, w->c->n_validation, d->ops->count(d->self, FL_TEST));
    fl_loss_sums sums;
    if (set.n == 0) {
        return FL_OK;
    }
    FL_TRY(evaluate_set(w, &set, &sums));
    report->has_test = true;
    report->test_loss = sums.loss / sums.n_targets;
    report->test_metrics = fl_loss_sums_means(&sums, fl_model_metrics(w->c->model));
    report->test_samples = set.n;
    return FL_OK;
}

static fl_status evaluate_due(worker *w, int64_t n, fl_eval_report *report)
{
    bool last = w->step == w->end_step, validates = w->c->n_validation > 0;
    fl_evaluation_set set = fl_evaluation_set_due(w->c->job, w->c->n_validation, n, last);
    fl_loss_sums sums;
    FL_TRY(evaluate_set(w, &set, &sums));
    report->loss = sums.loss / sums.n_targets;
    report->metrics = fl_loss_sums_means(&sums, fl_model_metrics(w->c->model));
    report->samples = set.n;
    report->validation = validates;
    return last && validates ? evaluate_test(w, report) : FL_OK;
}

fl_status fl_worker_evaluate(worker *w, int64_t epoch)
{
    const fl_dataset *d = w->c->dataset;
    int64_t n = d->ops->count(d->self, FL_TEST);
    int64_t started_us = fl_now_us();
    fl_eval_report report = {.epoch = epoch, .step = w->step - 1};
    if (n == 0 || !w->now->place.active) {
        return FL_OK;
    }
    fl_link_doing(w->link, "evaluation");
    fl__reach("evaluate", w);
    fl_flight_enter(FL_FLIGHT_EVALUATION, -1, -1, 0);
    FL_TRY(evaluate_due(w, n, &report));
    fl_flight_leave();
    report.ms = (double)(fl_now_us() - started_us) * 1e-3;
    if (w->leads) {
        fl_link_eval(w->link, &report);
    }
    return FL_OK;
}

fl_status fl_worker_evaluate_end(worker *w, int64_t epoch)
{
    const fl_dataset *d = w->c->dataset;
    int64_t n = d->ops->count(d->self, FL_TEST), started_us = fl_now_us();
    fl_evaluation_set seen = fl_evaluation_set_due(w->c->job, w->c->n_validation, n, false);
    fl_eval_report test = {0};
    if (!w->now->place.active || (w->c->n_validation == 0 && seen.n == n)) {
        return FL_OK;
    }
    fl_link_doing(w->link, "evaluation");
    fl_flight_enter(FL_FLIGHT_EVALUATION, -1, -1, 0);
    FL_TRY(evaluate_test(w, &test));
    fl_flight_leave();
    if (w->leads && test.has_test) {
        fl_link_eval(w->link, &(fl_eval_report){.epoch = epoch,
                                                .step = w->step - 1,
                                                .loss = test.test_loss,
                                                .metrics = test.test_metrics,
                                                .samples = test.test_samples,
                                                .ms = (double)(fl_now_us() - started_us) * 1e-3});
    }
    return FL_OK;
}
