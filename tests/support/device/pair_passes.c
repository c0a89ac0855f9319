/* Passes over activations, and norms. */
#include "support/device/pair_call.h"

#include <stddef.h>

/* ---- passes ---- */

/* Every activation in turn, on parts of the arrays, far from zero too. */
static void run_activate(pair_call *r)
{
    for (fl_activation kind = FL_ACT_NONE; kind <= FL_ACT_SILU; kind++) {
        const fl_activate_args a = {.dtype = r->dtype,
                                    .activation = kind,
                                    .in = pair_values(r, pair_size(r)),
                                    .y = pair_values(r, pair_size(r)),
                                    .n = pair_size(r)};
        PAIR_RUN(activate, &a)
    }
}

static void run_activate_backward(pair_call *r)
{
    for (fl_activation kind = FL_ACT_NONE; kind <= FL_ACT_SILU; kind++) {
        const fl_activate_backward_args a = {.dtype = r->dtype,
                                             .activation = kind,
                                             .grad_y = pair_values(r, pair_size(r)),
                                             .pre = pair_values(r, pair_size(r)),
                                             .grad_pre = pair_values(r, pair_size(r)),
                                             .y = kind % 2 == 0 ? NULL
                                                                : pair_values(r, pair_size(r)),
                                             .n = pair_size(r)};
        PAIR_RUN(activate_backward, &a)
    }
}

static void run_add(pair_call *r)
{
    void *y = pair_values(r, pair_size(r));
    const fl_add_args a = {
        .dtype = r->dtype, .a = y, .b = pair_values(r, pair_size(r)), .y = y, .n = pair_size(r)};
    PAIR_RUN(add, &a)
}

static void run_dropout(pair_call *r)
{
    void *y = pair_values(r, pair_size(r));
    const fl_dropout_args a = {.dtype = r->dtype,
                               .in = y,
                               .offsets = pair_offsets(r),
                               .width = r->shape->width,
                               .mask = pair_mask(r),
                               .y = y};
    PAIR_RUN(dropout, &a)
}

static void run_no_dropout(pair_call *r)
{
    const fl_dropout_args a = {.dtype = r->dtype,
                               .in = pair_values(r, pair_size(r)),
                               .offsets = pair_offsets(r),
                               .width = r->shape->width,
                               .y = pair_values(r, pair_size(r))};
    PAIR_RUN(dropout, &a)
}

/* ---- norms ---- */

static fl_norm_args norm(pair_call *r, bool layer, bool residual)
{
    void *in = pair_values(r, pair_size(r));
    return (fl_norm_args){.dtype = r->dtype,
                          .in = in,
                          .residual = residual ? pair_values(r, pair_size(r)) : NULL,
                          .gamma = pair_weight(r, 1, r->shape->width),
                          .beta = layer ? pair_weight(r, 1, r->shape->width) : NULL,
                          .epsilon = 1e-5f,
                          .sum = residual ? in : NULL,
                          .y = pair_values(r, pair_size(r)),
                          .mean = layer && residual ? pair_floats(r, pair_tokens(r)) : NULL,
                          .rstd = residual ? pair_floats(r, pair_tokens(r)) : NULL,
                          .m = pair_tokens(r),
                          .n = r->shape->width};
}

static void run_layernorm(pair_call *r)
{
    const fl_norm_args a = norm(r, true, true);
    PAIR_RUN(layernorm, &a)
}

static void run_layernorm_alone(pair_call *r)
{
    const fl_norm_args a = norm(r, true, false);
    PAIR_RUN(layernorm, &a)
}

static void run_rmsnorm(pair_call *r)
{
    const fl_norm_args a = norm(r, false, true);
    PAIR_RUN(rmsnorm, &a)
}

static fl_norm_backward_args norm_backward(pair_call *r, bool layer)
{
    void *grad_y = pair_values(r, pair_size(r));
    return (fl_norm_backward_args){.dtype = r->dtype,
                                   .grad_y = grad_y,
                                   .in = pair_values(r, pair_size(r)),
                                   .gamma = pair_weight(r, 1, r->shape->width),
                                   .mean = layer ? pair_floats(r, pair_tokens(r)) : NULL,
                                   .rstd = pair_floats(r, pair_tokens(r)),
                                   .grad_residual = pair_values(r, pair_size(r)),
                                   .grad_in = grad_y,
                                   .grad_gamma = pair_floats(r, r->shape->width),
                                   .grad_beta = layer ? pair_floats(r, r->shape->width) : NULL,
                                   .m = pair_tokens(r),
                                   .n = r->shape->width};
}

static void run_layernorm_backward(pair_call *r)
{
    const fl_norm_backward_args a = norm_backward(r, true);
    PAIR_RUN(layernorm_backward, &a)
}

static void run_rmsnorm_backward(pair_call *r)
{
    const fl_norm_backward_args a = norm_backward(r, false);
    PAIR_RUN(rmsnorm_backward, &a)
}

const pair_kernel pair_passes[] = {
    {"activate", run_activate, false},
    {"activate_backward", run_activate_backward, false},
    {"add", run_add, false},
    {"dropout", run_dropout, false},
    {"dropout of nothing", run_no_dropout, false},
    {"layernorm", run_layernorm, false},
    {"layernorm without a residual", run_layernorm_alone, false},
    {"layernorm_backward", run_layernorm_backward, false},
    {"rmsnorm", run_rmsnorm, false},
    {"rmsnorm_backward", run_rmsnorm_backward, false},
    {NULL, NULL, false},
};
