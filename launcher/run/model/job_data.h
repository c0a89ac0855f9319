/* Opens the data set that a job's section `data` describes. */
#ifndef FL_LAUNCHER_RUN_MODEL_JOB_DATA_H
#define FL_LAUNCHER_RUN_MODEL_JOB_DATA_H

#include "data/idx_dataset.h"
#include "data/images/images_dataset.h"
#include "data/squad/squad_dataset.h"
#include "data/table/table_dataset.h"
#include "data/text/text_dataset.h"

#include <frostline/job.h>

/* A data set of the job's kind, with samples of one column where it has tokens. Messages about a
 * value start with the field's path. The result is the caller's. */
fl_status fl_job_data_open(const fl_job *job, fl_dataset *out) FL_MUST_CHECK;

/* Of kind idx. info may be NULL.
 * by  what pixels become; NULL: by their own mean and deviation */
fl_status fl_job_idx_open(const fl_job *job, const fl_idx_normalization *by, fl_dataset *out,
                          fl_idx_info *info) FL_MUST_CHECK;

/* Of kind table, for a model that reads token types or does not.
 * tokenizer  the folder to take where data.tokenizer is auto; NULL: the model has none */
fl_status fl_job_table_open(const fl_job *job, const char *tokenizer, bool types, fl_dataset *out,
                            fl_table_info *info) FL_MUST_CHECK;

/* Of kind squad, as of kind table. */
fl_status fl_job_squad_open(const fl_job *job, const char *tokenizer, bool types,
                            fl_dataset *out) FL_MUST_CHECK;

/* Of kind text. tokenizer: as above. info may be NULL. */
fl_status fl_job_text_open(const fl_job *job, const char *tokenizer, fl_dataset *out,
                           fl_text_info *info) FL_MUST_CHECK;

/* What a model of images takes. */
typedef struct fl_image_input {
    int64_t size;
    int channels;
    double mean[FL_IMAGE_CHANNELS_MAX], deviation[FL_IMAGE_CHANNELS_MAX];
    const char *const *labels; /* [n_labels] its classes; NULL: those of the training images */
    int n_labels;
} fl_image_input;

/* Of a model that says nothing of pixels: data.size, or 32, of 3 channels, from -1 to 1. */
fl_image_input fl_job_image_input(const fl_job *job);

/* Of kind images. info may be NULL. */
fl_status fl_job_images_open(const fl_job *job, const fl_image_input *input, fl_dataset *out,
                             fl_images_info *info) FL_MUST_CHECK;

/* The same for one split alone, without augmentation. A test folder that the job does not have is
 * data.path. loose: it may be a folder of images without classes, or an image. */
fl_status fl_job_images_open_split(const fl_job *job, const fl_image_input *input, fl_split split,
                                   bool loose, fl_dataset *out) FL_MUST_CHECK;

#endif
