/* Attention, forward: attention.h draws the way. */
#include "device/cpu/isa/attention.h"
#include "device/cpu/isa/passes.h"

size_t FL_ISA_NAME(attention_workspace)(int64_t n_tokens, int64_t head_dim, bool backward)
{
    /* turned q and S^T, and backward turned dY and dP^T, too; copies of v, or of q, k and dY */
    int64_t copy = head_dim % LANES == 0 ? 0 : n_tokens * padded(head_dim);
    int64_t floats =
        (head_dim + n_tokens) * QUERIES * (backward ? 2 : 1) + copy * (backward ? 3 : 1);
    return (size_t)floats * sizeof(float);
}

/* ---- 3: softmax down the columns ---- */

FL_INLINE void softmax(const bool causal, const fl__attention_head *h, const block *b, int64_t lane,
                       float *s)
{
    vf top = v_all(-INFINITY), sum = {0};
    for (int64_t key = 0; key < b->n_keys; key++) {
        top = v_max(top, seen(causal, b, key, lane, v_load(s + key * QUERIES), -INFINITY));
    }
    for (int64_t key = 0; key < b->n_keys; key++) {
        float *at = s + key * QUERIES;
        vf p = seen(causal, b, key, lane, v_exp2(v_load(at) - top), 0.0f);
        sum += p;
        v_store(at, p);
    }
    vf share = 1.0f / sum;
    for (int64_t key = 0; key < b->n_keys; key++) {
        v_store(s + key * QUERIES, v_load(s + key * QUERIES) * share);
    }
    if (h->lse != NULL) {
        float lse[LANES];
        v_store(lse, (top + v_log2(sum)) * FL_LN_2);
        for (int64_t i = 0; i < LANES && lane + i < b->count; i++) {
            h->lse[(b->first + lane + i) * h->heads] = lse[i];
        }
    }
}

/* s = P mask / (1 - p), column by column, eight keys of a draw at a time. Kept out of the caller,
 * whose registers it would take where nothing is dropped. */
FL_APART void drop(const fl__attention_head *h, const block *b, int64_t lane, float *s)
{
    const dropping d = dropping_of(h);
    for (int64_t key = 0; key < b->n_keys; key += KEYS_A_DRAW) {
        vu words[4];
        draw_mask(&d, b->first + lane, key / KEYS_A_DRAW, words);
        for (int j = 0; j < KEYS_A_DRAW && key + j < b->n_keys; j++) {
            float *at = s + (key + j) * QUERIES;
            v_store(at, v_select(kept_lanes(&d, words, j), v_load(at) * d.rate.scale, (vf){0}));
        }
    }
}

void FL_ISA_NAME(attention)(const fl__attention_head *h, float *workspace)
{
    float scale = FL_LOG2_E * h->scale;
    float *turned = take(&workspace, h->head_dim * QUERIES);
    float *s = take(&workspace, h->n_tokens * QUERIES);
    rows v = whole_rows(h->v, 3 * h->width, h->n_tokens, h->head_dim, &workspace);
    for (int64_t first = 0; first < h->n_tokens; first += QUERIES) {
        block b = block_at(h, first);
        turn(h->q, 3 * h->width, &b, h->head_dim, scale, turned);
        scores(h, &b, turned, s);
        for (int64_t lane = 0; lane < b.vectors * LANES; lane += LANES) {
            if (h->causal) {
                softmax(true, h, &b, lane, s + lane);
            } else {
                softmax(false, h, &b, lane, s + lane);
            }
            if (h->drop > 0.0f) {
                drop(h, &b, lane, s + lane);
            }
        }
        FL_ISA_NAME(multiply)
        (b.count, (product){.a = s,
                            .a_row = 1,
                            .a_k = QUERIES,
                            .b = v.at,
                            .b_k = v.row,
                            .depth = b.n_keys,
                            .y = h->y + first * h->width,
                            .y_row = h->width,
                            .cols = h->head_dim});
    }
}
