#include "pipe/migrate_schedule.h"

#include "pipe/params.h"

int fl_frozen_layers(const fl_model *model, int F)
{
    int n = 0;
    while (n < fl_model_n_layers(model) && fl_model_block_of(model, n) <= F) {
        n++;
    }
    return n;
}

static int stage_of(const fl_plan *plan, int layer)
{
    int stage = 0;
    while (plan->first[stage + 1] <= layer) {
        stage++;
    }
    return stage;
}

static int owner(const fl_plan *plan, int replica, int stage)
{
    return plan->rank_of[replica * plan->K + stage];
}

/* The old owner that is `to` itself, else the one with the fewest layers to send so far. */
static int nearest(const fl_plan *old, int stage, int to, int *sent)
{
    int best = owner(old, 0, stage);
    for (int r = 0; r < old->R; r++) {
        int rank = owner(old, r, stage);
        if (rank == to) {
            return to;
        }
        if (sent[rank] < sent[best]) {
            best = rank;
        }
    }
    sent[best]++;
    return best;
}

fl_status fl_migrate_schedule(const fl_model *model, const fl_plan *old, const fl_plan *next,
                              const int *attic, fl_move *moves, int capacity, int *n_moves)
{
    int sent[FL_MAX_WORKERS] = {0};
    int frozen_before = fl_frozen_layers(model, old->F);
    int frozen_after = fl_frozen_layers(model, next->F);
    int n = 0;
    if (old->n_layers != next->n_layers || capacity < next->n_layers * next->R) {
        return fl_fail(FL_EINTERNAL, "a migration from %d to %d layers, room for %d moves",
                       old->n_layers, next->n_layers, capacity);
    }
    for (int layer = 0; layer < next->n_layers; layer++) {
        for (int r = 0; r < next->R; r++) {
            fl_move *m = &moves[n++];
            m->layer = layer;
            m->to = owner(next, r, stage_of(next, layer));
            m->from = nearest(old, stage_of(old, layer), m->to, sent);
            m->moments = layer >= frozen_after;
            m->moments_from = layer < frozen_before ? attic[layer] : m->from;
            if (m->moments && m->moments_from < 0) {
                return fl_fail(FL_EINTERNAL, "nobody keeps the moments of layer %d", layer);
            }
        }
    }
    *n_moves = n;
    return FL_OK;
}

void fl_migrate_attic(const fl_model *model, const fl_plan *old, const fl_plan *next, int *attic)
{
    int frozen_before = fl_frozen_layers(model, old->F);
    int frozen_after = fl_frozen_layers(model, next->F);
    for (int layer = 0; layer < next->n_layers; layer++) {
        if (layer >= frozen_after) {
            attic[layer] = -1;
        } else if (layer >= frozen_before) {
            attic[layer] = owner(old, 0, stage_of(old, layer));
        }
    }
}

int64_t fl_migrate_bytes(const fl_model *model, const fl_move *moves, int n, int n_moments)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const fl_move *m = &moves[i];
        int64_t weights = 4 * fl_params_count(model, m->layer, m->layer + 1);
        bytes += m->from != m->to ? weights : 0;
        bytes += m->moments && m->moments_from != m->to ? n_moments * weights : 0;
    }
    return bytes;
}
