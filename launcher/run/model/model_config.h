/* config.json: what a folder of saved weights says of its model, so that the model can be built
 * again and fed as it was in training. docs/weights.md describes the file. A model that began as a
 * Hugging Face folder leaves such a folder, whose file has the format of that library; so does a
 * GPT-2 of drawn weights. */
#ifndef FL_LAUNCHER_RUN_MODEL_MODEL_CONFIG_H
#define FL_LAUNCHER_RUN_MODEL_MODEL_CONFIG_H

#include "data/idx_dataset.h"
#include "launcher/hf/hf_config.h"
#include "nn/safetensors/safetensors.h"
#include "pipe/state/weights/model_file.h"

#include <frostline/job.h>
#include <frostline/model.h>

#include <limits.h>
#include <stdbool.h>

#define FL_MODEL_CONFIG_FORMAT "frostline-model"

enum { FL_MODEL_CONFIG_VERSION = 1, FL_DATA_KIND_MAX = 64 };

/* The contents of a config.json, validated. A struct of zeros holds nothing. */
typedef struct fl_model_config {
    char path[PATH_MAX]; /* of the file, for messages */
    fl_model_kind kind;
    char plugin[FL_TEXT_MAX]; /* kind plugin */
    fl_vit_config vit;        /* kind vit */
    char data_kind[FL_DATA_KIND_MAX];
    bool has_normalization; /* data of kind idx */
    fl_idx_normalization normalization;
    int64_t n_classes;           /* of the data's labels that the model was trained on; 0: all */
    int classes[FL_CLASSES_MAX]; /* [n_classes] classes[i] of the data is class i of the model */
    int n_labels;                /* data of kind images: the classes' names; else 0 */
    const char **labels;         /* [n_labels] owned; the texts lie in label_list */
    struct json_t *label_list;   /* owned */
    struct json_t *layers;       /* owned: the list of layers, its form validated; kind hf: NULL */
    fl_hf_config hf;             /* kind hf */
} fl_model_config;

/* The text of the file for a model that a run trains; free it with fl_free.
 * data  the data set itself, not a view of it
 * Returns FL_ENOMEM */
fl_status fl_model_config_text(const fl_model *model, const fl_dataset *data, const fl_job *job,
                               char **text) FL_MUST_CHECK;

/* Read and validate the file. Returns FL_EIO, or FL_EFORMAT with the file, the member, what was
 * found and what is allowed; another version is refused by its number. On failure nothing is held.
 */
fl_status fl_model_config_read(const char *path, fl_model_config *out) FL_MUST_CHECK;
void fl_model_config_fini(fl_model_config *config);

/* FL_EFORMAT unless the model has exactly the layers and parameters that the file lists; the
 * message names the first difference. */
fl_status fl_model_config_check(const fl_model_config *config, const fl_model *model) FL_MUST_CHECK;

/* FL_EFORMAT unless the file has exactly the parameters that config.json lists, in their shapes;
 * the message names the first difference. */
fl_status fl_model_config_check_weights(const fl_model_config *config,
                                        const fl_safetensors *weights) FL_MUST_CHECK;

#endif
