/* JSON Lines: an object a line. */
#include "data/table/rows.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Where the decoded cells of a line go: its own bytes, which jansson has read. A decoded text is
 * never longer than what stands in the file. */
typedef struct cell_writer {
    char *to;
    size_t room;
} cell_writer;

static fl_text write_cell(cell_writer *w, const char *bytes, size_t n_bytes)
{
    fl_text cell = {.bytes = w->to, .n_bytes = n_bytes};
    memcpy(w->to, bytes, n_bytes);
    w->to += n_bytes;
    w->room -= n_bytes;
    return cell;
}

static const char *kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

static fl_status read_cell(const fl_content *c, int64_t line, fl_table_use use, const char *name,
                           const json_t *value, cell_writer *w, fl_text *out)
{
    char digits[24];
    const char *bytes = digits;
    size_t n_bytes;
    if (json_is_string(value)) {
        bytes = json_string_value(value);
        n_bytes = json_string_length(value);
    } else if (json_is_integer(value) && use == FL_TABLE_LABEL) {
        n_bytes =
            (size_t)snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(value));
    } else {
        return fl_fail(FL_EFORMAT, "%s: line %" PRId64 ": '%s': %s found, allowed: %s", c->path,
                       line, name, kind_of(value),
                       use == FL_TABLE_LABEL ? "a text or an integer" : "a text");
    }
    if (memchr(bytes, '\0', n_bytes) != NULL) {
        return fl_fail(FL_EFORMAT, "%s: line %" PRId64 ": '%s': a zero byte found, text allowed",
                       c->path, line, name);
    }
    if (n_bytes > w->room) {
        return fl_fail(FL_EINTERNAL, "%s: line %" PRId64 ": a cell that is longer than its line",
                       c->path, line);
    }
    *out = write_cell(w, bytes, n_bytes);
    return FL_OK;
}

static fl_status refuse_key(const fl_content *c, int64_t line, fl_table_use use, const char *name,
                            json_t *object)
{
    char names[FL_TABLE_NAMES_BYTES] = "";
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        fl__table_names_add(names, (fl_text){.bytes = key, .n_bytes = strlen(key)});
    }
    return fl__table_no_column(c, line, use, name, names[0] == '\0' ? "no name at all" : names);
}

/* Two uses may have one column: its cell is then decoded once. */
static const fl_text *find_same(const fl_table_columns *columns, int use, const fl_table_row *row)
{
    for (int u = 0; u < use; u++) {
        if (columns->name[u] != NULL && strcmp(columns->name[u], columns->name[use]) == 0) {
            return &row->cell[u];
        }
    }
    return NULL;
}

static fl_status read_object(const fl_content *c, const fl_table_columns *columns, json_t *object,
                             cell_writer *w, fl_table_row *row)
{
    for (int u = 0; u < FL_TABLE_USES; u++) {
        const char *name = columns->name[u];
        if (name == NULL) {
            continue;
        }
        const fl_text *same = find_same(columns, u, row);
        json_t *value = json_object_get(object, name);
        if (same != NULL) {
            row->cell[u] = *same;
        } else if (value != NULL) {
            FL_TRY(read_cell(c, row->line, (fl_table_use)u, name, value, w, &row->cell[u]));
        } else if (u != FL_TABLE_LABEL || !columns->label_optional) {
            return refuse_key(c, row->line, (fl_table_use)u, name, object);
        }
    }
    return FL_OK;
}

static fl_status read_line(const fl_content *c, const fl_table_columns *columns, char *line,
                           size_t n, fl_table_row *row)
{
    json_error_t error;
    json_t *object =
        json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (object == NULL) {
        return fl_fail(FL_EFORMAT, "%s: line %" PRId64 ", byte %d: no valid JSON: %s", c->path,
                       row->line, error.position, error.text);
    }
    cell_writer w = {.to = line, .room = n};
    fl_status status =
        json_is_object(object)
            ? read_object(c, columns, object, &w, row)
            : fl_fail(FL_EFORMAT, "%s: line %" PRId64 ": %s found, allowed: an object a line",
                      c->path, row->line, kind_of(object));
    json_decref(object);
    return status;
}

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

fl_status fl__table_jsonl_read(fl_content *content, const fl_table_columns *columns,
                               fl_table_rows *rows)
{
    int64_t number = 1;
    for (size_t at = 0, n; at < content->n_bytes; at += n + 1, number++) {
        char *line = content->bytes + at;
        const char *end = memchr(line, '\n', content->n_bytes - at);
        fl_table_row *row;
        n = end == NULL ? content->n_bytes - at : (size_t)(end - line);
        if (!is_blank(line, n)) {
            FL_TRY(fl__table_rows_add(rows, number, &row));
            FL_TRY(read_line(content, columns, line, n, row));
        }
    }
    return FL_OK;
}
