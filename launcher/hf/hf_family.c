/* The table of families. */
#include "launcher/hf/hf_family.h"

#include <stdio.h>
#include <string.h>

static const fl_hf_family *const families[] = {&fl__hf_bert, &fl__hf_bert_answers, &fl__hf_gpt2,
                                               &fl__hf_vit};
enum { N_FAMILIES = sizeof families / sizeof *families };

const fl_hf_family *fl__hf_family_with(const fl_hf_family *family, fl_hf_task task)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (strcmp(families[i]->model_type, family->model_type) == 0 && families[i]->task == task) {
            return families[i];
        }
    }
    return NULL;
}

/* The first family of a model_type is what a file of no known architecture gets. */
static const fl_hf_family *find_architecture(const fl_hf_config *c, int first)
{
    const json_t *list = json_object_get(c->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    for (int i = first; name != NULL && i < N_FAMILIES; i++) {
        if (strcmp(families[i]->model_type, families[first]->model_type) == 0 &&
            strcmp(families[i]->architecture, name) == 0) {
            return families[i];
        }
    }
    return families[first];
}

fl_status fl__hf_family_find(const fl_hf_config *c, const fl_hf_family **out)
{
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    char allowed[128] = "";
    size_t used = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        if (type != NULL && strcmp(type, families[i]->model_type) == 0) {
            *out = find_architecture(c, i);
            return FL_OK;
        }
        if (i > 0 && strcmp(families[i]->model_type, families[i - 1]->model_type) == 0) {
            continue;
        }
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", i == 0 ? "" : ", ",
                                 families[i]->model_type);
    }
    return type == NULL
               ? fl__hf_refuse(c, "model_type", json_object_get(c->root, "model_type"), allowed)
               : fl_fail(FL_ENOTSUP, "%s: model_type: found %.64s, allowed: %s", c->path, type,
                         allowed);
}
