#include "data/table/rows.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const fields[FL_TABLE_USES] = {"data.text", "data.pair", "data.label"};

/* ---- the format, by the name ---- */

static bool ends_with(const char *name, size_t n, const char *ending)
{
    size_t m = strlen(ending);
    return n > m && strncasecmp(name + n - m, ending, m) == 0;
}

fl_status fl__table_format_find(const char *path, fl_table_format *out)
{
    static const struct {
        const char *ending;
        fl_table_format format;
    } formats[] = {{".tsv", FL_TABLE_TSV},
                   {".csv", FL_TABLE_CSV},
                   {".jsonl", FL_TABLE_JSONL},
                   {".ndjson", FL_TABLE_JSONL}};
    size_t n = strlen(path);
    n -= ends_with(path, n, ".gz") ? 3 : 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (ends_with(path, n, formats[i].ending)) {
            *out = formats[i].format;
            return FL_OK;
        }
    }
    return fl_fail(FL_EINVAL,
                   "%s: the name does not tell the format, allowed: a name that ends in .tsv, "
                   ".csv, .jsonl or .ndjson, or in one of them and .gz",
                   path);
}

/* ---- columns and cells ---- */

bool fl__table_column_number(const char *name, int *number)
{
    size_t n = strlen(name);
    if (n == 0 || n > 9 || strspn(name, "0123456789") != n) {
        return false;
    }
    *number = atoi(name);
    return true;
}

fl_status fl__table_rows_add(fl_table_rows *rows, int64_t line, fl_table_row **out)
{
    const fl_content *c = rows->content;
    if (rows->n == rows->room) {
        FL_TRY(fl__memory_share_check(&c->share, c->path, line,
                                      c->n_bytes + (rows->n + 1) * sizeof *rows->row));
    }
    FL_TRY(fl_alloc_room((void **)&rows->row, rows->n, 1, sizeof *rows->row, &rows->room));
    *out = &rows->row[rows->n++];
    **out = (fl_table_row){.line = line};
    return FL_OK;
}

const char *fl__table_shown(fl_text text, char shown[FL_TABLE_SHOWN_BYTES])
{
    enum { ROOM = FL_TABLE_SHOWN_BYTES - sizeof "..." };
    size_t n = 0;
    uint32_t code;
    for (size_t size; n < text.n_bytes; n += size) {
        size = fl_utf8_next(text.bytes + n, text.n_bytes - n, &code);
        size = size == 0 ? 1 : size;
        if (n + size > ROOM) {
            break;
        }
        memcpy(shown + n, text.bytes + n, size);
        if (code < 0x20 || code == 0x7F) {
            shown[n] = '?';
        }
    }
    snprintf(shown + n, FL_TABLE_SHOWN_BYTES - n, "%s", n < text.n_bytes ? "..." : "");
    return shown;
}

void fl__table_names_add(char text[FL_TABLE_NAMES_BYTES], fl_text name)
{
    static const char rest[] = ", ...";
    char shown[FL_TABLE_SHOWN_BYTES];
    size_t used = strlen(text), tail = sizeof rest - 1;
    if (used >= tail && strcmp(text + used - tail, rest) == 0) {
        return;
    }
    fl__table_shown(name, shown);
    if (used + strlen(shown) + sizeof ", ''" + tail > FL_TABLE_NAMES_BYTES) {
        snprintf(text + used, FL_TABLE_NAMES_BYTES - used, "%s", rest);
    } else {
        snprintf(text + used, FL_TABLE_NAMES_BYTES - used, "%s'%s'", used == 0 ? "" : ", ", shown);
    }
}

fl_status fl__table_no_column(const fl_content *content, int64_t line, fl_table_use use,
                              const char *name, const char *allowed)
{
    return fl_fail_field(FL_EFORMAT, FL_FIELDS(fields[use]),
                         "%s: line %" PRId64 ": no column '%s' found, allowed: %s", content->path,
                         line, name, allowed);
}

fl_status fl__table_two_columns(const fl_content *content, int64_t line, fl_table_use use,
                                const char *name, int first, int second)
{
    return fl_fail_field(FL_EFORMAT, FL_FIELDS(fields[use]),
                         "%s: line %" PRId64 ": columns %d and %d are both named '%s', allowed: "
                         "a name that one column has, or a number",
                         content->path, line, first, second, name);
}

fl_status fl__table_rows_read(fl_content *content, const fl_table_columns *columns,
                              fl_table_rows *out)
{
    fl_table_rows rows = {.content = content};
    fl_table_format format = FL_TABLE_TSV;
    FL_TRY(fl__table_format_find(content->path, &format));
    fl_status status = format == FL_TABLE_JSONL
                           ? fl__table_jsonl_read(content, columns, &rows)
                           : fl__table_delimited_read(content, format, columns, &rows);
    if (status == FL_OK && rows.n == 0) {
        status = fl_fail(FL_EFORMAT, "%s: no row found, at least one allowed", content->path);
    }
    if (status == FL_OK) {
        *out = rows;
    } else {
        fl__table_rows_fini(&rows);
    }
    return status;
}

void fl__table_rows_fini(fl_table_rows *rows)
{
    fl_free(rows->row);
    *rows = (fl_table_rows){0};
}

/* ---- texts to encode ---- */

static void get_row(const void *self, size_t i, fl_text *text, fl_text *pair)
{
    const fl_table_rows *rows = self;
    *text = rows->row[i].cell[FL_TABLE_TEXT];
    *pair = rows->row[i].cell[FL_TABLE_PAIR];
}

static void place_row(const void *self, size_t i, char place[FL_PLACE_BYTES])
{
    const fl_table_rows *rows = self;
    snprintf(place, FL_PLACE_BYTES, "%s: line %" PRId64, rows->content->path, rows->row[i].line);
}

fl_text_list fl__table_texts(const fl_table_rows *rows)
{
    return (fl_text_list){.self = rows, .n = rows->n, .get = get_row, .place = place_row};
}
