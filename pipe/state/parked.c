#include "pipe/state/parked.h"

#include "device/system/alloc.h"
#include "pipe/cost/layout.h"

#include <string.h>

fl_status fl_parked_init(fl_parked *parked, fl_device *device, int n_layers)
{
    size_t n = (size_t)n_layers;
    *parked = (fl_parked){.n_layers = n_layers, .device = device};
    fl_status status = fl_alloc_array(n, sizeof *parked->rank, (void **)&parked->rank);
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *parked->moments, (void **)&parked->moments);
    }
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *parked->n, (void **)&parked->n);
    }
    if (status == FL_OK) {
        status = fl_alloc_array(n, sizeof *parked->since, (void **)&parked->since);
    }
    for (int i = 0; status == FL_OK && i < n_layers; i++) {
        parked->rank[i] = -1;
    }
    if (status != FL_OK) {
        fl_parked_fini(parked);
    }
    return status;
}

bool fl__parked_is_apart(const fl_parked *parked)
{
    return !parked->device->ops->host_memory;
}

fl_status fl__parked_reserve(fl_parked *parked, int64_t n, float **out)
{
    size_t size_bytes = (size_t)n * sizeof(float);
    return fl__parked_is_apart(parked)
               ? fl_alloc_untouched(size_bytes, (void **)out)
               : fl_device_reserve(parked->device, size_bytes, (void **)out);
}

void fl__parked_give(fl_parked *parked, float **moments, int64_t n)
{
    if (fl__parked_is_apart(parked)) {
        fl_free(*moments);
    } else {
        fl_device_drop(parked->device, *moments, (size_t)n * sizeof(float));
    }
    *moments = NULL;
}

void fl__parked_drop(fl_parked *parked, int layer)
{
    fl__parked_give(parked, &parked->moments[layer], parked->n[layer]);
    parked->n[layer] = 0;
}

int64_t fl_parked_bytes(const fl_parked *parked)
{
    int64_t n = 0;
    for (int i = 0; i < parked->n_layers; i++) {
        n += parked->n[i];
    }
    return n * (int64_t)sizeof(float);
}

static fl_status load_layer(fl_parked *parked, const fl_model *model, int n_moments, int layer,
                            const fl_state_source *source)
{
    const fl_param_list *list = fl_model_params(model, layer);
    int64_t n = fl_layout_count(model, layer, layer + 1), at = 0;
    if (n * n_moments == 0) {
        return FL_OK;
    }
    FL_TRY(fl__parked_reserve(parked, n * n_moments, &parked->moments[layer]));
    parked->n[layer] = n * n_moments;
    for (int i = 0; i < list->n; i++) {
        for (int k = 0; k < n_moments; k++) {
            FL_TRY(source->read(source->self, layer, i, FL_STATE_MOMENT + k,
                                parked->moments[layer] + k * n + at));
        }
        at += fl_layout_param(&list->spec[i]);
    }
    return FL_OK;
}

fl_status fl_parked_load(fl_parked *parked, const fl_model *model, int n_moments, const int *rank,
                         int own_rank, const fl_state_source *source)
{
    for (int layer = 0; layer < parked->n_layers; layer++) {
        parked->rank[layer] = rank[layer];
        if (rank[layer] == own_rank) {
            FL_TRY(load_layer(parked, model, n_moments, layer, source));
        }
    }
    return FL_OK;
}

void fl_parked_fini(fl_parked *parked)
{
    for (int i = 0; parked->moments != NULL && i < parked->n_layers; i++) {
        fl__parked_drop(parked, i);
    }
    fl_free(parked->rank);
    fl_free(parked->moments);
    fl_free(parked->n);
    fl_free(parked->since);
    memset(parked, 0, sizeof *parked);
}
