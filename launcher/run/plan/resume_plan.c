/* The plan with which an interrupted run continues. On the checkpoint's own plan it computes the
 * same bits as without the interruption, so that plan is kept wherever it can be. */
#include "launcher/run/plan/resume.h"

#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/run/plan/run_plan.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/plan/batch/capacity.h"

#include <stdio.h>
#include <string.h>

/* ---- whether it can be kept ---- */

/* Fields that say which plan a run has. Others, such as elastic.script, only decide about later
 * changes of the plan. */
static bool decides_plan(const char *path)
{
    static const char *const deciding[] = {"devices.",      "pipe.k",         "pipe.m",
                                           "pipe.schedule", "pipe.partition", "autodp."};
    for (size_t i = 0; i < sizeof deciding / sizeof *deciding; i++) {
        if (strncmp(path, deciding[i], strlen(deciding[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The first such field that differs from the job that wrote the checkpoint; NULL: none does. */
static fl_status find_change(const fl_resume *r, const fl_job *now, const char **path)
{
    const char *changed[FL_SCHEMA_MAX];
    int n = 0;
    *path = NULL;
    FL_TRY(fl_job_list_changes(&r->made_by, now, changed, &n));
    for (int i = 0; i < n && *path == NULL; i++) {
        *path = decides_plan(changed[i]) ? changed[i] : NULL;
    }
    return FL_OK;
}

/* Against the memory of each of its workers, which may be on other hosts than before. */
static fl_status check_stage(const fl_preparation *p, const fl_plan *plan, int stage)
{
    fl_stage_memory memory;
    FL_TRY(fl_plan_memory(&p->input, plan, stage, &memory));
    for (int replica = 0; replica < plan->R; replica++) {
        int rank = fl_plan_rank(plan, replica, stage);
        int64_t budget = fl_cluster_memory(p->cluster, p->job, rank);
        if (memory.total_bytes > budget) {
            return fl_fail(FL_EBUDGET, "stage %d exceeds the memory of worker %d", stage, rank);
        }
    }
    return FL_OK;
}

/* Why it is not kept, as a failure. */
static fl_status check_plan(const fl_resume *r, const fl_preparation *p)
{
    const fl_plan *plan = &r->checkpoint->plan;
    const char *changed;
    fl_capacity capacity;
    FL_TRY(find_change(r, p->job, &changed));
    if (changed != NULL) {
        return fl_fail(FL_EINVAL, "%s changed", changed);
    }
    if (plan->n_workers != p->n_ranks && plan->n_workers != plan->K * plan->R) {
        return fl_fail(FL_EINVAL, "%d devices were found, and it had %d", p->n_ranks,
                       plan->n_workers);
    }
    if (plan->n_workers > p->n_ranks) {
        return fl_fail(FL_EINVAL, "%d devices were found, and it needs %d", p->n_ranks,
                       plan->n_workers);
    }
    fl_worker_pool usable;
    (void)fl_run_plan_pool(p, &usable);
    if (!fl_worker_pool_covers(&usable, plan)) {
        return fl_fail(FL_EINVAL, "it needs a host that the run has lost");
    }
    for (int stage = 0; stage < plan->K; stage++) {
        FL_TRY(check_stage(p, plan, stage));
    }
    FL_TRY(fl_capacity_of_plan(p->batches, plan, &capacity));
    return fl_capacity_check_rows(p->sizes, &capacity);
}

bool fl_resume_keeps_plan(fl_resume *r, const fl_preparation *p)
{
    char grid[FL_GRID_TEXT_MAX];
    fl_grid_text(fl_plan_grid(&r->checkpoint->plan), grid);
    if (check_plan(r, p) == FL_OK) {
        snprintf(r->plan_why, sizeof r->plan_why, "the checkpoint's plan runs on");
        return true;
    }
    snprintf(r->plan_why, sizeof r->plan_why,
             "the checkpoint's plan, %s, is not kept, because %.300s; a new plan is chosen", grid,
             fl_errmsg());
    return false;
}

/* ---- what the checkpoint has by rank ---- */

/* Moments that were kept for a frozen layer go to a worker that has the layer, or to any. */
static void place_parked(const fl_preparation *p, const fl_plan *plan, int *parked)
{
    for (int layer = 0; layer < fl_model_n_layers(p->model); layer++) {
        int stage = 0;
        while (stage + 1 < plan->K && plan->first[stage + 1] <= layer) {
            stage++;
        }
        if (parked[layer] >= 0) {
            parked[layer] = fl_plan_rank(plan, layer % plan->R, stage);
        }
    }
}

/* A race between several M belongs to the plan in which it began. */
static void take_other_plan(fl_resume *r, const fl_preparation *p, fl_plan *plan)
{
    fl_controller_state *state = &r->checkpoint->controller;
    uint32_t before = r->checkpoint->plan.generation;
    plan->generation = (state->last_asked > before ? state->last_asked : before) + 1;
    state->last_asked = plan->generation;
    state->usable.limit = 0;
    state->wanted_k = state->wanted_r = -1;
    state->tune = (fl_tune){0};
    place_parked(p, plan, state->parked);
}

/* How many workers the run had before, lost ones counted. It had grown since a snapshot, perhaps.
 */
static int count_before(const fl_resume *r, const fl_preparation *p)
{
    int n = r->checkpoint->controller.n_started;
    int n_grown = p->recovered == NULL ? 0 : p->recovered->n_started;
    n = n_grown > n ? n_grown : n;
    return p->n_workers > n ? p->n_workers : n;
}

/* All workers are new: those that a run begins with, those that were added, and up to the last one
 * that has a stage or keeps moments. */
static void take_members(const fl_resume *r, const fl_preparation *p, fl_plan *plan)
{
    int n_members = count_before(r, p);
    for (int i = 0; i < fl_plan_n_active(plan); i++) {
        int n = fl_plan_active(plan, i) + 1;
        n_members = n > n_members ? n : n_members;
    }
    for (int layer = 0; layer < plan->n_layers; layer++) {
        int n = r->checkpoint->controller.parked[layer] + 1;
        n_members = n > n_members ? n : n_members;
    }
    fl_worker_pool usable;
    (void)fl_run_plan_pool(p, &usable);
    for (int rank = 0; rank < plan->n_workers; rank++) {
        plan->departed[rank] = rank >= n_members || usable.drained[rank];
    }
}

void fl_resume_take_plan(fl_resume *r, const fl_preparation *p, bool kept, fl_plan *plan)
{
    fl_controller_state *state = &r->checkpoint->controller;
    if (kept) {
        *plan = r->checkpoint->plan;
        take_members(r, p, plan);
        if (r->made_by.elastic.enabled != p->job->elastic.enabled) {
            state->wanted_k = state->wanted_r = -1;
        }
    } else {
        take_other_plan(r, p, plan);
    }
    memcpy(state->usable.drained, plan->departed, sizeof state->usable.drained);
    state->n_workers = plan->n_workers;
}
