#include "pipe/step/outputs.h"

#include "device/cpu/bf16.h"

static fl_status make_room(fl_device *device, void **memory, size_t *size_bytes, size_t needed)
{
    if (needed <= *size_bytes) {
        return FL_OK;
    }
    if (*memory != NULL) {
        device->ops->host_give(device, *memory, *size_bytes);
        *memory = NULL;
        *size_bytes = 0;
    }
    FL_TRY(device->ops->host_take(device, needed, memory));
    *size_bytes = needed;
    return FL_OK;
}

static fl_status fetch_rows(fl_outputs_memory *m, fl_stream *stream, const fl_tensor *t,
                            const float **rows)
{
    const fl_device_ops *ops = m->device->ops;
    int64_t n = t->n_tokens * t->width;
    if (t->dtype != FL_F32 && t->dtype != FL_BF16) {
        return fl_fail(FL_ENOTSUP, "the last layer gives %s; predictions need fp32 or bf16",
                       fl_dtype_name(t->dtype));
    }
    FL_TRY(make_room(m->device, &m->rows, &m->rows_bytes, (size_t)n * fl_dtype_size(t->dtype)));
    FL_TRY(ops->copy_out(m->device, stream, m->rows, t->data, (size_t)n * fl_dtype_size(t->dtype)));
    FL_TRY(ops->sync(m->device, stream));
    *rows = m->rows;
    if (t->dtype == FL_BF16) {
        FL_TRY(make_room(m->device, &m->wide, &m->wide_bytes, (size_t)n * sizeof(float)));
        fl_bf16_widen(m->rows, n, m->wide);
        *rows = m->wide;
    }
    return FL_OK;
}

fl_status fl_outputs_take(fl_outputs_memory *memory, fl_stage *stage, fl_stream *stream, int slot,
                          int n_layers, fl_split split, const fl_loss_sums *losses,
                          fl_outputs_taker *take, void *context)
{
    fl_tensor t = fl_stage_boundary(stage, slot, n_layers);
    fl_outputs outputs = {.split = split,
                          .n_samples = t.n_samples,
                          .width = t.width,
                          .offsets = t.offsets,
                          .losses = losses,
                          .targets = fl_stage_targets(stage, slot)};
    if (t.n_samples > 0) {
        FL_TRY(fetch_rows(memory, stream, &t, &outputs.rows));
        outputs.ids = fl_stage_samples(stage, slot);
        FL_TRY(take(context, &outputs));
    }
    return FL_OK;
}

void fl_outputs_fini(fl_outputs_memory *memory)
{
    if (memory->rows != NULL) {
        memory->device->ops->host_give(memory->device, memory->rows, memory->rows_bytes);
    }
    if (memory->wide != NULL) {
        memory->device->ops->host_give(memory->device, memory->wide, memory->wide_bytes);
    }
    *memory = (fl_outputs_memory){0};
}
