#include "launcher/job/files.h"

#include "launcher/job/job.h"
#include "launcher/job/node.h"

#include <string.h>

enum { TRAIN, TEST, N_KEYS };

static const char *const keys[N_KEYS] = {"train", "test"};

static fl_status read_path(const fl_field *field, int key, const yaml_node_t *node,
                           char path[FL_TEXT_MAX])
{
    const fl_field one = {.path = field->path, .type = FL_FIELD_PATH};
    char allowed[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX];
    fl__value value = {0};
    fl_status status;
    if (node->type != YAML_SCALAR_NODE || fl_node_is_null(node)) {
        status = fl_fail(FL_EINVAL, "found %s, allowed: %s", fl_node_found(node, shown),
                         fl_field_allowed(&one, allowed));
    } else {
        status = fl__field_take(&one, fl_node_text(node), node->data.scalar.length,
                                fl_node_is_quoted(node), &value);
    }
    if (status != FL_OK) {
        return fl_within(status, "%s", keys[key]);
    }
    memcpy(path, value.text, FL_TEXT_MAX);
    return FL_OK;
}

static int find_key(const yaml_node_t *node)
{
    for (int k = 0; k < N_KEYS && node->type == YAML_SCALAR_NODE; k++) {
        if (strcmp(fl_node_text(node), keys[k]) == 0) {
            return k;
        }
    }
    return -1;
}

static fl_status read_pairs(const fl_field *field, yaml_document_t *document,
                            const yaml_node_t *mapping, char paths[N_KEYS][FL_TEXT_MAX],
                            const yaml_node_t **culprit)
{
    char shown[FL_SHOWN_MAX];
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        *culprit = yaml_document_get_node(document, pair->key);
        int k = find_key(*culprit);
        if (k < 0) {
            return fl_fail(FL_EINVAL, "unknown key %s, allowed: train and test",
                           fl_node_found(*culprit, shown));
        }
        if (paths[k][0] != '\0') {
            return fl_fail(FL_EINVAL, "%s: repeated, it stands there already", keys[k]);
        }
        *culprit = yaml_document_get_node(document, pair->value);
        FL_TRY(read_path(field, k, *culprit, paths[k]));
    }
    *culprit = mapping;
    return FL_OK;
}

fl_status fl_files_read(const fl_field *field, yaml_document_t *document, const yaml_node_t *node,
                        fl_job *job, const yaml_node_t **culprit)
{
    char paths[N_KEYS][FL_TEXT_MAX] = {{0}};
    fl__files files;
    FL_TRY(read_pairs(field, document, node, paths, culprit));
    if (paths[TRAIN][0] == '\0') {
        return fl_fail(FL_EINVAL, "found no train, allowed: a mapping with train, and test if "
                                  "there is a test file");
    }
    memcpy(files.train, paths[TRAIN], FL_TEXT_MAX);
    memcpy(files.test, paths[TEST], FL_TEXT_MAX);
    memcpy((char *)job + field->offset, &files, sizeof files);
    return FL_OK;
}

fl_status fl_files_parse(const fl_field *field, const char *text, size_t length, fl_job *job)
{
    return fl_node_parse(field, text, length, YAML_MAPPING_NODE, fl_files_read, job);
}

static bool is_path(const fl_field *field, const char *path)
{
    fl__value unused;
    size_t length = strnlen(path, FL_TEXT_MAX);
    return length < FL_TEXT_MAX && fl__field_read(field, path, length, &unused);
}

bool fl__files_are_valid(const fl_field *field, const fl__files *files)
{
    return is_path(field, files->train) && (files->test[0] == '\0' || is_path(field, files->test));
}
