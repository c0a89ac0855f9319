#include "launcher/run/model/job_data.h"

#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/machine/host_limits.h"
#include "device/system/files/folders.h"
#include "device/text/plural.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

fl_status fl_job_idx_open(const fl_job *job, const fl_idx_normalization *by, fl_dataset *out,
                          fl_idx_info *info)
{
    const fl_idx_options options = {.folder = job->data.path,
                                    .normalization = by,
                                    .augment = job->data.augment,
                                    .crop_pixels = (int)job->data.crop,
                                    .classes = job->data.classes,
                                    .n_classes = (int)job->data.n_classes};
    fl_status status = fl_dataset_idx_open(&options, out, info);
    if (status == FL_OK) {
        return FL_OK;
    }
    return status == FL_EINVAL && job->data.n_classes > 0
               ? fl_fail_field(status, FL_FIELDS("data.classes", "data.path"), "%s", fl_errmsg())
               : fl_fail_field(status, FL_FIELDS("data.path"), "%s", fl_errmsg());
}

/* "data: 67349 rows (903318 tokens) tokenized in 0.8 s" */
static void tell_tokens(const fl_table_info *info)
{
    char rows[FL_COUNT_BYTES], tokens[FL_COUNT_BYTES];
    fl_log(FL_LOG_INFO, "data: %s (%s) %s in %.1f s", fl_count(info->n_rows, "row", rows),
           fl_count(info->n_tokens, "token", tokens),
           info->from_cache ? "from the cache of tokens" : "tokenized",
           (double)info->took_us / 1e6);
}

static fl_status check_tokenizer(const char *folder)
{
    return folder != NULL
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("data.tokenizer", "model.kind"),
                               "found auto, allowed: a folder, since the model comes without one");
}

fl_status fl_job_table_open(const fl_job *job, const char *tokenizer, bool types, fl_dataset *out,
                            fl_table_info *info)
{
    fl_table_options options = {
        .path = {job->data.path, job->data.test_path},
        .text = job->data.text,
        .pair = job->data.pair[0] == '\0' ? NULL : job->data.pair,
        .label = job->data.label,
        .tokenizer = job->data.tokenizer[0] == '\0' ? tokenizer : job->data.tokenizer,
        .max_tokens = job->data.max_tokens,
        .types = types,
    };
    FL_TRY(check_tokenizer(options.tokenizer));
    char cache[PATH_MAX];
    options.cache = fl_folders_cache(cache) ? cache : NULL;
    FL_TRY(fl_dataset_table_open(&options, out, info));
    tell_tokens(fl_dataset_table_info(out));
    return FL_OK;
}

/* "data: 88524 windows of 87599 questions (15115761 tokens) tokenized in 2.6 s" */
static void tell_windows(const fl_squad_info *info)
{
    char windows[FL_COUNT_BYTES], questions[FL_COUNT_BYTES], tokens[FL_COUNT_BYTES];
    fl_log(FL_LOG_INFO, "data: %s of %s (%s) %s in %.1f s",
           fl_count(info->n_windows, "window", windows),
           fl_count(info->n_questions, "question", questions),
           fl_count(info->n_tokens, "token", tokens),
           info->from_cache ? "from the cache of tokens" : "tokenized",
           (double)info->took_us / 1e6);
}

fl_status fl_job_squad_open(const fl_job *job, const char *tokenizer, bool types, fl_dataset *out)
{
    fl_squad_options options = {
        .path = {job->data.path, job->data.test_path},
        .tokenizer = job->data.tokenizer[0] == '\0' ? tokenizer : job->data.tokenizer,
        .max_tokens = job->data.max_tokens,
        .stride = job->data.stride,
        .types = types,
    };
    FL_TRY(check_tokenizer(options.tokenizer));
    char cache[PATH_MAX];
    options.cache = fl_folders_cache(cache) ? cache : NULL;
    FL_TRY(fl_dataset_squad_open(&options, out, NULL));
    tell_windows(fl_dataset_squad_info(out));
    return FL_OK;
}

fl_status fl_job_text_open(const fl_job *job, const char *tokenizer, fl_dataset *out,
                           fl_text_info *info)
{
    const fl_text_options options = {
        .path = {job->data.path, job->data.test_path},
        .tokenizer = job->data.tokenizer[0] == '\0' ? tokenizer : job->data.tokenizer,
        .max_tokens = job->data.max_tokens,
    };
    FL_TRY(check_tokenizer(options.tokenizer));
    return fl_dataset_text_open(&options, out, info);
}

/* ---- images ---- */

/* Images that take more than 1 / KEPT_PART of the memory that the machine has available are decoded
 * as they are read. */
enum { KEPT_PART = 2, IMAGE_SIZE = 32, IMAGE_CHANNELS = 3 };

static fl_images_options images_options(const fl_job *job, const fl_image_input *input)
{
    fl_host_limits machine;
    fl_host_limits_read("", &machine);
    fl_images_options o = {.size = input->size,
                           .channels = input->channels,
                           .augment = job->data.augment,
                           .crop_pixels = (int)job->data.crop,
                           .labels = input->labels,
                           .n_labels = input->n_labels,
                           .keep_bytes = machine.available_bytes / KEPT_PART};
    memcpy(o.mean, input->mean, sizeof o.mean);
    memcpy(o.deviation, input->deviation, sizeof o.deviation);
    return o;
}

/* "data: 50000 images decoded in 4.2 s" */
static void tell_images(const fl_images_info *info)
{
    char images[FL_COUNT_BYTES], files[FL_COUNT_BYTES];
    fl_log(FL_LOG_INFO, "data: %s %s in %.1f s", fl_count(info->n[0] + info->n[1], "image", images),
           info->kept ? "decoded" : "checked, and decoded again as they are read,",
           (double)info->took_us / 1e6);
    if (info->n_skipped > 0) {
        fl_log(FL_LOG_INFO, "data: %s without the name of an image left out",
               fl_count(info->n_skipped, "file", files));
    }
}

fl_image_input fl_job_image_input(const fl_job *job)
{
    fl_image_input input = {.size = job->data.size == 0 ? IMAGE_SIZE : job->data.size,
                            .channels = IMAGE_CHANNELS};
    for (int c = 0; c < IMAGE_CHANNELS; c++) {
        input.mean[c] = input.deviation[c] = 0.5;
    }
    return input;
}

static fl_status open_images(const fl_images_options *options, fl_dataset *out,
                             fl_images_info *info)
{
    fl_status status = fl_dataset_images_open(options, out, info);
    return status == FL_OK ? FL_OK
                           : fl_fail_field(status, FL_FIELDS("data.path"), "%s", fl_errmsg());
}

fl_status fl_job_images_open(const fl_job *job, const fl_image_input *input, fl_dataset *out,
                             fl_images_info *info)
{
    fl_images_options options = images_options(job, input);
    options.path[FL_TRAIN] = job->data.path;
    options.path[FL_TEST] = job->data.test_path;
    FL_TRY(open_images(&options, out, info));
    tell_images(fl_dataset_images_info(out));
    return FL_OK;
}

fl_status fl_job_images_open_split(const fl_job *job, const fl_image_input *input, fl_split split,
                                   bool loose, fl_dataset *out)
{
    fl_images_options options = images_options(job, input);
    options.loose = loose;
    bool other = split == FL_TEST && job->data.test_path[0] != '\0';
    options.augment = FL_AUGMENT_NONE;
    options.path[split] = other ? job->data.test_path : job->data.path;
    return open_images(&options, out, NULL);
}

fl_status fl_job_data_open(const fl_job *job, fl_dataset *out)
{
    switch (job->data.kind) {
    case FL_DATA_TABLE:
        return fl_job_table_open(job, NULL, false, out, NULL);
    case FL_DATA_TEXT:
        return fl_job_text_open(job, NULL, out, NULL);
    case FL_DATA_SQUAD:
        return fl_job_squad_open(job, NULL, false, out);
    case FL_DATA_IMAGES: {
        const fl_image_input input = fl_job_image_input(job);
        return fl_job_images_open(job, &input, out, NULL);
    }
    case FL_DATA_IDX:
    case FL_DATA_PROGRAM:
        break;
    }
    return fl_job_idx_open(job, NULL, out, NULL);
}
