/* Losses, and updates of many tensors at once. */
#include "support/device/pair_call.h"

#include <math.h>
#include <stddef.h>

enum { CLASSES = 7 };

/* ---- losses ---- */

static void classify(pair_call *r, int64_t n, int64_t n_classes)
{
    void *logits = pair_values(r, pair_tokens(r) * n);
    const fl_cross_entropy_args a = {.dtype = r->dtype,
                                     .logits = logits,
                                     .targets = pair_ints(r, pair_tokens(r), n_classes, true),
                                     .grad_scale = 0.5f,
                                     .grad = logits,
                                     .loss = pair_doubles(r, 1),
                                     .n_correct = pair_doubles(r, 1),
                                     .n_counted = pair_doubles(r, 1),
                                     .n_positive = pair_doubles(r, 1),
                                     .n_true_positive = pair_doubles(r, 1),
                                     .m = pair_tokens(r),
                                     .n = n,
                                     .n_classes = n_classes};
    PAIR_RUN(cross_entropy, &a)
}

static void run_cross_entropy(pair_call *r)
{
    classify(r, CLASSES, CLASSES);
}

/* A vocabulary that is padded, and wider than a block. */
static void run_cross_entropy_padded(pair_call *r)
{
    classify(r, 320, 301);
}

/* Each target is a token of its sample. */
static void run_span_cross_entropy(pair_call *r)
{
    const fl_span_cross_entropy_args a = {.dtype = r->dtype,
                                          .logits = pair_values(r, pair_tokens(r) * 2),
                                          .offsets = pair_offsets(r),
                                          .targets = pair_ints(r, r->shape->n_samples * 2, 1, true),
                                          .columns = 2,
                                          .grad_scale = 0.5f,
                                          .grad = pair_values(r, pair_tokens(r) * 2),
                                          .loss = pair_doubles(r, 1),
                                          .n_correct = pair_doubles(r, 1),
                                          .n_counted = pair_doubles(r, 1)};
    PAIR_RUN(span_cross_entropy, &a)
}

static void run_squared_error(pair_call *r)
{
    const fl_squared_error_args a = {.dtype = r->dtype,
                                     .out = pair_values(r, pair_size(r)),
                                     .targets = pair_floats(r, pair_size(r)),
                                     .grad_scale = 0.5f,
                                     .grad = pair_values(r, pair_size(r)),
                                     .square_sum = pair_doubles(r, 1),
                                     .absolute_sum = pair_doubles(r, 1),
                                     .n = pair_size(r)};
    PAIR_RUN(squared_error, &a)
}

static void run_add_to_sum(pair_call *r)
{
    double *sums = pair_doubles(r, 2);
    PAIR_RUN(add_to_sum, 0.75, sums + 1)
}

/* ---- lists of tensors: more than one launch takes, one of several chunks, one empty ---- */

enum { TENSORS = 460 };

static int64_t length_of(int i)
{
    return i == 2 ? 5000 : i % 5;
}

static int64_t list_updates(pair_call *r, fl_update list[TENSORS], int n_moments)
{
    int64_t n = 0;
    for (int i = 0; i < TENSORS; i++) {
        n += length_of(i);
    }
    float *w = pair_floats(r, n), *g = pair_floats(r, n), *m = pair_floats(r, n),
          *v = pair_floats(r, n);
    for (int64_t i = 0; i < n && v != NULL; i++) {
        v[i] = fabsf(v[i]);
    }
    for (int64_t i = 0, at = 0; i < TENSORS && r->status == FL_OK; at += length_of((int)i), i++) {
        list[i] = (fl_update){.w = w + at,
                              .g = g + at,
                              .moment = {m + at, n_moments == 2 ? v + at : NULL},
                              .n = length_of((int)i),
                              .weight_decay = i % 2 == 0 ? 0.0f : 0.1f,
                              .rate = i % 3 == 0 ? 1.0f : 0.5f};
    }
    return n;
}

static void run_adamw_many(pair_call *r)
{
    fl_update list[TENSORS] = {0};
    const fl_adamw_step step = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.5f};
    (void)list_updates(r, list, 2);
    PAIR_RUN(adamw_many, list, TENSORS, &step)
}

static void run_sgd_many(pair_call *r)
{
    fl_update list[TENSORS] = {0};
    const fl_sgd_step step = {1e-3f, 0.9f, 0.5f};
    (void)list_updates(r, list, 1);
    PAIR_RUN(sgd_many, list, TENSORS, &step)
}

static void run_sum_squares_many(pair_call *r)
{
    fl_update updates[TENSORS] = {0};
    fl_square_sum list[TENSORS] = {0};
    (void)list_updates(r, updates, 1);
    double *out = pair_doubles(r, TENSORS);
    for (int i = 0; i < TENSORS && out != NULL; i++) {
        list[i] = (fl_square_sum){.x = updates[i].g, .n = updates[i].n, .out = out + i};
    }
    PAIR_RUN(sum_squares_many, list, TENSORS)
}

const pair_kernel pair_losses[] = {
    {"cross_entropy", run_cross_entropy, false},
    {"cross_entropy, padded", run_cross_entropy_padded, false},
    {"span_cross_entropy", run_span_cross_entropy, false},
    {"squared_error", run_squared_error, false},
    {"add_to_sum", run_add_to_sum, true},
    {"adamw_many", run_adamw_many, true},
    {"sgd_many", run_sgd_many, true},
    {"sum_squares_many", run_sum_squares_many, true},
    {NULL, NULL, false},
};
