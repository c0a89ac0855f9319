/* Numbers in the notation of job files. */
#ifndef FL_LAUNCHER_JOB_TEXT_NUMBER_H
#define FL_LAUNCHER_JOB_TEXT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The integer in decimal, with no sign but '-', without leading zeros; false if it is not an
 * integer or needs more than 64 bits. */
bool fl_read_integer(const char *text, int64_t *out);

/* The decimal number at the start of text ("1e-3", ".5", "-2."), *length characters long; false if
 * there is no number. Independent of the locale. */
bool fl_read_number(const char *text, double *out, size_t *length);

/* The shortest text that reads back as the same number. Independent of the locale. Returns text. */
const char *fl_write_number(double value, char *text, size_t size_bytes);

/* The share that "5%" is, correctly rounded (0.05); false if text is not a percentage. */
bool fl_read_percent(const char *text, double *fraction);

/* The shortest percentage that reads back as the same share. Returns text. */
const char *fl_write_percent(double fraction, char *text, size_t size_bytes);

#endif
