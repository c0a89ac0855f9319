/* Counted things for people: "1 epoch", "2 epochs", "3 micro-batches". */
#ifndef FL_DEVICE_TEXT_PLURAL_H
#define FL_DEVICE_TEXT_PLURAL_H

#include <stdint.h>

enum { FL_COUNT_BYTES = 48 };

/* noun  in the singular, a regular one, at most 20 letters; the last word becomes the plural
 * Returns text. Threads: any. */
const char *fl_count(int64_t n, const char *noun, char text[FL_COUNT_BYTES]);

/* "worker 2", "workers 2 .. 5": the n from `first` on, n at least 1. Otherwise as fl_count. */
const char *fl_count_range(int first, int n, const char *noun, char text[FL_COUNT_BYTES]);

/* What turns the noun into what `n` of them are called: "", "s" or "es". */
const char *fl_plural_ending(int64_t n, const char *noun);

#endif
