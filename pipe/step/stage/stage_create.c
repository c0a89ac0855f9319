/* From a stage's options to its memory, and back. */
#include "device/system/alloc.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/step/stage/stage_state.h"

/* ---- slots and scratch ---- */

static fl_status slot_create(fl_stage *stage, fl_stage_slot *s, unsigned char *memory)
{
    size_t boundaries = (size_t)stage->n_layers + 1;
    fl_arena_init(&s->arena, memory, (size_t)stage->o.memory.slot_bytes, "micro-batch slot");
    FL_TRY(fl_alloc_array(boundaries, sizeof *s->at, (void **)&s->at));
    FL_TRY(fl_alloc_array(boundaries, sizeof *s->run, (void **)&s->run));
    return fl_alloc_array(boundaries, sizeof *s->frame, (void **)&s->frame);
}

static size_t slots_bytes(const fl_stage *stage)
{
    return (size_t)(stage->o.memory.slot_bytes * stage->o.n_slots);
}

static fl_status take(fl_stage *stage, size_t size_bytes, const char *what, void **out)
{
    fl_device *device = stage->o.device;
    return stage->o.reserve ? fl_device_reserve(device, size_bytes, out)
                            : fl_device_alloc(device, size_bytes, what, out);
}

static fl_status slots_create(fl_stage *stage)
{
    const fl_stage_memory *m = &stage->o.memory;
    FL_TRY(fl_alloc_array((size_t)stage->o.n_slots, sizeof *stage->slots, (void **)&stage->slots));
    FL_TRY(
        take(stage, slots_bytes(stage), "micro-batches in flight", (void **)&stage->slot_memory));
    for (int i = 0; i < stage->o.n_slots; i++) {
        FL_TRY(slot_create(stage, &stage->slots[i], stage->slot_memory + i * m->slot_bytes));
    }
    return FL_OK;
}

static fl_status scratch_create(fl_stage *stage)
{
    size_t total = (size_t)stage->o.memory.scratch_bytes;
    FL_TRY(take(stage, total, "temporaries", (void **)&stage->scratch_memory));
    fl_arena_init(&stage->scratch, stage->scratch_memory, total, "temporaries");
    size_t grad_bytes = (size_t)stage->o.memory.grad_bytes;
    FL_TRY(fl_arena_take(&stage->scratch, grad_bytes, &stage->grad[0]));
    return fl_arena_take(&stage->scratch, grad_bytes, &stage->grad[1]);
}

/* ---- tables ---- */

static fl_tables_size tables_size(const fl_stage *stage)
{
    return (fl_tables_size){.n_boundaries = stage->n_layers + 1,
                            .samples = stage->max_samples,
                            .has_targets = stage->ends_model,
                            .targets = stage->ends_model ? stage->o.capacity.n_targets : 0};
}

/* fl_stage_fill ends where micro-batches enter; where that is the first layer, it is never called.
 */
static int n_filled(const fl_stage *stage)
{
    return stage->o.enter - stage->o.first;
}

static size_t tables_bytes(const fl_stage *stage)
{
    fl_tables_size size = tables_size(stage);
    return fl_mirror_device_bytes(stage->o.device,
                                  fl_stage_tables_bytes(&size, stage->o.n_slots, n_filled(stage)));
}

static void *tables_at(const fl_stage *stage, size_t offset_bytes)
{
    return stage->tables_memory == NULL ? NULL : stage->tables_memory + offset_bytes;
}

static fl_status one_create(fl_stage *stage)
{
    fl_device *d = stage->o.device;
    size_t bytes = fl_mirror_device_bytes(d, sizeof(fl_one_sample));
    FL_TRY(bytes == 0 ? FL_OK : fl_device_reserve(d, bytes, &stage->one_memory));
    return fl_mirror_init(&stage->one, d, stage->o.stream, stage->one_memory,
                          sizeof(fl_one_sample));
}

static fl_status tables_create(fl_stage *stage)
{
    const fl_stage_options *o = &stage->o;
    fl_tables_size size = tables_size(stage);
    fl_tables_size some = fl_filled_tables_size(&size, n_filled(stage));
    size_t each = fl_mirror_ahead_device_bytes(o->device, fl_batch_tables_bytes(&size));
    int n_ahead = o->n_ahead > o->n_slots ? o->n_ahead : o->n_slots;
    int n_pieces = (n_ahead + o->n_slots - 1) / o->n_slots;
    if (!o->device->ops->host_memory) {
        FL_TRY(o->device->ops->stream_create(o->device, &stage->copy_stream));
    }
    if (tables_bytes(stage) > 0) {
        FL_TRY(take(stage, tables_bytes(stage), "tables of micro-batches",
                    (void **)&stage->tables_memory));
    }
    for (int i = 0; i < o->n_slots; i++) {
        FL_TRY(fl_batch_tables_init_ahead(&stage->slots[i].tables, o->device, o->stream,
                                          stage->copy_stream, tables_at(stage, (size_t)i * each),
                                          &size, n_pieces));
    }
    FL_TRY(fl_batch_tables_init_ahead(&stage->some, o->device, o->stream, stage->copy_stream,
                                      tables_at(stage, (size_t)o->n_slots * each), &some, n_ahead));
    return stage->ends_model ? one_create(stage) : FL_OK;
}

static void tables_destroy(fl_stage *stage)
{
    fl_device *d = stage->o.device;
    d->ops->stream_destroy(d, &stage->copy_stream); /* waits for what was sent */
    for (int i = 0; stage->slots != NULL && i < stage->o.n_slots; i++) {
        fl_batch_tables_fini(&stage->slots[i].tables);
    }
    fl_batch_tables_fini(&stage->some);
    fl_mirror_fini(&stage->one);
    fl_device_drop(d, stage->one_memory, sizeof(fl_one_sample));
    stage->one_memory = NULL;
}

static fl_status fill(fl_stage *stage)
{
    const fl_stage_options *o = &stage->o;
    int trainable = o->n_frozen < o->first ? o->first : o->n_frozen;
    trainable = trainable > o->last ? o->last : trainable;
    FL_TRY(fl_alloc_array((size_t)stage->n_layers + 1, sizeof *stage->shapes,
                          (void **)&stage->shapes));
    FL_TRY(fl_alloc_array((size_t)stage->n_layers + 1, sizeof *stage->cuts, (void **)&stage->cuts));
    fl_params_options params = {.device = o->device,
                                .stream = o->stream,
                                .model = o->model,
                                .first = o->first,
                                .last = o->last,
                                .first_trainable = trainable,
                                .n_frozen = o->n_frozen,
                                .n_moments = fl_optimizer_n_moments(o->job->train.optimizer),
                                .source = o->source,
                                .handed = o->handed,
                                .reserve = o->reserve};
    fl_shape raw;
    int64_t n_targets;
    FL_TRY(o->dataset->ops->max_shape(o->dataset->self, &raw, &n_targets));
    FL_TRY(fl__stage_shapes_of(stage,
                               &raw)); /* the last known ones of a micro-batch without samples */
    FL_TRY(fl_params_init(&stage->params, &params));
    FL_TRY(slots_create(stage));
    FL_TRY(scratch_create(stage));
    return tables_create(stage);
}

fl_status fl_stage_create(const fl_stage_options *options, fl_stage **out)
{
    fl_stage *stage = NULL;
    FL_TRY(fl_alloc(sizeof *stage, (void **)&stage));
    stage->o = *options;
    stage->o.enter = options->enter > options->first ? options->enter : options->first;
    stage->n_layers = options->last - options->first;
    stage->max_samples = fl_capacity_samples(&options->capacity);
    stage->ends_model = options->last == fl_model_n_layers(options->model);
    fl_status status = fill(stage);
    stage->o.handed = NULL; /* the caller's, as the source */
    stage->o.source = NULL;
    if (status != FL_OK) {
        fl_stage_destroy(&stage);
        return status;
    }
    *out = stage;
    return FL_OK;
}

static void give(fl_stage *stage, unsigned char **memory, size_t size_bytes)
{
    (stage->o.reserve ? fl_device_drop : fl_device_free)(stage->o.device, *memory, size_bytes);
    *memory = NULL;
}

void fl_stage_strip(fl_stage *stage)
{
    fl__stage_shapes_destroy(stage);
    fl_params_drop_grad(&stage->params);
    give(stage, &stage->slot_memory, slots_bytes(stage));
    give(stage, &stage->scratch_memory, (size_t)stage->o.memory.scratch_bytes);
    give(stage, &stage->tables_memory, tables_bytes(stage));
}

fl_status fl_stage_claim(fl_stage *stage)
{
    FL_TRY(fl_params_claim_state(&stage->params));
    FL_TRY(fl_params_claim_grad(&stage->params));
    if (stage->o.reserve) {
        FL_TRY(fl_device_claim(stage->o.device, slots_bytes(stage), "micro-batches in flight"));
        FL_TRY(
            fl_device_claim(stage->o.device, (size_t)stage->o.memory.scratch_bytes, "temporaries"));
        FL_TRY(fl_device_claim(stage->o.device, tables_bytes(stage), "tables of micro-batches"));
    }
    stage->o.reserve = false;
    return FL_OK;
}

void fl_stage_destroy(fl_stage **stage)
{
    fl_stage *s = *stage;
    if (s == NULL) {
        return;
    }
    tables_destroy(s);
    for (int i = 0; s->slots != NULL && i < s->o.n_slots; i++) {
        fl_free(s->slots[i].at);
        fl_free(s->slots[i].run);
        fl_free(s->slots[i].frame);
    }
    fl_free(s->slots);
    if (s->params.device != NULL) {
        fl_stage_strip(s);
        fl_params_fini(&s->params);
    }
    fl_free(s->shapes);
    fl_free(s->cuts);
    fl_free(s);
    *stage = NULL;
}
