/* A config.json of Hugging Face: ① bytes, ② the family's fields, ③ names of classes; and written
 * again, ④. */
#include "launcher/hf/hf_config.h"

#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "launcher/hf/hf_family.h"
#include "nn/model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { FILE_BYTES_MAX = 64 * 1024 * 1024, NUMBER_BYTES = 24 };

/* How many classes a model has whose file does not tell. */
enum { CLASSES = 2 };

/* ---- ① ---- */

static fl_status parse_object(fl_hf_config *c, int fd)
{
    struct stat st;
    json_error_t error;
    if (fstat(fd, &st) != 0 || st.st_size > FILE_BYTES_MAX) {
        return fl_fail(FL_EFORMAT, "%s: not a file of at most %d bytes", c->path, FILE_BYTES_MAX);
    }
    c->root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
    if (c->root == NULL) {
        return fl_fail(FL_EFORMAT, "%s:%d:%d: %s", c->path, error.line, error.column, error.text);
    }
    if (json_is_object(c->root)) {
        return FL_OK;
    }
    json_decref(c->root);
    c->root = NULL;
    return fl_fail(FL_EFORMAT, "%s: found a list, allowed: an object, as Hugging Face writes it",
                   c->path);
}

fl_status fl__hf_file_load(fl_hf_config *c)
{
    const char *why = NULL;
    int fd = fl_regular_file_open(AT_FDCWD, c->path, &why);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", c->path, why);
    }
    fl_status status = parse_object(c, fd);
    close(fd);
    return status;
}

/* ---- ③ ---- */

/* The label of class i; NULL: it is missing. */
static const char *label_of(const json_t *id2label, size_t i)
{
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "%zu", i);
    return json_string_value(json_object_get(id2label, number));
}

/* What transformers calls classes that nobody named. */
static bool is_default_label(const char *label, size_t i)
{
    char text[NUMBER_BYTES + 8];
    snprintf(text, sizeof text, "LABEL_%zu", i);
    return strcmp(label, text) == 0;
}

static fl_status read_labels(fl_hf_config *c)
{
    const json_t *id2label = json_object_get(c->root, "id2label");
    size_t n = json_object_size(id2label);
    bool named = false;
    c->n_classes = CLASSES;
    if (id2label == NULL || json_is_null(id2label)) {
        return fl__hf_integer(c, "num_labels", CLASSES, 1, FL_HF_LABELS_MAX, &c->n_classes);
    }
    if (!json_is_object(id2label) || n < 1 || n > FL_HF_LABELS_MAX) {
        return fl__hf_refuse(c, "id2label", id2label, "an object of 1 to 10000 labels");
    }
    FL_TRY(fl_alloc_array(n, sizeof *c->labels, (void **)&c->labels));
    for (size_t i = 0; i < n; i++) {
        c->labels[i] = label_of(id2label, i);
        if (c->labels[i] == NULL) {
            return fl__hf_refuse(c, "id2label", id2label, "a text for each of \"0\", \"1\", ...");
        }
        named = named || !is_default_label(c->labels[i], i);
    }
    c->n_classes = (int64_t)n;
    c->n_labels = named ? (int)n : 0;
    return FL_OK;
}

/* ---- ② ---- */

static fl_status read_members(fl_hf_config *c)
{
    FL_TRY(fl__hf_file_load(c));
    FL_TRY(fl__hf_family_find(c, &c->family));
    FL_TRY(c->family->read(c));
    return read_labels(c);
}

fl_status fl_hf_config_read(const char *folder, fl_hf_config *out)
{
    *out = (fl_hf_config){0};
    int n = snprintf(out->path, sizeof out->path, "%s/config.json", folder);
    if (n < 0 || (size_t)n >= sizeof out->path) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", folder);
    }
    memcpy(out->folder, folder, strlen(folder) + 1);
    fl_status status = read_members(out);
    if (status != FL_OK) {
        fl_hf_config_fini(out);
    }
    return status;
}

void fl_hf_config_fini(fl_hf_config *config)
{
    fl_free(config->labels);
    json_decref(config->root);
    config->labels = NULL;
    config->root = NULL;
}

bool fl_hf_config_is(const json_t *root)
{
    return json_object_get(root, "model_type") != NULL && json_object_get(root, "format") == NULL;
}

fl_hf_task fl_hf_config_task(const fl_hf_config *config)
{
    return config->family->task;
}

bool fl_hf_config_can(const fl_hf_config *config, fl_hf_task task)
{
    return fl__hf_family_with(config->family, task) != NULL;
}

void fl_hf_config_set_task(fl_hf_config *config, fl_hf_task task)
{
    const fl_hf_family *family = fl__hf_family_with(config->family, task);
    config->family = family == NULL ? config->family : family;
}

/* Whether the file's classes are the model's. */
static bool has_classes(const fl_hf_config *c)
{
    return c->family->task == FL_HF_TEXT_CLASSES || c->family->task == FL_HF_IMAGE_CLASSES;
}

bool fl_hf_config_has_types(const fl_hf_config *config)
{
    return config->family->has_types != NULL && config->family->has_types(config);
}

fl_status fl_hf_config_set_dropout(fl_hf_config *config, double share)
{
    for (const char *const *key = config->family->dropouts; *key != NULL; key++) {
        if (json_object_set_new(config->root, *key, json_real(share)) != 0) {
            return fl_fail(FL_ENOMEM, "no memory for config.json");
        }
    }
    return config->family->read(config);
}

/* Two files of the same members, in whatever order, have the same hash. */
static fl_status hash_members(const json_t *root, uint64_t *hash)
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL) {
        return fl_fail(FL_ENOMEM, "no memory for config.json");
    }
    *hash = XXH3_64bits(text, strlen(text));
    free(text);
    return FL_OK;
}

void fl_hf_config_set_dtype(fl_hf_config *config, fl_dtype dtype)
{
    config->bert.dtype = dtype;
    config->gpt2.dtype = dtype;
    config->vit.dtype = dtype;
}

fl_status fl_hf_model_create(const fl_hf_config *config, int64_t n_classes, fl_model **out)
{
    uint64_t hash = 0;
    FL_TRY(hash_members(config->root, &hash));
    FL_TRY(config->family->create(config, n_classes, out));
    fl__model_set_fingerprint(*out, hash);
    return FL_OK;
}

/* ---- ④ ---- */

static bool put_labels(json_t *root, const char *const *labels, int64_t n_classes)
{
    json_t *id2label = json_object(), *label2id = json_object();
    bool good = true;
    for (int64_t i = 0; good && i < n_classes; i++) {
        char number[NUMBER_BYTES], name[NUMBER_BYTES + 8];
        snprintf(number, sizeof number, "%lld", (long long)i);
        snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        const char *label = labels == NULL ? name : labels[i];
        good = json_object_set_new(id2label, number, json_string(label)) == 0 &&
               json_object_set_new(label2id, label, json_integer(i)) == 0;
    }
    good = json_object_set_new(root, "id2label", id2label) == 0 && good;
    return json_object_set_new(root, "label2id", label2id) == 0 && good;
}

static bool put_members(json_t *root, const fl_hf_config *c, const char *const *labels,
                        int64_t n_classes, const char *dtype)
{
    json_object_del(root, "_name_or_path");
    json_object_del(root, "num_labels");
    json_object_del(root, "dtype");
    return json_object_set_new(root, "architectures", json_pack("[s]", c->family->architecture)) ==
               0 &&
           json_object_set_new(root, "torch_dtype", json_string(dtype)) == 0 &&
           (!has_classes(c) || put_labels(root, labels, n_classes));
}

fl_status fl_hf_config_text(const fl_hf_config *config, const char *const *labels,
                            int64_t n_classes, const char *dtype, char **text)
{
    json_t *root = json_deep_copy(config->root);
    char *built = NULL;
    if (root != NULL && put_members(root, config, labels, n_classes, dtype)) {
        built = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    }
    json_decref(root);
    fl_status status =
        built != NULL ? fl_strdup(built, text) : fl_fail(FL_ENOMEM, "no memory for config.json");
    free(built);
    return status;
}
