/* What a run wrote: the lines of its events.jsonl and steps.jsonl. */
#ifndef FL_TESTS_SUPPORT_LINES_H
#define FL_TESTS_SUPPORT_LINES_H

#include <jansson.h>

/* The lines of a file of the run in `dir` that hold `text` ("" for all), as an array, which the
 * caller deletes. The file must be there, and each of these lines whole. */
json_t *lines_with(const char *dir, const char *file, const char *text);

/* How many events hold both texts. */
int count_events(const char *dir, const char *event, const char *text);

/* A loop over the values of an array. */
#define FOR_EACH(value, array)                                                                     \
    for (size_t value##_at = 0; ((value) = json_array_get(array, value##_at)) != NULL; value##_at++)

/* Elements of what has to be an array. */
int length(const json_t *array);

/* A field that has to be a number. */
int number(const json_t *object, const char *key);

#endif
