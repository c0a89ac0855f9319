#include "pipe/state/snapshot/snapshot_writer.h"

#include "autodp/message_pieces.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/state/background.h"
#include "pipe/state/head_keeper.h"
#include "pipe/state/snapshot/snapshot_parts.h"

#include <stdatomic.h>

/* Ids of transfers: those below are for the files of checkpoints, which may be on their way, too.
 */
enum { PART_IDS = 1 << 20, ANSWER_IDS = 1 << 21 };

/* A part of a layer that goes to the head, or comes there. */
typedef struct part_move {
    int layer, part;
    int peer;
    bool sending;
} part_move;

struct fl_snapshot_writer {
    fl_snapshot_writer_options o;
    fl_snapshot own;         /* not on the head: slot 0 has what is sent; kept for one plan */
    uint32_t own_generation; /* of that plan */

    /* of the present part: the thread's while it works */
    fl_snapshot_request request;
    fl_snapshot_report report;
    int slot;
    part_move *moves; /* [FL_SNAPSHOT_PARTS * layers] */
    int n_moves;
    atomic_bool leaving; /* nothing more is wanted of the message group */

    fl_background background;
};

static bool is_on_head(const fl_snapshot_writer *w)
{
    return w->o.n_head == 0 || w->o.rank < w->o.n_head;
}

/* Of a worker on another host: the controller's word is on the head. */
static bool is_wanted(const fl_snapshot_writer *w, int64_t serial)
{
    return !is_on_head(w) ||
           (w->o.snapshot != NULL && atomic_load(&w->o.snapshot->wanted->serial) == serial);
}

/* ---- create and destroy ---- */

fl_status fl_snapshot_writer_create(const fl_snapshot_writer_options *options,
                                    fl_snapshot_writer **out)
{
    fl_snapshot_writer *w = NULL;
    size_t n_parts = FL_SNAPSHOT_PARTS * (size_t)fl_model_n_layers(options->model);
    FL_TRY(fl_alloc(sizeof *w, (void **)&w));
    w->o = *options;
    fl_background_init(&w->background, "fl-snapshot", w);
    fl_status status = fl_alloc_array(n_parts, sizeof *w->moves, (void **)&w->moves);
    if (status != FL_OK) {
        fl_snapshot_writer_destroy(&w);
        return status;
    }
    *out = w;
    return FL_OK;
}

void fl_snapshot_writer_destroy(fl_snapshot_writer **writer)
{
    fl_snapshot_writer *w = *writer;
    *writer = NULL;
    if (w == NULL) {
        return;
    }
    atomic_store(&w->leaving, true);
    if (!fl_background_fini(&w->background)) {
        return;
    }
    fl_snapshot_close(&w->own);
    fl_free(w->moves);
    fl_free(w);
}

/* ---- ① ---- */

/* The parts that go from other hosts to the head, as far as this worker takes part. */
static void list_moves(fl_snapshot_writer *w, const fl_snapshot *of)
{
    const fl_checkpoint_state *state = w->request.state;
    w->n_moves = 0;
    for (int layer = 0; w->o.n_head > 0 && layer < fl_model_n_layers(w->o.model); layer++) {
        int keeper = fl_head_keeper(state->plan, w->o.n_head, layer);
        for (int part = 0; part < FL_SNAPSHOT_PARTS; part++) {
            int from = fl__snapshot_writer(of, state->plan, state->parked->rank, layer, part);
            bool is_mine = from == w->o.rank || keeper == w->o.rank;
            if (from >= w->o.n_head && is_mine) {
                w->moves[w->n_moves++] = (part_move){.layer = layer,
                                                     .part = part,
                                                     .peer = from == w->o.rank ? keeper : from,
                                                     .sending = from == w->o.rank};
            }
        }
    }
}

/* Its pages are those of one plan's layers. */
static fl_status open_own(fl_snapshot_writer *w, uint32_t generation)
{
    if (w->own.memory != NULL && w->own_generation != generation) {
        fl_snapshot_close(&w->own);
    }
    w->own_generation = generation;
    return w->own.memory != NULL ? FL_OK : fl_snapshot_open(w->o.model, w->o.n_moments, &w->own);
}

static fl_status copy_layers(fl_snapshot_writer *w)
{
    const fl_snapshot_request *r = &w->request;
    int64_t n = 0;
    if (is_on_head(w)) {
        w->slot = atomic_load(&w->o.snapshot->wanted->slot);
        list_moves(w, w->o.snapshot);
        return fl_snapshot_put(w->o.snapshot, r->serial, r->state, w->o.rank, &w->report.bytes);
    }
    FL_TRY(open_own(w, r->state->plan->generation));
    w->slot = 0;
    list_moves(w, &w->own);
    return fl__snapshot_copy(&w->own, 0, r->state, w->o.rank, &n);
}

/* ---- ② ---- */

/* The receiver tells the sender whether it wants the part. */
static fl_status ask_for_part(fl_snapshot_writer *w, const part_move *move, bool *wanted)
{
    uint8_t answer = !atomic_load(&w->leaving) && is_wanted(w, w->request.serial);
    uint32_t id = ANSWER_IDS + (uint32_t)(move->layer * FL_SNAPSHOT_PARTS + move->part);
    FL_TRY(fl_message_pieces(w->request.messages, move->peer, !move->sending, id, &answer,
                             sizeof answer, w->request.deadline_ms));
    *wanted = answer != 0;
    return FL_OK;
}

static fl_status move_part(fl_snapshot_writer *w, const part_move *move)
{
    const fl_snapshot *s = move->sending ? &w->own : w->o.snapshot;
    uint32_t id = PART_IDS + (uint32_t)(move->layer * FL_SNAPSHOT_PARTS + move->part);
    bool wanted = false;
    int64_t n;
    float *data = fl__snapshot_part(s, w->slot, move->layer, move->part, &n);
    FL_TRY(ask_for_part(w, move, &wanted));
    if (!wanted) {
        return FL_ESTALE;
    }
    FL_TRY(fl_message_pieces(w->request.messages, move->peer, move->sending, id, data,
                             (size_t)n * sizeof *data, w->request.deadline_ms));
    if (!move->sending && is_wanted(w, w->request.serial)) {
        fl__snapshot_seal(s, w->slot, w->request.serial, move->layer, move->part);
        w->report.bytes += n * (int64_t)sizeof *data;
    }
    return FL_OK;
}

/* A part that is refused, or fails, keeps no other one from its way: the peers may be different. */
static void move_parts(void *writer)
{
    fl_snapshot_writer *w = writer;
    fl_status all = FL_OK;
    for (int i = 0; i < w->n_moves; i++) {
        fl_status status = move_part(w, &w->moves[i]);
        all = all == FL_OK ? status : all;
    }
    w->report.status = all == FL_OK && !is_wanted(w, w->request.serial) ? FL_ESTALE : all;
    w->report.moves = false;
    fl_background_use(&w->background, NULL);
    w->o.on_report(w->o.context, &w->report);
}

/* ---- what the training thread calls ---- */

bool fl_snapshot_writer_is_ready(fl_snapshot_writer *w, const fl_plan *plan, int64_t serial)
{
    bool can_move = w->o.n_head == 0 || fl_head_keeper(plan, w->o.n_head, 0) >= 0;
    return can_move && is_wanted(w, serial) && fl_background_now(&w->background) == NULL;
}

static fl_status start_moves(fl_snapshot_writer *w)
{
    atomic_store(&w->leaving, false);
    fl_background_use(&w->background, w->request.messages);
    fl_status status = fl_background_start(&w->background, move_parts);
    if (status != FL_OK) {
        fl_background_use(&w->background, NULL);
    }
    return status;
}

/* The memory of the run's slots may be gone for this request while it was copied: it is filled all
 * the same, and nobody looks at it. */
fl_status fl_snapshot_writer_begin(fl_snapshot_writer *w, const fl_snapshot_request *request)
{
    w->request = *request;
    w->report = (fl_snapshot_report){.step = request->step,
                                     .generation = request->state->plan->generation,
                                     .serial = request->serial};
    fl_status status = copy_layers(w);
    w->request.state = NULL; /* the caller's */
    if (status != FL_OK && status != FL_ESTALE) {
        return status;
    }
    w->report.status = status;
    w->report.copy_us = fl_now_us() - request->begun_us;
    w->report.moves = w->n_moves > 0;
    w->o.on_report(w->o.context, &w->report);
    return w->n_moves > 0 ? start_moves(w) : FL_OK;
}

void fl_snapshot_writer_leave_messages(fl_snapshot_writer *w, bool give_up)
{
    atomic_store(&w->leaving, true);
    fl_background_leave(&w->background, give_up);
}

fl_status fl_snapshot_writer_wait(fl_snapshot_writer *w, int64_t deadline_us)
{
    return fl_background_wait(&w->background, deadline_us)
               ? FL_OK
               : fl_fail(FL_EDEADLINE, "the snapshot after step %lld is still on its way",
                         (long long)w->report.step);
}
