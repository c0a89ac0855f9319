/* Parts of reading and writing one field. */
#ifndef FL_LAUNCHER_FIELD_H
#define FL_LAUNCHER_FIELD_H

#include "launcher/schema.h"

/* A unit and how many of the first one it is; tables rise and end in a NULL name. */
typedef struct fl__unit {
    const char *name;
    double scale;
} fl__unit;

enum { FL__NAME_LONGEST = 64 }; /* bytes of a name */

extern const fl__unit fl__size_units[];     /* of a byte */
extern const fl__unit fl__duration_units[]; /* of a millisecond */

/* A value on its way into a job or out of it. */
typedef union fl__value {
    int64_t integer;
    double number;
    fl_span span;
    bool boolean;
    int choice;
    char text[FL_TEXT_MAX];
} fl__value;

bool fl__field_is_text(const fl_field *field);

/* Fill *out from text (ended by a zero, of this length); false if the field does not allow it. The
 * field's word is the caller's business. Pure. */
bool fl__field_read(const fl_field *field, const char *text, size_t length, fl__value *out);

/* The value as a job file writes it. Choices are in range, texts end in a zero. Pure. */
void fl__field_write(const fl_field *field, const fl__value *v, char text[FL_FIELD_VALUE_MAX]);

#endif
