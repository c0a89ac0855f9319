/* From config.json to a validated value:
 *   ① bytes, JSON without a name twice   load_file
 *   ② format and version                 check_format
 *   ③ members, each in its range         read_model, read_data, read_layers */
#include "launcher/run/model/model_config.h"

#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "launcher/job/text/text.h"
#include "nn/model.h"

#include <frostline/plan.h>

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN = 48, MAX_SIDE = 1 << 20, MAX_FILE_BYTES = 64 * 1024 * 1024 };

/* ---- messages ---- */

/* How a message shows a value; NULL: it is missing. Returns shown. */
static const char *show_value(const json_t *value, char shown[FL_SHOWN_MAX])
{
    char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    if (text == NULL) {
        snprintf(shown, FL_SHOWN_MAX, "nothing");
    } else {
        fl_shown(text, strnlen(text, SHOWN), shown);
    }
    free(text);
    return shown;
}

static fl_status refuse_member(const fl_model_config *c, const char *member, const json_t *found,
                               const char *allowed)
{
    char shown[FL_SHOWN_MAX];
    return fl_fail(FL_EFORMAT, "%s: %s: found %s, allowed: %s", c->path, member,
                   show_value(found, shown), allowed);
}

/* ---- ① ---- */

static fl_status load_file(fl_model_config *c, json_t **root)
{
    json_error_t error;
    const char *why = "no memory";
    int fd = fl_regular_file_open(AT_FDCWD, c->path, &why);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (file == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return fl_fail(FL_EIO, "%s: %s", c->path, why);
    }
    bool fits = fseek(file, 0, SEEK_END) == 0 && ftell(file) <= MAX_FILE_BYTES;
    rewind(file);
    *root = fits ? json_loadf(file, JSON_REJECT_DUPLICATES, &error) : NULL;
    fclose(file);
    if (!fits) {
        return fl_fail(FL_EFORMAT, "%s: not a file of at most %d bytes", c->path, MAX_FILE_BYTES);
    }
    return *root != NULL
               ? FL_OK
               : fl_fail(FL_EFORMAT, "%s:%d:%d: %s", c->path, error.line, error.column, error.text);
}

/* ---- ② ---- */

static fl_status check_format(const fl_model_config *c, const json_t *root)
{
    const json_t *format = json_object_get(root, "format");
    const json_t *version = json_object_get(root, "version");
    if (!json_is_string(format) || strcmp(json_string_value(format), FL_MODEL_CONFIG_FORMAT) != 0) {
        return refuse_member(c, "format", format, "\"" FL_MODEL_CONFIG_FORMAT "\"");
    }
    if (!json_is_integer(version)) {
        return refuse_member(c, "version", version, "1");
    }
    return json_integer_value(version) == FL_MODEL_CONFIG_VERSION
               ? FL_OK
               : fl_fail(FL_ENOTSUP,
                         "%s: version %" JSON_INTEGER_FORMAT
                         " of this format; this Frostline reads version %d",
                         c->path, json_integer_value(version), FL_MODEL_CONFIG_VERSION);
}

/* ---- ③ ---- */

static fl_status read_integer(const fl_model_config *c, const json_t *object, const char *key,
                              int64_t most, int64_t *out)
{
    char member[SHOWN], allowed[SHOWN];
    const json_t *value = json_object_get(object, key);
    *out = json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
    snprintf(member, sizeof member, "model.%s", key);
    snprintf(allowed, sizeof allowed, "1 to %" PRId64, most);
    return *out >= 1 && *out <= most ? FL_OK : refuse_member(c, member, value, allowed);
}

static fl_status read_dropout(fl_model_config *c, const json_t *model, float *out)
{
    const json_t *dropout = json_object_get(model, "dropout");
    double p = json_is_number(dropout) ? json_number_value(dropout) : -1;
    *out = (float)p;
    return p >= 0 && *out < 1 ? FL_OK : refuse_member(c, "model.dropout", dropout, "0 to below 1");
}

static fl_status read_vit(fl_model_config *c, const json_t *model)
{
    fl_vit_config *v = &c->vit;
    FL_TRY(read_integer(c, model, "channels", MAX_SIDE, &v->channels));
    FL_TRY(read_integer(c, model, "height", MAX_SIDE, &v->height));
    FL_TRY(read_integer(c, model, "width", MAX_SIDE, &v->width));
    FL_TRY(read_integer(c, model, "patch", MAX_SIDE, &v->patch));
    FL_TRY(read_integer(c, model, "dim", MAX_SIDE, &v->dim));
    FL_TRY(read_integer(c, model, "heads", MAX_SIDE, &v->heads));
    FL_TRY(read_integer(c, model, "blocks", (FL_MAX_LAYERS - 2) / 2, &v->blocks));
    FL_TRY(read_integer(c, model, "classes", MAX_SIDE, &v->n_classes));
    return read_dropout(c, model, &v->dropout);
}

static fl_status read_plugin(fl_model_config *c, const json_t *model)
{
    const json_t *plugin = json_object_get(model, "plugin");
    size_t n = json_string_length(plugin);
    if (n < 1 || n >= sizeof c->plugin || strlen(json_string_value(plugin)) != n) {
        return refuse_member(c, "model.plugin", plugin,
                             "the path of a shared object, 1 to 255 bytes");
    }
    snprintf(c->plugin, sizeof c->plugin, "%s", json_string_value(plugin));
    return FL_OK;
}

static fl_status read_model(fl_model_config *c, const json_t *model)
{
    const json_t *kind = json_object_get(model, "kind");
    const char *text = json_is_string(kind) ? json_string_value(kind) : "";
    if (strcmp(text, "vit") == 0) {
        c->kind = FL_MODEL_VIT;
        return read_vit(c, model);
    }
    if (strcmp(text, "plugin") == 0) {
        c->kind = FL_MODEL_PLUGIN;
        return read_plugin(c, model);
    }
    c->kind = FL_MODEL_PROGRAM;
    return strcmp(text, "program") == 0
               ? FL_OK
               : refuse_member(c, "model.kind", kind, "\"vit\", \"plugin\" or \"program\"");
}

static fl_status read_normalization(fl_model_config *c, const json_t *n)
{
    const json_t *mean = json_object_get(n, "mean"), *deviation = json_object_get(n, "deviation");
    c->has_normalization = true;
    c->normalization = (fl_idx_normalization){.mean = json_number_value(mean),
                                              .deviation = json_number_value(deviation)};
    if (!json_is_number(mean) || !isfinite(c->normalization.mean)) {
        return refuse_member(c, "data.normalization.mean", mean, "a number");
    }
    return json_is_number(deviation) && isfinite(c->normalization.deviation) &&
                   c->normalization.deviation > 0
               ? FL_OK
               : refuse_member(c, "data.normalization.deviation", deviation, "a number above 0");
}

static fl_status read_classes(fl_model_config *c, const json_t *classes)
{
    size_t n = json_array_size(classes);
    bool good = json_is_array(classes) && n >= 1 && n <= FL_CLASSES_MAX;
    for (size_t i = 0; good && i < n; i++) {
        json_int_t label = json_integer_value(json_array_get(classes, i));
        good = json_is_integer(json_array_get(classes, i)) && label >= 0 && label < FL_CLASSES_MAX;
        c->classes[i] = (int)label;
    }
    c->n_classes = (int64_t)n;
    return good ? FL_OK : refuse_member(c, "data.classes", classes, "a list of labels, 0 to 255");
}

/* The names of the model's classes, in their order. */
static fl_status read_labels(fl_model_config *c, json_t *labels)
{
    size_t n = json_array_size(labels);
    bool good = n >= 1 && n <= FL_HF_LABELS_MAX;
    FL_TRY(fl_alloc_array(n + 1, sizeof *c->labels, (void **)&c->labels));
    c->label_list = json_incref(labels);
    for (size_t i = 0; good && i < n; i++) {
        c->labels[i] = json_string_value(json_array_get(labels, i));
        good = c->labels[i] != NULL;
    }
    c->n_labels = (int)n;
    return good ? FL_OK : refuse_member(c, "data.labels", labels, "a list of the classes' names");
}

static fl_status read_data(fl_model_config *c, const json_t *data)
{
    const json_t *kind = json_object_get(data, "kind");
    const json_t *normalization = json_object_get(data, "normalization");
    if (!json_is_string(kind)) {
        return refuse_member(c, "data.kind", kind, "a text");
    }
    snprintf(c->data_kind, sizeof c->data_kind, "%s", json_string_value(kind));
    bool idx = strcmp(c->data_kind, "idx") == 0;
    if (strcmp(c->data_kind, "images") == 0) {
        return read_labels(c, json_object_get(data, "labels"));
    }
    if (json_object_get(data, "classes") != NULL) {
        FL_TRY(read_classes(c, json_object_get(data, "classes")));
    }
    return normalization != NULL || (idx && c->kind == FL_MODEL_VIT)
               ? read_normalization(c, normalization)
               : FL_OK;
}

static bool is_shape(const json_t *shape)
{
    bool good = json_array_size(shape) == 1 || json_array_size(shape) == 2;
    for (size_t i = 0; good && i < json_array_size(shape); i++) {
        good = json_integer_value(json_array_get(shape, i)) > 0;
    }
    return good;
}

static bool is_layer(const json_t *layer)
{
    const json_t *params = json_object_get(layer, "parameters"), *shape;
    const char *key;
    bool good = json_is_string(json_object_get(layer, "name")) &&
                json_is_string(json_object_get(layer, "kind")) && json_is_object(params);
    json_object_foreach((json_t *)params, key, shape)
    {
        good = good && is_shape(shape);
    }
    return good;
}

static fl_status read_layers(fl_model_config *c, json_t *layers)
{
    if (json_array_size(layers) < 1 || json_array_size(layers) > FL_MAX_LAYERS) {
        return refuse_member(c, "layers", layers, "a list of 1 to 512 layers");
    }
    for (size_t i = 0; i < json_array_size(layers); i++) {
        char member[SHOWN];
        snprintf(member, sizeof member, "layers[%zu]", i);
        if (!is_layer(json_array_get(layers, i))) {
            return refuse_member(c, member, json_array_get(layers, i),
                                 "an object with name, kind and parameters, each with its shape");
        }
    }
    c->layers = json_incref(layers);
    return FL_OK;
}

/* path: FOLDER/config.json */
static fl_status read_hf(fl_model_config *c)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(c->path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - c->path),
             slash == NULL ? "." : c->path);
    c->kind = FL_MODEL_HF;
    return fl_hf_config_read(folder, &c->hf);
}

static fl_status read_members(fl_model_config *c, const json_t *root)
{
    if (fl_hf_config_is(root)) {
        return read_hf(c);
    }
    FL_TRY(check_format(c, root));
    FL_TRY(read_model(c, json_object_get(root, "model")));
    FL_TRY(read_data(c, json_object_get(root, "data")));
    return read_layers(c, json_object_get(root, "layers"));
}

fl_status fl_model_config_read(const char *path, fl_model_config *out)
{
    json_t *root = NULL;
    *out = (fl_model_config){0};
    snprintf(out->path, sizeof out->path, "%s", path);
    FL_TRY(load_file(out, &root));
    fl_status status = read_members(out, root);
    json_decref(root);
    if (status != FL_OK) {
        fl_model_config_fini(out);
    }
    return status;
}

void fl_model_config_fini(fl_model_config *config)
{
    json_decref(config->layers);
    json_decref(config->label_list);
    fl_free(config->labels);
    config->layers = config->label_list = NULL;
    config->labels = NULL;
    fl_hf_config_fini(&config->hf);
}

/* ---- against a model ---- */

static bool has_shape(const json_t *shape, const fl_param_spec *p)
{
    size_t n = json_array_size(shape);
    return n == (p->cols == 1 ? 1U : 2U) &&
           json_integer_value(json_array_get(shape, 0)) == p->rows &&
           (n == 1 || json_integer_value(json_array_get(shape, 1)) == p->cols);
}

static fl_status check_params(const fl_model_config *c, const fl_model *model, int layer,
                              const json_t *params)
{
    const fl_param_list *list = fl_model_params(model, layer);
    char shown[FL_SHOWN_MAX];
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *p = &list->spec[i];
        const json_t *shape = json_object_get(params, p->name);
        if (!has_shape(shape, p)) {
            return fl_fail(FL_EFORMAT,
                           "%s: layers[%d]: %s: found %s, allowed: [%" PRId64 ", %" PRId64
                           "], as in the model that the file describes",
                           c->path, layer, p->name, show_value(shape, shown), p->rows, p->cols);
        }
    }
    return json_object_size(params) == (size_t)list->n
               ? FL_OK
               : fl_fail(FL_EFORMAT,
                         "%s: layers[%d]: found %zu parameters, allowed: %d, as in the "
                         "model that the file describes",
                         c->path, layer, json_object_size(params), list->n);
}

fl_status fl_model_config_check(const fl_model_config *config, const fl_model *model)
{
    size_t n = json_array_size(config->layers);
    if (n != (size_t)fl_model_n_layers(model)) {
        return fl_fail(FL_EFORMAT,
                       "%s: layers: found %zu, allowed: %d, as in the model that the "
                       "file describes",
                       config->path, n, fl_model_n_layers(model));
    }
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        const json_t *layer = json_array_get(config->layers, (size_t)i);
        const char *name = json_string_value(json_object_get(layer, "name"));
        const char *kind = json_string_value(json_object_get(layer, "kind"));
        if (strcmp(name, fl_model_layer_name(model, i)) != 0 ||
            strcmp(kind, fl_model_layer_kind(model, i)) != 0) {
            return fl_fail(FL_EFORMAT,
                           "%s: layers[%d]: found %.64s (%.64s), allowed: %s (%s), as "
                           "in the model that the file describes",
                           config->path, i, name, kind, fl_model_layer_name(model, i),
                           fl_model_layer_kind(model, i));
        }
        FL_TRY(check_params(config, model, i, json_object_get(layer, "parameters")));
    }
    return FL_OK;
}

/* ---- against a file of weights ---- */

static bool tensor_has_shape(const fl_st_tensor *t, const json_t *shape)
{
    bool same = t != NULL && json_array_size(shape) == (size_t)t->n_dims;
    for (int d = 0; same && d < t->n_dims; d++) {
        same = json_integer_value(json_array_get(shape, (size_t)d)) == t->dims[d];
    }
    return same;
}

fl_status fl_model_config_check_weights(const fl_model_config *config,
                                        const fl_safetensors *weights)
{
    const json_t *layer, *shape;
    const char *param;
    size_t i;
    int n = 0;
    json_array_foreach(config->layers, i, layer)
    {
        const char *name = json_string_value(json_object_get(layer, "name"));
        json_object_foreach(json_object_get(layer, "parameters"), param, shape)
        {
            char full[256], shown[FL_SHOWN_MAX];
            snprintf(full, sizeof full, "%.127s.%.127s", name, param);
            const fl_st_tensor *t = fl_safetensors_find(weights, full);
            if (!tensor_has_shape(t, shape)) {
                return fl_fail(FL_EFORMAT, "%s: layers[%zu] lists %s %s; the weights have %s",
                               config->path, i, full, show_value(shape, shown),
                               t == NULL ? "no such tensor" : "it in another shape");
            }
            n++;
        }
    }
    return n == fl_safetensors_n(weights)
               ? FL_OK
               : fl_fail(FL_EFORMAT, "%s: lists %d parameters; the weights have %d tensors",
                         config->path, n, fl_safetensors_n(weights));
}
