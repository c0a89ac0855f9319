/* Which K, R and M a job and a cluster leave to choose from. */
#ifndef FL_PIPE_PLAN_PLAN_OPTIONS_H
#define FL_PIPE_PLAN_PLAN_OPTIONS_H

#include "pipe/cost/time/cost_model.h"

#include <stddef.h>

typedef struct fl_plan_option {
    fl_grid grid;
    double bound_us;    /* no split of this takes less */
    double estimate_us; /* at least the bound; the bound, where there is no cluster */
} fl_plan_option;

/* Whether the job asks for something that cannot be, whatever it costs. Returns FL_EINVAL; the
 * message begins with the field's path. Pure. */
fl_status fl_plan_options_check(const fl_plan_input *input) FL_MUST_CHECK;

/* Every combination worth a look, the lowest estimate first; ties: smaller K, then M, then R. For a
 * job that passed the check there is at least one. *options is the caller's, by fl_free. */
fl_status fl_plan_options_list(const fl_plan_input *input, const fl_cost_table *price,
                               fl_plan_option **options, size_t *n) FL_MUST_CHECK;

#endif
