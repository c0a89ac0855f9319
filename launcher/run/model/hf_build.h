/* Builds the model and the data set of a job whose model is a Hugging Face folder. */
#ifndef FL_LAUNCHER_RUN_MODEL_HF_BUILD_H
#define FL_LAUNCHER_RUN_MODEL_HF_BUILD_H

#include "data/idx_dataset.h"
#include "launcher/hf/hf_config.h"
#include "launcher/run/model/job_data.h"

#include <frostline/dataset.h>
#include <frostline/job.h>

#include <stdbool.h>

/* The folder's config.json, with model.dropout of the job. As fl_hf_config_read; messages start
 * with the field's path. */
fl_status fl_hf_config_of_job(const fl_job *job, fl_hf_config *out) FL_MUST_CHECK;

/* The same of a job whose GPT-2 has no folder (model.kind gpt2), for the ids of its text. */
fl_status fl_hf_config_drawn(const fl_job *job, const fl_text_info *text,
                             fl_hf_config *out) FL_MUST_CHECK;

/* To train: the data set gives the classes. Where its labels are those of the folder's config.json,
 * they keep that order. On success the caller owns both. Messages about a value start with the
 * field's path. */
fl_status fl_hf_build(const fl_job *job, fl_model **model, fl_dataset *dataset) FL_MUST_CHECK;

/* FL_EINVAL unless the job's data are of a kind that the model can take. */
fl_status fl_hf_check_kind(const fl_hf_config *config, const fl_job *job) FL_MUST_CHECK;

/* FL_EINVAL unless the model can take images like these. */
fl_status fl_hf_check_images(const fl_hf_config *config, const fl_idx_info *info) FL_MUST_CHECK;

/* What the model takes of images of kind images, without its classes. FL_EINVAL for another
 * data.size. */
fl_status fl_hf_image_input(const fl_hf_config *config, const fl_job *job,
                            fl_image_input *out) FL_MUST_CHECK;

/* What the pixels of gray images of kind idx become. */
fl_idx_normalization fl_hf_normalization(const fl_hf_config *config);

/* To use a trained model that tells classes of text: config.json gives the classes, and only the
 * files of one split are read.
 * tokenizer  the folder that has it; the job's data.tokenizer comes first */
typedef struct fl_hf_use {
    const fl_hf_config *config;
    const fl_job *job;
    const char *tokenizer;
    fl_split split;
    bool labels_optional; /* of a table */
} fl_hf_use;
fl_status fl_hf_build_table_use(const fl_hf_use *use, fl_model **model,
                                fl_dataset *dataset) FL_MUST_CHECK;

/* The same for one that answers questions. */
fl_status fl_hf_build_squad_use(const fl_hf_use *use, fl_model **model,
                                fl_dataset *dataset) FL_MUST_CHECK;

#endif
