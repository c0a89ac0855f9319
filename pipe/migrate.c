/* The workers' part of a migration:
 *   ① room for the moments that shall freeze, beside training   fl_attic_make_room
 *   ② the schedule, the same on every worker                    fl_migrate_schedule
 *   ③ copies within this worker                                 pass
 *   ④ all transfers posted at once, then waited for             fl_message_exchange
 *   ⑤ what froze goes to the attic, beside training             fl_attic_fill */
#include "pipe/migrate.h"

#include "device/alloc.h"
#include "device/clock.h"

#include <string.h>

/* ---- the attic ---- */

fl_status fl_attic_init(fl_attic *attic, int n_layers)
{
    size_t n = (size_t)n_layers;
    *attic = (fl_attic){.n_layers = n_layers};
    fl_status status = fl_alloc_array(n, sizeof *attic->rank, (void **)&attic->rank);
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *attic->moments, (void **)&attic->moments);
    }
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *attic->room, (void **)&attic->room);
    }
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *attic->n, (void **)&attic->n);
    }
    for (int i = 0; status == FL_OK && i < n_layers; i++) {
        attic->rank[i] = -1;
    }
    if (status != FL_OK) {
        fl_attic_fini(attic);
    }
    return status;
}

void fl_attic_fini(fl_attic *attic)
{
    for (int i = 0; attic->moments != NULL && i < attic->n_layers; i++) {
        fl_free(attic->moments[i]);
    }
    fl_attic_clear_room(attic);
    fl_free(attic->rank);
    fl_free(attic->moments);
    fl_free(attic->room);
    fl_free(attic->n);
    memset(attic, 0, sizeof *attic);
}

static void attic_drop(fl_attic *attic, int layer)
{
    fl_free(attic->moments[layer]);
    attic->moments[layer] = NULL;
    attic->n[layer] = 0;
}

/* ---- where a layer's state lies in a worker's params ---- */

typedef struct piece {
    float *data;
    int64_t n; /* floats */
} piece;

static piece weights_of(const fl_params *p, int layer)
{
    int64_t at = p->layer_at[layer - p->first];
    return (piece){p->weight + at, p->layer_at[layer - p->first + 1] - at};
}

static piece moment_of(const fl_params *p, int layer, int moment)
{
    int64_t at = fl_params_grad_at(p, layer);
    return (piece){p->moments + moment * p->n_trainable + at, fl_params_grad_at(p, layer + 1) - at};
}

static bool holds(const fl_params *p, int layer)
{
    return p != NULL && layer >= p->first && layer < p->last;
}

static size_t bytes_of(piece p)
{
    return (size_t)p.n * sizeof(float);
}

/* ---- ① and ⑤ ---- */

static fl_status make_room(fl_attic *attic, const fl_params *from, int layer)
{
    int64_t n = moment_of(from, layer, 0).n * from->n_moments;
    if (n == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_array((size_t)n, sizeof(float), (void **)&attic->room[layer]));
    attic->n[layer] = n;
    return FL_OK;
}

fl_status fl_attic_make_room(fl_attic *attic, const fl_model *model, const fl_plan *old,
                             const fl_plan *next, int rank, const fl_params *from)
{
    int *next_rank = NULL;
    if (from == NULL) {
        return FL_OK;
    }
    attic->n_moments = from->n_moments;
    FL_TRY(fl_alloc_array((size_t)attic->n_layers, sizeof *next_rank, (void **)&next_rank));
    memcpy(next_rank, attic->rank, (size_t)attic->n_layers * sizeof *next_rank);
    fl_migrate_attic(model, old, next, next_rank);
    fl_status status = FL_OK;
    for (int layer = from->first_trainable; status == FL_OK && layer < from->last; layer++) {
        if (next_rank[layer] == rank) {
            status = make_room(attic, from, layer);
        }
    }
    if (status != FL_OK) {
        fl_attic_clear_room(attic);
    }
    fl_free(next_rank);
    return status;
}

void fl_attic_clear_room(fl_attic *attic)
{
    for (int layer = 0; attic->room != NULL && layer < attic->n_layers; layer++) {
        fl_free(attic->room[layer]);
        attic->room[layer] = NULL;
    }
}

void fl_attic_fill(fl_attic *attic, const fl_params *from)
{
    for (int layer = 0; layer < attic->n_layers; layer++) {
        if (attic->room[layer] == NULL) {
            continue;
        }
        for (int m = 0; m < from->n_moments; m++) {
            piece one = moment_of(from, layer, m);
            memcpy(attic->room[layer] + m * one.n, one.data, bytes_of(one));
        }
        attic->moments[layer] = attic->room[layer];
        attic->room[layer] = NULL;
    }
}

/* ---- ③ and ④ ---- */

typedef struct transfers {
    fl_transfer *list;
    int n;
    fl_migrate_stats *stats;
} transfers;

/* One piece of state from `from` to `to`: where it lies here, where it shall lie here. */
static void pass(transfers *t, int rank, int from, int to, uint32_t id, piece source, piece target)
{
    if (source.n == 0 && target.n == 0) {
        return;
    }
    if (from == rank && to == rank && source.data != NULL && target.data != NULL) {
        memcpy(target.data, source.data, bytes_of(target));
        t->stats->copied_bytes += (int64_t)bytes_of(target);
    } else if (from == rank) {
        t->list[t->n++] = (fl_transfer){to, true, id, source.data, bytes_of(source)};
        t->stats->sent_bytes += (int64_t)bytes_of(source);
    } else if (to == rank) {
        t->list[t->n++] = (fl_transfer){from, false, id, target.data, bytes_of(target)};
        t->stats->received_bytes += (int64_t)bytes_of(target);
    }
}

/* Where the moments of `layer` lie here: in the stage that trained it, or in the attic. */
static piece moment_source(const fl_migrate_options *o, int layer, int moment, int n_moments)
{
    if (holds(o->from, layer) && layer >= o->from->first_trainable) {
        return moment_of(o->from, layer, moment);
    }
    int64_t n = o->attic->n[layer] / n_moments;
    return (piece){o->attic->moments[layer] + moment * n, n};
}

static void pass_layer(const fl_migrate_options *o, const fl_move *move, int n_moments,
                       transfers *t)
{
    piece none = {NULL, 0};
    uint32_t id = (uint32_t)move->layer * 4;
    bool gives = move->from == o->rank && holds(o->from, move->layer);
    bool takes = move->to == o->rank && holds(o->to, move->layer);
    if (gives || takes) {
        pass(t, o->rank, move->from, move->to, id, gives ? weights_of(o->from, move->layer) : none,
             takes ? weights_of(o->to, move->layer) : none);
    }
    gives = move->moments_from == o->rank;
    for (int m = 0; move->moments && (gives || takes) && m < n_moments; m++) {
        pass(t, o->rank, move->moments_from, move->to, id + 1 + (uint32_t)m,
             gives ? moment_source(o, move->layer, m, n_moments) : none,
             takes ? moment_of(o->to, move->layer, m) : none);
    }
}

static void bump_versions(fl_params *p)
{
    for (int i = 0; p != NULL && i < p->last - p->first; i++) {
        for (int j = 0; j < p->layer[i].n; j++) {
            p->layer[i].weight[j].version++;
        }
    }
}

/* The attic of the next plan: what thawed leaves it, on whichever worker it lay. */
static void settle_attic(const fl_migrate_options *o, const int *next_rank)
{
    for (int layer = 0; layer < o->next->n_layers; layer++) {
        o->attic->rank[layer] = next_rank[layer];
        if (next_rank[layer] != o->rank) {
            attic_drop(o->attic, layer);
        }
    }
}

static fl_status move_all(const fl_migrate_options *o, fl_move *moves, int capacity, int *next_rank,
                          transfers *t)
{
    int n_moves = 0;
    const fl_params *any = o->from != NULL ? o->from : o->to;
    int n_moments = any == NULL ? o->attic->n_moments : any->n_moments;
    FL_TRY(
        fl_migrate_schedule(o->model, o->old, o->next, o->attic->rank, moves, capacity, &n_moves));
    memcpy(next_rank, o->attic->rank, (size_t)o->next->n_layers * sizeof *next_rank);
    fl_migrate_attic(o->model, o->old, o->next, next_rank);
    for (int i = 0; i < n_moves; i++) {
        pass_layer(o, &moves[i], n_moments, t);
    }
    FL_TRY(fl_message_exchange(o->messages, t->list, t->n, o->deadline_us));
    bump_versions(o->to);
    settle_attic(o, next_rank);
    return FL_OK;
}

fl_status fl_migrate_run(const fl_migrate_options *options, fl_migrate_stats *stats)
{
    int capacity = options->next->n_layers * options->next->R;
    fl_move *moves = NULL;
    int *next_rank = NULL;
    transfers t = {.stats = stats};
    int64_t begun = fl_now_us();
    *stats = (fl_migrate_stats){0};
    fl_status status = fl_alloc_array((size_t)capacity, sizeof *moves, (void **)&moves);
    if (status == FL_OK) {
        status =
            fl_alloc_array((size_t)options->next->n_layers, sizeof *next_rank, (void **)&next_rank);
    }
    if (status == FL_OK) {
        /* Weights and at most two moments of every layer, to each replica. */
        status = fl_alloc_array((size_t)capacity * 3, sizeof *t.list, (void **)&t.list);
    }
    if (status == FL_OK) {
        status = move_all(options, moves, capacity, next_rank, &t);
    }
    fl_free(t.list);
    fl_free(next_rank);
    fl_free(moves);
    stats->took_us = fl_now_us() - begun;
    return status;
}
