#include "data/tokenizer/files/files.h"

#include "device/system/alloc.h"
#include "device/text/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- bytes ---- */

static fl_status read_bytes(fl_token_file *file, int fd)
{
    size_t done = 0;
    while (done < file->n_bytes) {
        ssize_t got = read(fd, file->bytes + done, file->n_bytes - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fl_fail(FL_EIO, "%s: %s", file->path,
                           got == 0 ? "the file became shorter" : strerror(errno));
        }
        done += (size_t)got;
    }
    return FL_OK;
}

static fl_status load_bytes(fl_token_file *file, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", file->path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return fl_fail(FL_EIO, "%s is no regular file", file->path);
    }
    if (st.st_size > FL_TOKEN_FILE_BYTES_MAX) {
        return fl_fail(FL_EFORMAT, "%s: %lld bytes, allowed: at most %d", file->path,
                       (long long)st.st_size, FL_TOKEN_FILE_BYTES_MAX);
    }
    file->n_bytes = (size_t)st.st_size;
    FL_TRY(fl_alloc(file->n_bytes + 1, (void **)&file->bytes));
    return read_bytes(file, fd);
}

static fl_status check_utf8(const fl_token_file *file)
{
    int64_t line = 1;
    size_t line_begin = 0;
    uint32_t code;
    for (size_t at = 0, size; at < file->n_bytes; at += size) {
        size = fl_utf8_next(file->bytes + at, file->n_bytes - at, &code);
        if (size == 0) {
            return fl_fail(FL_EFORMAT, "%s: line %lld, byte %zu: 0x%02X is no UTF-8", file->path,
                           (long long)line, at - line_begin + 1, (unsigned char)file->bytes[at]);
        }
        if (code == '\n') {
            line++;
            line_begin = at + 1;
        }
    }
    return FL_OK;
}

fl_status fl__token_file_read(const char *folder, const char *name, fl_token_file *out)
{
    fl_token_file *file = out;
    *file = (fl_token_file){0};
    if (snprintf(file->path, sizeof file->path, "%s/%s", folder, name) >= (int)sizeof file->path) {
        return fl_fail(FL_EINVAL, "a path of more than %d bytes", PATH_MAX - 1);
    }
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        return FL_OK;
    }
    if (fd < 0) {
        return fl_fail(FL_EIO, "cannot open %s: %s", file->path, strerror(errno));
    }
    fl_status status = load_bytes(file, fd);
    close(fd);
    if (status == FL_OK) {
        status = check_utf8(file);
    }
    if (status != FL_OK) {
        fl__token_file_fini(file);
    }
    return status;
}

void fl__token_file_fini(fl_token_file *file)
{
    fl_free(file->bytes);
    file->bytes = NULL;
}

bool fl__token_lines_next(fl_token_lines *lines)
{
    const fl_token_file *file = lines->file;
    if (lines->at >= file->n_bytes) {
        return false;
    }
    lines->line = file->bytes + lines->at;
    const char *end = memchr(lines->line, '\n', file->n_bytes - lines->at);
    lines->n = end == NULL ? file->n_bytes - lines->at : (size_t)(end - lines->line);
    lines->at += lines->n + 1;
    lines->number++;
    if (end != NULL && lines->n > 0 && lines->line[lines->n - 1] == '\r') {
        lines->n--;
    }
    return true;
}

/* ---- JSON ---- */

fl_status fl__token_file_parse(const fl_token_file *file, json_t **out)
{
    json_error_t error;
    *out = json_loadb(file->bytes, file->n_bytes, JSON_REJECT_DUPLICATES, &error);
    /* transformers writes 10^30 as model_max_length where a tokenizer has no limit. */
    if (*out == NULL && json_error_code(&error) == json_error_numeric_overflow) {
        *out = json_loadb(file->bytes, file->n_bytes,
                          JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    }
    if (*out == NULL) {
        return fl_fail(FL_EFORMAT, "%s: line %d, column %d: no valid JSON: %s", file->path,
                       error.line, error.column, error.text);
    }
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return fl_fail(FL_EFORMAT, "%s: no JSON object", file->path);
    }
    return FL_OK;
}

/* A value in few words. */
static const char *describe_value(const json_t *value, char text[64])
{
    switch (value == NULL ? JSON_NULL : json_typeof(value)) {
    case JSON_STRING:
        snprintf(text, 64, "\"%.48s\"", json_string_value(value));
        return text;
    case JSON_INTEGER:
        snprintf(text, 64, "%lld", (long long)json_integer_value(value));
        return text;
    case JSON_REAL:
        snprintf(text, 64, "%g", json_real_value(value));
        return text;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_ARRAY:
        return "a list";
    case JSON_OBJECT:
        return "an object";
    default:
        return "nothing";
    }
}

fl_status fl__json_refuse(const fl_json_place *p, const char *key, const json_t *found,
                          const char *allowed)
{
    char text[64];
    return fl_fail(FL_EFORMAT, "%s: %s%s%s: found %s, allowed: %s", p->path, p->where,
                   *p->where == '\0' || *key == '\0' ? "" : ".", key, describe_value(found, text),
                   allowed);
}

fl_status fl__json_bool(const fl_json_place *p, const char *key, bool *out)
{
    const json_t *value = json_object_get(p->object, key);
    if (value == NULL || json_is_null(value)) {
        return FL_OK;
    }
    if (!json_is_boolean(value)) {
        return fl__json_refuse(p, key, value, "true or false");
    }
    *out = json_is_true(value);
    return FL_OK;
}

fl_status fl__json_text(const fl_json_place *p, const char *key, const char **out)
{
    const json_t *value = json_object_get(p->object, key);
    if (value == NULL || json_is_null(value)) {
        return FL_OK;
    }
    if (!json_is_string(value)) {
        return fl__json_refuse(p, key, value, "a text");
    }
    *out = json_string_value(value);
    return FL_OK;
}

fl_status fl__json_count(const fl_json_place *p, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(p->object, key);
    if (value == NULL || json_is_null(value)) {
        return FL_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return fl__json_refuse(p, key, value, "an integer from 0 up");
    }
    *out = json_integer_value(value);
    return FL_OK;
}
