/* What a run wrote: the lines of its events.jsonl and steps.jsonl. */
#ifndef FL_TESTS_SUPPORT_LINES_H
#define FL_TESTS_SUPPORT_LINES_H

#include <cjson/cJSON.h>

/* The lines of a file of the run in `dir` that hold `text` ("" for all), as an array, which the
 * caller deletes. The file must be there, and each of these lines whole. */
cJSON *lines_with(const char *dir, const char *file, const char *text);

/* How many events hold both texts. */
int count_events(const char *dir, const char *event, const char *text);

/* A field that has to be a number. */
int number(const cJSON *object, const char *key);

#endif
