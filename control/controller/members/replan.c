#include "control/controller/members/replan.h"

#include "control/controller/parts/parts.h"
#include "device/errors/log.h"

enum { SECOND_US = 1000 * 1000, TRIES = 4 };

/* ---- ① ---- */

void fl_replan_joined(fl_controller *controller, int rank, int64_t now_us)
{
    fl_replan *r = &controller->replan;
    r->due = true;
    r->rank = rank;
    r->due_us = now_us;
    r->n_tries = 0;
    r->by_host = false;
}

void fl_replan_host_joined(fl_controller *controller, int rank, int64_t now_us)
{
    fl_replan_joined(controller, rank, now_us);
    controller->replan.by_host = true;
}

static bool stands_by(const fl_plan *plan, int rank)
{
    return !plan->departed[rank] && !fl_plan_place(plan, rank).active;
}

/* Whether the run continues, with its plan, from a checkpoint in which this worker was no member
 * but had been one. */
static bool was_lost_before(const fl_controller *controller, int rank)
{
    const fl_checkpoint *resume = controller->options->resume;
    return resume != NULL && controller->options->recording == NULL &&
           resume->plan.generation == controller->elastic.plan.generation &&
           rank < resume->controller.n_started && resume->plan.departed[rank];
}

void fl_replan_begin(fl_controller *controller, int64_t now_us)
{
    const fl_recovery_sums *sums = &controller->recovery.sums;
    fl_elastic *e = &controller->elastic;
    bool returns = sums->returns_us != 0;
    if (returns) {
        e->k = sums->k;
        e->r = sums->r;
    }
    for (int rank = e->plan.n_workers - 1; rank >= 0; rank--) {
        if (stands_by(&e->plan, rank) && (returns || was_lost_before(controller, rank)) &&
            (e->k > 0 || controller->job.elastic.enabled)) {
            fl_replan_joined(controller, rank, now_us);
        }
    }
}

void fl_replan_end(const fl_controller *controller)
{
    fl_recovery_sums *sums = controller->options->recovered;
    if (sums != NULL) {
        *sums = controller->recovery.sums;
        sums->k = controller->elastic.k;
        sums->r = controller->elastic.r;
        sums->n_started = controller->facts.n_started;
    }
}

/* ---- ② ---- */

static bool can_change(const fl_controller *controller)
{
    return controller->recovery.state == FL_RECOVERY_NONE &&
           controller->elastic.transition.state == FL_ELASTIC_IDLE;
}

static bool is_ending(const fl_controller *controller)
{
    const fl_phase *phase = &controller->shutdown.phase;
    const fl_run_stats *stats = &controller->stats;
    return phase->state != FL_CONTROLLER_RUNNING || phase->n_stops > 0 || stats->ended_early ||
           stats->steps >= stats->n_steps;
}

/* 1, 2 and 4 s after a failure. */
static void try_later(fl_replan *r, int64_t now_us)
{
    r->due = r->n_tries < TRIES;
    r->due_us = now_us + (INT64_C(1) << (r->n_tries - 1)) * SECOND_US;
}

static void decide_plan(fl_controller *controller, int64_t now_us)
{
    fl_replan *r = &controller->replan;
    fl_elastic *e = &controller->elastic;
    fl_plan next;
    char why[512];
    r->due = false;
    if (!fl_decide_joined(e, r->rank, r->by_host, &next, why, sizeof why)) {
        return;
    }
    r->n_tries++;
    fl_elastic_terms terms = fl_elastic_terms_now(e);
    if (r->by_host) {
        fl_elastic_terms_want(e, &next, &terms);
    }
    if (fl_elastic_ask_with(e, &next, 0, &terms, why) == FL_OK) {
        r->generation = e->transition.requested;
    } else {
        fl_log(FL_LOG_WARN, "worker %d has joined and gets no work yet: %s", r->rank, fl_errmsg());
        try_later(r, now_us);
    }
}

/* ---- ③ ---- */

static void await_outcome(fl_controller *controller, int64_t now_us)
{
    fl_replan *r = &controller->replan;
    const fl_elastic_outcome *outcome = fl_elastic_outcome_of(&controller->elastic, r->generation);
    if (outcome != NULL) {
        r->generation = 0;
        if (!outcome->committed && !r->due) {
            try_later(r, now_us);
        }
    }
}

/* The run goes back to a state in which a worker that was drained since is a member. */
static bool drain_again(fl_controller *controller)
{
    fl_replan *r = &controller->replan;
    fl_elastic *e = &controller->elastic;
    fl_elastic_terms terms = fl_elastic_terms_now(e);
    fl_job job = *controller->options->job;
    fl_plan next = e->plan;
    int n_again = 0;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        bool again = r->drained[rank] && !e->plan.departed[rank];
        terms.usable.drained[rank] = terms.usable.drained[rank] || again;
        r->drained[rank] = false;
        n_again += again;
    }
    if (n_again == 0 || controller->options->plan_input == NULL) {
        return false;
    }
    fl_plan_input input = *controller->options->plan_input;
    int n_usable = fl_worker_pool_count(&terms.usable, controller->n_workers);
    if (n_usable == 0) {
        fl_log(FL_LOG_WARN, "all workers of the state to which the run went back had been drained "
                            "since: the drained workers come back");
        return false;
    }
    fl_worker_pool_loosen(&job, n_usable);
    input.job = &job;
    input.F = next.F;
    fl_status status = fl_worker_pool_covers(&terms.usable, &next)
                           ? FL_OK
                           : fl_worker_pool_choose(&terms.usable, &input, &next);
    if (status == FL_OK) {
        status = fl_elastic_ask_with(e, &next, 0, &terms, "drained before the run went back");
    }
    if (status != FL_OK) {
        fl_log(FL_LOG_WARN, "drained workers stay after the run went back: %s", fl_errmsg());
    }
    return status == FL_OK;
}

void fl_replan_watch(fl_controller *controller, int64_t now_us)
{
    fl_replan *r = &controller->replan;
    if (can_change(controller) && !is_ending(controller) && drain_again(controller)) {
        return;
    }
    if (r->generation != 0) {
        await_outcome(controller, now_us);
    } else if (r->due && now_us >= r->due_us && can_change(controller) && !is_ending(controller)) {
        decide_plan(controller, now_us);
    }
}
