/* Some samples of a micro-batch, up to where micro-batches enter the stage. */
#include "pipe/step/stage/stage_state.h"

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
    *out = fl__stage_tensor_at(&stage->some, i);
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
        fl_exec x = fl__stage_exec(stage, s, layer);
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
    return fl__stage_take_entry(stage, s);
}
