/* Layers that are captured for a shape of micro-batches, in a slot, and launched again.
 *
 *     forward    one graph
 *     backward   a graph for each piece; behind a piece, the caller learns which layer is done
 *
 * The loss is not captured: the host looks at the targets of each micro-batch, and the weight of a
 * target changes with the batch. A capture has what the host did, too: the frames, in which layers
 * keep what backward reads. Whatever fails is computed call by call. */
#include "device/errors/failure.h"
#include "device/flight/flight.h"
#include "nn/model.h"
#include "pipe/step/stage/stage_state.h"

#include <stdio.h>
#include <string.h>

enum { TRIES_MAX = 4 };

/* ---- pieces of backward ---- */

void fl_stage_cut_backward(fl_stage *stage, int layer)
{
    stage->cuts[layer - stage->o.first] = true;
}

static int lowest_of(const fl_stage *stage)
{
    return stage->params.first_trainable - stage->o.first;
}

/* The last layer of the piece that begins with layer i. */
static int end_of_piece(const fl_stage *stage, int i)
{
    while (i > lowest_of(stage) && !stage->cuts[i]) {
        i--;
    }
    return i;
}

int fl__stage_n_pieces(const fl_stage *stage)
{
    int n = 0;
    for (int i = stage->n_layers - 1; i >= lowest_of(stage); i = end_of_piece(stage, i) - 1) {
        n++;
    }
    return n;
}

/* ---- reports ---- */

void fl__stage_give_up_graphs(fl_stage *stage)
{
    if (!stage->graphs.given_up) {
        stage->graphs.given_up = true;
        snprintf(stage->graphs.reason, sizeof stage->graphs.reason, "%s", fl_errmsg());
    }
}

void fl__stage_drop_graphs(fl_stage *stage, fl_stage_shape *shape)
{
    fl_device *d = stage->o.device;
    for (int i = 0; i < stage->o.n_slots; i++) {
        fl__stage_capture *c = &shape->capture[i];
        d->ops->graph_destroy(d, &c->forward);
        for (int p = 0; c->backward != NULL && p < fl__stage_n_pieces(stage); p++) {
            d->ops->graph_destroy(d, &c->backward[p]);
        }
    }
}

/* ---- capture ---- */

/* Let layers see these offsets on the host. offsets: [n_layers + 1][n_samples + 1] of the slot's
 * shape; NULL: the micro-batch's own */
static void show_offsets(const fl_stage *stage, fl_stage_slot *s, const int32_t *offsets)
{
    for (int i = 0; i <= stage->n_layers; i++) {
        s->run[i].offsets = offsets == NULL ? fl_batch_tables_offsets(&s->tables, i)
                                            : offsets + i * (s->shape->n_samples + 1);
    }
    for (int i = 0; i < stage->n_layers; i++) {
        s->frame[i].in.offsets = s->run[i].offsets;
        s->frame[i].out.offsets = s->run[i + 1].offsets;
    }
}

/* A forward (high < 0), or layers high to low of a backward. */
static fl_status run_layers(fl_stage *stage, fl_stage_slot *s, int high, int low, bool want_grad_in)
{
    bool asked = false;
    FL_TRY(high < 0 ? fl__stage_run_forward(stage, s, NULL, &asked)
                    : fl__stage_run_backward(stage, s, high, low, want_grad_in, NULL, &asked));
    return asked ? fl_fail(FL_EFAILED, "a layer asks for its micro-batch (fl_exec_batch)") : FL_OK;
}

static fl_status end_capture(fl_stage *stage, fl_status status, fl_graph **graph)
{
    fl_device *d = stage->o.device;
    fl_failure failure;
    if (status == FL_OK) {
        status = d->ops->capture_end(d, stage->o.stream, graph);
        stage->graphs.captures += status == FL_OK ? 1 : 0;
        return status;
    }
    fl_failure_keep(&failure, status);
    fl_status ended = d->ops->capture_end(d, stage->o.stream, graph);
    (void)ended; /* the first failure is the reason */
    d->ops->graph_destroy(d, graph);
    return fl_failure_raise(&failure);
}

static fl_status capture(fl_stage *stage, fl_stage_slot *s, int high, int low, bool want_grad_in,
                         fl_graph **graph)
{
    fl_device *d = stage->o.device;
    FL_TRY(d->ops->capture_begin(d, stage->o.stream));
    show_offsets(stage, s, s->shape->offsets);
    fl_status status = run_layers(stage, s, high, low, want_grad_in);
    show_offsets(stage, s, NULL);
    return end_capture(stage, status, graph);
}

static fl_status launch_graph(fl_stage *stage, int item, fl_graph *graph)
{
    fl_device *d = stage->o.device;
    fl_flight_enter(FL_FLIGHT_LAUNCH, -1, item, 0);
    fl_status status = d->ops->graph_launch(d, stage->o.stream, graph);
    fl_flight_leave();
    return status;
}

/* Launch *graph, after a capture where there is none or where it fits no more. *done false: it
 * cannot be, and nothing was queued. */
static void launch(fl_stage *stage, fl_stage_slot *s, int high, int low, bool want_grad_in,
                   fl_graph **graph, bool *captured, bool *done)
{
    fl__stage_capture *c = &s->shape->capture[s - stage->slots];
    int item = high < 0 ? -1 : stage->o.first + low;
    fl_status status = *graph != NULL ? launch_graph(stage, item, *graph)
                                      : fl_fail(FL_ENOTSUP, "work could not be captured");
    *captured = false;
    if (status == FL_ENOTSUP && c->n_tries < TRIES_MAX * (1 + fl__stage_n_pieces(stage))) {
        c->n_tries++;
        fl_flight_enter(FL_FLIGHT_CAPTURE, -1, item, 0);
        status = capture(stage, s, high, low, want_grad_in, graph);
        fl_flight_leave();
        *captured = status == FL_OK;
        status = status == FL_OK ? launch_graph(stage, item, *graph) : status;
    }
    *done = status == FL_OK;
    stage->graphs.launches += *done ? 1 : 0;
    if (!*done) {
        fl__stage_give_up_graphs(stage);
    }
}

/* ---- forward ---- */

/* What the host did in the captured forward. */
static void restore_frames(fl_stage *stage, fl_stage_slot *s, const fl__stage_capture *c)
{
    int first = stage->o.enter - stage->o.first;
    memcpy(s->frame, c->frame, (size_t)stage->n_layers * sizeof *s->frame);
    for (int i = first; i < stage->n_layers; i++) {
        s->run[i + 1].data = s->frame[i].out.data;
    }
    show_offsets(stage, s, NULL);
}

fl_status fl__stage_launch_forward(fl_stage *stage, fl_stage_slot *s)
{
    fl__stage_capture *c = &s->shape->capture[s - stage->slots];
    size_t keep = fl_arena_mark(&s->arena), scratch = fl_arena_mark(&stage->scratch);
    bool captured, done;
    int turn = stage->grad_turn;
    launch(stage, s, -1, -1, false, &c->forward, &captured, &done);
    if (captured) {
        memcpy(c->frame, s->frame, (size_t)stage->n_layers * sizeof *c->frame);
    }
    if (done) {
        restore_frames(stage, s, c);
        return FL_OK;
    }
    s->by_graph = false;
    stage->grad_turn = turn;
    fl_arena_release(&s->arena, keep);
    fl_arena_release(&stage->scratch, scratch);
    stage->graphs.calls++;
    return fl__stage_run_forward(stage, s, NULL, NULL);
}

/* ---- backward ---- */

/* A piece: layers high to low. */
static fl_status launch_piece(fl_stage *stage, fl_stage_slot *s, int high, int low,
                              bool want_grad_in, fl_graph **graph)
{
    size_t scratch = fl_arena_mark(&stage->scratch);
    int turn = stage->grad_turn;
    bool captured, done;
    launch(stage, s, high, low, want_grad_in, graph, &captured, &done);
    if (done) {
        stage->grad_turn = (turn + high - low + 1) % 2;
        return FL_OK;
    }
    stage->grad_turn = turn;
    fl_arena_release(&stage->scratch, scratch);
    stage->graphs.calls++;
    return fl__stage_run_backward(stage, s, high, low, want_grad_in, NULL, NULL);
}

fl_status fl__stage_launch_backward(fl_stage *stage, fl_stage_slot *s, bool want_grad_in,
                                    fl_stage_layer_done *layer_done, void *context, int slot_index)
{
    fl__stage_capture *c = &s->shape->capture[slot_index];
    int piece = 0, low;
    for (int high = stage->n_layers - 1; high >= lowest_of(stage); high = low - 1) {
        low = end_of_piece(stage, high);
        FL_TRY(launch_piece(stage, s, high, low, want_grad_in, &c->backward[piece++]));
        if (layer_done != NULL) {
            FL_TRY(layer_done(context, slot_index, stage->o.first + low));
        }
    }
    return FL_OK;
}

/* ---- all of backward, with what its caller captures beside it ---- */

bool fl_stage_has_backward_graphs(const fl_stage *stage, int slot)
{
    const fl_stage_slot *s = &stage->slots[slot];
    bool all =
        s->by_graph && s->shape->way == FL_STAGE_BY_GRAPHS && lowest_of(stage) < stage->n_layers;
    for (int piece = 0; all && piece < fl__stage_n_pieces(stage); piece++) {
        all = s->shape->capture[slot].backward[piece] != NULL;
    }
    return all;
}

static fl_status capture_pieces(fl_stage *stage, fl_stage_slot *s, bool want_grad_in,
                                fl_stage_layer_done *layer_done, void *context)
{
    int slot = (int)(s - stage->slots);
    for (int high = stage->n_layers - 1, low; high >= lowest_of(stage); high = low - 1) {
        low = end_of_piece(stage, high);
        FL_TRY(run_layers(stage, s, high, low, want_grad_in));
        FL_TRY(layer_done(context, slot, stage->o.first + low));
    }
    return FL_OK;
}

fl_status fl_stage_capture_backward(fl_stage *stage, int slot, bool want_grad_in,
                                    fl_stage_layer_done *layer_done, fl_stage_join *join,
                                    void *context, fl_graph **graph)
{
    fl_device *d = stage->o.device;
    fl_stage_slot *s = &stage->slots[slot];
    size_t scratch = fl_arena_mark(&stage->scratch);
    int turn = stage->grad_turn;
    *graph = NULL;
    FL_TRY(d->ops->capture_begin(d, stage->o.stream));
    fl_flight_enter(FL_FLIGHT_CAPTURE, -1, -1, 0);
    show_offsets(stage, s, s->shape->offsets);
    fl_status status = capture_pieces(stage, s, want_grad_in, layer_done, context);
    show_offsets(stage, s, NULL);
    status = status == FL_OK ? join(context) : status;
    status = end_capture(stage, status, graph);
    fl_flight_leave();
    stage->grad_turn = turn;
    fl_arena_release(&stage->scratch, scratch);
    return status;
}
