#include "launcher/cli/ctl_show.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

enum { CELL_MAX = 64, COLUMNS_MAX = 24 };

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
        snprintf(text, size_bytes, "%s", json_string_value(value));
    } else if (json_is_integer(value)) {
        snprintf(text, size_bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        snprintf(text, size_bytes, "%.6g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        snprintf(text, size_bytes, "%s", json_is_true(value) ? "yes" : "no");
    } else {
        snprintf(text, size_bytes, "-");
    }
    for (char *c = text; *c != 0; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
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

static int widest(const json_t *rows, const char *key)
{
    int width = (int)strlen(key);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char cell[CELL_MAX];
        put_value(json_object_get(json_array_get(rows, i), key), cell, sizeof cell);
        width = (int)strlen(cell) > width ? (int)strlen(cell) : width;
    }
    return width;
}

/* The columns are the keys of the first row. */
static void show_table(json_t *rows, FILE *out)
{
    const char *key;
    json_t *value, *first = json_array_get(rows, 0);
    int width[COLUMNS_MAX], n = 0;
    json_object_foreach(first, key, value)
    {
        if (n < COLUMNS_MAX) {
            width[n] = widest(rows, key);
            fprintf(out, "  %*s", width[n], key);
            n++;
        }
    }
    fputc('\n', out);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        int column = 0;
        json_object_foreach(first, key, value)
        {
            char cell[CELL_MAX];
            if (column < n) {
                put_value(json_object_get(json_array_get(rows, i), key), cell, sizeof cell);
                fprintf(out, "  %*s", width[column++], cell);
            }
        }
        fputc('\n', out);
    }
}

void fl_ctl_show(const json_t *object, FILE *out)
{
    const char *key;
    json_t *value;
    char text[1024];
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
            fprintf(out, "%s\n", key);
            show_table(value, out);
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
    char text[1024];
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
