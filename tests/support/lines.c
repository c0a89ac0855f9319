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

cJSON *lines_with(const char *dir, const char *file, const char *text)
{
    char *line = NULL;
    size_t capacity = 0;
    cJSON *all = cJSON_CreateArray();
    FILE *lines = open_in(dir, file);
    while (getline(&line, &capacity, lines) > 0) {
        if (strstr(line, text) != NULL) {
            cJSON *one = cJSON_Parse(line);
            assert_non_null(one);
            cJSON_AddItemToArray(all, one);
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

int number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    assert_true(cJSON_IsNumber(item));
    return item->valueint;
}
