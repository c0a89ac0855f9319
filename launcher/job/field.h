/* Functions that read and write one field. */
#ifndef FL_LAUNCHER_JOB_FIELD_H
#define FL_LAUNCHER_JOB_FIELD_H

#include "launcher/job/schema/schema.h"

/* A unit and how many of the base unit it is. A table rises and ends in a NULL name. */
typedef struct fl__unit {
    const char *name;
    double scale;
} fl__unit;

enum { FL__NAME_LONGEST = 64 }; /* bytes of a name */

extern const fl__unit fl__size_units[];     /* of a byte */
extern const fl__unit fl__duration_units[]; /* of a millisecond */

/* A value of FL_FIELD_FILES. */
typedef struct fl__files {
    char train[FL_TEXT_MAX];
    char test[FL_TEXT_MAX]; /* "": none */
} fl__files;

/* A value between its text and its place in a job. */
typedef union fl__value {
    int64_t integer;
    double number;
    fl_span span;
    fl_period period;
    fl_interval interval;
    bool boolean;
    int choice;
    char text[FL_TEXT_MAX];
    fl__files files; /* begins like `text` */
} fl__value;

bool fl__field_is_text(const fl_field *field);

/* Bytes that a name may have. */
static inline size_t fl__field_longest_name(const fl_field *field)
{
    return field->most > 0 ? (size_t)field->most : FL__NAME_LONGEST;
}

/* As fl_field_parse, but into *out: also for values that are not fields of a job. No lists. */
fl_status fl__field_take(const fl_field *field, const char *text, size_t length, bool quoted,
                         fl__value *out) FL_MUST_CHECK;

/* Fill *out from text (zero-terminated, of this length); false if the field does not allow it. The
 * caller handles the field's word. Pure. */
bool fl__field_read(const fl_field *field, const char *text, size_t length, fl__value *out);

/* True if the field allows the number in text, but not that number rounded to 32 bits (*rounded).
 */
bool fl__field_rounds_out(const fl_field *field, const char *text, double *rounded);

/* The value as a job file writes it. Choices are in range, texts are zero-terminated. Pure. */
void fl__field_write(const fl_field *field, const fl__value *v, char text[FL_FIELD_VALUE_MAX]);

/* The value of a key of a list's item: put any, or none; get an integer. */
void fl__list_put(const fl_field *key, void *item, const fl__value *value);
void fl__list_put_absent(const fl_field *key, void *item);
int64_t fl__list_get(const fl_field *key, const void *item);

/* Failures of lists. i: the item, from 0; before: the item before it, unless i is 0. */
fl_status fl__list_check_length(const fl_field *field, int64_t n) FL_MUST_CHECK;
fl_status fl__list_check_rise(const fl_list *list, int64_t i, const void *before,
                              const void *item) FL_MUST_CHECK;
fl_status fl__list_within(const fl_list *list, int64_t i, const fl_field *key,
                          fl_status status) FL_MUST_CHECK; /* "entry 2, k: ..." */

#endif
