#include "launcher/run/model/model_config.h"

#include "data/images/images_dataset.h"
#include "data/table/table_dataset.h"
#include "data/text/text_dataset.h"
#include "device/system/alloc.h"
#include "launcher/hf/hf_config.h"
#include "launcher/job/job.h"
#include "launcher/run/model/hf_build.h"
#include "nn/model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* Numbers read back to the last bit. */
enum { DUMP = JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY };

static json_t *vit_json(const fl_job *job, const fl_idx_info *info)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "kind", "vit",
                     "channels", (json_int_t)info->channels, "height", (json_int_t)info->height,
                     "width", (json_int_t)info->width, "patch", (json_int_t)job->model.patch, "dim",
                     (json_int_t)job->model.dim, "heads", (json_int_t)job->model.heads, "blocks",
                     (json_int_t)job->model.blocks, "classes", (json_int_t)info->n_classes,
                     "dropout", fl_job_dropout(job));
}

static json_t *model_json(const fl_model *model, const fl_job *job, const fl_idx_info *info)
{
    if (job->model.kind == FL_MODEL_VIT && info != NULL) {
        return vit_json(job, info);
    }
    if (job->model.kind == FL_MODEL_PLUGIN) {
        return json_pack("{s:s, s:s, s:s}", "kind", "plugin", "name", fl_model_name(model),
                         "plugin", job->model.plugin);
    }
    return json_pack("{s:s, s:s}", "kind", "program", "name", fl_model_name(model));
}

static json_t *classes_json(const fl_job *job)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < job->data.n_classes; i++) {
        json_array_append_new(list, json_integer(job->data.classes[i]));
    }
    return list;
}

/* In the order of the model's classes. */
static json_t *labels_json(const fl_images_info *info)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < info->image.n_classes; i++) {
        json_array_append_new(list, json_string(info->labels[i]));
    }
    return list;
}

static json_t *data_json(const fl_dataset *data, const fl_job *job, const fl_idx_info *info,
                         const fl_idx_normalization *normalization)
{
    json_t *object = json_pack("{s:s}", "kind", data->ops->kind);
    if (fl_dataset_images_info(data) != NULL && object != NULL) {
        json_object_set_new(object, "labels", labels_json(fl_dataset_images_info(data)));
        return object;
    }
    if (info != NULL && object != NULL) {
        json_object_set_new(object, "normalization",
                            json_pack("{s:f, s:f}", "mean", normalization->mean, "deviation",
                                      normalization->deviation));
    }
    if (info != NULL && job->data.n_classes > 0) {
        json_object_set_new(object, "classes", classes_json(job));
    }
    return object;
}

static json_t *loss_json(const fl_model *model)
{
    const fl_metric_list metrics = fl_model_metrics(model);
    json_t *list = json_array();
    for (int i = 0; i < metrics.n; i++) {
        json_array_append_new(list, json_pack("{s:s, s:b}", "name", metrics.metric[i].name, "share",
                                              metrics.metric[i].is_share));
    }
    return json_pack("{s:s, s:o}", "kind", fl_model_loss(model)->ops->kind, "metrics", list);
}

static json_t *layer_json(const fl_model *model, int layer)
{
    const fl_param_list *list = fl_model_params(model, layer);
    int block = fl_model_block_of(model, layer);
    json_t *params = json_object();
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *p = &list->spec[i];
        json_object_set_new(params, p->name,
                            p->cols == 1
                                ? json_pack("[I]", (json_int_t)p->rows)
                                : json_pack("[I, I]", (json_int_t)p->rows, (json_int_t)p->cols));
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "name", fl_model_layer_name(model, layer), "kind",
                     fl_model_layer_kind(model, layer), "block",
                     block == FL_BLOCK_HEAD ? json_string("head") : json_integer(block),
                     "parameters", params);
}

/* One line for each member of the file and for each layer. Takes the value over. */
static bool put_member(FILE *file, const char *key, json_t *value, const char *end)
{
    bool good = value != NULL && fprintf(file, "  \"%s\": ", key) > 0 &&
                json_dumpf(value, file, DUMP) == 0 && fputs(end, file) >= 0;
    json_decref(value);
    return good;
}

static bool put_layers(FILE *file, const fl_model *model)
{
    bool good = fputs("  \"layers\": [\n", file) >= 0;
    for (int layer = 0; good && layer < fl_model_n_layers(model); layer++) {
        json_t *value = layer_json(model, layer);
        bool last = layer + 1 == fl_model_n_layers(model);
        good = value != NULL && fputs("    ", file) >= 0 && json_dumpf(value, file, DUMP) == 0 &&
               fputs(last ? "\n" : ",\n", file) >= 0;
        json_decref(value);
    }
    return good && fputs("  ]\n}\n", file) >= 0;
}

static bool put_all(FILE *file, const fl_model *model, const fl_dataset *data, const fl_job *job)
{
    fl_idx_normalization normalization;
    const fl_idx_info *info = fl_dataset_idx_info(data, &normalization);
    const fl_images_info *images = fl_dataset_images_info(data);
    info = images != NULL ? &images->image : info;
    return fputs("{\n", file) >= 0 &&
           put_member(file, "format", json_string(FL_MODEL_CONFIG_FORMAT), ",\n") &&
           put_member(file, "version", json_integer(FL_MODEL_CONFIG_VERSION), ",\n") &&
           put_member(file, "frostline", json_string(FL_VERSION), ",\n") &&
           put_member(file, "model", model_json(model, job, info), ",\n") &&
           put_member(file, "loss", loss_json(model), ",\n") &&
           put_member(file, "data", data_json(data, job, info, &normalization), ",\n") &&
           put_layers(file, model);
}

/* The names of the data's classes; NULL: they have none. */
static const char *const *labels_of(const fl_dataset *data, int64_t *n)
{
    const fl_table_info *table = fl_dataset_table_info(data);
    const fl_images_info *images = fl_dataset_images_info(data);
    *n = table != NULL ? table->n_classes : images != NULL ? images->image.n_classes : 0;
    return *n == 0 ? NULL : table != NULL ? table->labels : images->labels;
}

/* Classes without names keep those that the folder has, if there are as many. */
static fl_status folder_text(const fl_dataset *data, const fl_job *job, char **text)
{
    fl_idx_normalization unused;
    const fl_idx_info *idx = fl_dataset_idx_info(data, &unused);
    fl_hf_config config;
    int64_t n = 0;
    const char *const *labels = labels_of(data, &n);
    FL_TRY(fl_hf_config_of_job(job, &config));
    if (labels == NULL) {
        n = idx != NULL ? idx->n_classes : config.n_classes;
        labels = config.n_labels > 0 && n == config.n_labels ? config.labels : NULL;
    }
    fl_status status = fl_hf_config_text(&config, labels, n, "float32", text);
    fl_hf_config_fini(&config);
    return status;
}

/* A GPT-2 without a folder leaves one, too. */
static fl_status drawn_text(const fl_text_info *info, const fl_job *job, char **text)
{
    fl_hf_config config;
    FL_TRY(fl_hf_config_drawn(job, info, &config));
    fl_status status = fl_hf_config_text(&config, NULL, 0, "float32", text);
    fl_hf_config_fini(&config);
    return status;
}

fl_status fl_model_config_text(const fl_model *model, const fl_dataset *data, const fl_job *job,
                               char **text)
{
    if (job->model.kind == FL_MODEL_HF) {
        return folder_text(data, job, text);
    }
    if (job->model.kind == FL_MODEL_GPT2 && fl_dataset_text_info(data) != NULL) {
        return drawn_text(fl_dataset_text_info(data), job, text);
    }
    char *built = NULL;
    size_t size_bytes = 0;
    FILE *file = open_memstream(&built, &size_bytes);
    if (file == NULL) {
        return fl_fail(FL_ENOMEM, "no memory for %s", FL_MODEL_CONFIG_FILE);
    }
    bool good = put_all(file, model, data, job);
    good = fclose(file) == 0 && good;
    fl_status status = good ? fl_strdup(built, text)
                            : fl_fail(FL_ENOMEM, "no memory for %s", FL_MODEL_CONFIG_FILE);
    free(built);
    return status;
}
