/* Single fields of config.json. */
#include "launcher/hf/hf_family.h"
#include "launcher/job/text/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 48, ALLOWED = 256 };

fl_status fl__hf_refuse(const fl_hf_config *c, const char *key, const json_t *found,
                        const char *allowed)
{
    char shown[FL_SHOWN_MAX] = "nothing";
    char *text = found == NULL ? NULL : json_dumps(found, JSON_ENCODE_ANY);
    if (text != NULL) {
        fl_shown(text, strnlen(text, SHOWN), shown);
    }
    free(text);
    return fl_fail(FL_EFORMAT, "%s: %s: found %s, allowed: %s", c->path, key, shown, allowed);
}

static const json_t *get_member(const fl_hf_config *c, const char *key)
{
    const json_t *value = json_object_get(c->root, key);
    return json_is_null(value) ? NULL : value;
}

fl_status fl__hf_integer(const fl_hf_config *c, const char *key, int64_t initial, int64_t least,
                         int64_t most, int64_t *out)
{
    const json_t *value = get_member(c, key);
    char allowed[ALLOWED];
    *out = value == NULL ? initial : (int64_t)json_integer_value(value);
    if ((value == NULL || json_is_integer(value)) && *out >= least && *out <= most) {
        return FL_OK;
    }
    snprintf(allowed, sizeof allowed, "an integer from %" PRId64 " to %" PRId64, least, most);
    return fl__hf_refuse(c, key, value, allowed);
}

fl_status fl__hf_share(const fl_hf_config *c, const char *key, double initial, float *out)
{
    const json_t *value = get_member(c, key);
    *out = (float)(value == NULL ? initial : json_number_value(value));
    bool good = value == NULL || json_is_number(value);
    return good && *out >= 0.0f && *out < 1.0f
               ? FL_OK
               : fl__hf_refuse(c, key, value, "a number from 0 to below 1");
}

fl_status fl__hf_positive(const fl_hf_config *c, const char *key, double initial, float *out)
{
    const json_t *value = get_member(c, key);
    *out = (float)(value == NULL ? initial : json_number_value(value));
    bool good = value == NULL || json_is_number(value);
    return good && *out > 0.0f && isfinite(*out) ? FL_OK
                                                 : fl__hf_refuse(c, key, value, "a number above 0");
}

fl_status fl__hf_word(const fl_hf_config *c, const char *key, const char *const *words, int *out)
{
    const json_t *value = get_member(c, key);
    const char *text = value == NULL ? words[0] : json_string_value(value);
    char allowed[ALLOWED];
    size_t used = 0;
    for (int i = 0; words[i] != NULL; i++) {
        if (text != NULL && strcmp(text, words[i]) == 0) {
            *out = i;
            return FL_OK;
        }
        if (used < sizeof allowed) {
            used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s",
                                     i == 0 ? "" : ", ", words[i]);
        }
    }
    return fl__hf_refuse(c, key, value, allowed);
}

fl_status fl__hf_activation(const fl_hf_config *c, const char *key, fl_activation initial,
                            fl_activation *out)
{
    static const char *const words[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish",
                                        "tanh", NULL};
    static const fl_activation kinds[] = {FL_ACT_GELU_ERF, FL_ACT_GELU_TANH, FL_ACT_GELU_TANH,
                                          FL_ACT_SILU,     FL_ACT_SILU,      FL_ACT_TANH};
    int i = 0;
    *out = initial;
    if (get_member(c, key) == NULL) {
        return FL_OK;
    }
    FL_TRY(fl__hf_word(c, key, words, &i));
    *out = kinds[i];
    return FL_OK;
}

fl_status fl__hf_heads(const fl_hf_config *c, const char *key, int64_t heads, const char *dim_key,
                       int64_t dim)
{
    char allowed[ALLOWED];
    snprintf(allowed, sizeof allowed, "a divisor of %s, %" PRId64, dim_key, dim);
    return dim % heads == 0 ? FL_OK : fl__hf_refuse(c, key, json_object_get(c->root, key), allowed);
}

static bool is_unset(const json_t *value)
{
    bool is_empty = (json_is_array(value) && json_array_size(value) == 0) ||
                    (json_is_object(value) && json_object_size(value) == 0);
    return value == NULL || json_is_false(value) || is_empty;
}

fl_status fl__hf_unset(const fl_hf_config *c, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        const json_t *value = get_member(c, *keys);
        if (!is_unset(value)) {
            return fl__hf_refuse(c, *keys, value, "nothing: Frostline has no such variant");
        }
    }
    return FL_OK;
}

fl_status fl__hf_set(const fl_hf_config *c, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        const json_t *value = get_member(c, *keys);
        if (value != NULL && !json_is_true(value)) {
            return fl__hf_refuse(c, *keys, value, "true: Frostline has no such variant");
        }
    }
    return FL_OK;
}
