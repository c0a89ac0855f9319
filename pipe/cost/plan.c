#include "pipe/cost/plan.h"

#include "nn/model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

fl_grid fl_plan_grid(const fl_plan *plan)
{
    return (fl_grid){.F = plan->F, .K = plan->K, .R = plan->R, .M = plan->M};
}

bool fl_grid_is_same(fl_grid a, fl_grid b)
{
    return a.F == b.F && a.K == b.K && a.R == b.R && a.M == b.M;
}

const char *fl_grid_text(fl_grid grid, char text[FL_GRID_TEXT_MAX])
{
    snprintf(text, FL_GRID_TEXT_MAX, "K=%d x R=%d x M=%d", grid.K, grid.R, grid.M);
    return text;
}

int fl_plan_rank(const fl_plan *plan, int replica, int stage)
{
    assert(replica >= 0 && replica < plan->R && stage >= 0 && stage < plan->K);
    return plan->rank_of[replica * plan->K + stage];
}

int fl_plan_n_active(const fl_plan *plan)
{
    return plan->K * plan->R;
}

int fl_plan_active(const fl_plan *plan, int i)
{
    return fl_plan_rank(plan, i / plan->K, i % plan->K);
}

int fl_plan_leader(const fl_plan *plan)
{
    return fl_plan_rank(plan, 0, 0);
}

bool fl_plan_has_same_cuts(const fl_plan *a, const fl_plan *b)
{
    return a->K == b->K && memcmp(a->first, b->first, (size_t)(a->K + 1) * sizeof *a->first) == 0;
}

bool fl_plan_is_same(const fl_plan *a, const fl_plan *b)
{
    return fl_grid_is_same(fl_plan_grid(a), fl_plan_grid(b)) && fl_plan_has_same_cuts(a, b) &&
           memcmp(a->rank_of, b->rank_of, (size_t)fl_plan_n_active(a) * sizeof *a->rank_of) == 0 &&
           memcmp(a->departed, b->departed, sizeof a->departed) == 0;
}

fl_place fl_plan_place(const fl_plan *plan, int rank)
{
    for (int i = 0; i < plan->K * plan->R; i++) {
        if (plan->rank_of[i] == rank) {
            return (fl_place){.active = true, .replica = i / plan->K, .stage = i % plan->K};
        }
    }
    return (fl_place){.active = false, .replica = -1, .stage = -1};
}

int fl_plan_members(const fl_plan *plan)
{
    int n = 0;
    for (int rank = 0; rank < plan->n_workers; rank++) {
        n += !plan->departed[rank];
    }
    return n;
}

static fl_status check_cuts(const fl_plan *plan)
{
    if (plan->first[0] != 0 || plan->first[plan->K] != plan->n_layers) {
        long long last = (long long)plan->first[plan->K] - 1; /* any int, from another host */
        return fl_fail(FL_EINVAL, "the plan's stages cover layers %d .. %lld of 0 .. %d",
                       plan->first[0], last, plan->n_layers - 1);
    }
    for (int s = 0; s < plan->K; s++) {
        if (plan->first[s] >= plan->first[s + 1]) {
            return fl_fail(FL_EINVAL, "stage %d of the plan has no layer", s);
        }
    }
    return FL_OK;
}

static fl_status check_ranks(const fl_plan *plan)
{
    bool used[FL_MAX_WORKERS] = {false};
    for (int i = 0; i < plan->K * plan->R; i++) {
        int rank = plan->rank_of[i];
        if (rank < 0 || rank >= plan->n_workers || used[rank]) {
            return fl_fail(FL_EINVAL,
                           "replica %d, stage %d of the plan is on worker %d; wanted: one of "
                           "0 .. %d that has no other place",
                           i / plan->K, i % plan->K, rank, plan->n_workers - 1);
        }
        if (plan->departed[rank]) {
            return fl_fail(FL_EINVAL,
                           "replica %d, stage %d of the plan is on worker %d, which has left",
                           i / plan->K, i % plan->K, rank);
        }
        used[rank] = true;
    }
    return FL_OK;
}

fl_status fl_plan_check(const fl_plan *plan)
{
    char grid[FL_GRID_TEXT_MAX];
    if (plan->n_layers < 1 || plan->n_layers > FL_MAX_LAYERS || plan->n_workers < 1 ||
        plan->n_workers > FL_MAX_WORKERS) {
        return fl_fail(FL_EINVAL, "a plan of %d layers on %d workers; allowed: 1 .. %d on 1 .. %d",
                       plan->n_layers, plan->n_workers, FL_MAX_LAYERS, FL_MAX_WORKERS);
    }
    if (plan->K < 1 || plan->K > FL_MAX_STAGES || plan->K > plan->n_layers || plan->R < 1 ||
        plan->R > plan->n_workers / plan->K || plan->M < 1 || plan->F < 0) {
        return fl_fail(FL_EINVAL, "a plan of F=%d, %s for %d layers on %d workers", plan->F,
                       fl_grid_text(fl_plan_grid(plan), grid), plan->n_layers, plan->n_workers);
    }
    FL_TRY(check_cuts(plan));
    return check_ranks(plan);
}

const char *fl_plan_text(const fl_plan *plan, char *text, size_t size_bytes)
{
    char grid[FL_GRID_TEXT_MAX];
    int n = snprintf(text, size_bytes, "F=%d, %s, cuts", plan->F,
                     fl_grid_text(fl_plan_grid(plan), grid));
    for (int s = 0; s <= plan->K && n >= 0 && (size_t)n < size_bytes; s++) {
        n += snprintf(text + n, size_bytes - (size_t)n, " %d", plan->first[s]);
    }
    return text;
}

const char *fl_schedule_text(fl_schedule schedule)
{
    return schedule == FL_GPIPE ? "gpipe" : "1f1b";
}

int fl_frozen_layers(const fl_model *model, int F)
{
    int n = 0;
    while (n < fl_model_n_layers(model) && fl_model_block_of(model, n) <= F) {
        n++;
    }
    return n;
}
