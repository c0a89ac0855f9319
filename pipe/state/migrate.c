/* The workers' part of a migration:
 *   ① the schedule, the same on every worker          fl_migrate_schedule
 *   ② what this worker sends and receives, made ready list_moves, fl_transfers_open
 *   ③ all transfers posted at once, then waited for   fl_migration_exchange
 *   ④ what stays here is handed over                  hand_over
 *   ⑤ layers that thaw with fresh moments count anew  begin_fresh
 *   ⑥ park the moments of what froze, drop others     update_parked
 * ① and ② happen while training continues; ③ to ⑥ while training is paused, and allocate nothing.
 * Between ③ and ④ all workers meet: see launcher/worker/transition.c. */
#include "pipe/state/migrate.h"

#include "device/system/alloc.h"
#include "pipe/cost/layout.h"
#include "pipe/cost/plan.h"

#include <string.h>

/* ---- ① and ② ---- */

struct fl_migration {
    fl_migrate_options o;
    int *next_rank;      /* [n_layers] where moments are parked under the next plan */
    float **arriving;    /* [n_layers] room for moments that this worker is to keep from now on */
    int64_t *n_arriving; /* [n_layers] floats */
    float **thawing;     /* [n_layers] device memory for parked moments that lie apart from it */
    bool *fresh;         /* [n_layers] layers that thaw without moments */
    fl_transfers *transfers;
    fl_migrate_stats stats;
};

/* Where one part of a layer's state lies here. */
typedef struct piece {
    float *data; /* NULL: not here */
    int64_t n;   /* floats */
    bool on_host;
} piece;

static piece weights_of(const fl_params *p, int layer)
{
    if (p == NULL || layer < p->first || layer >= p->last) {
        return (piece){0};
    }
    return (piece){p->weight[layer - p->first], fl_params_layer_count(p, layer), false};
}

static piece moments_of(const fl_params *p, int layer)
{
    if (p == NULL || layer < p->first_trainable || layer >= p->last) {
        return (piece){0};
    }
    return (piece){p->moments[layer - p->first], fl_params_layer_count(p, layer) * p->n_moments,
                   false};
}

/* In the stage that trained it, or among the parked moments. */
static piece moments_here(const fl_migrate_options *o, int layer)
{
    piece p = moments_of(o->from, layer);
    return p.data != NULL ? p : (piece){o->parked->moments[layer], o->parked->n[layer], true};
}

typedef struct list {
    fl_transfer *at;
    int n;
    fl_migrate_stats *stats;
} list;

/* Whether the moments lie in host memory at one of both ends, whichever worker asks: a frozen
 * layer's are parked there. */
static bool are_parked(const fl_migrate_options *o, const fl_move *move)
{
    return fl__parked_is_apart(o->parked) &&
           (move->to_parked || move->layer < fl_frozen_layers(o->model, o->old->F));
}

/* One piece of state from `from` to `to`, as far as this worker has to do with it. parked: at one
 * end or both. */
static void add(list *l, int rank, int from, int to, uint32_t id, piece source, piece target,
                bool parked)
{
    size_t bytes = (size_t)(to == rank ? target.n : source.n) * sizeof(float);
    if (bytes == 0 || (from != rank && to != rank)) {
        return;
    }
    if (from == to) {
        l->stats->kept_bytes += (int64_t)bytes;
    } else if (from == rank) {
        l->at[l->n++] = (fl_transfer){to, true, id, source.data, bytes, source.on_host, parked};
        l->stats->sent_bytes += (int64_t)bytes;
    } else {
        l->at[l->n++] = (fl_transfer){from, false, id, target.data, bytes, target.on_host, parked};
        l->stats->received_bytes += (int64_t)bytes;
    }
}

/* Floats of a layer's moments, where they are to be kept. */
static int64_t kept_count(const fl_migrate_options *o, int layer)
{
    return fl_layout_count(o->model, layer, layer + 1) * o->to->n_moments;
}

static fl_status take_room(fl_migration *m, int layer, int64_t n)
{
    m->n_arriving[layer] = n;
    return fl__parked_reserve(m->o.parked, n, &m->arriving[layer]);
}

/* The moments of a frozen layer whose keeper departs. */
static fl_status list_keeping(fl_migration *m, const fl_move *move, list *l)
{
    const fl_migrate_options *o = &m->o;
    piece room = {0};
    if (move->to == o->rank && kept_count(o, move->layer) > 0) {
        FL_TRY(take_room(m, move->layer, kept_count(o, move->layer)));
        room = (piece){m->arriving[move->layer], m->n_arriving[move->layer], true};
    }
    add(l, o->rank, move->moments_from, move->to, 2 * (uint32_t)move->layer + 1,
        moments_here(o, move->layer), room, are_parked(o, move));
    return FL_OK;
}

/* Whether the layer's moments are parked here and train here under the next plan. */
static bool thaws_here(const fl_migrate_options *o, int layer)
{
    const fl_params *to = o->to;
    return to != NULL && layer >= to->first_trainable && layer < to->last &&
           o->parked->n[layer] > 0 && to->moments[layer - to->first] == NULL &&
           moments_of(o->from, layer).data == NULL;
}

/* Where parked moments lie apart from the device's memory: room for those that freeze and those
 * that thaw. */
static fl_status take_copies(fl_migration *m)
{
    const fl_migrate_options *o = &m->o;
    for (int layer = 0; layer < o->parked->n_layers; layer++) {
        piece p = moments_of(o->from, layer);
        if (m->next_rank[layer] == o->rank && p.data != NULL && m->arriving[layer] == NULL) {
            FL_TRY(take_room(m, layer, p.n));
        }
        if (thaws_here(o, layer)) {
            FL_TRY(fl_device_reserve(o->parked->device, (size_t)o->parked->n[layer] * sizeof(float),
                                     (void **)&m->thawing[layer]));
        }
    }
    return FL_OK;
}

static fl_status list_moves(fl_migration *migration, const fl_move *moves, int n, list *l)
{
    const fl_migrate_options *o = &migration->o;
    for (int i = 0; i < n; i++) {
        const fl_move *m = &moves[i];
        uint32_t id = 2 * (uint32_t)m->layer;
        if (m->to_parked) {
            FL_TRY(list_keeping(migration, m, l));
            continue;
        }
        add(l, o->rank, m->from, m->to, id, weights_of(o->from, m->layer),
            weights_of(o->to, m->layer), false);
        if (m->moments) {
            add(l, o->rank, m->moments_from, m->to, id + 1, moments_here(o, m->layer),
                moments_of(o->to, m->layer), are_parked(o, m));
        }
    }
    return FL_OK;
}

static fl_status plan_moves(fl_migration *m, fl_move *moves, int capacity, fl_transfer *room)
{
    const fl_migrate_options *o = &m->o;
    int n = 0;
    list l = {.at = room, .stats = &m->stats};
    FL_TRY(fl_migrate_schedule(o->model, o->old, o->next, o->parked->rank, o->lost, moves, capacity,
                               &n));
    memcpy(m->next_rank, o->parked->rank, (size_t)o->next->n_layers * sizeof *m->next_rank);
    fl_migrate_parked(o->model, o->old, o->next, o->lost, m->next_rank);
    (void)fl_migrate_fresh(o->model, o->old, o->next, o->parked->rank, o->lost, m->fresh);
    FL_TRY(list_moves(m, moves, n, &l));
    if (fl__parked_is_apart(o->parked)) {
        FL_TRY(take_copies(m));
    }
    fl_transfers_options options = {.messages = o->messages,
                                    .device = o->parked->device,
                                    .group = o->group,
                                    .ranks = o->members,
                                    .n_ranks = o->n_members};
    return fl_transfers_open(&options, l.at, l.n, &m->transfers);
}

static fl_status fill(fl_migration *m)
{
    int capacity = m->o.next->n_layers * (m->o.next->R + 1);
    fl_move *moves = NULL;
    fl_transfer *room = NULL;
    size_t n_layers = (size_t)m->o.next->n_layers;
    FL_TRY(fl_alloc_array(n_layers, sizeof(int), (void **)&m->next_rank));
    FL_TRY(fl_alloc_array(n_layers, sizeof *m->arriving, (void **)&m->arriving));
    FL_TRY(fl_alloc_array(n_layers, sizeof *m->n_arriving, (void **)&m->n_arriving));
    FL_TRY(fl_alloc_array(n_layers, sizeof *m->thawing, (void **)&m->thawing));
    FL_TRY(fl_alloc_array(n_layers, sizeof *m->fresh, (void **)&m->fresh));
    fl_status status = fl_alloc_array((size_t)capacity, sizeof *moves, (void **)&moves);
    if (status == FL_OK) {
        /* Weights and moments of every layer, to each replica. */
        status = fl_alloc_array((size_t)capacity * 2, sizeof *room, (void **)&room);
    }
    if (status == FL_OK) {
        status = plan_moves(m, moves, capacity, room);
    }
    fl_free(moves);
    fl_free(room);
    return status;
}

fl_status fl_migration_open(const fl_migrate_options *options, fl_migration **out)
{
    fl_migration *m = NULL;
    FL_TRY(fl_alloc(sizeof *m, (void **)&m));
    m->o = *options;
    fl_status status = fill(m);
    if (status != FL_OK) {
        fl_migration_close(&m);
        return status;
    }
    *out = m;
    return FL_OK;
}

void fl_migration_close(fl_migration **migration)
{
    fl_migration *m = *migration;
    if (m == NULL) {
        return;
    }
    *migration = NULL;
    fl_transfers_close(&m->transfers);
    for (int i = 0; m->thawing != NULL && i < m->o.parked->n_layers; i++) {
        fl__parked_give(m->o.parked, &m->arriving[i], m->n_arriving[i]);
        fl_device_drop(m->o.parked->device, m->thawing[i],
                       (size_t)m->o.parked->n[i] * sizeof(float));
    }
    fl_free(m->fresh);
    fl_free(m->thawing);
    fl_free(m->n_arriving);
    fl_free(m->arriving);
    fl_free(m->next_rank);
    fl_free(m);
}

/* ---- ④ ---- */

static float *take(float **from)
{
    float *data = *from;
    *from = NULL;
    return data;
}

/* Moments that thaw here count against the device's budget again. */
static fl_status thaw(fl_migration *m, int layer)
{
    const fl_migrate_options *o = &m->o;
    fl_device *device = o->parked->device;
    size_t size_bytes = (size_t)o->parked->n[layer] * sizeof(float);
    float **to = &o->to->moments[layer - o->to->first];
    FL_TRY(fl_device_claim(device, size_bytes, "moments that thaw"));
    if (!fl__parked_is_apart(o->parked)) {
        *to = take(&o->parked->moments[layer]);
        o->parked->n[layer] = 0;
        return FL_OK;
    }
    *to = take(&m->thawing[layer]);
    FL_TRY(device->ops->copy_in(device, NULL, *to, o->parked->moments[layer], size_bytes));

    FL_TRY(device->ops->sync(device, NULL));
    fl__parked_drop(o->parked, layer);
    return FL_OK;
}

static fl_status hand_over(fl_migration *m)
{
    const fl_migrate_options *o = &m->o;
    fl_params *from = o->from, *to = o->to;
    for (int layer = to == NULL ? 0 : to->first; to != NULL && layer < to->last; layer++) {
        int64_t n = fl_params_layer_count(to, layer);
        if (n > 0 && to->weight[layer - to->first] == NULL) {
            fl_params_take_weight(to, layer, take(&from->weight[layer - from->first]));
        }
        if (n * to->n_moments == 0 || layer < to->first_trainable ||
            to->moments[layer - to->first] != NULL) {
            continue;
        }
        if (moments_of(from, layer).data != NULL) {
            to->moments[layer - to->first] = take(&from->moments[layer - from->first]);
        } else {
            FL_TRY(thaw(m, layer));
        }
    }
    return FL_OK;
}

/* ---- ⑤ ---- */

/* Another layer's copy of a tied parameter may have trained moments; all copies get the same
 * updates only if all begin anew. */
static fl_status clear_copy(fl_params *to, fl_param_place at)
{
    const fl_param_spec *spec = fl_model_params(to->model, at.layer)->spec;
    int64_t n = fl_params_layer_count(to, at.layer), in = 0;
    float *moments = to->moments[at.layer - to->first];
    for (int i = 0; i < at.param; i++) {
        in += fl_layout_param(&spec[i]);
    }
    size_t size_bytes = (size_t)fl_layout_param(&spec[at.param]) * sizeof(float);
    for (int k = 0; k < to->n_moments; k++) {
        FL_TRY(
            to->device->ops->fill_zero(to->device, to->stream, moments + k * n + in, size_bytes));
    }
    return FL_OK;
}

static bool has_fresh_use(const fl_migration *m, const fl_tie *tie)
{
    bool any = false;
    for (int k = 0; k < tie->n; k++) {
        any = any || m->fresh[tie->use[k].layer];
    }
    return any;
}

static fl_status clear_copies(const fl_migration *m)
{
    fl_params *to = m->o.to;
    for (int i = 0; i < fl_model_n_ties(m->o.model); i++) {
        const fl_tie *tie = fl_model_tie_at(m->o.model, i);
        for (int k = 0; has_fresh_use(m, tie) && k < tie->n; k++) {
            fl_param_place at = tie->use[k];
            if (at.layer >= to->first_trainable && at.layer < to->last && !m->fresh[at.layer]) {
                FL_TRY(clear_copy(to, at));
            }
        }
    }
    return FL_OK;
}

static fl_status begin_fresh(fl_migration *m, int64_t step)
{
    fl_parked *parked = m->o.parked;
    for (int layer = 0; layer < parked->n_layers; layer++) {
        parked->since[layer] = m->fresh[layer] ? step : parked->since[layer];
    }
    if (m->o.to == NULL) {
        return FL_OK;
    }
    m->o.to->since = parked->since;
    return clear_copies(m);
}

/* ---- ⑥ ---- */

/* The moments of a layer that freezes here. */
static fl_status park(fl_migration *m, int layer, piece p)
{
    const fl_migrate_options *o = &m->o;
    fl_device *device = o->parked->device;
    size_t size_bytes = (size_t)p.n * sizeof(float);
    if (fl__parked_is_apart(o->parked)) { /* the stage gives its memory back when it closes */
        FL_TRY(device->ops->copy_out(device, NULL, m->arriving[layer], p.data, size_bytes));
        FL_TRY(device->ops->sync(device, NULL));
        o->parked->moments[layer] = take(&m->arriving[layer]);
    } else {
        o->parked->moments[layer] = take(&o->from->moments[layer - o->from->first]);
        fl_device_disclaim(device, size_bytes);
    }
    o->parked->n[layer] = p.n;
    return FL_OK;
}

static fl_status update_parked(fl_migration *m)
{
    const fl_migrate_options *o = &m->o;
    fl_parked *parked = o->parked;
    for (int layer = 0; layer < parked->n_layers; layer++) {
        piece p = moments_of(o->from, layer);
        parked->rank[layer] = m->next_rank[layer];
        if (m->next_rank[layer] != o->rank) {
            fl__parked_drop(parked, layer);
        } else if (p.data != NULL) {
            FL_TRY(park(m, layer, p));
        } else if (m->arriving[layer] != NULL) {
            parked->moments[layer] = take(&m->arriving[layer]);
            parked->n[layer] = m->n_arriving[layer];
        }
    }
    return FL_OK;
}

fl_status fl_migration_exchange(fl_migration *m, int64_t deadline_us)
{
    return fl_transfers_run(m->transfers, deadline_us);
}

fl_status fl_migration_finish(fl_migration *m, int64_t step, fl_migrate_stats *stats)
{
    FL_TRY(hand_over(m));
    FL_TRY(begin_fresh(m, step));
    FL_TRY(update_parked(m));
    *stats = m->stats;
    stats->device_bytes = fl_transfers_device_bytes(m->transfers);
    fl_transfers_parts(m->transfers, stats->part);
    return FL_OK;
}
