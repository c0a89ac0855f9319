/* Names of layers and parameters: which are allowed, and how a model finds one. */
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

fl_status fl__check_name(const char *what, const char *name, size_t size_max)
{
    size_t length = strlen(name);
    if (length == 0 || length >= size_max) {
        return fl_fail(FL_EINVAL, "%s '%.80s': a name has 1 to %zu bytes, this one %zu", what, name,
                       size_max - 1, length);
    }
    for (size_t i = 0; i < length; i++) {
        bool empty_part = name[i] == '.' && (i == 0 || i == length - 1 || name[i - 1] == '.');
        if (!is_name_byte(name[i]) || empty_part) {
            return fl_fail(FL_EINVAL,
                           "%s '%s': a name has letters, digits, '_', and single dots between them",
                           what, name);
        }
    }
    return FL_OK;
}

const char *fl_model_layer_text(const fl_model *model, int layer, char text[FL_LAYER_TEXT_MAX])
{
    const char *kind = fl_model_layer_kind(model, layer);
    if (fl_model_layer_is_named(model, layer)) {
        snprintf(text, FL_LAYER_TEXT_MAX, "layer %d, %s (%.*s)", layer,
                 fl_model_layer_name(model, layer), FL_LAYER_NAME_MAX, kind);
    } else {
        snprintf(text, FL_LAYER_TEXT_MAX, "layer %d (%.*s)", layer, FL_LAYER_NAME_MAX, kind);
    }
    return text;
}

int fl_model_find_layer(const fl_model *model, const char *name)
{
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        if (strcmp(fl_model_layer_name(model, i), name) == 0) {
            return i;
        }
    }
    return -1;
}

/* What follows "<layer>." in the name of a parameter; NULL: it does not begin so. */
static const char *behind_layer(const char *name, const char *layer)
{
    size_t n = strlen(layer);
    return strncmp(name, layer, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

static int find_in_list(const fl_param_list *list, const char *name)
{
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->spec[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* "a, b and 3 more" */
static void list_params(const fl_param_list *list, char *text, size_t size_bytes)
{
    size_t n = 0;
    int i = 0;
    text[0] = '\0';
    while (i < list->n && n + strlen(list->spec[i].name) + 24 < size_bytes) {
        n += (size_t)snprintf(text + n, size_bytes - n, "%s%s", i == 0 ? "" : ", ",
                              list->spec[i].name);
        i++;
    }
    if (i < list->n) {
        snprintf(text + n, size_bytes - n, " and %d more", list->n - i);
    }
}

fl_status fl_model_find_param(const fl_model *model, const char *name, int *layer, int *param)
{
    int owner = -1;
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        const char *rest = behind_layer(name, fl_model_layer_name(model, i));
        int found = rest == NULL ? -1 : find_in_list(fl_model_params(model, i), rest);
        if (found >= 0) {
            *layer = i;
            *param = found;
            return FL_OK;
        }
        owner = rest == NULL ? owner : i;
    }
    if (owner < 0) {
        return fl_fail(FL_EINVAL, "model '%s' has no parameter '%.120s': no layer's name begins it",
                       fl_model_name(model), name);
    }
    char text[FL_LAYER_TEXT_MAX], params[256];
    list_params(fl_model_params(model, owner), params, sizeof params);
    return fl_fail(FL_EINVAL, "model '%s' has no parameter '%.120s': %s has %s",
                   fl_model_name(model), name, fl_model_layer_text(model, owner, text),
                   params[0] == '\0' ? "no parameters" : params);
}

/* Full names collide only where one layer's name begins the other's: "a" with "b.c", "a.b" with
 * "c". */
static int find_collision(const fl_param_list *shorter, const char *rest,
                          const fl_param_list *longer)
{
    for (int i = 0; i < shorter->n; i++) {
        const char *last = behind_layer(shorter->spec[i].name, rest);
        if (last != NULL && find_in_list(longer, last) >= 0) {
            return i;
        }
    }
    return -1;
}

static fl_status check_against(const fl_model *model, int other, const char *name,
                               const fl_param_list *params)
{
    char text[FL_LAYER_TEXT_MAX];
    const char *others = fl_model_layer_name(model, other);
    const fl_param_list *list = fl_model_params(model, other);
    if (strcmp(others, name) == 0) {
        return fl_fail(FL_EINVAL, "the name '%s' is that of %s", name,
                       fl_model_layer_text(model, other, text));
    }
    const char *rest = behind_layer(name, others);
    int i = rest == NULL ? -1 : find_collision(list, rest, params);
    if (i >= 0) {
        return fl_fail(FL_EINVAL, "the parameter '%s.%s' is also one of %s", others,
                       list->spec[i].name, fl_model_layer_text(model, other, text));
    }
    rest = behind_layer(others, name);
    i = rest == NULL ? -1 : find_collision(params, rest, list);
    if (i >= 0) {
        return fl_fail(FL_EINVAL, "the parameter '%s.%s' is also one of %s", name,
                       params->spec[i].name, fl_model_layer_text(model, other, text));
    }
    return FL_OK;
}

fl_status fl__check_layer_name(const fl_model *model, const char *name, const fl_param_list *params)
{
    FL_TRY(fl__check_name("the name", name, FL_LAYER_NAME_MAX));
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        FL_TRY(check_against(model, i, name, params));
    }
    return FL_OK;
}
