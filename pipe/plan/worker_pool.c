#include "pipe/plan/worker_pool.h"

#include <string.h>

int fl_worker_pool_count(const fl_worker_pool *usable, int n_workers)
{
    int n = 0;
    for (int i = 0; i < n_workers; i++) {
        n += !usable->drained[i];
    }
    return usable->limit > 0 && usable->limit < n ? usable->limit : n;
}

void fl_worker_pool_loosen(fl_job *job, int64_t devices)
{
    int64_t k = job->pipe.k > 0 ? job->pipe.k : 1, r = job->autodp.r > 0 ? job->autodp.r : 1;
    if (k * r > devices) {
        job->pipe.k = job->autodp.r = FL_JOB_AUTO;
    }
}

/* The planner numbers workers from 0: number i becomes the i-th that is not drained. */
static void give_places(const fl_worker_pool *usable, fl_plan *plan)
{
    int of[FL_MAX_WORKERS], n = 0;
    for (int i = 0; i < plan->n_workers; i++) {
        if (!usable->drained[i]) {
            of[n++] = i;
        }
    }
    for (int i = 0; i < plan->K * plan->R; i++) {
        plan->rank_of[i] = of[plan->rank_of[i]];
    }
}

/* The devices that the planner's numbers mean. */
static void take_devices(const fl_worker_pool *usable, const fl_plan_input *input, int n,
                         fl_cluster *out)
{
    int kept[FL_MAX_WORKERS], n_kept = 0;
    for (int i = 0; i < input->n_workers && n_kept < n; i++) {
        if (!usable->drained[i]) {
            kept[n_kept++] = i;
        }
    }
    fl_cluster_take(input->cluster, kept, n_kept, out);
}

fl_status fl_worker_pool_choose_listed(const fl_worker_pool *usable, const fl_plan_input *input,
                                       fl_plan *plan, fl_candidate *candidates, int capacity,
                                       int *n_candidates)
{
    fl_plan_input some = *input;
    fl_cluster devices;
    some.n_workers = fl_worker_pool_count(usable, input->n_workers);
    if (input->cluster != NULL) {
        take_devices(usable, input, some.n_workers, &devices);
        some.cluster = &devices;
    }
    FL_TRY(fl_plan_choose(&some, plan, candidates, capacity, n_candidates));
    plan->n_workers = input->n_workers;
    give_places(usable, plan);
    return FL_OK;
}

fl_status fl_worker_pool_choose(const fl_worker_pool *usable, const fl_plan_input *input,
                                fl_plan *plan)
{
    return fl_worker_pool_choose_listed(usable, input, plan, NULL, 0, NULL);
}

bool fl_worker_pool_covers(const fl_worker_pool *usable, const fl_plan *plan)
{
    for (int i = 0; i < fl_plan_n_active(plan); i++) {
        if (usable->drained[fl_plan_active(plan, i)]) {
            return false;
        }
    }
    return fl_plan_n_active(plan) <= fl_worker_pool_count(usable, plan->n_workers);
}

void fl_worker_pool_members(const fl_worker_pool *usable, fl_plan *plan)
{
    memcpy(plan->departed, usable->drained, sizeof plan->departed);
}
