#include "launcher/cli/ctl/ctl_show.h"

#include "device/text/shown_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

enum { CELL_MAX = 64, TEXT_MAX = 1024, COLUMNS_MAX = 24 };

static bool is_plain(const json_t *value)
{
    return !json_is_object(value) && !json_is_array(value);
}

/* A plain value, or an array of them, as text; control characters do not reach the terminal. */
static void put_value(const json_t *value, char *text, size_t size_bytes)
{
    size_t n = 0;
    text[0] = 0;
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && n < size_bytes; i++) {
            char one[CELL_MAX];
            put_value(json_array_get(value, i), one, sizeof one);
            n += (size_t)snprintf(text + n, size_bytes - n, "%s%s", i == 0 ? "" : " ", one);
        }
    } else if (json_is_string(value)) {
        fl_text_shown(json_string_value(value), text, size_bytes);
    } else if (json_is_integer(value)) {
        snprintf(text, size_bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        snprintf(text, size_bytes, "%.6g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        snprintf(text, size_bytes, "%s", json_is_true(value) ? "yes" : "no");
    } else {
        snprintf(text, size_bytes, "-");
    }
}

/* Epochs count from 0 for programs, and from 1 for people. */
static void put_field(const char *key, const json_t *value, char *text, size_t size_bytes)
{
    if (strcmp(key, "epoch") == 0 && json_is_integer(value)) {
        snprintf(text, size_bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value) + 1);
    } else {
        put_value(value, text, size_bytes);
    }
}

/* The cell of a column; what is longer follows the row, on a line of its own. whole [TEXT_MAX].
 * Returns whether it does. */
static bool put_cell(const json_t *row, const char *key, char cell[CELL_MAX], char *whole)
{
    put_value(json_object_get(row, key), whole, TEXT_MAX);
    bool fits = strlen(whole) < CELL_MAX;
    snprintf(cell, CELL_MAX, "%.*s", CELL_MAX - 1, fits ? whole : "(below)");
    return !fits;
}

static int widest(const json_t *rows, const char *key)
{
    int width = (int)strlen(key);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char cell[CELL_MAX], whole[TEXT_MAX];
        put_cell(json_array_get(rows, i), key, cell, whole);
        width = (int)strlen(cell) > width ? (int)strlen(cell) : width;
    }
    return width;
}

/* The values of a row in the columns of the first one. */
static void show_row(const json_t *first, const json_t *row, const int *width, int n, FILE *out)
{
    const char *key;
    json_t *value;
    char cell[CELL_MAX], whole[TEXT_MAX];
    int column = 0;
    json_object_foreach((json_t *)first, key, value)
    {
        if (column < n) {
            put_cell(row, key, cell, whole);
            fprintf(out, "  %*s", width[column++], cell);
        }
    }
    fputc('\n', out);
    column = 0;
    json_object_foreach((json_t *)first, key, value)
    {
        if (column++ < n && put_cell(row, key, cell, whole)) {
            fprintf(out, "    %s: %s\n", key, whole);
        }
    }
}

/* The columns are the keys of the first row. */
static void show_table(const json_t *rows, FILE *out)
{
    const char *key;
    json_t *value;
    const json_t *first = json_array_get(rows, 0);
    int width[COLUMNS_MAX], n = 0;
    json_object_foreach((json_t *)first, key, value)
    {
        if (n < COLUMNS_MAX) {
            width[n] = widest(rows, key);
            fprintf(out, "  %*s", width[n], key);
            n++;
        }
    }
    fputc('\n', out);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        show_row(first, json_array_get(rows, i), width, n, out);
    }
}

/* ---- flight ---- */

enum { RECENT_SHOWN = 8 };

/* "forward  step 12  micro_batch 3  0.002100 s ago" */
static void show_operation(const char *state, const json_t *operation, FILE *out)
{
    const char *key;
    json_t *value;
    char text[CELL_MAX];
    put_value(json_object_get(operation, "operation"), text, sizeof text);
    fprintf(out, "    %-7s %-16s", state, text);
    json_object_foreach((json_t *)operation, key, value)
    {
        if (strcmp(key, "operation") != 0 && strcmp(key, "generation") != 0) {
            put_value(value, text, sizeof text);
            fprintf(out, "  %s %s", key, text);
        }
    }
    fputc('\n', out);
}

/* The operations that a thread is inside of, the outermost first; then the newest finished ones. */
static void show_thread(const json_t *rank, const json_t *thread, FILE *out)
{
    const json_t *inside = json_object_get(thread, "inside");
    const json_t *recent = json_object_get(thread, "recent");
    size_t n = json_array_size(recent);
    char worker[CELL_MAX], name[CELL_MAX];
    put_value(rank, worker, sizeof worker);
    put_value(json_object_get(thread, "thread"), name, sizeof name);
    fprintf(out, "  worker %s, thread %s\n", worker, name);
    for (size_t i = 0; i < json_array_size(inside); i++) {
        show_operation("inside", json_array_get(inside, i), out);
    }
    for (size_t i = n > RECENT_SHOWN ? n - RECENT_SHOWN : 0; i < n; i++) {
        show_operation("done", json_array_get(recent, i), out);
    }
}

static void show_threads(const json_t *workers, FILE *out)
{
    for (size_t i = 0; i < json_array_size(workers); i++) {
        const json_t *worker = json_array_get(workers, i);
        const json_t *threads = json_object_get(worker, "threads");
        for (size_t k = 0; k < json_array_size(threads); k++) {
            show_thread(json_object_get(worker, "rank"), json_array_get(threads, k), out);
        }
    }
}

/* ---- any reply ---- */

void fl_ctl_show(const json_t *object, FILE *out)
{
    const char *key;
    json_t *value;
    char text[TEXT_MAX];
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
            bool of_flight = json_object_get(json_array_get(value, 0), "threads") != NULL;
            fprintf(out, "%s\n", key);
            (of_flight ? show_threads : show_table)(value, out);
        } else if (json_is_object(value)) {
            const char *inner;
            json_t *field;
            fprintf(out, "%-18s", key);
            json_object_foreach(value, inner, field)
            {
                put_value(field, text, sizeof text);
                fprintf(out, " %s=%s", inner, text);
            }
            fputc('\n', out);
        } else {
            put_field(key, value, text, sizeof text);
            fprintf(out, "%-18s %s\n", key, text);
        }
    }
}

void fl_ctl_show_event(const json_t *event, FILE *out)
{
    static const char *const shown_apart[] = {"time", "wall", "event", "generation"};
    const char *key;
    json_t *value;
    char text[TEXT_MAX];
    put_value(json_object_get(event, "event"), text, sizeof text);
    fprintf(out, "%9.3f %-20s", json_number_value(json_object_get(event, "time")), text);
    json_object_foreach((json_t *)event, key, value)
    {
        bool apart = !is_plain(value);
        for (int i = 0; i < 4; i++) {
            apart = apart || strcmp(key, shown_apart[i]) == 0;
        }
        if (!apart) {
            put_field(key, value, text, sizeof text);
            fprintf(out, " %s=%s", key, text);
        }
    }
    fputc('\n', out);
}
