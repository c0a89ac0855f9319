#include "pipe/state/snapshot/snapshot_far.h"

#include "autodp/transfer.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/state/head_keeper.h"
#include "pipe/state/snapshot/snapshot_parts.h"

/* The transfers of one exchange. */
typedef struct transfer_list {
    fl_transfer *at; /* [capacity] */
    int n, capacity;
} transfer_list;

/* Each part of each layer, to each worker that may have it. */
static fl_status make_list(const fl_snapshot_far *far, transfer_list *list)
{
    *list =
        (transfer_list){.capacity = FL_SNAPSHOT_PARTS * fl_model_n_layers(far->snapshot->model) *
                                    (far->plan->R + 1)};
    return fl_alloc_array((size_t)list->capacity, sizeof *list->at, (void **)&list->at);
}

static int keeper_of(const fl_snapshot_far *far, int layer)
{
    return fl_head_keeper(far->plan, far->n_head, layer);
}

static void add_transfer(const fl_snapshot_far *far, transfer_list *list, int layer, int part,
                         int from, int to, float *data)
{
    int64_t n;
    (void)fl__snapshot_part(far->snapshot, 0, layer, part, &n);
    bool is_mine = from == far->rank || to == far->rank;
    if (!is_mine || from < 0 || to < 0 || n == 0 || list->n == list->capacity) {
        return;
    }
    list->at[list->n++] = (fl_transfer){.peer = from == far->rank ? to : from,
                                        .sending = from == far->rank,
                                        .id = (uint32_t)(layer * FL_SNAPSHOT_PARTS + part),
                                        .data = data,
                                        .size_bytes = (size_t)n * sizeof *data,
                                        .on_host = true,
                                        .host_end = true};
}

static fl_status run_list(const fl_snapshot_far *far, const transfer_list *list,
                          int64_t deadline_us)
{
    fl_transfers *transfers = NULL;
    const fl_transfers_options options = {.messages = far->messages, .device = far->device};
    if (list->n == 0) {
        return FL_OK;
    }
    FL_TRY(fl_transfers_open(&options, list->at, list->n, &transfers));
    fl_status status = fl_transfers_run(transfers, deadline_us);
    fl_transfers_close(&transfers);
    return status;
}

/* ---- collect ---- */

static int writer_of(const fl_snapshot_far *far, int layer)
{
    return fl__snapshot_writer(far->snapshot, far->plan, far->parked, layer, 0);
}

static bool is_sent(const fl_snapshot_far *far, int layer)
{
    return writer_of(far, layer) >= far->n_head;
}

static void list_collected(const fl_snapshot_far *far, transfer_list *list)
{
    for (int layer = 0; layer < fl_model_n_layers(far->snapshot->model); layer++) {
        int64_t n;
        float *data = fl__snapshot_part(far->snapshot, 0, layer, 0, &n);
        if (is_sent(far, layer)) {
            add_transfer(far, list, layer, 0, writer_of(far, layer), keeper_of(far, layer), data);
        }
    }
}

fl_status fl_snapshot_collect_weights(const fl_snapshot_far *far, const fl_checkpoint_state *state,
                                      int64_t deadline_us)
{
    transfer_list list;
    int64_t n = 0;
    bool sends = far->rank >= far->n_head;
    FL_TRY(make_list(far, &list));
    fl_status status = sends ? fl__snapshot_copy(far->snapshot, 0, state, far->rank, &n) : FL_OK;
    if (status == FL_OK) {
        list_collected(far, &list);
        status = run_list(far, &list, deadline_us);
    }
    fl_free(list.at);
    return status;
}

bool fl_snapshot_is_kept(const fl_snapshot_far *far, int layer)
{
    return far->rank < far->n_head && is_sent(far, layer) && keeper_of(far, layer) == far->rank;
}

const float *fl_snapshot_weights(const fl_snapshot_far *far, int layer)
{
    int64_t n;
    return fl__snapshot_part(far->snapshot, 0, layer, 0, &n);
}

/* ---- deliver ---- */

/* Weights of the layers that it has, their moments if they train, and moments that it keeps. */
static bool needs(const fl_snapshot_far *far, int rank, int layer, int part)
{
    fl_place place = fl_plan_place(far->plan, rank);
    bool has = place.active && layer >= far->plan->first[place.stage] &&
               layer < far->plan->first[place.stage + 1];
    bool trains = layer >= fl_frozen_layers(far->snapshot->model, far->plan->F);
    return !far->plan->departed[rank] &&
           ((has && (part == 0 || trains)) || (part == 1 && far->parked[layer] == rank));
}

fl_status fl_snapshot_deliver(const fl_snapshot_far *far, int slot, int64_t deadline_us)
{
    transfer_list list;
    int to = far->rank < far->n_head ? slot : 0;
    if (keeper_of(far, 0) < 0) {
        return fl_fail(FL_EINTERNAL, "the head has no worker that could send the snapshot");
    }
    FL_TRY(make_list(far, &list));
    for (int layer = 0; layer < fl_model_n_layers(far->snapshot->model); layer++) {
        for (int part = 0; part < FL_SNAPSHOT_PARTS; part++) {
            int64_t n;
            float *data = fl__snapshot_part(far->snapshot, to, layer, part, &n);
            for (int rank = far->n_head; rank < far->plan->n_workers; rank++) {
                if (needs(far, rank, layer, part)) {
                    add_transfer(far, &list, layer, part, keeper_of(far, layer), rank, data);
                }
            }
        }
    }
    fl_status status = run_list(far, &list, deadline_us);
    fl_free(list.at);
    return status;
}

static bool is_needed(const fl_snapshot_far *far, int layer, int part)
{
    bool any = false;
    for (int rank = far->n_head; rank < far->plan->n_workers; rank++) {
        any = any || needs(far, rank, layer, part);
    }
    return any && keeper_of(far, layer) == far->rank;
}

fl_status fl_snapshot_fill(const fl_snapshot_far *far, const fl_state_source *source)
{
    const fl_snapshot *s = far->snapshot;
    for (int layer = 0; layer < fl_model_n_layers(s->model); layer++) {
        if (is_needed(far, layer, 0)) {
            FL_TRY(fl__snapshot_read(s, 0, source, layer, FL_STATE_WEIGHT));
        }
        for (int k = 0; k < s->n_moments && source->has_moments && is_needed(far, layer, 1); k++) {
            FL_TRY(fl__snapshot_read(s, 0, source, layer, FL_STATE_MOMENT + k));
        }
    }
    return FL_OK;
}
