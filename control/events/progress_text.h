/* Texts that the lines of a run and its summary share. */
#ifndef FL_CONTROL_EVENTS_PROGRESS_TEXT_H
#define FL_CONTROL_EVENTS_PROGRESS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Of a metric's value, at most as long as -1.234e+308. */
enum { FL__PROGRESS_VALUE_BYTES = 24 };

/* "97.20 %", "0.01234". Returns text. */
const char *fl__progress_value(double value, bool is_share, char text[FL__PROGRESS_VALUE_BYTES]);

/* 75 -> "1:15", 4000 -> "1:06:40". Returns text. */
const char *fl__progress_duration(double seconds, char *text, size_t size_bytes);

#endif
