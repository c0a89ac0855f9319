#include "pipe/state/snapshot/snapshot.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/cost/layout.h"
#include "pipe/state/snapshot/snapshot_parts.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

static int64_t count_layer(const fl_model *model, int n_moments, int layer)
{
    return fl_layout_count(model, layer, layer + 1) * (1 + n_moments);
}

static int64_t count_slot(const fl_snapshot *s)
{
    return s->layer_at[fl_model_n_layers(s->model)];
}

enum { SEALS_AT = 64, PAGE_BYTES = 4096 };
_Static_assert(sizeof(fl_snapshot_wanted) <= SEALS_AT, "the seals lie behind the request");

static size_t count_seals(const fl_snapshot *s)
{
    return (size_t)fl_model_n_layers(s->model) * FL_SNAPSHOT_PARTS;
}

/* The request and the seals; the slots begin on a page. */
static size_t head_bytes(const fl_snapshot *s)
{
    size_t n = SEALS_AT + FL_SNAPSHOT_SLOTS * count_seals(s) * sizeof(fl_snapshot_seal);
    return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static size_t memory_bytes(const fl_snapshot *s)
{
    return head_bytes(s) + (size_t)count_slot(s) * FL_SNAPSHOT_SLOTS * sizeof(float);
}

int64_t fl_snapshot_bytes(const fl_model *model, int n_moments)
{
    int64_t n = 0;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        n += count_layer(model, n_moments, layer);
    }
    return n * FL_SNAPSHOT_SLOTS * (int64_t)sizeof(float);
}

/* Pages are taken when a snapshot fills them. */
static fl_status map_memory(fl_snapshot *s)
{
    char *at = mmap(NULL, memory_bytes(s), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "%zu bytes for snapshots: %s", memory_bytes(s), strerror(errno));
    }
    s->memory = at;
    s->wanted = (fl_snapshot_wanted *)at;
    s->seals = (void *)(at + SEALS_AT);
    s->slots = (void *)(at + head_bytes(s));
    return FL_OK;
}

fl_status fl_snapshot_open(const fl_model *model, int n_moments, fl_snapshot *out)
{
    int n_layers = fl_model_n_layers(model);
    *out = (fl_snapshot){.model = model, .n_moments = n_moments};
    FL_TRY(fl_alloc_array((size_t)n_layers + 1, sizeof *out->layer_at, (void **)&out->layer_at));
    for (int layer = 0; layer < n_layers; layer++) {
        out->layer_at[layer + 1] = out->layer_at[layer] + count_layer(model, n_moments, layer);
    }
    fl_status status = map_memory(out);
    if (status != FL_OK) {
        fl_snapshot_close(out);
    }
    return status;
}

void fl_snapshot_close(fl_snapshot *s)
{
    if (s->memory != NULL) {
        munmap(s->memory, memory_bytes(s));
    }
    fl_free(s->layer_at);
    *s = (fl_snapshot){0};
}

static float *slot_of(const fl_snapshot *s, int slot)
{
    return s->slots + slot * count_slot(s);
}

/* ---- seals ---- */

static fl_snapshot_seal *seal_of(const fl_snapshot *s, int slot, int layer, int part)
{
    return s->seals + (size_t)slot * count_seals(s) + (size_t)(layer * FL_SNAPSHOT_PARTS + part);
}

float *fl__snapshot_part(const fl_snapshot *s, int slot, int layer, int part, int64_t *n)
{
    int64_t n_weights = fl_layout_count(s->model, layer, layer + 1);
    *n = part == 0 ? n_weights : n_weights * s->n_moments;
    return slot_of(s, slot) + s->layer_at[layer] + (part == 0 ? 0 : n_weights);
}

/* The hash of a layer's weights, part 0, or moments, part 1, as they lie in the slot. */
static uint64_t hash_part(const fl_snapshot *s, int slot, int layer, int part)
{
    int64_t n;
    const float *from = fl__snapshot_part(s, slot, layer, part, &n);
    return XXH3_64bits(from, (size_t)n * sizeof(float));
}

void fl__snapshot_seal(const fl_snapshot *s, int slot, int64_t serial, int layer, int part)
{
    fl_snapshot_seal *seal = seal_of(s, slot, layer, part);
    seal->hash = hash_part(s, slot, layer, part);
    seal->serial = serial;
}

fl_status fl_snapshot_check(const fl_snapshot *s, int slot)
{
    for (int layer = 0; layer < fl_model_n_layers(s->model); layer++) {
        for (int part = 0; part < FL_SNAPSHOT_PARTS; part++) {
            const fl_snapshot_seal *seal = seal_of(s, slot, layer, part);
            if (seal->serial != 0 && seal->hash != hash_part(s, slot, layer, part)) {
                return fl_fail(FL_EFORMAT, "the %s of %s are not those that were copied",
                               part == 0 ? "weights" : "moments",
                               fl_model_layer_name(s->model, layer));
            }
        }
    }
    return FL_OK;
}

/* ---- filling ---- */

void fl_snapshot_want(const fl_snapshot *s, int64_t serial, int slot)
{
    atomic_store(&s->wanted->serial, 0);
    if (serial != 0) {
        memset(seal_of(s, slot, 0, 0), 0, count_seals(s) * sizeof(fl_snapshot_seal));
    }
    atomic_store(&s->wanted->slot, slot);
    atomic_store(&s->wanted->serial, serial);
}

static fl_status put_weights(const fl_snapshot *s, const fl_params *p, int layer, float *to)
{
    const fl_layer_params *mine = &p->layer[layer - p->first];
    const fl_param_list *list = fl_model_params(s->model, layer);
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *spec = &list->spec[i];
        FL_TRY(p->device->ops->copy_out(p->device, p->stream, to, mine->weight[i].data,
                                        (size_t)(spec->rows * spec->cols) * sizeof(float)));
        to += fl_layout_param(spec);
    }
    return FL_OK;
}

static fl_status put_moments(const fl_snapshot *s, const fl_checkpoint_state *state, int layer,
                             float *to)
{
    size_t size_bytes =
        (size_t)(fl_layout_count(s->model, layer, layer + 1) * s->n_moments) * sizeof(float);
    bool on_host = false;
    const float *from = fl_checkpoint_moments(state, layer, &on_host);
    if (on_host) {
        memcpy(to, from, size_bytes);
        return FL_OK;
    }
    const fl_params *p = state->params;
    return p->device->ops->copy_out(p->device, p->stream, to, from, size_bytes);
}

int fl__snapshot_writer(const fl_snapshot *s, const fl_plan *plan, const int *parked, int layer,
                        int part)
{
    return fl_checkpoint_writer_rank(s->model, plan, parked, s->n_moments,
                                     part == 0 ? FL_CHECKPOINT_WEIGHTS : FL_CHECKPOINT_MOMENTS,
                                     layer);
}

static int writer_of(const fl_snapshot *s, const fl_checkpoint_state *state, int layer, int part)
{
    return fl__snapshot_writer(s, state->plan, state->parked->rank, layer, part);
}

static fl_status put_layers(const fl_snapshot *s, float *slot, const fl_checkpoint_state *state,
                            int rank, int64_t *n)
{
    for (int layer = 0; layer < fl_model_n_layers(s->model); layer++) {
        int64_t n_weights = fl_layout_count(s->model, layer, layer + 1);
        float *to = slot + s->layer_at[layer];
        if (writer_of(s, state, layer, 0) == rank) {
            FL_TRY(put_weights(s, state->params, layer, to));
            *n += n_weights;
        }
        if (writer_of(s, state, layer, 1) == rank) {
            FL_TRY(put_moments(s, state, layer, to + n_weights));
            *n += n_weights * s->n_moments;
        }
    }
    return FL_OK;
}

/* Once the copies are complete. */
static void seal_layers(const fl_snapshot *s, int slot, int64_t serial,
                        const fl_checkpoint_state *state, int rank)
{
    for (int layer = 0; layer < fl_model_n_layers(s->model); layer++) {
        for (int part = 0; part < FL_SNAPSHOT_PARTS; part++) {
            if (writer_of(s, state, layer, part) == rank) {
                fl__snapshot_seal(s, slot, serial, layer, part);
            }
        }
    }
}

fl_status fl__snapshot_copy(const fl_snapshot *s, int slot, const fl_checkpoint_state *state,
                            int rank, int64_t *n)
{
    fl_failure failure; /* copies that are under way end before the slot is used again */
    fl_failure_keep(&failure, put_layers(s, slot_of(s, slot), state, rank, n));
    fl_status synced =
        state->params == NULL
            ? FL_OK
            : state->params->device->ops->sync(state->params->device, state->params->stream);
    return failure.status == FL_OK ? synced : fl_failure_raise(&failure);
}

fl_status fl_snapshot_put(const fl_snapshot *s, int64_t serial, const fl_checkpoint_state *state,
                          int rank, int64_t *bytes)
{
    int64_t n = 0;
    int slot = atomic_load(&s->wanted->slot);
    *bytes = 0;
    if (atomic_load(&s->wanted->serial) != serial) {
        return FL_ESTALE;
    }
    fl_status status = fl__snapshot_copy(s, slot, state, rank, &n);
    *bytes = n * (int64_t)sizeof(float);
    if (status == FL_OK) {
        seal_layers(s, slot, serial, state, rank);
    }
    return status;
}

/* ---- reading ---- */

static fl_status read_slot(void *self, int layer, int index, int part, float *host)
{
    const fl_snapshot_view *view = self;
    const fl_snapshot *s = view->snapshot;
    const fl_param_list *list = fl_model_params(s->model, layer);
    const fl_param_spec *spec = &list->spec[index];
    int64_t at = s->layer_at[layer] + part * fl_layout_count(s->model, layer, layer + 1);
    for (int i = 0; i < index; i++) {
        at += fl_layout_param(&list->spec[i]);
    }
    _Static_assert(FL_STATE_WEIGHT == 0 && FL_STATE_MOMENT == 1, "moments follow the weights");
    memcpy(host, slot_of(s, view->slot) + at, (size_t)(spec->rows * spec->cols) * sizeof *host);
    return FL_OK;
}

fl_state_source fl_snapshot_source(const fl_snapshot_view *view)
{
    return (fl_state_source){
        .self = (void *)view, .read = read_slot, .has_moments = view->snapshot->n_moments > 0};
}

fl_status fl__snapshot_read(const fl_snapshot *s, int slot, const fl_state_source *source,
                            int layer, int part)
{
    const fl_param_list *list = fl_model_params(s->model, layer);
    float *to =
        slot_of(s, slot) + s->layer_at[layer] + part * fl_layout_count(s->model, layer, layer + 1);
    for (int i = 0; i < list->n; i++) {
        FL_TRY(source->read(source->self, layer, i, part, to));
        to += fl_layout_param(&list->spec[i]);
    }
    return FL_OK;
}
