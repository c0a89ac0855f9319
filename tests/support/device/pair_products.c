/* Products of matrices, with what is fused to them. */
#include "support/device/pair_call.h"

#include <stddef.h>

enum { OUT = 19 };

/* With a bias and an activation. pre: whether the sum before it is kept */
static void run_activated(pair_call *r, int64_t n_out, fl_activation activation, bool pre)
{
    const fl_linear_args a = {.dtype = r->dtype,
                              .in = pair_values(r, pair_size(r)),
                              .w = pair_weight(r, n_out, r->shape->width),
                              .bias = pair_weight(r, 1, n_out),
                              .activation = activation,
                              .pre = pre ? pair_values(r, pair_tokens(r) * n_out) : NULL,
                              .y = pair_values(r, pair_tokens(r) * n_out),
                              .m = pair_tokens(r)};
    PAIR_RUN(linear, &a)
}

static void run_linear(pair_call *r)
{
    run_activated(r, OUT, FL_ACT_GELU_TANH, true);
}

static void run_linear_of_eights(pair_call *r)
{
    run_activated(r, 24, FL_ACT_GELU_TANH, true);
}

static void run_linear_pre_not_kept(pair_call *r)
{
    run_activated(r, OUT, FL_ACT_GELU_TANH, false);
    run_activated(r, OUT, FL_ACT_GELU_ERF, false);
}

static void run_linear_erf(pair_call *r)
{
    run_activated(r, OUT, FL_ACT_GELU_ERF, true);
}

static void run_linear_residual(pair_call *r)
{
    void *y = pair_values(r, pair_tokens(r) * 70);
    const fl_linear_args a = {.dtype = r->dtype,
                              .in = pair_values(r, pair_size(r)),
                              .w = pair_weight(r, 70, r->shape->width),
                              .residual = y,
                              .y = y,
                              .m = pair_tokens(r)};
    PAIR_RUN(linear, &a)
}

/* Neither bias nor anything else, then a residual that is not y. */
static void run_linear_plain(pair_call *r)
{
    fl_linear_args a = {.dtype = r->dtype,
                        .in = pair_values(r, pair_size(r)),
                        .w = pair_weight(r, OUT, r->shape->width),
                        .y = pair_values(r, pair_tokens(r) * OUT),
                        .m = pair_tokens(r)};
    PAIR_RUN(linear, &a)
    a.bias = pair_weight(r, 1, OUT);
    a.residual = pair_values(r, pair_tokens(r) * OUT);
    a.y = pair_values(r, pair_tokens(r) * OUT);
    PAIR_RUN(linear, &a)
}

static void run_linear_backward_input(pair_call *r)
{
    const fl_linear_backward_input_args a = {.dtype = r->dtype,
                                             .grad_out = pair_values(r, pair_tokens(r) * OUT),
                                             .w = pair_weight(r, OUT, r->shape->width),
                                             .grad_in = pair_values(r, pair_size(r)),
                                             .m = pair_tokens(r)};
    PAIR_RUN(linear_backward_input, &a)
}

static void run_linear_backward_weights(pair_call *r)
{
    fl_linear_backward_weights_args a = {.dtype = r->dtype,
                                         .grad_out = pair_values(r, pair_tokens(r) * OUT),
                                         .in = pair_values(r, pair_size(r)),
                                         .grad_w = pair_floats(r, OUT * r->shape->width),
                                         .grad_bias = pair_floats(r, OUT),
                                         .m = pair_tokens(r),
                                         .n_out = OUT,
                                         .n_in = r->shape->width};
    PAIR_RUN(linear_backward_weights, &a)
    a.grad_w = NULL;
    PAIR_RUN(linear_backward_weights, &a)
}

const pair_kernel pair_products[] = {
    {"linear", run_linear, false},
    {"linear of eights", run_linear_of_eights, false},
    {"linear, sum not kept", run_linear_pre_not_kept, false},
    {"linear, erf", run_linear_erf, false},
    {"linear, plain", run_linear_plain, false},
    {"linear, residual", run_linear_residual, false},
    {"linear_backward_input", run_linear_backward_input, false},
    {"linear_backward_weights", run_linear_backward_weights, false},
    {NULL, NULL, false},
};
