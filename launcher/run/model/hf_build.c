#include "launcher/run/model/hf_build.h"

#include "data/images/folder.h"
#include "data/squad/squad_dataset.h"
#include "data/table/table_dataset.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/schema.h"
#include "launcher/run/model/job_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_BYTES = 16 };

/* The kinds of data that models of a task take. */
typedef struct task_kinds {
    fl_data_kind kind[2];
    int n;
    const char *allowed;
} task_kinds;

static const task_kinds kinds_of[] = {
    [FL_HF_TEXT_CLASSES] = {{FL_DATA_TABLE}, 1, "table"},
    [FL_HF_LANGUAGE] = {{FL_DATA_TEXT}, 1, "text"},
    [FL_HF_IMAGE_CLASSES] = {{FL_DATA_IDX, FL_DATA_IMAGES}, 2, "idx or images"},
    [FL_HF_ANSWERS] = {{FL_DATA_SQUAD}, 1, "squad"},
};

static bool takes_kind(fl_hf_task task, fl_data_kind kind)
{
    bool takes = false;
    for (int i = 0; i < kinds_of[task].n; i++) {
        takes = takes || kinds_of[task].kind[i] == kind;
    }
    return takes;
}

static fl_status refuse_kind(const fl_job *job, const char *allowed)
{
    char found[FL_FIELD_VALUE_MAX];
    fl_field_format(fl_schema_field(fl_schema_find("data.kind")), job, found);
    return fl_fail_field(FL_EINVAL, FL_FIELDS("data.kind", "model.kind"),
                         "found %.32s, with model.kind hf and the model of this folder allowed: %s",
                         found, allowed);
}

fl_status fl_hf_check_kind(const fl_hf_config *config, const fl_job *job)
{
    fl_hf_task task = fl_hf_config_task(config);
    return takes_kind(task, job->data.kind) ? FL_OK : refuse_kind(job, kinds_of[task].allowed);
}

/* To train, the data chooses among the tasks of the model's kind. */
static fl_status choose_task(const fl_job *job, fl_hf_config *config)
{
    char allowed[64] = "";
    for (int t = 0; t < FL_HF_TASKS; t++) {
        fl_hf_task task = (fl_hf_task)t;
        size_t used = strlen(allowed);
        if (!fl_hf_config_can(config, task)) {
            continue;
        }
        if (takes_kind(task, job->data.kind)) {
            fl_hf_config_set_task(config, task);
            return FL_OK;
        }
        snprintf(allowed + used, sizeof allowed - used, "%s%s", used == 0 ? "" : ", ",
                 kinds_of[t].allowed);
    }
    return refuse_kind(job, allowed);
}

/* ---- limits of the model ---- */

static fl_status check_positions(const fl_job *job, int64_t positions)
{
    return job->data.max_tokens <= positions
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("data.max_tokens", "model.path"),
                               "found %" PRId64 ", allowed: at most %" PRId64
                               ", the positions of the model",
                               job->data.max_tokens, positions);
}

/* Vocabularies are padded to multiples of 64 or 128; a larger gap comes from another tokenizer, or
 * from a file that was cut.
 * folder  that the tokenizer is of, unless data.tokenizer names one */
static fl_status check_ids(const fl_job *job, const char *folder, int32_t n_ids, int64_t vocabulary)
{
    enum { PADDED_TO = 128 };
    static const char *const named[] = {"data.tokenizer", "model.path", NULL};
    const bool own = job->data.tokenizer[0] != '\0';
    const char *const *fields = own ? named : named + 1;
    if (n_ids > vocabulary) {
        return fl_fail_field(FL_EINVAL, fields,
                             "found a tokenizer of %d ids, allowed: at most %" PRId64
                             ", vocab_size of the model",
                             n_ids, vocabulary);
    }
    if (vocabulary - n_ids >= PADDED_TO) {
        fl_log(FL_LOG_WARN,
               "%s: the tokenizer of %s has %d ids, vocab_size of the model is %" PRId64, fields[0],
               own ? job->data.tokenizer : folder, n_ids, vocabulary);
    }
    return FL_OK;
}

/* ---- classes of text ---- */

static fl_table_options table_options(const fl_hf_config *config, const fl_job *job,
                                      const char *tokenizer)
{
    return (fl_table_options){.path = {job->data.path, job->data.test_path},
                              .text = job->data.text,
                              .pair = job->data.pair[0] == '\0' ? NULL : job->data.pair,
                              .label = job->data.label,
                              .tokenizer =
                                  job->data.tokenizer[0] == '\0' ? tokenizer : job->data.tokenizer,
                              .max_tokens = job->data.max_tokens,
                              .types = fl_hf_config_has_types(config)};
}

static bool has_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the data's labels are the file's in another order. */
static bool has_other_order(const fl_hf_config *config, const fl_table_info *info)
{
    bool same = true, all = config->n_labels == info->n_classes;
    for (int i = 0; all && i < config->n_labels; i++) {
        same = same && strcmp(config->labels[i], info->labels[i]) == 0;
        all = has_name(info->labels, info->n_classes, config->labels[i]);
    }
    return all && !same;
}

static fl_status open_table(const fl_hf_config *config, const fl_job *job, fl_dataset *dataset,
                            fl_table_info *info)
{
    const bool types = fl_hf_config_has_types(config);
    FL_TRY(fl_job_table_open(job, job->model.path, types, dataset, info));
    if (!has_other_order(config, info)) {
        return FL_OK;
    }
    fl_table_options options = table_options(config, job, job->model.path);
    options.labels = config->labels;
    options.n_labels = config->n_labels;
    fl_dataset_destroy(dataset);
    *dataset = (fl_dataset){0};
    return fl_dataset_table_open(&options, dataset, info);
}

static fl_status build_table(const fl_hf_config *config, const fl_job *job, fl_model **model,
                             fl_dataset *dataset)
{
    fl_table_info info = {0};
    char found[FL_COUNT_BYTES];
    FL_TRY(check_positions(job, config->bert.positions));
    FL_TRY(open_table(config, job, dataset, &info));
    FL_TRY(check_ids(job, job->model.path, info.n_ids, config->bert.vocabulary));
    if (info.n_classes < 2) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.label", "data.path"),
                             "found %s in the training file, allowed: 2 or more",
                             fl_count(info.n_classes, "class", found));
    }
    return fl_hf_model_create(config, info.n_classes, model);
}

/* ---- language ---- */

static fl_status build_text(const fl_hf_config *config, const fl_job *job, fl_model **model,
                            fl_dataset *dataset)
{
    FL_TRY(check_positions(job, config->gpt2.positions));
    fl_text_info info;
    FL_TRY(fl_job_text_open(job, job->model.path, dataset, &info));
    FL_TRY(check_ids(job, job->model.path, info.n_ids, config->gpt2.vocabulary));
    return fl_hf_model_create(config, 0, model);
}

/* ---- classes of images ---- */

fl_status fl_hf_check_images(const fl_hf_config *config, const fl_idx_info *info)
{
    const fl_vit_config *v = &config->vit;
    return info->channels == v->channels && info->height == v->height && info->width == v->width
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("data.path", "model.path"),
                               "found images of %" PRId64 " x %" PRId64 " pixels in %" PRId64
                               " channels, allowed: %" PRId64 " x %" PRId64 " in %" PRId64
                               ", as the model takes them",
                               info->height, info->width, info->channels, v->height, v->width,
                               v->channels);
}

fl_idx_normalization fl_hf_normalization(const fl_hf_config *config)
{
    return (fl_idx_normalization){.mean = config->pixels.mean[0],
                                  .deviation = config->pixels.deviation[0]};
}

/* Whether the folders of the training images are the model's classes. */
static fl_status has_same_classes(const fl_hf_config *config, const fl_job *job, bool *same)
{
    fl_image_folder folder = {0};
    fl_status status = fl_image_folder_list(job->data.path, &folder);
    if (status != FL_OK) {
        return fl_fail_field(status, FL_FIELDS("data.path"), "%s", fl_errmsg());
    }
    *same = config->n_labels == folder.n_classes;
    for (int i = 0; *same && i < config->n_labels; i++) {
        *same = has_name((const char *const *)folder.name, folder.n_classes, config->labels[i]);
    }
    fl_image_folder_fini(&folder);
    return FL_OK;
}

fl_status fl_hf_image_input(const fl_hf_config *config, const fl_job *job, fl_image_input *out)
{
    *out = (fl_image_input){.size = config->vit.height, .channels = (int)config->vit.channels};
    memcpy(out->mean, config->pixels.mean, sizeof out->mean);
    memcpy(out->deviation, config->pixels.deviation, sizeof out->deviation);
    return job->data.size == 0 || job->data.size == out->size
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("data.size", "model.path"),
                               "found %" PRId64 ", allowed: auto or %" PRId64
                               ", image_size of the model",
                               job->data.size, out->size);
}

static fl_status open_images(const fl_hf_config *config, const fl_job *job, fl_dataset *dataset,
                             int64_t *n_classes)
{
    fl_image_input input;
    fl_images_info info;
    bool same = false;
    FL_TRY(fl_hf_image_input(config, job, &input));
    FL_TRY(has_same_classes(config, job, &same));
    if (same) {
        input.labels = config->labels;
        input.n_labels = config->n_labels;
    }
    FL_TRY(fl_job_images_open(job, &input, dataset, &info));
    *n_classes = info.image.n_classes;
    return FL_OK;
}

static fl_status open_idx(const fl_hf_config *config, const fl_job *job, fl_dataset *dataset,
                          int64_t *n_classes)
{
    const fl_idx_normalization by = fl_hf_normalization(config);
    fl_idx_info info;
    FL_TRY(fl_job_idx_open(job, &by, dataset, &info));
    *n_classes = info.n_classes;
    return fl_hf_check_images(config, &info);
}

static fl_status build_images(const fl_hf_config *config, const fl_job *job, fl_model **model,
                              fl_dataset *dataset)
{
    int64_t n_classes = 0;
    FL_TRY(job->data.kind == FL_DATA_IMAGES ? open_images(config, job, dataset, &n_classes)
                                            : open_idx(config, job, dataset, &n_classes));
    return fl_hf_model_create(config, n_classes, model);
}

/* ---- answers ---- */

static fl_status build_questions(const fl_hf_config *config, const fl_job *job, fl_model **model,
                                 fl_dataset *dataset)
{
    const bool types = fl_hf_config_has_types(config);
    FL_TRY(check_positions(job, config->bert.positions));
    FL_TRY(fl_job_squad_open(job, job->model.path, types, dataset));
    FL_TRY(check_ids(job, job->model.path, fl_dataset_squad_info(dataset)->n_ids,
                     config->bert.vocabulary));
    return fl_hf_model_create(config, 0, model);
}

fl_status fl_hf_config_of_job(const fl_job *job, fl_hf_config *out)
{
    fl_status status = fl_hf_config_read(job->model.path, out);
    if (status != FL_OK) {
        return fl_fail_field(status, FL_FIELDS("model.path"), "%s", fl_errmsg());
    }
    fl_hf_config_set_dtype(out, fl_job_dtype(job));
    status = choose_task(job, out);
    if (status == FL_OK && job->model.dropout != FL_DROPOUT_AUTO) {
        status = fl_hf_config_set_dropout(out, job->model.dropout);
    }
    if (status != FL_OK) {
        fl_hf_config_fini(out);
    }
    return status;
}

fl_status fl_hf_config_drawn(const fl_job *job, const fl_text_info *text, fl_hf_config *out)
{
    const fl_gpt2_config model = {.vocabulary = text->n_ids,
                                  .positions = job->data.max_tokens,
                                  .dim = job->model.dim,
                                  .heads = job->model.heads,
                                  .blocks = job->model.blocks};
    fl_status status = fl_hf_config_gpt2(&model, text->end_id, out);
    if (status != FL_OK) {
        return fl_fail_field(status, FL_FIELDS("model.kind"), "%s", fl_errmsg());
    }
    fl_hf_config_set_dtype(out, fl_job_dtype(job));
    status = fl_hf_config_set_dropout(out, fl_job_dropout(job));
    if (status != FL_OK) {
        fl_hf_config_fini(out);
    }
    return status;
}

static fl_status build(const fl_hf_config *config, const fl_job *job, fl_model **model,
                       fl_dataset *dataset)
{
    switch (fl_hf_config_task(config)) {
    case FL_HF_ANSWERS:
        return build_questions(config, job, model, dataset);
    case FL_HF_LANGUAGE:
        return build_text(config, job, model, dataset);
    case FL_HF_IMAGE_CLASSES:
        return build_images(config, job, model, dataset);
    case FL_HF_TEXT_CLASSES:
    case FL_HF_TASKS:
        break;
    }
    return build_table(config, job, model, dataset);
}

fl_status fl_hf_build(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    fl_hf_config config;
    FL_TRY(fl_hf_config_of_job(job, &config));
    fl_status status = build(&config, job, model, dataset);
    fl_hf_config_fini(&config);
    return status;
}

/* ---- a trained model ---- */

/* The names of classes that nobody named, as a table spells them: their numbers. */
static fl_status number_labels(int64_t n, char (**text)[LABEL_BYTES], const char ***labels)
{
    FL_TRY(fl_alloc_array((size_t)n, sizeof **text, (void **)text));
    FL_TRY(fl_alloc_array((size_t)n, sizeof **labels, (void **)labels));
    for (int64_t i = 0; i < n; i++) {
        snprintf((*text)[i], LABEL_BYTES, "%d", (int)i);
        (*labels)[i] = (*text)[i];
    }
    return FL_OK;
}

/* Without a test file of its own, data.path is what the model is used on. */
static void choose_file(const fl_hf_use *use, const char *path[2])
{
    bool alone = use->split == FL_TEST && use->job->data.test_path[0] == '\0';
    const char *chosen = alone ? path[FL_TRAIN] : path[use->split];
    path[FL_TRAIN] = use->split == FL_TRAIN ? chosen : NULL;
    path[FL_TEST] = use->split == FL_TEST ? chosen : NULL;
}

static fl_status open_split(const fl_hf_use *use, const char *const *labels, fl_dataset *dataset)
{
    fl_table_info info = {0};
    fl_table_options o = table_options(use->config, use->job, use->tokenizer);
    o.labels = labels;
    o.n_labels = (int)use->config->n_classes;
    o.labels_optional = use->labels_optional;
    if (o.max_tokens > use->config->bert.positions) { /* the default, for a folder without a job */
        o.max_tokens = use->config->bert.positions;
    }
    choose_file(use, o.path);
    FL_TRY(fl_dataset_table_open(&o, dataset, &info));
    return check_ids(use->job, use->tokenizer, info.n_ids, use->config->bert.vocabulary);
}

fl_status fl_hf_build_table_use(const fl_hf_use *use, fl_model **model, fl_dataset *dataset)
{
    char(*text)[LABEL_BYTES] = NULL;
    const char **numbers = NULL;
    bool named = use->config->n_labels > 0;
    FL_TRY(fl_hf_check_kind(use->config, use->job));
    fl_status status = named ? FL_OK : number_labels(use->config->n_classes, &text, &numbers);
    if (status == FL_OK) {
        status = open_split(use, named ? use->config->labels : numbers, dataset);
    }
    fl_free(text);
    fl_free(numbers);
    return status == FL_OK ? fl_hf_model_create(use->config, use->config->n_classes, model)
                           : status;
}

fl_status fl_hf_build_squad_use(const fl_hf_use *use, fl_model **model, fl_dataset *dataset)
{
    const fl_job *job = use->job;
    fl_squad_options o = {.path = {job->data.path, job->data.test_path},
                          .tokenizer =
                              job->data.tokenizer[0] == '\0' ? use->tokenizer : job->data.tokenizer,
                          .max_tokens = job->data.max_tokens,
                          .stride = job->data.stride,
                          .types = fl_hf_config_has_types(use->config)};
    FL_TRY(fl_hf_check_kind(use->config, job));
    FL_TRY(check_positions(job, use->config->bert.positions));
    choose_file(use, o.path);
    FL_TRY(fl_dataset_squad_open(&o, dataset, NULL));
    FL_TRY(check_ids(job, use->tokenizer, fl_dataset_squad_info(dataset)->n_ids,
                     use->config->bert.vocabulary));
    return fl_hf_model_create(use->config, 0, model);
}
