/* Checks run in this order: size, depth, form (jansson: also UTF-8 and duplicate keys), version,
 * id, command, arguments. Depth is checked before the parser runs, because the parser recurses. */
#include "control/socket/ctl_request.h"

#include "device/random/random.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Larger integers are not exact as doubles. */
static const double INTEGER_MOST = 9007199254740992.0;

const char *fl_ctl_error_text(fl_ctl_error error)
{
#define FL_CTL_AS_TEXT(name, text) text,
    static const char *const texts[] = {FL_CTL_ERROR_MAP(FL_CTL_AS_TEXT)};
#undef FL_CTL_AS_TEXT
    return texts[error];
}

static fl_ctl_error refuse_request(fl_ctl_error error, char message[FL_CTL_MESSAGE_MAX],
                                   const char *format, ...) FL_PRINTF(3, 4);

static fl_ctl_error refuse_request(fl_ctl_error error, char message[FL_CTL_MESSAGE_MAX],
                                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, FL_CTL_MESSAGE_MAX, format, args);
    va_end(args);
    return error;
}

/* ---- form ---- */

/* Brackets within strings do not count. */
static int depth_of(const char *text, size_t n)
{
    int depth = 0, most = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (in_string && text[i] == '\\') {
            i++;
        } else if (in_string) {
            in_string = text[i] != '"';
        } else if (text[i] == '"') {
            in_string = true;
        } else if (text[i] == '{' || text[i] == '[') {
            depth++;
            most = depth > most ? depth : most;
        } else if (text[i] == '}' || text[i] == ']') {
            depth--;
        }
    }
    return most;
}

static uint64_t fingerprint_of(const char *text, size_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) {
        hash = fl_mix64(hash, (unsigned char)text[i]);
    }
    return hash;
}

static fl_ctl_error read_id(json_t *root, fl_ctl_request *request, char *message)
{
    const json_t *id = json_object_get(root, "id");
    size_t n = json_string_length(id);
    if (!json_is_string(id) || n < 1 || n > FL_CTL_ID_MAX) {
        return refuse_request(FL_CTL_BAD_REQUEST, message,
                              "id: a string of 1 to %d bytes is needed", FL_CTL_ID_MAX);
    }
    memcpy(request->id, json_string_value(id), n + 1);
    return FL_CTL_OK;
}

static fl_ctl_error check_keys(json_t *root, char *message)
{
    static const char *const known[] = {"v", "id", "cmd", "args"};
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        bool found = false;
        for (int i = 0; i < 4; i++) {
            found = found || strcmp(key, known[i]) == 0;
        }
        if (!found) {
            return refuse_request(FL_CTL_BAD_REQUEST, message,
                                  "unknown key \"%.64s\"; allowed: v, id, cmd, args", key);
        }
    }
    return FL_CTL_OK;
}

/* ---- arguments ---- */

const char *fl_ctl_allowed(const fl_ctl_arg *arg, char *text, size_t size_bytes)
{
    int n = 0;
    switch (arg->type) {
    case FL_CTL_INTEGER:
        snprintf(text, size_bytes, "an integer from %.0f to %.0f", arg->least, arg->most);
        break;
    case FL_CTL_NUMBER:
        snprintf(text, size_bytes, "a number from %g to %g", arg->least, arg->most);
        break;
    case FL_CTL_CHOICE:
        text[0] = 0;
        for (int i = 0; arg->choices[i] != NULL && (size_t)n < size_bytes; i++) {
            n += snprintf(text + n, size_bytes - (size_t)n, "%s%s", i == 0 ? "" : ", ",
                          arg->choices[i]);
        }
        break;
    case FL_CTL_HOST:
        snprintf(text, size_bytes, "a name of 1 to %d bytes", FL_CTL_TEXT_MAX);
        break;
    case FL_CTL_FIELD_VALUE:
        snprintf(text, size_bytes, "a number or a word");
        break;
    }
    return text;
}

static bool take_word(const json_t *json, fl_ctl_value *value)
{
    size_t n = json_string_length(json);
    if (!json_is_string(json) || n < 1 || n > FL_CTL_TEXT_MAX) {
        return false;
    }
    memcpy(value->text, json_string_value(json), n + 1);
    return true;
}

static bool take_choice(const fl_ctl_arg *arg, const json_t *json, fl_ctl_value *value)
{
    if (!take_word(json, value)) {
        return false;
    }
    for (int i = 0; arg->choices[i] != NULL; i++) {
        if (strcmp(arg->choices[i], value->text) == 0) {
            value->integer = i;
            return true;
        }
    }
    return false;
}

static bool take_number(const json_t *json, fl_ctl_value *value)
{
    value->number = json_number_value(json);
    if (!json_is_number(json) || !(fabs(value->number) <= INTEGER_MOST)) {
        return false;
    }
    value->integer = json_is_integer(json) ? (int64_t)json_integer_value(json) : 0;
    snprintf(value->text, sizeof value->text, "%.17g", value->number);
    return true;
}

static bool take_value(const fl_ctl_arg *arg, const json_t *json, fl_ctl_value *value)
{
    value->given = true;
    switch (arg->type) {
    case FL_CTL_INTEGER:
        return json_is_integer(json) && take_number(json, value) && value->number >= arg->least &&
               value->number <= arg->most;
    case FL_CTL_NUMBER:
        return take_number(json, value) && value->number >= arg->least &&
               value->number <= arg->most;
    case FL_CTL_CHOICE:
        return take_choice(arg, json, value);
    case FL_CTL_HOST:
        return take_word(json, value);
    case FL_CTL_FIELD_VALUE:
        return take_word(json, value) || take_number(json, value);
    }
    return false;
}

static int find_arg(const fl_ctl_command *command, const char *name)
{
    for (int i = 0; command->args[i].name != NULL; i++) {
        if (strcmp(command->args[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static fl_ctl_error read_args(json_t *args, fl_ctl_request *request, char *message)
{
    const fl_ctl_command *command = request->command;
    const char *key;
    json_t *value;
    char allowed[256];
    if (args != NULL && !json_is_object(args)) {
        return refuse_request(FL_CTL_BAD_REQUEST, message, "args: an object is needed");
    }
    json_object_foreach(args, key, value)
    {
        int i = find_arg(command, key);
        if (i < 0) {
            return refuse_request(FL_CTL_BAD_ARGUMENT, message, "%s has no argument \"%.64s\"",
                                  command->name, key);
        }
        if (!take_value(&command->args[i], value, &request->value[i])) {
            return refuse_request(FL_CTL_BAD_ARGUMENT, message, "%s: allowed: %s", key,
                                  fl_ctl_allowed(&command->args[i], allowed, sizeof allowed));
        }
    }
    for (int i = 0; command->args[i].name != NULL; i++) {
        if (command->args[i].required && !request->value[i].given) {
            return refuse_request(FL_CTL_BAD_ARGUMENT, message, "%s: missing; allowed: %s",
                                  command->args[i].name,
                                  fl_ctl_allowed(&command->args[i], allowed, sizeof allowed));
        }
    }
    return FL_CTL_OK;
}

/* ---- the whole request ---- */

static fl_ctl_error read_root(json_t *root, fl_ctl_request *request, char *message)
{
    const json_t *version = json_object_get(root, "v"), *cmd = json_object_get(root, "cmd");
    fl_ctl_error error = read_id(root, request, message);
    if (error != FL_CTL_OK) {
        return error;
    }
    if (!json_is_integer(version) || json_integer_value(version) != FL_CTL_VERSION) {
        return refuse_request(FL_CTL_BAD_VERSION, message,
                              "v: %d is the version that this run supports", FL_CTL_VERSION);
    }
    error = check_keys(root, message);
    if (error != FL_CTL_OK) {
        return error;
    }
    if (!json_is_string(cmd)) {
        return refuse_request(FL_CTL_BAD_REQUEST, message, "cmd: a string is needed");
    }
    request->command = fl_ctl_command_find(json_string_value(cmd));
    if (request->command == NULL) {
        return refuse_request(FL_CTL_UNKNOWN_COMMAND, message, "there is no command \"%.64s\"",
                              json_string_value(cmd));
    }
    return read_args(json_object_get(root, "args"), request, message);
}

fl_ctl_error fl_ctl_request_read(const char *text, size_t size_bytes, fl_ctl_request *request,
                                 char message[FL_CTL_MESSAGE_MAX])
{
    json_error_t where;
    *request = (fl_ctl_request){.command = NULL};
    message[0] = 0;
    if (size_bytes > FL_CTL_REQUEST_MAX) {
        return refuse_request(FL_CTL_BAD_REQUEST, message, "%zu bytes; allowed: up to %d",
                              size_bytes, FL_CTL_REQUEST_MAX);
    }
    if (depth_of(text, size_bytes) > FL_CTL_DEPTH_MAX) {
        return refuse_request(FL_CTL_BAD_REQUEST, message, "brackets are nested more than %d deep",
                              FL_CTL_DEPTH_MAX);
    }
    json_t *root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        return refuse_request(FL_CTL_BAD_REQUEST, message, "not JSON at byte %d: %s",
                              where.position, where.text);
    }
    request->fingerprint = fingerprint_of(text, size_bytes);
    fl_ctl_error error = json_is_object(root)
                             ? read_root(root, request, message)
                             : refuse_request(FL_CTL_BAD_REQUEST, message, "an object is needed");
    json_decref(root);
    return error;
}
