/* The result of `frostline doctor --json` of another host, in what ssh prints. */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_ANSWER_H
#define FL_LAUNCHER_DOCTOR_HOSTS_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Find the result of `frostline doctor --json` in a text that may hold other lines. NULL if it
 * holds no result, or so many nested objects that reading them all would take too long. The caller
 * frees it by json_decref. Pure but for memory. */
json_t *fl_doctor_find_answer(const char *text, size_t n);

/* A text of the result; "": it has none of that name. */
const char *fl_doctor_text_of(const json_t *object, const char *key);

/* Whether the text ends with a line that ends the result. Pure but for memory. */
bool fl_doctor_is_whole_answer(const char *text, size_t n);

#endif
