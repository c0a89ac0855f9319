#include "pipe/step/stage/stage_state.h"

#include "data/loader.h"
#include "device/random/philox.h"
#include "nn/model.h"

#include <string.h>

/* ---- shapes of samples ---- */

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

/* ---- a micro-batch ---- */

fl_tensor fl__stage_tensor_at(const fl_batch_tables *tables, int boundary)
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
        s->at[i] = fl__stage_tensor_at(&s->tables, i);
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

fl_status fl__stage_take_entry(fl_stage *stage, fl_stage_slot *s)
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
    FL_TRY(fl__stage_take_entry(stage, s));
    *input = s->at[stage->o.enter - stage->o.first];
    s->busy = true;
    stage->n_busy++;
    if (stage->n_busy > stage->peak_busy) {
        stage->peak_busy = stage->n_busy;
    }
    return FL_OK;
}
