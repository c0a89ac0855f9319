#include "pipe/plan/migrate_schedule.h"

#include "nn/model.h"
#include "pipe/cost/layout.h"
#include "pipe/cost/plan.h"

static int stage_of(const fl_plan *plan, int layer)
{
    int stage = 0;
    while (plan->first[stage + 1] <= layer) {
        stage++;
    }
    return stage;
}

static bool is_lost(const bool *lost, int rank)
{
    return lost != NULL && lost[rank];
}

/* A living owner of the stage, rather one that stays; -1: none. */
static int living_owner(const fl_plan *old, const fl_plan *next, int stage, const bool *lost)
{
    int leaves = -1;
    for (int r = 0; r < old->R; r++) {
        int rank = fl_plan_rank(old, r, stage);
        if (!is_lost(lost, rank) && !next->departed[rank]) {
            return rank;
        }
        leaves = leaves < 0 && !is_lost(lost, rank) ? rank : leaves;
    }
    return leaves;
}

/* The rank that has the moments of a layer that is frozen in the next plan; -1: none. */
static int keeper_before(const fl_plan *old, const fl_plan *next, int layer, int frozen_before,
                         const int *parked, const bool *lost)
{
    if (layer >= frozen_before) {
        return living_owner(old, next, stage_of(old, layer), lost);
    }
    return parked[layer] >= 0 && is_lost(lost, parked[layer]) ? -1 : parked[layer];
}

/* The rank that keeps them from now on: the same, or, if it departs, an owner of the weights. */
static int keeper_after(const fl_plan *next, int layer, int before)
{
    bool stays = before < 0 || !next->departed[before];
    return stays ? before : fl_plan_rank(next, 0, stage_of(next, layer));
}

/* The old owner that is `to` itself, else the living one with the fewest layers to send so far; -1:
 * all are lost. */
static int nearest(const fl_plan *old, int stage, int to, const bool *lost, int *sent)
{
    int best = -1;
    for (int r = 0; r < old->R; r++) {
        int rank = fl_plan_rank(old, r, stage);
        if (rank == to) {
            return to;
        }
        if (!is_lost(lost, rank) && (best < 0 || sent[rank] < sent[best])) {
            best = rank;
        }
    }
    if (best >= 0) {
        sent[best]++;
    }
    return best;
}

int fl_migrate_orphans(const fl_model *model, const fl_plan *old, const int *parked,
                       const bool *lost, unsigned char *orphans)
{
    int frozen = fl_frozen_layers(model, old->F), n = 0;
    for (int layer = 0; layer < old->n_layers; layer++) {
        bool weights = living_owner(old, old, stage_of(old, layer), lost) < 0;
        bool moments =
            layer < frozen ? parked[layer] >= 0 && is_lost(lost, parked[layer]) : weights;
        orphans[layer] =
            (unsigned char)((weights ? FL_ORPHAN_WEIGHTS : 0) | (moments ? FL_ORPHAN_MOMENTS : 0));
        n += weights;
    }
    return n;
}

/* Whether somebody can send what the move brings. */
static fl_status check_source(const fl_move *m)
{
    if (m->from < 0) {
        return fl_fail(FL_EPEER, "every worker that had layer %d is lost", m->layer);
    }
    return FL_OK;
}

/* Whether the layer trains from now on, and nobody has moments for it. */
static bool is_fresh(int layer, int frozen_before, int frozen_after, const int *parked,
                     const bool *lost)
{
    return layer < frozen_before && layer >= frozen_after &&
           (parked[layer] < 0 || is_lost(lost, parked[layer]));
}

int fl_migrate_fresh(const fl_model *model, const fl_plan *old, const fl_plan *next,
                     const int *parked, const bool *lost, bool *fresh)
{
    int frozen_before = fl_frozen_layers(model, old->F);
    int frozen_after = fl_frozen_layers(model, next->F), n = 0;
    for (int layer = 0; layer < next->n_layers; layer++) {
        fresh[layer] = is_fresh(layer, frozen_before, frozen_after, parked, lost);
        n += fresh[layer] && fl_layout_count(model, layer, layer + 1) > 0;
    }
    return n;
}

fl_status fl_migrate_schedule(const fl_model *model, const fl_plan *old, const fl_plan *next,
                              const int *parked, const bool *lost, fl_move *moves, int capacity,
                              int *n_moves)
{
    int sent[FL_MAX_WORKERS] = {0};
    int frozen_before = fl_frozen_layers(model, old->F);
    int frozen_after = fl_frozen_layers(model, next->F);
    int n = 0;
    if (old->n_layers != next->n_layers || capacity < next->n_layers * (next->R + 1)) {
        return fl_fail(FL_EINTERNAL, "a migration from %d to %d layers, room for %d moves",
                       old->n_layers, next->n_layers, capacity);
    }
    for (int layer = 0; layer < next->n_layers; layer++) {
        for (int r = 0; r < next->R; r++) {
            fl_move *m = &moves[n++];
            m->layer = layer;
            m->to = fl_plan_rank(next, r, stage_of(next, layer));
            m->from = nearest(old, stage_of(old, layer), m->to, lost, sent);
            m->moments = layer >= frozen_after &&
                         !is_fresh(layer, frozen_before, frozen_after, parked, lost);
            m->moments_from = m->moments && layer < frozen_before ? parked[layer] : m->from;
            m->to_parked = false;
            FL_TRY(check_source(m));
        }
        int keeper = layer >= frozen_after
                         ? -1
                         : keeper_before(old, next, layer, frozen_before, parked, lost);
        int to = keeper_after(next, layer, keeper);
        if (to != keeper) {
            moves[n++] = (fl_move){layer, to, to, true, keeper, true};
        }
    }
    *n_moves = n;
    return FL_OK;
}

void fl_migrate_parked(const fl_model *model, const fl_plan *old, const fl_plan *next,
                       const bool *lost, int *parked)
{
    int frozen_before = fl_frozen_layers(model, old->F);
    int frozen_after = fl_frozen_layers(model, next->F);
    for (int layer = 0; layer < next->n_layers; layer++) {
        int before = keeper_before(old, next, layer, frozen_before, parked, lost);
        parked[layer] = layer >= frozen_after ? -1 : keeper_after(next, layer, before);
    }
}

int64_t fl_migrate_bytes(const fl_model *model, const fl_move *moves, int n, int n_moments)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const fl_move *m = &moves[i];
        int64_t weights = 4 * fl_layout_count(model, m->layer, m->layer + 1);
        bytes += m->from != m->to ? weights : 0;
        bytes += m->moments && m->moments_from != m->to ? n_moments * weights : 0;
    }
    return bytes;
}

void fl_migrate_link_bytes(const fl_model *model, const fl_cluster *cluster, const fl_move *moves,
                           int n, int n_moments, int64_t *bytes)
{
    for (int i = 0; i < FL_N_LINKS; i++) {
        bytes[i] = 0;
    }
    for (int i = 0; i < n; i++) {
        const fl_move *m = &moves[i];
        int64_t weights = 4 * fl_layout_count(model, m->layer, m->layer + 1);
        if (m->from != m->to) {
            bytes[fl_cluster_link_class(cluster, m->from, m->to)] += weights;
        }
        if (m->moments && m->moments_from != m->to) {
            bytes[fl_cluster_link_class(cluster, m->moments_from, m->to)] += n_moments * weights;
        }
    }
}

/* Whether `layer` lies on `rank` under the plan. */
static bool holds(const fl_plan *plan, fl_place place, int layer)
{
    return place.active && layer >= plan->first[place.stage] &&
           layer < plan->first[place.stage + 1];
}

void fl_migrate_handed(const fl_model *model, const fl_plan *old, const fl_plan *next,
                       const int *parked, int rank, unsigned char *handed)
{
    int frozen_before = fl_frozen_layers(model, old->F);
    int frozen_after = fl_frozen_layers(model, next->F);
    fl_place place = fl_plan_place(old, rank);
    for (int layer = 0; layer < next->n_layers; layer++) {
        bool here = holds(old, place, layer);
        bool moments = layer < frozen_before ? parked[layer] == rank : here;
        handed[layer] = (unsigned char)(here ? FL_HANDED_WEIGHT : 0);
        handed[layer] |= (unsigned char)(moments && layer >= frozen_after ? FL_HANDED_MOMENTS : 0);
    }
}

/* Weights and moments of the layers that lie at both places. */
static int64_t kept_bytes(const fl_model *model, const fl_plan *old, fl_place before,
                          const fl_plan *next, fl_place after, int n_moments)
{
    int frozen = fl_frozen_layers(model, old->F > next->F ? old->F : next->F);
    int64_t bytes = 0;
    for (int layer = 0; layer < next->n_layers; layer++) {
        if (holds(old, before, layer) && holds(next, after, layer)) {
            bytes +=
                4 * fl_layout_count(model, layer, layer + 1) * (layer < frozen ? 1 : 1 + n_moments);
        }
    }
    return bytes;
}

/* Whether a place that is on device `on` may go to `rank`. */
static bool is_near(const fl_cluster *cluster, int on, int rank)
{
    return cluster == NULL || (cluster->host_of[on] == cluster->host_of[rank] &&
                               cluster->socket_of[on] == cluster->socket_of[rank] &&
                               fl_cluster_is_alike(cluster, on, rank));
}

static void place_all(const fl_model *model, const fl_cluster *cluster, const fl_plan *old,
                      fl_plan *next, int n_moments, const bool *barred)
{
    bool taken[FL_MAX_WORKERS] = {false};
    for (int i = 0; i < next->K * next->R; i++) {
        fl_place after = {.active = true, .replica = i / next->K, .stage = i % next->K};
        int64_t most = -1;
        int on = next->rank_of[i];
        for (int rank = 0; rank < next->n_workers; rank++) {
            bool free =
                !taken[rank] && (barred == NULL || !barred[rank]) && is_near(cluster, on, rank);
            int64_t bytes =
                !free ? -1
                      : kept_bytes(model, old, fl_plan_place(old, rank), next, after, n_moments);
            if (bytes > most) {
                most = bytes;
                next->rank_of[i] = rank;
            }
        }
        taken[next->rank_of[i]] = true;
    }
}

void fl_migrate_place(const fl_model *model, const fl_plan *old, fl_plan *next, int n_moments,
                      const bool *barred)
{
    place_all(model, NULL, old, next, n_moments, barred);
}

void fl_migrate_place_near(const fl_model *model, const fl_cluster *cluster, const fl_plan *old,
                           fl_plan *next, int n_moments, const bool *barred)
{
    place_all(model, cluster, old, next, n_moments, barred);
}

int64_t fl_migrate_state_bytes(const fl_model *model, const fl_plan *plan, int rank, int n_moments)
{
    return fl_migrate_kept_bytes(model, plan, plan, rank, n_moments);
}

int64_t fl_migrate_kept_bytes(const fl_model *model, const fl_plan *old, const fl_plan *next,
                              int rank, int n_moments)
{
    return kept_bytes(model, old, fl_plan_place(old, rank), next, fl_plan_place(next, rank),
                      n_moments);
}

int64_t fl_migrate_least_bytes(const fl_model *model, const fl_plan *old, const fl_plan *next,
                               int rank, int n_moments, int64_t next_bytes)
{
    int64_t state = fl_migrate_state_bytes(model, old, rank, n_moments) +
                    fl_migrate_state_bytes(model, next, rank, n_moments) -
                    fl_migrate_kept_bytes(model, old, next, rank, n_moments);
    return state > next_bytes ? state : next_bytes;
}
