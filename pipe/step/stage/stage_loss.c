#include "pipe/step/stage/stage_state.h"

#include "data/loader.h"
#include "data/view.h"
#include "device/flight/flight.h"
#include "nn/model.h"

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
    fl_exec x = fl__stage_exec(stage, s, stage->o.last);
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
        fl__stage_end_slot(stage, s);
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
    fl_exec x = fl__stage_exec(stage, s, stage->o.last);
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
