/* A model is an array of layers, each with its block and its parameters, and a loss. */
#include "nn/model.h"

#include "device/system/alloc.h"
#include "device/table_head.h"

#include <frostline/plan.h>

#include <stdio.h>
#include <string.h>

typedef struct entry {
    char name[FL_LAYER_NAME_MAX];
    bool is_named;
    fl_layer layer;
    int block;
    fl_param_list params;
    int64_t n_elements;
} entry;

struct fl_model {
    char *name;
    int n_layers, capacity;
    entry *entries;
    fl_tie_list ties;
    fl_loss loss;
    const fl_tensor_names *tensor_names;
    fl_tensor_sizes tensor_sizes;
    uint64_t fingerprint;
};

enum { FIRST_CAPACITY = 16 };

fl_status fl_model_create(const char *name, fl_model **out)
{
    void *memory = NULL;
    FL_TRY(fl_alloc(sizeof(fl_model), &memory));
    fl_model *model = memory;
    fl_status status = fl_strdup(name, &model->name);
    if (status != FL_OK) {
        fl_free(model);
        return status;
    }
    *out = model;
    return FL_OK;
}

static void loss_destroy(fl_loss *loss)
{
    if (loss->ops != NULL && loss->ops->destroy != NULL) {
        loss->ops->destroy(loss->self);
    }
    *loss = (fl_loss){0};
}

void fl_model_destroy(fl_model **model)
{
    if (*model == NULL) {
        return;
    }
    for (int i = 0; i < (*model)->n_layers; i++) {
        entry *e = &(*model)->entries[i];
        if (e->layer.ops->destroy != NULL) {
            e->layer.ops->destroy(e->layer.self);
        }
        fl_free(e->params.spec);
    }
    fl__ties_fini(&(*model)->ties);
    loss_destroy(&(*model)->loss);
    fl_free((*model)->entries);
    fl_free((*model)->name);
    fl_free(*model);
    *model = NULL;
}

static fl_status check_layer(const fl_model *model, int block, const fl_layer *layer)
{
    int number = model->n_layers;
    const fl_layer_ops *ops = layer->ops;
    if (ops != NULL) {
        fl_status status = fl_table_head_check(&ops->head, sizeof *ops, "fl_layer_ops");
        if (status != FL_OK) {
            return fl_within(status, "layer %d", number);
        }
    }
    if (ops == NULL || ops->kind == NULL || ops->shape == NULL || ops->params == NULL ||
        ops->forward == NULL || ops->backward == NULL) {
        return fl_fail(FL_EINVAL,
                       "layer %d: kind, shape, params, forward and backward must all be set",
                       number);
    }
    if (number == FL_MAX_LAYERS) {
        return fl_fail(FL_EINVAL, "layer %d (%s): a model has at most %d layers", number, ops->kind,
                       FL_MAX_LAYERS);
    }
    int last = number == 0 ? 0 : model->entries[number - 1].block;
    bool follows = block == last || block == last + 1 || block == FL_BLOCK_HEAD;
    if (block < 1 || last > block || !follows || block > FL_BLOCK_HEAD) {
        return fl_fail(FL_EINVAL,
                       "layer %d (%s): block %d after block %d; blocks count from 1 without gaps, "
                       "and the head comes last",
                       number, ops->kind, block, last);
    }
    return FL_OK;
}

static fl_status make_room(fl_model *model)
{
    if (model->n_layers < model->capacity) {
        return FL_OK;
    }
    int capacity = model->capacity == 0 ? FIRST_CAPACITY : 2 * model->capacity;
    void *entries = model->entries;
    FL_TRY(fl_realloc(&entries, (size_t)model->n_layers * sizeof(entry),
                      (size_t)capacity * sizeof(entry)));
    model->entries = entries;
    model->capacity = capacity;
    return FL_OK;
}

static void set_name(entry *e, const char *name, int number)
{
    e->is_named = name != NULL;
    if (name != NULL) {
        snprintf(e->name, sizeof e->name, "%s", name);
    } else {
        snprintf(e->name, sizeof e->name, "layers.%d", number);
    }
}

/* Its parameters and name. On failure the caller frees the list. */
static fl_status describe_layer(const fl_model *model, const char *name, entry *fresh)
{
    FL_TRY(fresh->layer.ops->params(fresh->layer.self, &fresh->params));
    set_name(fresh, NULL, model->n_layers);
    FL_TRY(fl__check_layer_name(model, name != NULL ? name : fresh->name, &fresh->params));
    set_name(fresh, name, model->n_layers);
    for (int i = 0; i < fresh->params.n; i++) {
        fresh->n_elements += fresh->params.spec[i].rows * fresh->params.spec[i].cols;
    }
    return FL_OK;
}

fl_status fl_model_add_named(fl_model *model, int block, const char *name, fl_layer layer)
{
    FL_TRY(check_layer(model, block, &layer));
    FL_TRY(make_room(model));
    entry fresh = {.layer = layer, .block = block};
    fl_status status = describe_layer(model, name, &fresh);
    if (status != FL_OK) {
        fl_free(fresh.params.spec);
        return fl_within(status, "layer %d (%s)", model->n_layers, layer.ops->kind);
    }
    model->entries[model->n_layers++] = fresh;
    return FL_OK;
}

fl_status fl_model_add(fl_model *model, int block, fl_layer layer)
{
    return fl_model_add_named(model, block, NULL, layer);
}

fl_status fl_model_set_loss(fl_model *model, fl_loss loss)
{
    if (loss.ops != NULL) {
        fl_status status = fl_table_head_check(&loss.ops->head, sizeof *loss.ops, "fl_loss_ops");
        if (status != FL_OK) {
            return fl_within(status, "loss");
        }
    }
    if (loss.ops == NULL || loss.ops->kind == NULL || loss.ops->shape == NULL ||
        loss.ops->forward == NULL) {
        return fl_fail(FL_EINVAL, "loss: kind, shape and forward must all be set");
    }
    const fl_metric_list metrics = {.metric = loss.ops->metrics, .n = loss.ops->n_metrics};
    fl_status status = fl_metric_list_check(&metrics);
    if (status != FL_OK) {
        return fl_within(status, "loss (%s)", loss.ops->kind);
    }
    loss_destroy(&model->loss);
    model->loss = loss;
    return FL_OK;
}

const char *fl_model_name(const fl_model *model)
{
    return model->name;
}

int fl_model_n_layers(const fl_model *model)
{
    return model->n_layers;
}

int fl_model_n_blocks(const fl_model *model)
{
    int n = 0;
    for (int i = 0; i < model->n_layers; i++) {
        n = model->entries[i].block == FL_BLOCK_HEAD ? n : model->entries[i].block;
    }
    return n;
}

int fl_model_block_of(const fl_model *model, int layer)
{
    return model->entries[layer].block;
}

const fl_tensor_names *fl_model_tensor_names(const fl_model *model)
{
    return model->tensor_names;
}

const fl_tensor_sizes *fl_model_tensor_sizes(const fl_model *model)
{
    return &model->tensor_sizes;
}

void fl__model_set_tensor_names(fl_model *model, const fl_tensor_names *names,
                                fl_tensor_sizes sizes)
{
    model->tensor_names = names;
    model->tensor_sizes = sizes;
}

uint64_t fl_model_fingerprint(const fl_model *model)
{
    return model->fingerprint;
}

void fl__model_set_fingerprint(fl_model *model, uint64_t fingerprint)
{
    model->fingerprint = fingerprint;
}

const char *fl_model_layer_kind(const fl_model *model, int layer)
{
    return model->entries[layer].layer.ops->kind;
}

const char *fl_model_layer_name(const fl_model *model, int layer)
{
    return model->entries[layer].name;
}

bool fl_model_layer_is_named(const fl_model *model, int layer)
{
    return model->entries[layer].is_named;
}

int fl_model_layer_n_tensors(const fl_model *model, int layer)
{
    return model->entries[layer].params.n;
}

const char *fl_model_param_name(const fl_model *model, int layer, int param)
{
    return model->entries[layer].params.spec[param].name;
}

int64_t fl_model_n_params(const fl_model *model)
{
    int64_t n = 0;
    for (int i = 0; i < model->n_layers; i++) {
        n += model->entries[i].n_elements;
    }
    for (int i = 0; i < model->ties.n; i++) {
        const fl_tie *tie = &model->ties.tie[i];
        const fl_param_spec *spec =
            &model->entries[tie->use[0].layer].params.spec[tie->use[0].param];
        n -= (tie->n - 1) * spec->rows * spec->cols;
    }
    return n;
}

const fl_layer *fl_model_layer(const fl_model *model, int layer)
{
    return &model->entries[layer].layer;
}

const fl_param_list *fl_model_params(const fl_model *model, int layer)
{
    return &model->entries[layer].params;
}

fl_param_list *fl__model_params(fl_model *model, int layer)
{
    return &model->entries[layer].params;
}

fl_tie_list *fl__model_ties(fl_model *model)
{
    return &model->ties;
}

int fl_model_n_ties(const fl_model *model)
{
    return model->ties.n;
}

const fl_tie *fl_model_tie_at(const fl_model *model, int tie)
{
    return &model->ties.tie[tie];
}

int64_t fl_model_layer_n_params(const fl_model *model, int layer)
{
    return model->entries[layer].n_elements;
}

const fl_loss *fl_model_loss(const fl_model *model)
{
    return &model->loss;
}

fl_metric_list fl_model_metrics(const fl_model *model)
{
    const fl_loss_ops *ops = model == NULL ? NULL : model->loss.ops;
    if (ops == NULL) {
        return (fl_metric_list){0};
    }
    return (fl_metric_list){.metric = ops->metrics, .n = ops->n_metrics};
}

static fl_status layer_shape(const fl_model *model, int i, const fl_shape *in, fl_shape *out)
{
    const fl_layer *layer = &model->entries[i].layer;
    fl_status status = layer->ops->shape(layer->self, in, out);
    if (status == FL_OK && (out->tokens < 1 || out->width < 1)) {
        status = fl_fail(FL_EINVAL, "gives [%lld, %lld] for [%lld, %lld]; both must be at least 1",
                         (long long)out->tokens, (long long)out->width, (long long)in->tokens,
                         (long long)in->width);
    }
    char text[FL_LAYER_TEXT_MAX];
    return status == FL_OK ? FL_OK : fl_within(status, "%s", fl_model_layer_text(model, i, text));
}

fl_status fl_model_shape(const fl_model *model, int layer, const fl_shape *input, fl_shape *out)
{
    fl_shape shape = *input;
    for (int i = 0; i <= layer; i++) {
        fl_shape next = {0};
        FL_TRY(layer_shape(model, i, &shape, &next));
        shape = next;
    }
    *out = shape;
    return FL_OK;
}

fl_status fl_model_activations(const fl_model *model, const fl_shape *input, fl_dtype *out)
{
    fl_shape shape = *input;
    *out = FL_F32;
    for (int i = 0; i < model->n_layers; i++) {
        fl_shape next = {0};
        FL_TRY(layer_shape(model, i, &shape, &next));
        *out = next.dtype == FL_BF16 ? FL_BF16 : *out;
        shape = next;
    }
    return FL_OK;
}

static fl_status check_shapes(const fl_model *model, const fl_shape *input, volatile int *layer)
{
    fl_shape shape = *input;
    for (int i = 0; i < model->n_layers; i++) {
        fl_shape next = {0};
        *layer = i;
        FL_TRY(layer_shape(model, i, &shape, &next));
        shape = next;
    }
    *layer = model->n_layers;
    fl_status status = model->loss.ops->shape(model->loss.self, &shape);
    return status == FL_OK ? FL_OK : fl_within(status, "loss (%s)", model->loss.ops->kind);
}

fl_status fl_model_check_watched(const fl_model *model, const fl_shape *input, volatile int *layer)
{
    if (model->n_layers == 0) {
        return fl_fail(FL_EINVAL, "model '%s' has no layers", model->name);
    }
    if (model->loss.ops == NULL) {
        return fl_fail(FL_EINVAL, "model '%s' has no loss: call fl_model_set_loss", model->name);
    }
    fl_status status = check_shapes(model, input, layer);
    return status == FL_OK ? FL_OK : fl_within(status, "model '%s'", model->name);
}

fl_status fl_model_check(const fl_model *model, const fl_shape *input)
{
    int layer;
    return fl_model_check_watched(model, input, &layer);
}
