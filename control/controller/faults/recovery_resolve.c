/* ③ of control/controller/faults/recovery.h: which steps are finished, and the plan for the others.
 */
#include "control/controller/faults/recovery_parts.h"

#include <inttypes.h>
#include <stdio.h>

/* What is true: the furthest that anybody has come. */
static const fl_worker *find_furthest(const fl_controller *controller, uint32_t *generation,
                                      int64_t *step)
{
    const fl_worker *furthest = NULL;
    *generation = controller->elastic.plan.generation;
    *step = controller->stats.steps;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (!fl_worker_is_awaited(w)) {
            continue;
        }
        *generation = w->broken.generation > *generation ? w->broken.generation : *generation;
        *step = w->broken.step > *step ? w->broken.step : *step;
        if (furthest == NULL ||
            w->broken.position.n_commands > furthest->broken.position.n_commands) {
            furthest = w;
        }
    }
    return furthest;
}

/* Before the last step is applied everywhere: whether each worker that trains can be brought there.
 */
static bool check_reports(fl_controller *controller, uint32_t generation, int64_t step, char *why,
                          size_t size_bytes)
{
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        const fl_broken_report *b = &w->broken;
        if (!fl_worker_is_awaited(w)) {
            continue;
        }
        bool there = b->generation == generation || b->exchanged == generation;
        bool trains = fl_plan_place(&controller->elastic.plan, i).active;
        bool applied = b->step == step || (b->step == step - 1 && b->summed_step == b->step);
        if (!there || (trains && b->generation == generation && !applied)) {
            controller->recovery.suspect = i;
            snprintf(why, size_bytes,
                     "worker %d stands at step %" PRId64
                     " of generation %u, the run at step %" PRId64 " of generation %u",
                     i, b->step, b->generation, step, generation);
            return false;
        }
    }
    if (controller->stats.steps < step) {
        snprintf(why, size_bytes, "the reports of steps %" PRId64 " to %" PRId64 " are lost",
                 controller->stats.steps, step - 1);
        return false;
    }
    return true;
}

/* A plan with the same frozen blocks for the workers that are left: with the K and R that the run
 * is to have, where a worker stood by for the lost one; else the best. */
static bool choose_plan(fl_controller *controller, fl_plan *plan, char *why, size_t size_bytes)
{
    fl_elastic *elastic = &controller->elastic;
    fl_job job = *controller->options->job;
    fl_plan_input input = *controller->options->plan_input;
    fl_decide_grid(elastic, &elastic->usable, &job);
    input.job = &job;
    input.F = elastic->plan.F;
    input.generation = fl_elastic_next_generation(elastic);
    fl_status status = fl_worker_pool_choose(&elastic->usable, &input, plan);
    if (status != FL_OK) {
        job.pipe.k = job.autodp.r = job.pipe.m = FL_JOB_AUTO;
        status = fl_worker_pool_choose(&elastic->usable, &input, plan);
    }
    if (status == FL_OK) {
        fl_decide_place(elastic, &elastic->usable, plan);
        fl_worker_pool_members(&elastic->usable, plan);
        status = fl_decide_check_room(elastic, plan);
    }
    if (status != FL_OK) {
        snprintf(why, size_bytes, "no plan for the others: %s", fl_errmsg());
    }
    return status == FL_OK;
}

/* An order of the controller that has been given, but that nobody has carried out, is as good as
 * carried out: the answer to a step at which all wait, and the end of the run. */
static fl_run_position position_from(const fl_controller *controller, const fl_worker *furthest)
{
    fl_run_position p = furthest->broken.position;
    for (int kind = 0; kind < FL_DUE_KINDS; kind++) {
        int64_t sent = controller->router.answered[kind];
        p.answered[kind] = p.answered[kind] > sent ? p.answered[kind] : sent;
    }
    p.end_step = p.end_step < controller->stats.n_steps ? p.end_step : controller->stats.n_steps;
    p.n_skipped = controller->stats.last.skipped ? p.n_skipped : 0;
    return p;
}

bool fl__recovery_order_regroup(fl_controller *controller, int64_t now_us, char *why,
                                size_t size_bytes)
{
    fl_recovery *r = &controller->recovery;
    fl_elastic *elastic = &controller->elastic;
    const fl_run_stats *stats = &controller->stats;
    bool lost[FL_MAX_WORKERS];
    uint32_t generation;
    fl_step_order_forget(&controller->reports);
    const fl_worker *furthest = find_furthest(controller, &generation, &r->step);
    if (furthest == NULL) {
        snprintf(why, size_bytes, "no other worker is left");
        return false;
    }
    fl_elastic_resolve(elastic, generation, r->step, r->text);
    fl__recovery_take_out_joining(controller, now_us);
    fl__recovery_list_lost(controller, -1, lost);
    if (!check_reports(controller, generation, r->step, why, size_bytes) ||
        fl__recovery_name_orphans(controller, lost, why, size_bytes)) {
        return false;
    }
    fl_regroup_order order = {
        .serial = r->serial,
        .generation = generation,
        .step = r->step,
        .grad_norm = stats->last.grad_norm,
        .finite = !stats->last.skipped,
        .evaluates = !fl__recovery_is_evaluated(controller),
        .saved = fl_checkpoints_regroup(&controller->checkpoints, r->step, r->text),
        .position = position_from(controller, furthest)};
    if (!choose_plan(controller, &order.plan, why, size_bytes)) {
        return false;
    }
    fl__recovery_list_lost_moments(controller, lost);
    fl_elastic_force(elastic, &order.plan, r->text);
    r->resolved_us = now_us;
    r->state = FL_RECOVERY_MOVING;
    fl__recovery_send_order(controller, &order);
    fl_ctl_regrouped(controller->ctl, &order.position, order.step);
    return true;
}
