#include "launcher/run/costs/profile_fields.h"

#define COST(member) #member, FL_PROFILE_REAL, offsetof(fl_profile, member)
#define LAYER(member) #member, FL_PROFILE_REAL, offsetof(fl_layer_cost, member)
#define LAYER_WHOLE(member) #member, FL_PROFILE_WHOLE, offsetof(fl_layer_cost, member)
#define TUNED(member) offsetof(fl_tuned, member)

const fl_profile_field fl__profile_costs[] = {
    {"live_steps", FL_PROFILE_WHOLE, offsetof(fl_profile, live_steps), false, 0},
    {"in_bytes", FL_PROFILE_WHOLE, offsetof(fl_profile, in_bytes), false, 1},
    {COST(loss_call_us), false, 0},
    {COST(loss_us), false, 0},
    {COST(optimizer_us_per_param), false, 0},
    {COST(peak_flops_per_us), false, 0},
    {"read_call_us", FL_PROFILE_REAL, offsetof(fl_profile, read.call_us), false, 0},
    {"read_us_per_byte", FL_PROFILE_REAL, offsetof(fl_profile, read.us_per_byte), false, 0},
    {COST(link_us), false, 0},
    {COST(link_bytes_per_us), true, 0},
    {COST(reduce_bytes_per_us), true, 0},
    {COST(reduce_cpu_share), false, 0},
    {.name = NULL},
};

const fl_profile_field fl__profile_graphs[] = {
    {"graph_layer_bytes", FL_PROFILE_WHOLE, offsetof(fl_profile, graph_layer_bytes), false, 0},
    {.name = NULL},
};

const fl_profile_field fl__profile_comm[] = {
    {COST(comm_rebuild_us), false, 0},
    {COST(comm_split_us), false, 0},
    {COST(comm_shrink_us), false, 0},
    {.name = NULL},
};

const fl_profile_field fl__profile_far[] = {
    {COST(far_us), false, 0},
    {COST(far_bytes_per_us), false, 0},
    {COST(far_reduce_bytes_per_us), false, 0},
    {.name = NULL},
};

const fl_profile_field fl__profile_hosts[] = {
    {COST(hosts_us), false, 0},
    {COST(hosts_bytes_per_us), false, 0},
    {COST(hosts_reduce_bytes_per_us), false, 0},
    {.name = NULL},
};

const fl_profile_field fl__profile_layer[] = {
    {LAYER(fwd_call_us), false, 0},
    {LAYER(fwd_us), false, 0},
    {LAYER(bwd_call_us), false, 0},
    {LAYER(bwd_us), false, 0},
    {LAYER(frozen_call_us), false, 0},
    {LAYER(frozen_us), false, 0},
    {LAYER_WHOLE(out_bytes), false, 1},
    {LAYER_WHOLE(kept_bytes), false, 0},
    {LAYER_WHOLE(scratch_bytes), false, 0},
    {LAYER_WHOLE(n_params), false, 0},
    {.name = NULL},
};

const fl_profile_field fl__profile_tokens[] = {
    {LAYER(fwd_token_us), false, 0},
    {LAYER(bwd_token_us), false, 0},
    {LAYER(frozen_token_us), false, 0},
    {.name = NULL},
};

const fl_profile_field fl__profile_tuned[] = {
    {"batch", FL_PROFILE_WHOLE, TUNED(batch), false, 1},
    {"f", FL_PROFILE_COUNT, TUNED(F), false, 0},
    {"k", FL_PROFILE_COUNT, TUNED(K), false, 1},
    {"r", FL_PROFILE_COUNT, TUNED(R), false, 1},
    {"m", FL_PROFILE_COUNT, TUNED(M), false, 1},
    {"settled", FL_PROFILE_COUNT, TUNED(settled), false, 0},
    {"step_us", FL_PROFILE_REAL, TUNED(step_us), true, 0},
    {.name = NULL},
};
