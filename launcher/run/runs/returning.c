#include "launcher/run/runs/returning.h"

#include "device/system/files/regular_file.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETURNING "\"event\": \"run.returning\""
#define RESUMED "\"event\": \"run.resumed\""

long fl_seconds_since(const char *wall)
{
    struct tm at = {.tm_isdst = 0};
    time_t now = time(NULL);
    if (wall == NULL || strptime(wall, "%Y-%m-%dT%H:%M:%S", &at) == NULL) {
        return -1;
    }
    time_t then = timegm(&at);
    return now < then ? 0 : (long)(now - then);
}

static void put_return(const char *line, int n, char text[FL_RETURNING_TEXT])
{
    json_t *event = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    const char *why = json_string_value(json_object_get(event, "why"));
    const char *to = json_string_value(json_object_get(event, "to"));
    long s = fl_seconds_since(json_string_value(json_object_get(event, "wall")));
    if (why != NULL && to != NULL && s >= 0) {
        snprintf(text, FL_RETURNING_TEXT,
                 "for %ld s, return %d, from step %" JSON_INTEGER_FORMAT
                 " to step %" JSON_INTEGER_FORMAT " (%.40s): %.600s",
                 s, n, json_integer_value(json_object_get(event, "steps")),
                 json_integer_value(json_object_get(event, "step")), to, why);
    }
    json_decref(event);
}

const char *fl_run_returning(const char *path, char text[FL_RETURNING_TEXT])
{
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : fl_regular_file_open(dir, "events.jsonl", NULL);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t capacity = 0;
    int n = 1; /* returns before it have become a run.resumed */
    text[0] = '\0';
    while (file != NULL && getline(&line, &capacity, file) > 0) {
        if (strstr(line, RETURNING) != NULL) {
            put_return(line, n, text);
        } else if (strstr(line, RESUMED) != NULL) {
            n += strstr(line, "\"why\"") != NULL;
            text[0] = '\0';
        }
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    } else if (fd >= 0) {
        close(fd);
    }
    if (dir >= 0) {
        close(dir);
    }
    return text;
}
