/* The models that Hugging Face folders may hold, and how their fields are read. */
#ifndef FL_LAUNCHER_HF_HF_FAMILY_H
#define FL_LAUNCHER_HF_HF_FAMILY_H

#include "launcher/hf/hf_config.h"

#include <jansson.h>

/* One model_type with one task.
 * architecture  of config.json that a run leaves
 * dropouts      ended by NULL: the fields that model.dropout stands for
 * read          takes the file's fields into the config; FL_EFORMAT, FL_ENOTSUP
 * create        the model; n_classes: of a task with classes
 * has_types     NULL: samples have no token types */
struct fl_hf_family {
    const char *model_type;
    const char *architecture;
    fl_hf_task task;
    const char *const *dropouts;
    fl_status (*read)(fl_hf_config *config);
    fl_status (*create)(const fl_hf_config *config, int64_t n_classes, fl_model **out);
    bool (*has_types)(const fl_hf_config *config);
};

extern const fl_hf_family fl__hf_bert, fl__hf_bert_answers, fl__hf_gpt2, fl__hf_vit;

enum { FL_HF_SIZE_MAX = 1 << 20 }; /* of a table, a row */

/* The same model_type with another task; NULL: it has none. */
const fl_hf_family *fl__hf_family_with(const fl_hf_family *family, fl_hf_task task);

/* By model_type and, where it has several tasks, by the first of the file's architectures.
 * FL_ENOTSUP, with those that there are, for any other model_type. */
fl_status fl__hf_family_find(const fl_hf_config *config, const fl_hf_family **out) FL_MUST_CHECK;

/* Read the JSON of c->path into c->root, an object, NULL on failure. FL_EIO, FL_EFORMAT */
fl_status fl__hf_file_load(fl_hf_config *c) FL_MUST_CHECK;

/* ---- fields of config.json; an absent one has the default that transformers has ---- */

/* FL_EFORMAT: "FILE: KEY: found ..., allowed: ..." */
fl_status fl__hf_refuse(const fl_hf_config *c, const char *key, const json_t *found,
                        const char *allowed) FL_MUST_CHECK;
/* An integer from least to most. */
fl_status fl__hf_integer(const fl_hf_config *c, const char *key, int64_t initial, int64_t least,
                         int64_t most, int64_t *out) FL_MUST_CHECK;
/* A number from 0 to below 1; null and absent: initial. */
fl_status fl__hf_share(const fl_hf_config *c, const char *key, double initial,
                       float *out) FL_MUST_CHECK;
/* A number above 0. */
fl_status fl__hf_positive(const fl_hf_config *c, const char *key, double initial,
                          float *out) FL_MUST_CHECK;
/* The place of the text in `words`, ended by NULL, of which the first is the default. */
fl_status fl__hf_word(const fl_hf_config *c, const char *key, const char *const *words,
                      int *out) FL_MUST_CHECK;
/* An activation that Frostline has, by its name there. */
fl_status fl__hf_activation(const fl_hf_config *c, const char *key, fl_activation initial,
                            fl_activation *out) FL_MUST_CHECK;
/* FL_EFORMAT unless the heads of attention share `dim` equally. */
fl_status fl__hf_heads(const fl_hf_config *c, const char *key, int64_t heads, const char *dim_key,
                       int64_t dim) FL_MUST_CHECK;
/* Each of keys, ended by NULL, is absent, null, false, or an empty list or object: another value
 * stands for a variant that would compute something else. */
fl_status fl__hf_unset(const fl_hf_config *c, const char *const *keys) FL_MUST_CHECK;
/* Each of keys, ended by NULL, is absent, null or true. */
fl_status fl__hf_set(const fl_hf_config *c, const char *const *keys) FL_MUST_CHECK;

#endif
