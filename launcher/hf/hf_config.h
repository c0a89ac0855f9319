/* config.json of a Hugging Face folder: which model it describes, and the same file for the model
 * that a run leaves. A table of families (hf_family.c) says what each model_type needs.
 * docs/models.md lists what is read and which values are refused. */
#ifndef FL_LAUNCHER_HF_HF_CONFIG_H
#define FL_LAUNCHER_HF_HF_CONFIG_H

#include "launcher/hf/hf_pixels.h"

#include <frostline/model.h>

#include <limits.h>

enum { FL_HF_LABELS_MAX = 10000 };

typedef struct fl_hf_family fl_hf_family;

/* What a family's models do, and so which data they take. */
typedef enum fl_hf_task {
    FL_HF_TEXT_CLASSES,
    FL_HF_LANGUAGE,
    FL_HF_IMAGE_CLASSES,
    FL_HF_ANSWERS, /* to questions: spans of a context */
    FL_HF_TASKS
} fl_hf_task;

/* A struct of zeros holds nothing. */
typedef struct fl_hf_config {
    char folder[PATH_MAX];
    char path[PATH_MAX]; /* of config.json, for messages */
    const fl_hf_family *family;
    fl_bert_config bert; /* family bert; n_classes 0 */
    fl_gpt2_config gpt2; /* family gpt2 */
    fl_vit_config vit;   /* family vit; n_classes 0 */
    fl_hf_pixels pixels; /* family vit */
    int64_t n_classes;   /* of the file's classifier */
    int n_labels;        /* 0: the file names no classes, or only LABEL_0, LABEL_1, ... */
    const char **labels; /* [n_labels], owned; the texts lie in root */
    struct json_t *root; /* owned: the whole file */
} fl_hf_config;

/* Read and check folder/config.json. Returns FL_EIO, or with the file, the field, what was found
 * and what is allowed FL_EFORMAT or, for a model that Frostline does not have, FL_ENOTSUP;
 * FL_ENOMEM. Nothing is held on failure. */
fl_status fl_hf_config_read(const char *folder, fl_hf_config *out) FL_MUST_CHECK;
void fl_hf_config_fini(fl_hf_config *config);

/* The same of a GPT-2 without a folder, of these sizes; the rest is as fl_model_gpt2 has it by
 * itself. It drops nothing.
 * end_id    what stands between two texts; -1: there is no such token
 * Returns   FL_EFORMAT with the field, FL_ENOMEM; nothing is held on failure */
fl_status fl_hf_config_gpt2(const fl_gpt2_config *model, int32_t end_id,
                            fl_hf_config *out) FL_MUST_CHECK;

/* Whether the file is one of Hugging Face: an object with model_type and without "format". */
bool fl_hf_config_is(const struct json_t *root);

fl_hf_task fl_hf_config_task(const fl_hf_config *config);

/* Whether a model of this model_type can have the task; then give it the head of that task, which
 * the file's architectures chose so far. */
bool fl_hf_config_can(const fl_hf_config *config, fl_hf_task task);
void fl_hf_config_set_task(fl_hf_config *config, fl_hf_task task);

/* Whether samples have token types. */
bool fl_hf_config_has_types(const fl_hf_config *config);

/* The type of the model's activations, FL_F32 to begin with. */
void fl_hf_config_set_dtype(fl_hf_config *config, fl_dtype dtype);

/* Drop this share of what a model of this kind drops, 0 <= share < 1, in place of what the file
 * has. FL_ENOMEM */
fl_status fl_hf_config_set_dropout(fl_hf_config *config, double share) FL_MUST_CHECK;

/* The model, whose tensors have Hugging Face's names in files. The caller's.
 * n_classes  of a task with classes */
fl_status fl_hf_model_create(const fl_hf_config *config, int64_t n_classes,
                             fl_model **out) FL_MUST_CHECK;

/* The text of config.json for a trained model: the file as it was read, but for the architecture,
 * the type of the weights ("float32") and, of a task with classes, these. labels [n_classes]; NULL:
 * LABEL_0, LABEL_1, ... Free it with fl_free. FL_ENOMEM */
fl_status fl_hf_config_text(const fl_hf_config *config, const char *const *labels,
                            int64_t n_classes, const char *dtype, char **text) FL_MUST_CHECK;

#endif
