/* The table of families. */
#include "launcher/hf/hf_family.h"

#include <stdio.h>
#include <string.h>

static const fl_hf_family *const families[] = {&fl__hf_bert, &fl__hf_gpt2, &fl__hf_vit};
enum { N_FAMILIES = sizeof families / sizeof *families };

fl_status fl__hf_family_find(const fl_hf_config *c, const fl_hf_family **out)
{
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    char allowed[128] = "";
    size_t used = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        if (type != NULL && strcmp(type, families[i]->model_type) == 0) {
            *out = families[i];
            return FL_OK;
        }
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", i == 0 ? "" : ", ",
                                 families[i]->model_type);
    }
    return type == NULL
               ? fl__hf_refuse(c, "model_type", json_object_get(c->root, "model_type"), allowed)
               : fl_fail(FL_ENOTSUP, "%s: model_type: found %.64s, allowed: %s", c->path, type,
                         allowed);
}
