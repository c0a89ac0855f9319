#include "control/elastic/drain.h"

fl_status fl_drain_choose(const fl_elastic *elastic, const bool *ranks, fl_plan *plan,
                          fl_elastic_terms *terms)
{
    const fl_controller_options *o = elastic->run->options;
    fl_plan_input input = *o->plan_input;
    fl_job job = *o->job;
    *terms = fl_elastic_terms_now(elastic);
    for (int rank = 0; rank < elastic->run->n_workers; rank++) {
        terms->usable.drained[rank] = terms->usable.drained[rank] || ranks[rank];
    }
    int n = fl_worker_pool_count(&terms->usable, elastic->run->n_workers);
    if (n == 0) {
        return fl_fail(FL_EBUDGET, "no other worker can take work");
    }
    fl_worker_pool_loosen(&job, n);
    input.job = &job;
    input.F = elastic->plan.F;
    *plan = elastic->plan;
    if (!fl_worker_pool_covers(&terms->usable, plan)) {
        FL_TRY(fl_worker_pool_choose(&terms->usable, &input, plan));
    }
    if (plan->K != elastic->plan.K || plan->R != elastic->plan.R) {
        fl_elastic_terms_want(elastic, plan, terms);
    }
    return FL_OK;
}
