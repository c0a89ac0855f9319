#include "control/usable.h"

#include <string.h>

int fl_usable_count(const fl_usable *usable, int n_workers)
{
    int n = 0;
    for (int i = 0; i < n_workers; i++) {
        n += !usable->drained[i];
    }
    return usable->limit > 0 && usable->limit < n ? usable->limit : n;
}

/* The planner numbers workers from 0: number i becomes the i-th that is not drained. */
static void give_places(const fl_usable *usable, fl_plan *plan)
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

fl_status fl_usable_choose(const fl_usable *usable, const fl_plan_input *input, fl_plan *plan)
{
    fl_plan_input some = *input;
    some.n_workers = fl_usable_count(usable, input->n_workers);
    FL_TRY(fl_plan_choose(&some, plan, NULL, 0, NULL));
    plan->n_workers = input->n_workers;
    give_places(usable, plan);
    return FL_OK;
}

bool fl_usable_covers(const fl_usable *usable, const fl_plan *plan)
{
    for (int i = 0; i < plan->K * plan->R; i++) {
        if (usable->drained[plan->rank_of[i]]) {
            return false;
        }
    }
    return plan->K * plan->R <= fl_usable_count(usable, plan->n_workers);
}

void fl_usable_members(const fl_usable *usable, fl_plan *plan)
{
    memcpy(plan->departed, usable->drained, sizeof plan->departed);
}
