#include "launcher/run/saved/saved_build.h"

#include "data/text/lines_dataset.h"
#include "device/errors/failure.h"
#include "launcher/hf/hf_files.h"
#include "launcher/run/model/hf_build.h"
#include "launcher/run/model/instantiate.h"
#include "launcher/run/model/job_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CLASSES_TEXT_MAX = 1200 };

bool fl__use_has_override(const fl_use_request *r, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < r->n_overrides; i++) {
        if (strncmp(r->overrides[i], path, n) == 0 && r->overrides[i][n] == '=') {
            return true;
        }
    }
    return false;
}

/* "all", or "[1, 3, 4]" or a part of it that fits. */
static const char *list_classes(const int *classes, int64_t n, char text[CLASSES_TEXT_MAX])
{
    if (n == 0) {
        return "all";
    }
    size_t used = (size_t)snprintf(text, CLASSES_TEXT_MAX, "[");
    for (int64_t i = 0; i < n && used < CLASSES_TEXT_MAX - 16; i++) {
        used += (size_t)snprintf(text + used, CLASSES_TEXT_MAX - used, "%s%d", i == 0 ? "" : ", ",
                                 classes[i]);
    }
    snprintf(text + used, CLASSES_TEXT_MAX - used, "]");
    return text;
}

/* Class i of the model is the label that it was trained on. Another list would number the labels
 * anew. */
static fl_status check_classes(const fl_use_request *r, const fl_use *use)
{
    const fl_model_config *c = &use->config;
    const int *given = use->job.data.classes;
    int64_t n = use->job.data.n_classes;
    char found[CLASSES_TEXT_MAX], allowed[CLASSES_TEXT_MAX];
    bool any = fl__use_has_override(r, "data.classes") || (r->job != NULL && n > 0);
    if (!any || (n == c->n_classes && memcmp(given, c->classes, (size_t)n * sizeof *given) == 0)) {
        return FL_OK;
    }
    return fl_fail_field(
        FL_EINVAL, FL_FIELDS("data.classes"), "found %s, allowed: %s%s",
        list_classes(given, n, found), list_classes(c->classes, c->n_classes, allowed),
        c->n_classes == 0 ? ", since the model was trained on all labels"
                          : ", the labels that the model was trained on, in their order");
}

/* Only the files of the split that is used; pixels and classes as they were in training. */
static fl_status open_idx(const fl_use_request *r, fl_use *use, fl_idx_info *info)
{
    const fl_idx_options options = {.folder = use->job.data.path,
                                    .normalization = &use->config.normalization,
                                    .one_split = true,
                                    .split = use->split,
                                    .labels_optional = r->predicts,
                                    .classes = use->config.classes,
                                    .n_classes = (int)use->config.n_classes};
    FL_TRY(check_classes(r, use));
    fl_status status = fl_dataset_idx_open(&options, &use->whole, info);
    return status == FL_OK ? FL_OK
                           : fl_fail_field(status, FL_FIELDS("data.path"), "%s", fl_errmsg());
}

static fl_status check_images(const fl_use *use, const fl_idx_info *info)
{
    const fl_vit_config *v = &use->config.vit;
    if (info->channels != v->channels || info->height != v->height || info->width != v->width) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.path"),
                             "%s: found images of %" PRId64 " x %" PRId64 " pixels in %" PRId64
                             " channels, allowed: %" PRId64 " x %" PRId64 " in %" PRId64
                             ", as the model takes them",
                             use->job.data.path, info->height, info->width, info->channels,
                             v->height, v->width, v->channels);
    }
    return info->n_classes <= v->n_classes
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("data.path"),
                               "%s: found label %" PRId64 ", allowed: 0 to %" PRId64
                               ", the classes of the model",
                               use->job.data.path, info->n_classes - 1, v->n_classes - 1);
}

/* Whether the user or the run has a job; without one, only --data says anything of the data. */
static bool has_job(const fl_use_request *r, const fl_use *use)
{
    return r->job != NULL || use->saved.job[0] != '\0';
}

static fl_status check_data_given(const fl_use_request *r, const fl_use *use)
{
    return has_job(r, use) || fl__use_has_override(r, "data.path")
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "%s: the data to use it on is missing: give --data PATH or a job file",
                         r->model);
}

/* Whether a job names the files of each split; others find them in one folder. */
static bool has_files(const fl_job *job)
{
    fl_data_kind kind = job->data.kind;
    return kind == FL_DATA_TABLE || kind == FL_DATA_SQUAD || kind == FL_DATA_IMAGES ||
           kind == FL_DATA_TEXT;
}

/* Files that only the training has are not what the user means by the test samples of a run. */
static fl_status check_test_given(const fl_use_request *r, const fl_use *use)
{
    if (use->split != FL_TEST || !has_files(&use->job) || use->job.data.test_path[0] != '\0' ||
        r->job != NULL || !has_job(r, use) || fl__use_has_override(r, "data.path")) {
        return FL_OK;
    }
    return fl_fail(FL_EINVAL,
                   "%s: the run has no test data (its data.path names no test): give --data PATH, "
                   "or --split train or validation",
                   r->model);
}

/* Without a job, the data are of the kind that the model was trained on. */
static bool uses_folders(const fl_use_request *r, const fl_use *use)
{
    return has_job(r, use) ? use->job.data.kind == FL_DATA_IMAGES
                           : strcmp(use->config.data_kind, "images") == 0;
}

/* Image files for a model that was trained on such. */
static fl_status open_folders(const fl_use_request *r, fl_use *use)
{
    const fl_model_config *c = &use->config;
    fl_image_input input = fl_job_image_input(&use->job);
    if (c->n_labels == 0 || c->vit.channels != input.channels || c->vit.height != c->vit.width) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.kind"),
                             "found images, allowed: %s, the kind of data that the model was "
                             "trained on",
                             c->data_kind);
    }
    input.size = c->vit.height;
    input.labels = c->labels;
    input.n_labels = c->n_labels;
    return fl_job_images_open_split(&use->job, &input, use->split, r->predicts, &use->whole);
}

static fl_status build_vit(const fl_use_request *r, fl_use *use)
{
    fl_idx_info info;
    FL_TRY(check_data_given(r, use));
    if (uses_folders(r, use)) {
        FL_TRY(open_folders(r, use));
    } else {
        FL_TRY(open_idx(r, use, &info));
        FL_TRY(check_images(use, &info));
    }
    fl_status status = fl_model_vit(&use->config.vit, &use->model);
    return status == FL_OK ? FL_OK : fl_within(status, "%s: model", use->config.path);
}

/* The file of the split that is used: --data, or as the job has it.
 * folder  of the model; its tokenizer is used where the job names none */
static fl_status open_text(const fl_use_request *r, fl_use *use, const char *folder,
                           int64_t max_tokens)
{
    const fl_job *job = &use->job;
    bool given = use->split == FL_TRAIN || fl__use_has_override(r, "data.path");
    bool none = job->data.tokenizer[0] == '\0';
    fl_text_options options = {.tokenizer = none ? folder : job->data.tokenizer,
                               .max_tokens = max_tokens};
    options.path[use->split] = given ? job->data.path : job->data.test_path;
    if (options.path[use->split][0] == '\0') {
        return fl_fail(FL_EINVAL, "%s: the text to use it on is missing: give --data FILE",
                       r->model);
    }
    return r->predicts ? fl_dataset_lines_open(&options, &use->whole)
                       : fl_dataset_text_open(&options, &use->whole, NULL);
}

static fl_status build_plugin(const fl_use_request *r, fl_use *use)
{
    if (!fl__use_has_override(r, "model.plugin")) {
        snprintf(use->job.model.plugin, sizeof use->job.model.plugin, "%s", use->config.plugin);
    }
    if (has_files(&use->job) && use->job.data.test_path[0] == '\0') {
        /* data.path is what the model is used on; its labels number the classes. */
        snprintf(use->job.data.test_path, sizeof use->job.data.test_path, "%s", use->job.data.path);
    }
    use->job.model.kind = FL_MODEL_PLUGIN;
    FL_TRY(fl_instantiate(&use->job, &use->model, &use->whole));
    fl_idx_normalization unused;
    if (use->config.has_normalization && fl_dataset_idx_info(&use->whole, &unused) != NULL) {
        fl_dataset_destroy(&use->whole);
        use->whole = (fl_dataset){0};
        return open_idx(r, use, NULL);
    }
    return FL_OK;
}

static fl_status build_hf_text(const fl_use_request *r, fl_use *use, const char *folder)
{
    const int64_t positions = use->config.hf.gpt2.positions;
    bool shorter = has_job(r, use) && use->job.data.max_tokens < positions;
    FL_TRY(open_text(r, use, folder, shorter ? use->job.data.max_tokens : positions));
    return fl_hf_model_create(&use->config.hf, 0, &use->model);
}

static fl_status open_hf_folders(const fl_use_request *r, fl_use *use)
{
    const fl_hf_config *c = &use->config.hf;
    fl_image_input input;
    FL_TRY(fl_hf_image_input(c, &use->job, &input));
    if (c->n_labels == 0) {
        return fl_fail(FL_EINVAL,
                       "%s: id2label names no classes, allowed: names, since the folders of images "
                       "have them",
                       c->path);
    }
    input.labels = c->labels;
    input.n_labels = c->n_labels;
    FL_TRY(fl_job_images_open_split(&use->job, &input, use->split, r->predicts, &use->whole));
    return fl_hf_model_create(c, c->n_classes, &use->model);
}

static fl_status build_hf_images(const fl_use_request *r, fl_use *use)
{
    fl_idx_info info;
    if (use->job.data.kind == FL_DATA_IMAGES) {
        return open_hf_folders(r, use);
    }
    use->config.normalization = fl_hf_normalization(&use->config.hf);
    FL_TRY(open_idx(r, use, &info));
    FL_TRY(fl_hf_check_images(&use->config.hf, &info));
    return fl_hf_model_create(&use->config.hf, use->config.hf.n_classes, &use->model);
}

/* Of a table, or of questions; a folder alone is asked as transformers asks it. */
static fl_status build_hf_files(const fl_use_request *r, fl_use *use, const char *folder)
{
    enum { WINDOW_TOKENS = 384 };
    const int64_t positions = use->config.hf.bert.positions;
    bool answers = fl_hf_config_task(&use->config.hf) == FL_HF_ANSWERS;
    const fl_hf_use request = {.config = &use->config.hf,
                               .job = &use->job,
                               .tokenizer = folder,
                               .split = use->split,
                               .labels_optional = r->predicts};
    if (!answers) {
        return fl_hf_build_table_use(&request, &use->model, &use->whole);
    }
    if (!has_job(r, use)) {
        use->job.data.kind = FL_DATA_SQUAD;
        use->job.data.max_tokens = positions < WINDOW_TOKENS ? positions : WINDOW_TOKENS;
    }
    return fl_hf_build_squad_use(&request, &use->model, &use->whole);
}

static fl_status build_hf_data(const fl_use_request *r, fl_use *use, const char *folder)
{
    FL_TRY(check_data_given(r, use));
    switch (fl_hf_config_task(&use->config.hf)) {
    case FL_HF_LANGUAGE:
        use->job.data.kind = has_job(r, use) ? use->job.data.kind : FL_DATA_TEXT;
        FL_TRY(fl_hf_check_kind(&use->config.hf, &use->job));
        return build_hf_text(r, use, folder);
    case FL_HF_IMAGE_CLASSES:
        use->job.data.kind = has_job(r, use) ? use->job.data.kind : FL_DATA_IMAGES;
        FL_TRY(fl_hf_check_kind(&use->config.hf, &use->job));
        return build_hf_images(r, use);
    case FL_HF_TEXT_CLASSES:
    case FL_HF_ANSWERS:
    case FL_HF_TASKS:
        break;
    }
    return build_hf_files(r, use, folder);
}

/* The folder of the model has the tokenizer, or, of a checkpoint, the folder that the job names. */
static fl_status build_hf(const fl_use_request *r, fl_use *use)
{
    const char *folder = use->config.hf.folder;
    fl_job *job = &use->job;
    if (!fl_hf_files_has_any(folder) && fl_hf_files_of_job(job)[0] != '\0') {
        folder = fl_hf_files_of_job(job);
    }
    FL_TRY(build_hf_data(r, use, folder));
    if (job->model.kind == FL_MODEL_GPT2) {
        return FL_OK; /* a job without a folder */
    }
    job->model.kind = FL_MODEL_HF;
    if (job->model.path[0] == '\0') { /* it stands in for the run's own, which nothing reads */
        snprintf(job->model.path, sizeof job->model.path, "%s", folder);
    }
    return FL_OK;
}

static fl_status build_saved(const fl_use_request *r, fl_use *use)
{
    switch (use->config.kind) {
    case FL_MODEL_VIT:
        FL_TRY(build_vit(r, use));
        break;
    case FL_MODEL_PLUGIN:
        FL_TRY(build_plugin(r, use));
        break;
    case FL_MODEL_HF:
    case FL_MODEL_GPT2: /* never: its config.json is one of kind hf */
        return build_hf(r, use);
    case FL_MODEL_PROGRAM:
        return fl_fail(FL_EINVAL,
                       "%s: a program gave this model to fl_run, and only that program "
                       "can build it",
                       use->config.path);
    }
    return fl_model_config_check(&use->config, use->model);
}

static fl_status build_from_job(const fl_use_request *r, fl_use *use)
{
    if (r->job == NULL && use->saved.job[0] == '\0') {
        return fl_fail(FL_EINVAL,
                       "%s: found no " FL_MODEL_CONFIG_FILE
                       " beside the weights, allowed: a folder "
                       "with one, or a job file that describes the model",
                       r->model);
    }
    return fl_instantiate(&use->job, &use->model, &use->whole);
}

fl_status fl__saved_build(const fl_use_request *r, fl_use *use)
{
    FL_TRY(check_test_given(r, use));
    use->config.vit.dtype = fl_job_dtype(&use->job);
    fl_hf_config_set_dtype(&use->config.hf, fl_job_dtype(&use->job));
    return use->config.path[0] != '\0' ? build_saved(r, use) : build_from_job(r, use);
}
