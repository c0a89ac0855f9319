#include "support/lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static FILE *open_in(const char *dir, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *lines = fopen(path, "re");
    assert_non_null(lines);
    return lines;
}

json_t *lines_with(const char *dir, const char *file, const char *text)
{
    char *line = NULL;
    size_t capacity = 0;
    json_t *all = json_array();
    FILE *lines = open_in(dir, file);
    while (getline(&line, &capacity, lines) > 0) {
        if (strstr(line, text) != NULL) {
            json_t *one = json_loads(line, 0, NULL);
            assert_non_null(one);
            assert_int_equal(json_array_append_new(all, one), 0);
        }
    }
    free(line);
    fclose(lines);
    return all;
}

int count_events(const char *dir, const char *event, const char *text)
{
    char *line = NULL;
    size_t capacity = 0;
    int n = 0;
    FILE *lines = open_in(dir, "events.jsonl");
    while (getline(&line, &capacity, lines) > 0) {
        n += strstr(line, event) != NULL && strstr(line, text) != NULL;
    }
    free(line);
    fclose(lines);
    return n;
}

int length(const json_t *array)
{
    assert_true(json_is_array(array));
    return (int)json_array_size(array);
}

int number(const json_t *object, const char *key)
{
    const json_t *item = json_object_get(object, key);
    assert_true(json_is_number(item));
    return (int)json_number_value(item);
}
