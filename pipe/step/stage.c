#include "pipe/step/stage.h"

#include "data/loader.h"
#include "data/view.h"
#include "device/alloc.h"
#include "device/flight.h"
#include "device/philox.h"
#include "nn/model.h"
#include "pipe/step/stage_state.h"

#include <string.h>

static bool same_shape(const fl_shape *a, const fl_shape *b)
{
    return a->tokens == b->tokens && a->width == b->width && a->dtype == b->dtype;
}

fl_status fl__stage_shapes_of(fl_stage *stage, const fl_shape *raw)
{
    if (stage->raw.width != 0 && same_shape(&stage->raw, raw)) {
        return FL_OK;
    }
    stage->raw.width = 0;
    FL_TRY(fl_model_shape(stage->o.model, stage->o.first - 1, raw, &stage->shapes[0]));
    for (int i = 0; i < stage->n_layers; i++) {
        const fl_layer *layer = fl_model_layer(stage->o.model, stage->o.first + i);
        FL_TRY(layer->ops->shape(layer->self, &stage->shapes[i], &stage->shapes[i + 1]));
    }
    stage->raw = *raw;
    return FL_OK;
}

static fl_status sample_shapes(fl_stage *stage, fl_split split, int64_t id)
{
    fl_shape raw;
    int64_t n_targets;
    const fl_dataset *d = stage->o.dataset;
    FL_TRY(d->ops->shape(d->self, split, id, &raw, &n_targets));
    return fl__stage_shapes_of(stage, &raw);
}

static size_t shape_bytes(const fl_shape *shape)
{
    return (size_t)(shape->tokens * shape->width) * fl_dtype_size(shape->dtype);
}

fl_status fl_stage_boundary_bytes(fl_stage *stage, fl_split split, const int64_t *ids, int64_t n,
                                  size_t *in_bytes, size_t *out_bytes)
{
    *in_bytes = 0;
    *out_bytes = 0;
    for (int64_t s = 0; s < n; s++) {
        FL_TRY(sample_shapes(stage, split, ids[s]));
        *in_bytes += shape_bytes(&stage->shapes[0]);
        *out_bytes += shape_bytes(&stage->shapes[stage->n_layers]);
    }
    return FL_OK;
}

/* A tensor of the tables' samples, but for its data, rows and type. */
static fl_tensor tensor_at(const fl_batch_tables *tables, int boundary)
{
    const int32_t *offsets = fl_batch_tables_offsets(tables, boundary);
    return (fl_tensor){.offsets = offsets,
                       .offsets_device = fl_mirror_at(&tables->mirror, offsets),
                       .n_samples = tables->n};
}

/* Fill the tensors of every boundary but for their data. */
static fl_status lay_out(fl_stage *stage, fl_stage_slot *s)
{
    s->raw_rows = s->raw_longest = 0;
    for (int i = 0; i <= stage->n_layers; i++) {
        s->at[i] = tensor_at(&s->tables, i);
    }
    for (int64_t j = 0; j < s->what.n; j++) {
        FL_TRY(sample_shapes(stage, s->what.split, s->what.ids[j]));
        s->raw_rows += stage->raw.tokens;
        s->raw_longest = stage->raw.tokens > s->raw_longest ? stage->raw.tokens : s->raw_longest;
        for (int i = 0; i <= stage->n_layers; i++) {
            s->at[i].n_tokens += stage->shapes[i].tokens;
            fl_batch_tables_offsets(&s->tables, i)[j + 1] = (int32_t)s->at[i].n_tokens;
        }
    }
    for (int i = 0; i <= stage->n_layers; i++) {
        /* All samples have the same width and type; without samples, use the last known ones. */
        s->at[i].width = stage->shapes[i].width;
        s->at[i].dtype = stage->shapes[i].dtype;
    }
    return FL_OK;
}

static fl_status load_targets(fl_stage *stage, fl_stage_slot *s)
{
    const fl_batch_tables *t = &s->tables;
    s->targets = (fl_tensor){0};
    if (!stage->ends_model) {
        return FL_OK;
    }
    FL_TRY(fl_load_targets(stage->o.dataset, s->what.split, t->ids, t->n, t->targets,
                           stage->o.capacity.n_targets, t->target_offsets, &s->targets));
    s->batch.targets_host = t->targets;
    s->targets.data = fl_mirror_at(&t->mirror, t->targets);
    s->targets.offsets_device = fl_mirror_at(&t->mirror, t->target_offsets);
    return FL_OK;
}

/* All that kernels must know of the micro-batch, on its way to the device. */
static fl_status describe(fl_stage *stage, fl_stage_slot *s)
{
    fl_batch_tables *t = &s->tables;
    bool anywhere = stage->o.device->ops->has_graphs; /* else as little as it takes */
    FL_TRY(fl_batch_tables_begin_with(t, s->what.n, anywhere ? stage->max_samples : s->what.n));
    *t->epoch_key = fl__epoch_key64(s->what.seed, s->what.epoch);
    memcpy(t->ids, s->what.ids, (size_t)s->what.n * sizeof *t->ids);
    s->what.ids = t->ids;
    s->batch = (fl_batch){.n_samples = s->what.n,
                          .sample_ids = t->ids,
                          .sample_ids_device = fl_mirror_at(&t->mirror, t->ids),
                          .epoch_key_device = fl_mirror_at(&t->mirror, t->epoch_key),
                          .seed = s->what.seed,
                          .epoch = s->what.epoch,
                          .n_global = s->what.n_global};
    FL_TRY(lay_out(stage, s));
    FL_TRY(load_targets(stage, s));
    FL_TRY(fl__stage_choose_shape(stage, s));
    return fl_batch_tables_send(t, s->targets.n_tokens);
}

/* Memory for what enters the stage, at the begin of the slot's. */
static fl_status take_entry(fl_stage *stage, fl_stage_slot *s)
{
    int i = stage->o.enter - stage->o.first;
    fl_arena_release(&s->arena, 0);
    FL_TRY(fl_arena_take(&s->arena, fl__tensor_bytes(&s->run[i]), &s->run[i].data));
    s->at[i].data = s->run[i].data;
    return FL_OK;
}

fl_status fl_stage_begin(fl_stage *stage, int slot_index, const fl_micro_batch *batch,
                         fl_tensor *input)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    if (s->busy || batch->n > stage->max_samples) {
        return fl_fail(FL_EINTERNAL, "slot %d of layers %d .. %d: %s (%lld samples, at most %lld)",
                       slot_index, stage->o.first, stage->o.last - 1,
                       s->busy ? "still in use" : "micro-batch too large", (long long)batch->n,
                       (long long)stage->max_samples);
    }
    s->what = *batch;
    fl_arena_release(&s->arena, 0);
    FL_TRY(describe(stage, s));
    FL_TRY(take_entry(stage, s));
    *input = s->at[stage->o.enter - stage->o.first];
    s->busy = true;
    stage->n_busy++;
    if (stage->n_busy > stage->peak_busy) {
        stage->peak_busy = stage->n_busy;
    }
    return FL_OK;
}

static void end_slot(fl_stage *stage, fl_stage_slot *s)
{
    s->busy = false;
    stage->n_busy--;
}

static fl_exec exec_for(fl_stage *stage, fl_stage_slot *s, int layer)
{
    return (fl_exec){.device = stage->o.device,
                     .stream = stage->o.stream,
                     .batch = &s->batch,
                     .training = s->what.training && layer >= stage->params.first_trainable,
                     .keep = &s->arena,
                     .scratch = &stage->scratch};
}

/* ---- some samples, up to where micro-batches enter ---- */

/* The tables of the chosen samples, standing one behind the other. */
static fl_status describe_some(fl_stage *stage, const fl_stage_slot *s, const int32_t *which,
                               int64_t n)
{
    fl_batch_tables *t = &stage->some;
    FL_TRY(fl_batch_tables_begin(t, n));
    for (int64_t j = 0; j < n; j++) {
        t->ids[j] = s->what.ids[which[j]];
    }
    for (int i = 0; i < t->max.n_boundaries; i++) {
        const int32_t *all = s->at[i].offsets;
        int32_t *offsets = fl_batch_tables_offsets(t, i);
        for (int64_t j = 0; j < n; j++) {
            offsets[j + 1] = offsets[j] + all[which[j] + 1] - all[which[j]];
        }
    }
    return fl_batch_tables_send(t, 0);
}

/* Their tensor at boundary i, in memory of the slot. */
static fl_status take_some(fl_stage *stage, fl_stage_slot *s, int i, fl_tensor *out)
{
    *out = tensor_at(&stage->some, i);
    out->n_tokens = out->offsets[out->n_samples];
    out->width = s->at[i].width;
    out->dtype = s->at[i].dtype;
    return fl_arena_take(&s->arena, fl__tensor_bytes(out), &out->data);
}

/* Samples' places outside the stage: sample which[j] (which NULL: sample j) at base + place[its
 * number]. */
typedef struct row_places {
    unsigned char *base;
    const int32_t *which;
    const size_t *place;
} row_places;

typedef enum row_copy { FROM_HOST, TO_HOST, FROM_DEVICE } row_copy;

static unsigned char *place_of(const row_places *rows, int64_t j)
{
    return rows->base + rows->place[rows->which == NULL ? j : rows->which[j]];
}

static fl_status copy_rows(const fl_stage *stage, row_copy kind, void *here, void *there, size_t n)
{
    fl_device *d = stage->o.device;
    fl_stream *stream = stage->o.stream;
    return kind == FROM_HOST ? d->ops->copy_in(d, stream, here, there, n)
           : kind == TO_HOST ? d->ops->copy_out(d, stream, there, here, n)
                             : d->ops->copy(d, stream, here, there, n);
}

/* Between the packed rows of samples first .. last - 1 in the stage and their places. Samples that
 * follow each other on both sides are one copy. */
static fl_status move_rows(const fl_stage *stage, const fl_tensor *packed, int64_t first,
                           int64_t last, const row_places *rows, row_copy kind)
{
    size_t row_bytes = (size_t)packed->width * fl_dtype_size(packed->dtype);
    const int32_t *offsets = packed->offsets;
    for (int64_t j = first, end; j < last; j = end) {
        unsigned char *here = (unsigned char *)packed->data + (size_t)offsets[j] * row_bytes;
        unsigned char *there = place_of(rows, j);
        size_t bytes = 0;
        end = j;
        do {
            bytes += (size_t)(offsets[end + 1] - offsets[end]) * row_bytes;
            end++;
        } while (end < last && place_of(rows, end) == there + bytes);
        FL_TRY(copy_rows(stage, kind, here, there, bytes));
    }
    return FL_OK;
}

fl_status fl_stage_put_rows(fl_stage *stage, const fl_tensor *to, const fl_stage_rows *rows)
{
    const row_places from = {.base = rows->base, .place = rows->place};
    return move_rows(stage, to, rows->first, rows->last, &from,
                     rows->on_device ? FROM_DEVICE : FROM_HOST);
}

static fl_status run_some(fl_stage *stage, fl_stage_slot *s, int from, const int32_t *which,
                          int64_t n, unsigned char *rows, const size_t *place)
{
    fl_tensor in, out;
    fl_exec_frame frame;
    fl_batch batch = s->batch;
    const row_places places = {.base = rows, .which = which, .place = place};
    FL_TRY(describe_some(stage, s, which, n));
    batch.n_samples = n;
    batch.sample_ids = stage->some.ids;
    batch.sample_ids_device = fl_mirror_at(&stage->some.mirror, stage->some.ids);
    FL_TRY(take_some(stage, s, from - stage->o.first, &in));
    FL_TRY(move_rows(stage, &in, 0, n, &places, FROM_HOST));
    for (int layer = from; layer < stage->o.enter; layer++) {
        int i = layer - stage->o.first;
        fl_exec x = exec_for(stage, s, layer);
        x.batch = &batch;
        x.training = false;
        FL_TRY(take_some(stage, s, i + 1, &out));
        FL_TRY(
            fl_exec_forward(&x, stage->o.model, layer, &stage->params.layer[i], &frame, &in, &out));
        in = out;
    }
    return move_rows(stage, &in, 0, n, &places, TO_HOST);
}

fl_status fl_stage_fill(fl_stage *stage, int slot_index, int from, const int32_t *which, int64_t n,
                        unsigned char *rows, const size_t *place)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    /* The slot has room only for these layers' outputs, so they also use the input's place. */
    fl_arena_release(&s->arena, 0);
    FL_TRY(run_some(stage, s, from, which, n, rows, place));
    return take_entry(stage, s);
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
        fl_exec x = exec_for(stage, s, layer);
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
        end_slot(stage, s);
    }
    return FL_OK;
}

typedef struct named_samples {
    const fl_dataset *dataset;
    fl_split split;
    const int64_t *ids;
} named_samples;

_Static_assert((int)FL_SAMPLE_TEXT_BYTES <= (int)FL_EXEC_SAMPLE_BYTES, "a name fits");

static void write_sample_text(const void *context, int64_t i, char *text)
{
    const named_samples *s = context;
    fl_sample_text(s->dataset, s->split, s->ids[i], text);
}

fl_status fl_stage_loss(fl_stage *stage, int slot_index, bool want_grad, float grad_scale,
                        fl_loss_sums *sums)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    fl_tensor grad;
    fl_exec x = exec_for(stage, s, stage->o.last);
    const named_samples samples = {stage->o.dataset, s->what.split, s->batch.sample_ids};
    x.params = &stage->params.layer[stage->n_layers - 1];
    x.sample_text = write_sample_text;
    x.sample_context = &samples;
    fl_flight_enter(FL_FLIGHT_LOSS, -1, -1, 0);
    fl_stage_grad_out(stage, slot_index, &grad);
    FL_TRY(fl_exec_loss(&x, stage->o.model, &s->at[stage->n_layers], &s->targets, grad_scale,
                        want_grad ? &grad : NULL, sums));
    fl_flight_leave();
    if (!want_grad) {
        end_slot(stage, s);
    }
    return FL_OK;
}

/* A sample's part of a tensor; its offsets, in host memory of `one`, are still to be sent. */
static fl_tensor rows_of(const fl_stage *stage, const fl_tensor *all, int64_t sample,
                         int32_t offsets[2])
{
    fl_tensor rows = *all;
    int64_t first = all->offsets[sample];
    offsets[0] = 0;
    offsets[1] = all->offsets[sample + 1] - all->offsets[sample];
    rows.data = (char *)all->data + (size_t)(first * all->width) * fl_dtype_size(all->dtype);
    rows.n_tokens = offsets[1];
    rows.n_samples = 1;
    rows.offsets = offsets;
    rows.offsets_device = fl_mirror_at(&stage->one, offsets);
    return rows;
}

fl_status fl_stage_sample_loss(fl_stage *stage, int slot_index, int64_t sample, fl_loss_sums *sums)
{
    fl_stage_slot *s = &stage->slots[slot_index];
    FL_TRY(fl_mirror_begin(&stage->one));
    fl_one_sample *one = (fl_one_sample *)(void *)stage->one.host;
    const fl_tensor out = rows_of(stage, &s->at[stage->n_layers], sample, one->out);
    const fl_tensor targets = rows_of(stage, &s->targets, sample, one->targets);
    one->id = s->batch.sample_ids[sample];
    FL_TRY(fl_mirror_send(&stage->one, sizeof *one));
    const named_samples samples = {stage->o.dataset, s->what.split, &one->id};
    fl_batch batch = s->batch;
    fl_exec x = exec_for(stage, s, stage->o.last);
    batch.n_samples = 1;
    batch.sample_ids = &one->id;
    batch.sample_ids_device = fl_mirror_at(&stage->one, &one->id);
    batch.targets_host =
        (const char *)s->tables.targets + (size_t)s->targets.offsets[sample] * FL_TARGET_BYTES;
    x.batch = &batch;
    x.params = &stage->params.layer[stage->n_layers - 1];
    x.sample_text = write_sample_text;
    x.sample_context = &samples;
    return fl_exec_loss(&x, stage->o.model, &out, &targets, 0.0f, NULL, sums);
}

void fl_stage_end(fl_stage *stage, int slot_index)
{
    end_slot(stage, &stage->slots[slot_index]);
}

fl_tensor fl_stage_targets(const fl_stage *stage, int slot_index)
{
    const fl_stage_slot *s = &stage->slots[slot_index];
    fl_tensor targets = s->targets;
    targets.data = s->tables.targets;
    return targets;
}

void fl_stage_grad_out(fl_stage *stage, int slot_index, fl_tensor *grad_out)
{
    *grad_out = stage->slots[slot_index].at[stage->n_layers];
    stage->grad_turn = 0;
    grad_out->data = stage->grad[0];
}

fl_status fl__stage_run_backward(fl_stage *stage, fl_stage_slot *s, int high, int low,
                                 bool want_grad_in, void *to, bool *asked)
{
    int lowest = stage->params.first_trainable - stage->o.first;
    for (int i = high; i >= low; i--) {
        int layer = stage->o.first + i;
        bool want = i > lowest || (want_grad_in && lowest == 0);
        fl_exec x = exec_for(stage, s, layer);
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
    int lowest = stage->params.first_trainable - stage->o.first;
    for (int i = stage->n_layers - 1; i >= lowest; i--) {
        FL_TRY(fl__stage_run_backward(stage, s, i, i, want_grad_in, to, NULL));
        if (layer_done != NULL) {
            FL_TRY(layer_done(context, slot_index, stage->o.first + i));
        }
    }
    return FL_OK;
}

static int lowest_of(const fl_stage *stage)
{
    return stage->params.first_trainable - stage->o.first;
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
    end_slot(stage, s);
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
