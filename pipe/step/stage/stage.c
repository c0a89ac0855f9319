#include "pipe/step/stage/stage.h"

#include "device/flight/flight.h"
#include "nn/model.h"
#include "pipe/step/stage/stage_state.h"

void fl__stage_end_slot(fl_stage *stage, fl_stage_slot *s)
{
    s->busy = false;
    stage->n_busy--;
}

fl_exec fl__stage_exec(fl_stage *stage, fl_stage_slot *s, int layer)
{
    return (fl_exec){.device = stage->o.device,
                     .stream = stage->o.stream,
                     .batch = &s->batch,
                     .training = s->what.training && layer >= stage->params.first_trainable,
                     .keep = &s->arena,
                     .scratch = &stage->scratch};
}

/* ---- forward ---- */

/* A layer that failed stays open in the flight recorder, unless the worker goes on without it. */
static fl_status leave_layer(const bool *asked, fl_status status)
{
    if (status == FL_OK || asked != NULL) {
        fl_flight_leave();
    }
    return status;
}

fl_status fl__stage_run_forward(fl_stage *stage, fl_stage_slot *s, void *to, bool *asked)
{
    for (int i = stage->o.enter - stage->o.first; i < stage->n_layers; i++) {
        int layer = stage->o.first + i;
        fl_exec x = fl__stage_exec(stage, s, layer);
        x.batch = &s->run_batch;
        x.batch_asked = asked;
        FL_TRY(fl_arena_take(&s->arena, fl__tensor_bytes(&s->run[i + 1]), &s->run[i + 1].data));
        if (i + 1 == stage->n_layers && to != NULL) {
            s->run[i + 1].data = to;
        }
        fl_flight_enter(FL_FLIGHT_FORWARD, -1, layer, 0);
        FL_TRY(
            leave_layer(asked, fl_exec_forward(&x, stage->o.model, layer, &stage->params.layer[i],
                                               &s->frame[i], &s->run[i], &s->run[i + 1])));
    }
    return FL_OK;
}

fl_status fl_stage_forward(fl_stage *stage, int slot_index, void *to, fl_tensor *output)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    int first = stage->o.enter - stage->o.first;
    FL_TRY(fl__stage_clear_rest(stage, s, first, s->run[first].data));
    bool by_graph = s->by_graph && to == NULL;
    fl__stage_count_call(stage, by_graph);
    FL_TRY(by_graph ? fl__stage_launch_forward(stage, s)
                    : fl__stage_run_forward(stage, s, to, NULL));
    for (int i = first; i <= stage->n_layers; i++) {
        s->at[i].data = s->run[i].data;
    }
    *output = s->at[stage->n_layers];
    if (!s->what.training && stage->o.last != fl_model_n_layers(stage->o.model)) {
        fl__stage_end_slot(stage, s);
    }
    return FL_OK;
}

void fl_stage_end(fl_stage *stage, int slot_index)
{
    fl__stage_end_slot(stage, &stage->slots[slot_index]);
}

/* ---- backward ---- */

void fl_stage_grad_out(fl_stage *stage, int slot_index, fl_tensor *grad_out)
{
    *grad_out = stage->slots[slot_index].at[stage->n_layers];
    stage->grad_turn = 0;
    grad_out->data = stage->grad[0];
}

static int lowest_of(const fl_stage *stage)
{
    return stage->params.first_trainable - stage->o.first;
}

fl_status fl__stage_run_backward(fl_stage *stage, fl_stage_slot *s, int high, int low,
                                 bool want_grad_in, void *to, bool *asked)
{
    int lowest = lowest_of(stage);
    for (int i = high; i >= low; i--) {
        int layer = stage->o.first + i;
        bool want = i > lowest || (want_grad_in && lowest == 0);
        fl_exec x = fl__stage_exec(stage, s, layer);
        x.batch = &s->run_batch;
        x.batch_asked = asked;
        fl_tensor out = s->run[i + 1], in = s->run[i];
        out.data = stage->grad[stage->grad_turn];
        in.data = i == 0 && to != NULL ? to : stage->grad[1 - stage->grad_turn];
        fl_flight_enter(FL_FLIGHT_BACKWARD, -1, layer, 0);
        FL_TRY(
            leave_layer(asked, fl_exec_backward(&x, stage->o.model, layer, &stage->params.layer[i],
                                                &s->frame[i], &out, want ? &in : NULL)));
        stage->grad_turn = 1 - stage->grad_turn;
    }
    return FL_OK;
}

/* Layer by layer, so that the caller can look at each. */
static fl_status backward_by_layer(fl_stage *stage, int slot_index, bool want_grad_in, void *to,
                                   fl_stage_layer_done *layer_done, void *context)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    int lowest = lowest_of(stage);
    for (int i = stage->n_layers - 1; i >= lowest; i--) {
        FL_TRY(fl__stage_run_backward(stage, s, i, i, want_grad_in, to, NULL));
        if (layer_done != NULL) {
            FL_TRY(layer_done(context, slot_index, stage->o.first + i));
        }
    }
    return FL_OK;
}

static fl_status begin_backward(fl_stage *stage, const fl_stage_slot *s)
{
    return lowest_of(stage) < stage->n_layers
               ? fl__stage_clear_rest(stage, s, stage->n_layers, stage->grad[stage->grad_turn])
               : FL_OK;
}

static void end_backward(fl_stage *stage, fl_stage_slot *s, bool want_grad_in, void *to,
                         fl_tensor *grad_in)
{
    *grad_in = s->at[0];
    grad_in->data = NULL;
    if (want_grad_in && lowest_of(stage) == 0) {
        grad_in->data = to != NULL ? to : stage->grad[stage->grad_turn];
    }
    fl__stage_end_slot(stage, s);
}

fl_status fl_stage_backward(fl_stage *stage, int slot_index, bool want_grad_in, void *to,
                            fl_stage_layer_done *layer_done, void *context, fl_tensor *grad_in)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    FL_TRY(begin_backward(stage, s));
    bool by_graph = s->by_graph && to == NULL;
    fl__stage_count_call(stage, by_graph);
    FL_TRY(by_graph
               ? fl__stage_launch_backward(stage, s, want_grad_in, layer_done, context, slot_index)
               : backward_by_layer(stage, slot_index, want_grad_in, to, layer_done, context));
    end_backward(stage, s, want_grad_in, to, grad_in);
    return FL_OK;
}

fl_status fl_stage_backward_captured(fl_stage *stage, int slot_index, bool want_grad_in,
                                     fl_status (*launch)(void *context), void *context,
                                     fl_tensor *grad_in)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    FL_TRY(begin_backward(stage, s));
    FL_TRY(launch(context));
    stage->graphs.launches++;
    stage->graphs.sum_launches++;
    stage->grad_turn = (stage->grad_turn + stage->n_layers - lowest_of(stage)) % 2;
    end_backward(stage, s, want_grad_in, NULL, grad_in);
    return FL_OK;
}

/* ---- what it holds ---- */

fl_params *fl_stage_params(fl_stage *stage)
{
    return &stage->params;
}

int fl_stage_entry(const fl_stage *stage)
{
    return stage->o.enter;
}

const int64_t *fl_stage_samples(const fl_stage *stage, int slot_index)
{
    return stage->slots[slot_index].what.ids;
}

int64_t fl_stage_sample(const fl_stage *stage, int slot_index, int64_t i)
{
    return stage->slots[slot_index].what.ids[i];
}

fl_tensor fl_stage_targets(const fl_stage *stage, int slot_index)
{
    const fl_stage_slot *s = &stage->slots[slot_index];
    fl_tensor targets = s->targets;
    targets.data = s->tables.targets;
    return targets;
}

fl_tensor fl_stage_boundary(const fl_stage *stage, int slot_index, int i)
{
    return stage->slots[slot_index].at[i];
}

fl_tensor fl_stage_grad_in(const fl_stage *stage, int slot_index, int layer)
{
    fl_tensor grad = stage->slots[slot_index].at[layer - stage->o.first];
    grad.data = stage->grad[stage->grad_turn];
    return grad;
}

void fl_stage_peaks(const fl_stage *stage, int *n_slots, size_t *slot_bytes, size_t *scratch_bytes)
{
    *n_slots = stage->peak_busy;
    *slot_bytes = 0;
    for (int i = 0; i < stage->o.n_slots; i++) {
        size_t peak = stage->slots[i].arena.peak_bytes;
        *slot_bytes = peak > *slot_bytes ? peak : *slot_bytes;
    }
    *scratch_bytes = stage->scratch.peak_bytes;
}

void fl_stage_settle(fl_stage *stage)
{
    for (int i = 0; i < stage->o.n_slots; i++) {
        fl_mirror_settle(&stage->slots[i].tables.mirror);
    }
    fl_mirror_settle(&stage->some.mirror);
    fl_mirror_settle(&stage->one);
}
