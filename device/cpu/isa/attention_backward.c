/* Attention, backward: attention.h draws the way. */
#include "device/cpu/isa/attention.h"
#include "device/cpu/isa/passes.h"

FL_INLINE vf lse_of(const fl__attention_head *h, const block *b, int64_t lane)
{
    float lse[LANES] = {0};
    for (int64_t i = 0; i < LANES && lane + i < b->count; i++) {
        lse[i] = h->lse_in[(b->first + lane + i) * h->heads];
    }
    return v_load(lse) * FL_LOG2_E;
}

/* 5, 7 and 9: s becomes P, and dP becomes dS. Both dP and so delta and dS come with the scale of
 * the scores, which the turned dY brings along. */
FL_INLINE void grad_scores(const bool causal, const fl__attention_head *h, const block *b,
                           int64_t lane, float *s, float *ds)
{
    vf top = lse_of(h, b, lane), delta = {0};
    for (int64_t key = 0; key < b->n_keys; key++) {
        float *at = s + key * QUERIES;
        vf p = seen(causal, b, key, lane, v_exp2(v_load(at) - top), 0.0f);
        delta += p * v_load(ds + key * QUERIES);
        v_store(at, p);
    }
    for (int64_t key = 0; key < b->n_keys; key++) {
        float *at = ds + key * QUERIES;
        v_store(at, v_load(s + key * QUERIES) * (v_load(at) - delta));
    }
}

/* The same with dropout: s becomes P mask / (1 - p), which 8 wants, and dP is masked before delta.
 * In between, a dropped probability is stored with its sign bit set: P is never negative. */
FL_INLINE void grad_masked_scores(const bool causal, const fl__attention_head *h, const block *b,
                                  int64_t lane, float *s, float *ds)
{
    const dropping d = dropping_of(h);
    vf top = lse_of(h, b, lane), delta = {0};
    for (int64_t key = 0; key < b->n_keys; key += KEYS_A_DRAW) {
        vu words[4];
        draw_mask(&d, b->first + lane, key / KEYS_A_DRAW, words);
        for (int j = 0; j < KEYS_A_DRAW && key + j < b->n_keys; j++) {
            float *at = s + (key + j) * QUERIES, *dp = ds + (key + j) * QUERIES;
            vi kept = kept_lanes(&d, words, j);
            vf p = seen(causal, b, key + j, lane, v_exp2(v_load(at) - top), 0.0f);
            vf masked = v_select(kept, v_load(dp) * d.rate.scale, (vf){0});
            delta += p * masked;
            v_store(at, (vf)((vu)p | ((vu)~kept & 0x80000000u)));
            v_store(dp, masked);
        }
    }
    for (int64_t key = 0; key < b->n_keys; key++) {
        float *at = s + key * QUERIES, *dp = ds + key * QUERIES;
        vu bits = (vu)v_load(at);
        vf p = (vf)(bits & 0x7FFFFFFFu);
        v_store(dp, p * (v_load(dp) - delta));
        v_store(at, v_select((vi)bits < 0, (vf){0}, p * d.rate.scale));
    }
}

/* Kept out of the caller, whose registers it would take where nothing is dropped. */
FL_APART void grad_scores_dropped(const fl__attention_head *h, const block *b, int64_t lane,
                                  float *s, float *ds)
{
    if (h->causal) {
        grad_masked_scores(true, h, b, lane, s, ds);
    } else {
        grad_masked_scores(false, h, b, lane, s, ds);
    }
}

/* 8 and 11: grad[key] (+)= sum over the block's queries of s[key][query] x[query]. Keys that a
 * block is the first to see start from nothing. */
static void to_keys(const block *b, const float *s, rows x, int64_t row, int64_t head_dim,
                    float *grad, bool causal)
{
    product p = {
        .a = s,
        .a_row = QUERIES,
        .a_k = 1,
        .b = x.at + b->first * x.row,
        .b_k = x.row,
        .depth = b->count,
        .y = grad,
        .y_row = row,
        .cols = head_dim,
        .add = b->first > 0,
    };
    int64_t known = !causal || b->first == 0 ? b->n_keys : b->first;
    FL_ISA_NAME(multiply)(known, p);
    if (known < b->n_keys) {
        p.a += known * QUERIES;
        p.y += known * row;
        p.add = false;
        FL_ISA_NAME(multiply)(b->n_keys - known, p);
    }
}

typedef struct backward_work {
    float *turned_q, *turned_g, *s, *ds;
    rows q, k, g;
    float scale;
} backward_work;

static void backward_block(const fl__attention_head *h, const backward_work *w, const block *b)
{
    int64_t row = 3 * h->width, D = h->head_dim;
    turn(h->q, row, b, D, w->scale * FL_LOG2_E, w->turned_q);
    turn(h->grad_y, h->width, b, D, w->scale, w->turned_g);
    scores(h, b, w->turned_q, w->s);
    FL_ISA_NAME(multiply)
    (b->n_keys, (product){.a = h->v,
                          .a_row = row,
                          .a_k = 1,
                          .b = w->turned_g,
                          .b_k = QUERIES,
                          .depth = D,
                          .y = w->ds,
                          .y_row = QUERIES,
                          .cols = b->vectors * LANES});
    for (int64_t lane = 0; lane < b->vectors * LANES; lane += LANES) {
        float *s = w->s + lane, *ds = w->ds + lane;
        if (h->drop > 0.0f) {
            grad_scores_dropped(h, b, lane, s, ds);
        } else if (h->causal) {
            grad_scores(true, h, b, lane, s, ds);
        } else {
            grad_scores(false, h, b, lane, s, ds);
        }
    }
    to_keys(b, w->s, w->g, row, D, h->grad_v, h->causal);
    to_keys(b, w->ds, w->q, row, D, h->grad_k, h->causal);
    FL_ISA_NAME(multiply)
    (b->count, (product){.a = w->ds,
                         .a_row = 1,
                         .a_k = QUERIES,
                         .b = w->k.at,
                         .b_k = w->k.row,
                         .depth = b->n_keys,
                         .y = h->grad_q + b->first * row,
                         .y_row = row,
                         .cols = D});
}

void FL_ISA_NAME(attention_backward)(const fl__attention_head *h, float *workspace)
{
    int64_t row = 3 * h->width, T = h->n_tokens, D = h->head_dim;
    backward_work w = {
        .turned_q = take(&workspace, D * QUERIES),
        .turned_g = take(&workspace, D * QUERIES),
        .s = take(&workspace, T * QUERIES),
        .ds = take(&workspace, T * QUERIES),
        .q = whole_rows(h->q, row, T, D, &workspace),
        .k = whole_rows(h->k, row, T, D, &workspace),
        .g = whole_rows(h->grad_y, h->width, T, D, &workspace),
        .scale = h->scale,
    };
    for (int64_t first = 0; first < T; first += QUERIES) {
        block b = block_at(h, first);
        backward_block(h, &w, &b);
    }
}
