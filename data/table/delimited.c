/* TSV and CSV. In TSV a field is what stands between two tabs, quotes included; in CSV a field may
 * stand in quotes (RFC 4180). */
#include "data/table/rows.h"

#include "device/system/alloc.h"
#include "device/text/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Where reading is, and the fields of the record that was read last. */
typedef struct record_reader {
    fl_content *content;
    fl_table_format format;
    size_t at;
    int64_t line;  /* the number of the line that begins at `at` */
    int64_t begun; /* the line in which the record began */
    fl_text *field;
    size_t n, room;
} record_reader;

static fl_status add_field(record_reader *r, const char *bytes, size_t n_bytes)
{
    if (r->n == FL_TABLE_COLUMNS_MAX) {
        return fl_fail(FL_EFORMAT,
                       "%s: line %" PRId64 ": more columns found than the %d that are allowed",
                       r->content->path, r->begun, FL_TABLE_COLUMNS_MAX);
    }
    FL_TRY(fl_alloc_room((void **)&r->field, r->n, 1, sizeof *r->field, &r->room));
    r->field[r->n++] = (fl_text){.bytes = bytes, .n_bytes = n_bytes};
    return FL_OK;
}

/* The end of the line that holds `at`, without its LF, CR LF or, at the end of the file, CR;
 * *next: where the next one begins. */
static size_t find_line_end(const fl_content *c, size_t at, size_t *next)
{
    const char *feed = memchr(c->bytes + at, '\n', c->n_bytes - at);
    size_t end = feed == NULL ? c->n_bytes : (size_t)(feed - c->bytes);
    *next = feed == NULL ? end : end + 1;
    return end > at && c->bytes[end - 1] == '\r' ? end - 1 : end;
}

static fl_status read_tsv_record(record_reader *r)
{
    const char *bytes = r->content->bytes;
    size_t next, end = find_line_end(r->content, r->at, &next);
    for (size_t at = r->at;;) {
        const char *tab = memchr(bytes + at, '\t', end - at);
        size_t stop = tab == NULL ? end : (size_t)(tab - bytes);
        FL_TRY(add_field(r, bytes + at, stop - at));
        if (tab == NULL) {
            break;
        }
        at = stop + 1;
    }
    r->at = next;
    r->line++;
    return FL_OK;
}

/* ---- CSV ---- */

/* Behind a field: true if another one follows in the record. */
static bool end_csv_field(record_reader *r)
{
    const fl_content *c = r->content;
    if (r->at < c->n_bytes && c->bytes[r->at] == ',') {
        r->at++;
        return true;
    }
    r->at += r->at < c->n_bytes && c->bytes[r->at] == '\r';
    r->at += r->at < c->n_bytes;
    r->line++;
    return false;
}

/* Whether a field may end at `at`. */
static bool is_csv_end(const fl_content *c, size_t at)
{
    return at == c->n_bytes || c->bytes[at] == ',' || c->bytes[at] == '\n' ||
           (c->bytes[at] == '\r' && (at + 1 == c->n_bytes || c->bytes[at + 1] == '\n'));
}

static fl_status read_plain_field(record_reader *r)
{
    const fl_content *c = r->content;
    size_t begin = r->at;
    for (; !is_csv_end(c, r->at); r->at++) {
        if (c->bytes[r->at] == '"') {
            return fl_fail(FL_EFORMAT,
                           "%s: line %" PRId64
                           ", column %zu: a quote within a field found, allowed "
                           "only where the whole field stands in quotes, doubled",
                           c->path, r->line, r->n + 1);
        }
    }
    return add_field(r, c->bytes + begin, r->at - begin);
}

/* The text within quotes; doubled quotes become one, in place. */
static fl_status read_quoted_field(record_reader *r)
{
    const fl_content *c = r->content;
    size_t begin = ++r->at, to = begin;
    int64_t opened = r->line;
    for (; r->at < c->n_bytes; r->at++) {
        if (c->bytes[r->at] == '"' && (r->at + 1 == c->n_bytes || c->bytes[r->at + 1] != '"')) {
            break;
        }
        r->at += c->bytes[r->at] == '"';
        r->line += c->bytes[r->at] == '\n';
        c->bytes[to++] = c->bytes[r->at];
    }
    if (r->at == c->n_bytes) {
        return fl_fail(FL_EFORMAT,
                       "%s: line %" PRId64 ", column %zu: a quote found that no other one closes",
                       c->path, opened, r->n + 1);
    }
    r->at++;
    if (!is_csv_end(c, r->at)) {
        return fl_fail(FL_EFORMAT,
                       "%s: line %" PRId64 ", column %zu: text behind the closing quote found, "
                       "allowed: a comma or the end of the line; quotes of the text are doubled",
                       c->path, r->line, r->n + 1);
    }
    return add_field(r, c->bytes + begin, to - begin);
}

static fl_status read_csv_record(record_reader *r)
{
    const fl_content *c = r->content;
    do {
        bool quoted = r->at < c->n_bytes && c->bytes[r->at] == '"';
        FL_TRY(quoted ? read_quoted_field(r) : read_plain_field(r));
    } while (end_csv_field(r));
    return FL_OK;
}

/* ---- records ---- */

/* Read the next record that is not an empty line; *found: there was one. */
static fl_status read_record(record_reader *r, bool *found)
{
    const fl_content *c = r->content;
    *found = false;
    while (r->at < c->n_bytes) {
        if (c->bytes[r->at] == '\n') {
            r->at++;
            r->line++;
            continue;
        }
        size_t next, end = find_line_end(c, r->at, &next);
        if (end > r->at) {
            *found = true;
            r->begun = r->line;
            r->n = 0;
            return r->format == FL_TABLE_CSV ? read_csv_record(r) : read_tsv_record(r);
        }
        r->at = next;
        r->line++;
    }
    return FL_OK;
}

/* ---- columns ---- */

enum { ABSENT = -1 };

static bool has_names(const fl_table_columns *columns)
{
    int number;
    for (int u = 0; u < FL_TABLE_USES; u++) {
        if (columns->name[u] != NULL && !fl__table_column_number(columns->name[u], &number)) {
            return true;
        }
    }
    return false;
}

static fl_status find_number(const record_reader *r, fl_table_use use, const char *name, int number,
                             int *out)
{
    if (number < 1 || (size_t)number > r->n) {
        char allowed[32];
        snprintf(allowed, sizeof allowed, "1 to %zu", r->n);
        return fl__table_no_column(r->content, r->begun, use, name, allowed);
    }
    *out = number - 1;
    return FL_OK;
}

/* The place of the only column of this name. */
static fl_status find_name(const record_reader *r, fl_table_use use, const char *name, int *out)
{
    char names[FL_TABLE_NAMES_BYTES] = "";
    *out = ABSENT;
    for (size_t i = 0; i < r->n; i++) {
        const fl_text *field = &r->field[i];
        fl__table_names_add(names, *field);
        if (field->n_bytes != strlen(name) || memcmp(field->bytes, name, field->n_bytes) != 0) {
            continue;
        }
        if (*out != ABSENT) {
            return fl__table_two_columns(r->content, r->begun, use, name, *out + 1, (int)i + 1);
        }
        *out = (int)i;
    }
    return *out != ABSENT ? FL_OK : fl__table_no_column(r->content, r->begun, use, name, names);
}

/* The place of each wanted column in the first record. */
static fl_status find_columns(const record_reader *r, const fl_table_columns *columns,
                              int at[FL_TABLE_USES])
{
    for (int u = 0; u < FL_TABLE_USES; u++) {
        const char *name = columns->name[u];
        int number;
        at[u] = ABSENT;
        if (name == NULL) {
            continue;
        }
        fl_status status = fl__table_column_number(name, &number)
                               ? find_number(r, (fl_table_use)u, name, number, &at[u])
                               : find_name(r, (fl_table_use)u, name, &at[u]);
        bool needed = u != FL_TABLE_LABEL || !columns->label_optional;
        if (status != FL_OK && (needed || at[u] != ABSENT)) {
            return status;
        }
    }
    return FL_OK;
}

static fl_status take_record(const record_reader *r, const int at[FL_TABLE_USES], size_t n_columns,
                             int64_t first_line, fl_table_rows *rows)
{
    fl_table_row *row;
    char found[FL_COUNT_BYTES];
    if (r->n != n_columns) {
        return fl_fail(FL_EFORMAT,
                       "%s: line %" PRId64 ": %s found, %zu allowed, as in line %" PRId64,
                       r->content->path, r->begun, fl_count((int64_t)r->n, "column", found),
                       n_columns, first_line);
    }
    FL_TRY(fl__table_rows_add(rows, r->begun, &row));
    for (int u = 0; u < FL_TABLE_USES; u++) {
        if (at[u] != ABSENT) {
            row->cell[u] = r->field[at[u]];
        }
    }
    return FL_OK;
}

static fl_status read_records(record_reader *r, const fl_table_columns *columns,
                              fl_table_rows *rows)
{
    int at[FL_TABLE_USES];
    bool found, named = has_names(columns);
    FL_TRY(read_record(r, &found));
    if (!found) {
        return FL_OK;
    }
    size_t n_columns = r->n;
    int64_t first_line = r->begun;
    FL_TRY(find_columns(r, columns, at));
    if (named) {
        FL_TRY(read_record(r, &found));
    }
    while (found) {
        FL_TRY(take_record(r, at, n_columns, first_line, rows));
        FL_TRY(read_record(r, &found));
    }
    return FL_OK;
}

fl_status fl__table_delimited_read(fl_content *content, fl_table_format format,
                                   const fl_table_columns *columns, fl_table_rows *rows)
{
    record_reader r = {.content = content, .format = format, .line = 1};
    fl_status status = read_records(&r, columns, rows);
    fl_free(r.field);
    return status;
}
