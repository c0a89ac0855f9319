/* A run's event in words, for the lines of `frostline top`. */
#ifndef FL_LAUNCHER_TOP_MODEL_TOP_WORDS_H
#define FL_LAUNCHER_TOP_MODEL_TOP_WORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* "    12.3 s  epoch 2 finished: loss 0.4312, accuracy 85.20 %". An event that has no words of its
 * own is its name and its fields. Returns text. */
const char *fl_top_words(const json_t *event, char *text, size_t size_bytes);

/* Whether events of this name have words. */
bool fl_top_words_have(const char *name);

#endif
