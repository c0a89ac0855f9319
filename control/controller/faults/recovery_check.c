/* Whether a run can go on without the workers that it has lost. */
#include "control/controller/faults/recovery_parts.h"

#include "nn/model.h"
#include "pipe/plan/migrate_schedule.h"

#include <stdio.h>

/* ---- the model's state ---- */

bool fl__recovery_name_orphans(const fl_controller *controller, const bool *lost, char *why,
                               size_t size_bytes)
{
    const fl_model *model = controller->options->plan_input->model;
    const fl_plan *plan = &controller->elastic.plan;
    unsigned char orphans[FL_MAX_LAYERS];
    int n = fl_migrate_orphans(model, plan, controller->elastic.decide.parked, lost, orphans);
    int first = 0, last = plan->n_layers - 1;
    if (n == 0) {
        return false;
    }
    while (!(orphans[first] & FL_ORPHAN_WEIGHTS)) {
        first++;
    }
    while (!(orphans[last] & FL_ORPHAN_WEIGHTS)) {
        last--;
    }
    snprintf(why, size_bytes, "no other worker has the weights of %s%s%s",
             fl_model_layer_name(model, first), last > first ? " to " : "",
             last > first ? fl_model_layer_name(model, last) : "");
    return true;
}

void fl__recovery_list_lost_moments(fl_controller *controller, const bool *lost)
{
    const fl_model *model = controller->options->plan_input->model;
    fl_recovery *r = &controller->recovery;
    unsigned char orphans[FL_MAX_LAYERS];
    (void)fl_migrate_orphans(model, &controller->elastic.plan, controller->elastic.decide.parked,
                             lost, orphans);
    r->n_no_moments = 0;
    for (int layer = 0; layer < controller->elastic.plan.n_layers; layer++) {
        if ((orphans[layer] & FL_ORPHAN_MOMENTS) && fl_model_params(model, layer)->n > 0) {
            r->no_moments[r->n_no_moments++] = fl_model_layer_name(model, layer);
        }
    }
}

void fl__recovery_list_lost(const fl_controller *controller, int rank, bool *lost)
{
    const fl_plan *plan = &controller->elastic.plan;
    for (int i = 0; i < controller->n_workers; i++) {
        lost[i] = (controller->workers[i].lost || i == rank) && !plan->departed[i];
    }
}

/* ---- the end of the run ---- */

static int64_t n_test_samples(const fl_controller_options *o)
{
    const fl_dataset *d = o->dataset;
    return d == NULL ? 0 : d->ops->count(d->self, FL_TEST) - o->n_validation;
}

bool fl__recovery_is_evaluated(const fl_controller *controller)
{
    const fl_run_stats *stats = &controller->stats;
    bool is_last = stats->ended_early && stats->steps == stats->n_steps;
    return stats->any_eval && stats->last_eval.step + 1 == stats->steps &&
           (!is_last || fl_run_stats_is_tested(stats, n_test_samples(controller->options)));
}

bool fl__recovery_is_complete(const fl_controller *controller)
{
    return fl_worker_any_is_done(controller->workers, controller->n_workers);
}

/* Whether a complete run lacks no report: the worker that is lost now may have taken some with it.
 */
static bool is_recorded(const fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    const fl_run_stats *stats = &controller->stats;
    const fl_dataset *d = o->dataset;
    for (int i = 0; i < controller->n_workers; i++) {
        if (controller->workers[i].steps > stats->steps) {
            return false;
        }
    }
    bool evaluates = o->job->train.evaluate && stats->steps == stats->n_steps && d != NULL &&
                     d->ops->count(d->self, FL_TEST) > 0;
    return fl_checkpoints_has_last(&controller->checkpoints, stats->steps) &&
           (!evaluates || fl__recovery_is_evaluated(controller));
}

/* ---- whether it can ---- */

static bool give_reason(char *why, size_t size_bytes, const char *text)
{
    snprintf(why, size_bytes, "%s", text);
    return false;
}

bool fl_recovery_regroups(const fl_controller *controller, char *why, size_t size_bytes)
{
    const fl_controller_options *o = controller->options;
    if (o->job->fault.on_loss == FL_ON_LOSS_STOP || o->pass != NULL ||
        controller->shutdown.phase.state != FL_CONTROLLER_RUNNING) {
        return give_reason(why, size_bytes, "");
    }
    if (o->plan_input == NULL || o->recording != NULL) {
        return give_reason(why, size_bytes,
                           o->recording != NULL ? "the run repeats another one, which has its plans"
                                                : "nothing is known of the model's layers");
    }
    return true;
}

int fl__recovery_count_awaited(const fl_controller *controller, int without)
{
    int n = 0;
    for (int i = 0; i < controller->n_workers; i++) {
        n += i != without && fl_worker_is_awaited(&controller->workers[i]);
    }
    return n;
}

bool fl__recovery_can_go_on(const fl_controller *controller, int rank, char *why, size_t size_bytes)
{
    bool lost[FL_MAX_WORKERS];
    if (!fl_recovery_regroups(controller, why, size_bytes)) {
        return false;
    }
    if (fl__recovery_is_complete(controller) && is_recorded(controller)) {
        return true;
    }
    if (fl__recovery_count_awaited(controller, rank) == 0) {
        return give_reason(why, size_bytes, "no other worker is left");
    }
    fl__recovery_list_lost(controller, rank, lost);
    /* While some may have switched, ③ finds out. */
    return fl_elastic_is_switching(&controller->elastic) ||
           !fl__recovery_name_orphans(controller, lost, why, size_bytes);
}
