#include "launcher/run/costs/profile_fields.h"

#define COST(member) #member, FL_PROFILE_REAL, offsetof(fl_profile, member)
#define LAYER(member) #member, FL_PROFILE_REAL, offsetof(fl_layer_cost, member)
#define LAYER_WHOLE(member) #member, FL_PROFILE_WHOLE, offsetof(fl_layer_cost, member)
#define TUNED(member) offsetof(fl_tuned, member)

/* Ranges: least, most, whether 0 is one, too. A number outside comes from a measurement that went
 * wrong, or from a profile that somebody made up. */
#define TIME 1e-12, 1e12, true /* microseconds, or that for each sample, byte or parameter */
#define TIME_SPENT 1e-12, 1e12, false
#define RATE 1e-6, 1e9, false /* bytes per microsecond: 1 byte/s to 1 PB/s */
#define RATE_OR_NONE 1e-6, 1e9, true
#define FLOPS 1e-6, 1e15, true /* per microsecond */
#define SHARE 0, 1e3, false
#define MANY 0x1p50
#define NUMBER_FROM(least) least, INT32_MAX, false

const fl_profile_field fl__profile_costs[] = {
    {"live_steps", FL_PROFILE_WHOLE, offsetof(fl_profile, live_steps), 0, MANY, false},
    {"in_bytes", FL_PROFILE_WHOLE, offsetof(fl_profile, in_bytes), 1, MANY, false},
    {COST(loss_call_us), TIME},
    {COST(loss_us), TIME},
    {COST(optimizer_us_per_param), TIME},
    {COST(peak_flops_per_us), FLOPS},
    {"read_call_us", FL_PROFILE_REAL, offsetof(fl_profile, read.call_us), TIME},
    {"read_us_per_byte", FL_PROFILE_REAL, offsetof(fl_profile, read.us_per_byte), TIME},
    {COST(link_us), TIME},
    {COST(link_bytes_per_us), RATE},
    {COST(reduce_bytes_per_us), RATE},
    {COST(reduce_cpu_share), SHARE},
    {.name = NULL},
};

const fl_profile_field fl__profile_graphs[] = {
    {"graph_layer_bytes", FL_PROFILE_WHOLE, offsetof(fl_profile, graph_layer_bytes), 0, MANY,
     false},
    {.name = NULL},
};

const fl_profile_field fl__profile_comm[] = {
    {COST(comm_rebuild_us), TIME},
    {COST(comm_split_us), TIME},
    {COST(comm_shrink_us), TIME},
    {.name = NULL},
};

const fl_profile_field fl__profile_far[] = {
    {COST(far_us), TIME},
    {COST(far_bytes_per_us), RATE_OR_NONE},
    {COST(far_reduce_bytes_per_us), RATE_OR_NONE},
    {.name = NULL},
};

const fl_profile_field fl__profile_hosts[] = {
    {COST(hosts_us), TIME},
    {COST(hosts_bytes_per_us), RATE_OR_NONE},
    {COST(hosts_reduce_bytes_per_us), RATE_OR_NONE},
    {.name = NULL},
};

const fl_profile_field fl__profile_layer[] = {
    {LAYER(fwd_call_us), TIME},
    {LAYER(fwd_us), TIME},
    {LAYER(bwd_call_us), TIME},
    {LAYER(bwd_us), TIME},
    {LAYER(frozen_call_us), TIME},
    {LAYER(frozen_us), TIME},
    {LAYER_WHOLE(out_bytes), 1, MANY, false},
    {LAYER_WHOLE(kept_bytes), 0, MANY, false},
    {LAYER_WHOLE(scratch_bytes), 0, MANY, false},
    {LAYER_WHOLE(n_params), 0, MANY, false},
    {.name = NULL},
};

const fl_profile_field fl__profile_tokens[] = {
    {LAYER(fwd_token_us), TIME},
    {LAYER(bwd_token_us), TIME},
    {LAYER(frozen_token_us), TIME},
    {.name = NULL},
};

const fl_profile_field fl__profile_tuned[] = {
    {"batch", FL_PROFILE_WHOLE, TUNED(batch), 1, MANY, false},
    {"f", FL_PROFILE_COUNT, TUNED(F), NUMBER_FROM(0)},
    {"k", FL_PROFILE_COUNT, TUNED(K), NUMBER_FROM(1)},
    {"r", FL_PROFILE_COUNT, TUNED(R), NUMBER_FROM(1)},
    {"m", FL_PROFILE_COUNT, TUNED(M), NUMBER_FROM(1)},
    {"settled", FL_PROFILE_COUNT, TUNED(settled), NUMBER_FROM(0)},
    {"step_us", FL_PROFILE_REAL, TUNED(step_us), TIME_SPENT},
    {.name = NULL},
};
