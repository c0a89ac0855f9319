#include "launcher/run/model/instantiate.h"

#include "data/loader.h"
#include "device/errors/failure.h"
#include "launcher/job/job.h"
#include "launcher/run/model/hf_build.h"
#include "launcher/run/model/job_data.h"
#include "launcher/run/model/plugin_call.h"
#include "launcher/run/model/plugin_file.h"
#include "nn/model.h"

#include <frostline/plugin.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static fl_status check_patch(const fl_job *job, const fl_idx_info *info)
{
    int64_t patch = job->model.patch;
    if (info->height % patch == 0 && info->width % patch == 0) {
        return FL_OK;
    }
    return fl_fail_field(FL_EINVAL, FL_FIELDS("model.patch"),
                         "found %" PRId64 ", allowed: a divisor of the height and the width "
                         "of the images that the model sees, %" PRId64 " x %" PRId64 " pixels",
                         patch, info->height, info->width);
}

static fl_status open_images(const fl_job *job, fl_dataset *dataset, fl_idx_info *info)
{
    fl_images_info images;
    if (job->data.kind != FL_DATA_IMAGES) {
        return fl_job_idx_open(job, NULL, dataset, info);
    }
    const fl_image_input input = fl_job_image_input(job);
    FL_TRY(fl_job_images_open(job, &input, dataset, &images));
    *info = images.image;
    return FL_OK;
}

static fl_status build_vit(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    fl_idx_info info;
    FL_TRY(open_images(job, dataset, &info));
    FL_TRY(check_patch(job, &info));
    const fl_vit_config config = {
        .channels = info.channels,
        .height = info.height,
        .width = info.width,
        .patch = job->model.patch,
        .dim = job->model.dim,
        .heads = job->model.heads,
        .blocks = job->model.blocks,
        .n_classes = info.n_classes,
        .dropout = (float)fl_job_dropout(job),
        .dtype = fl_job_dtype(job),
    };
    return fl_model_vit(&config, model);
}

static fl_status build_gpt2(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    fl_text_info info;
    fl_hf_config config;
    FL_TRY(fl_job_text_open(job, NULL, dataset, &info));
    FL_TRY(fl_hf_config_drawn(job, &info, &config));
    fl_status status = fl_hf_model_create(&config, 0, model);
    fl_hf_config_fini(&config);
    return status;
}

static fl_status find_entry(void *handle, const char *at, fl_plugin_entry **entry)
{
    const fl_plugin *plugin = NULL;
    void *symbol = dlsym(handle, FL_PLUGIN_SYMBOL);
    if (symbol == NULL) {
        return fl_fail(FL_EINVAL, "%s does not export %s", at, FL_PLUGIN_SYMBOL);
    }
    fl_status status = fl_plugin_check_symbol(symbol, &plugin);
    if (status != FL_OK) {
        return fl_within(status, "%s", at);
    }
    *entry = plugin->create;
    return FL_OK;
}

/* Load the shared object and find its function. The handle is never closed on success. */
static fl_status open_plugin(const fl_job *job, void **handle, fl_plugin_entry **entry)
{
    const char *path = job->model.plugin;
    char at[FL_TEXT_MAX + 2];
    /* dlopen would search the system's folders for a name without a slash. */
    snprintf(at, sizeof at, "%s%s", strchr(path, '/') == NULL ? "./" : "", path);
    FL_TRY(fl_plugin_check_file(at));
    FL_TRY(fl_plugin_load(job, at, handle));
    fl_status status = find_entry(*handle, at, entry);
    if (status != FL_OK) {
        dlclose(*handle);
    }
    return status;
}

static const char *name_status(fl_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text)                                                             \
    case name:                                                                                     \
        return #name;
        FL_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "an unknown status";
}

/* The plugin's function failed; fl_errmsg() has its message, if it gave one. */
static fl_status refuse_entry(const fl_job *job, fl_status status)
{
    if (fl_errmsg()[0] != '\0') {
        return fl_fail_field(status, FL_FIELDS("model.plugin"), "%s: %s", job->model.plugin,
                             fl_errmsg());
    }
    return fl_fail_field(status, FL_FIELDS("model.plugin"),
                         "%s: its create function failed with %s (%s) and gave no message",
                         job->model.plugin, name_status(status), fl_status_text(status));
}

static fl_status build_plugin(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    void *handle = NULL;
    fl_plugin_entry *entry = NULL;
    fl_status status = open_plugin(job, &handle, &entry);
    if (status != FL_OK) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("model.plugin"), "%s", fl_errmsg());
    }
    status = fl_plugin_call(entry, job, model, dataset);
    if (status != FL_OK) {
        *model = NULL;
        *dataset = (fl_dataset){0};
        dlclose(handle);
        return refuse_entry(job, status);
    }
    if (*model == NULL) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("model.plugin"), "%s made no model",
                             job->model.plugin);
    }
    if (fl_model_loss(*model)->ops == NULL) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("model.plugin"),
                             "%s: model '%s' has no loss: call fl_model_set_loss",
                             job->model.plugin, fl_model_name(*model));
    }
    if (dataset->ops == NULL) {
        return fl_job_data_open(job, dataset);
    }
    status = fl_dataset_check(dataset->ops);
    return status == FL_OK ? FL_OK
                           : fl_fail_field(FL_EINVAL, FL_FIELDS("model.plugin"), "%s: %s",
                                           job->model.plugin, fl_errmsg());
}

/* The job of a run that a program started: only that program has its model and data set. */
static fl_status refuse_program(const fl_job *job)
{
    if (job->model.kind != FL_MODEL_PROGRAM && job->data.kind != FL_DATA_PROGRAM) {
        return FL_OK;
    }
    return fl_fail(FL_EINVAL,
                   "%s%sa run of a program: only that program has its model and data set, so "
                   "frostline cannot start or replay the run; start that program again",
                   job->origins.file, job->origins.file[0] == '\0' ? "" : ": ");
}

static fl_status build_kind(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    switch (job->model.kind) {
    case FL_MODEL_PLUGIN:
        return build_plugin(job, model, dataset);
    case FL_MODEL_HF:
        return fl_hf_build(job, model, dataset);
    case FL_MODEL_GPT2:
        return build_gpt2(job, model, dataset);
    case FL_MODEL_VIT:
    case FL_MODEL_PROGRAM: /* was refused */
        break;
    }
    return build_vit(job, model, dataset);
}

fl_status fl_instantiate(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    *model = NULL;
    *dataset = (fl_dataset){0};
    FL_TRY(refuse_program(job));
    fl_status status = build_kind(job, model, dataset);
    if (status != FL_OK) {
        fl_model_destroy(model);
        fl_dataset_destroy(dataset);
        *dataset = (fl_dataset){0};
    }
    return status;
}
