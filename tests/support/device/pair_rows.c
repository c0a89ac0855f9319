/* Attention, and rows that move: of tokens, embeddings and patches. */
#include "support/device/pair_call.h"

#include <math.h>
#include <stddef.h>

enum { IDS = 13 };

/* ---- attention ---- */

static fl_attention_args attention(pair_call *r, bool causal, bool dropped)
{
    return (fl_attention_args){.dtype = r->dtype,
                               .qkv = pair_values(r, 3 * pair_size(r)),
                               .offsets = pair_offsets(r),
                               .heads = r->shape->heads,
                               .width = r->shape->width,
                               .causal = causal,
                               .scale =
                                   2.0f / sqrtf((float)r->shape->width / (float)r->shape->heads),
                               .mask = dropped ? pair_mask(r) : (fl_mask){0},
                               .y = pair_values(r, pair_size(r)),
                               .lse = pair_floats(r, pair_tokens(r) * r->shape->heads)};
}

static void attend(pair_call *r, bool causal, bool dropped)
{
    const fl_attention_args a = attention(r, causal, dropped);
    PAIR_RUN(attention, &a)
    const fl_attention_backward_args b = {.forward = a,
                                          .grad_y = pair_values(r, pair_size(r)),
                                          .grad_qkv = pair_values(r, 3 * pair_size(r))};
    PAIR_RUN(attention_backward, &b)
}

static void run_attention(pair_call *r)
{
    attend(r, false, false);
}

static void run_attention_causal(pair_call *r)
{
    attend(r, true, false);
}

static void run_attention_dropped(pair_call *r)
{
    attend(r, true, true);
}

/* ---- rows ---- */

static void run_gather_rows(pair_call *r)
{
    int64_t n = pair_tokens(r) == 0 ? 0 : 5;
    const fl_gather_rows_args a = {.dtype = r->dtype,
                                   .in = pair_values(r, pair_size(r)),
                                   .index = pair_ints(r, n, n == 0 ? 1 : pair_tokens(r), false),
                                   .y = pair_values(r, n * r->shape->width),
                                   .n_rows = n,
                                   .width = r->shape->width};
    PAIR_RUN(gather_rows, &a)
}

static void run_scatter_rows(pair_call *r)
{
    int64_t n = pair_tokens(r) < 4 ? pair_tokens(r) : 4;
    const fl_scatter_rows_args a = {.dtype = r->dtype,
                                    .in = pair_values(r, n * r->shape->width),
                                    .index = pair_ints(r, n, 23, false),
                                    .y = pair_values(r, 23 * r->shape->width),
                                    .n_rows = n,
                                    .total_rows = 23,
                                    .width = r->shape->width};
    PAIR_RUN(scatter_rows, &a)
}

/* Tokens, places and a type that all rows share; the backward skips one token. */
static fl_embed_args embed(pair_call *r, bool backward)
{
    fl_embed_args a = {.dtype = r->dtype,
                       .offsets = pair_offsets(r),
                       .n_tables = 3,
                       .width = r->shape->width,
                       .y = backward ? NULL : pair_values(r, pair_size(r))};
    const int64_t rows[] = {IDS, pair_tokens(r) + 1, 2};
    for (int k = 0; k < a.n_tables; k++) {
        a.table[k].weight = pair_weight(r, rows[k], a.width);
        a.table[k].grad = backward ? pair_floats(r, rows[k] * a.width) : NULL;
        a.table[k].stride = k == 0 ? 1 : 0;
    }
    a.table[0].ids = pair_ints(r, pair_tokens(r), IDS, false);
    a.table[0].skips = true;
    a.table[0].skipped = 8;
    a.table[2].ids = pair_ints(r, 1, 2, false);
    return a;
}

static void run_embed(pair_call *r)
{
    const fl_embed_args a = embed(r, false);
    PAIR_RUN(embed, &a)
}

static void run_embed_backward(pair_call *r)
{
    const fl_embed_backward_args b = {.forward = embed(r, true),
                                      .grad_y = pair_values(r, pair_size(r))};
    PAIR_RUN(embed_backward, &b)
}

static fl_patchify_args patchify(pair_call *r)
{
    int64_t n = r->shape->n_samples, pixels = n * 3 * 6 * 8;
    return (fl_patchify_args){.dtype = r->dtype,
                              .images = pair_values(r, pixels),
                              .patches = pair_values(r, pixels),
                              .n = n,
                              .channels = 3,
                              .height = 6,
                              .width = 8,
                              .patch = 2};
}

static void run_patchify(pair_call *r)
{
    const fl_patchify_args a = patchify(r);
    PAIR_RUN(patchify, &a)
}

static void run_patchify_backward(pair_call *r)
{
    const fl_patchify_args a = patchify(r);
    PAIR_RUN(patchify_backward, &a)
}

enum { PATCHES = 4 };

static void run_vit_assemble(pair_call *r)
{
    int64_t n = r->shape->n_samples, dim = r->shape->width;
    const fl_vit_assemble_args a = {.dtype = r->dtype,
                                    .patches = pair_values(r, n * PATCHES * dim),
                                    .cls = pair_weight(r, 1, dim),
                                    .pos = pair_weight(r, PATCHES + 1, dim),
                                    .y = pair_values(r, n * (PATCHES + 1) * dim),
                                    .n = n,
                                    .n_patches = PATCHES,
                                    .dim = dim};
    PAIR_RUN(vit_assemble, &a)
}

static void run_vit_assemble_backward(pair_call *r)
{
    int64_t n = r->shape->n_samples, dim = r->shape->width;
    const fl_vit_assemble_backward_args a = {.dtype = r->dtype,
                                             .grad_y = pair_values(r, n * (PATCHES + 1) * dim),
                                             .grad_patches = pair_values(r, n * PATCHES * dim),
                                             .grad_cls = pair_floats(r, dim),
                                             .grad_pos = pair_floats(r, (PATCHES + 1) * dim),
                                             .n = n,
                                             .n_patches = PATCHES,
                                             .dim = dim};
    PAIR_RUN(vit_assemble_backward, &a)
}

const pair_kernel pair_rows[] = {
    {"attention", run_attention, false},
    {"attention, causal", run_attention_causal, false},
    {"attention, causal, dropped", run_attention_dropped, false},
    {"gather_rows", run_gather_rows, false},
    {"scatter_rows", run_scatter_rows, false},
    {"embed", run_embed, false},
    {"embed_backward", run_embed_backward, false},
    {"patchify", run_patchify, false},
    {"patchify_backward", run_patchify_backward, false},
    {"vit_assemble", run_vit_assemble, false},
    {"vit_assemble_backward", run_vit_assemble_backward, false},
    {NULL, NULL, false},
};
