/* The table of every field of a job. It drives the parser, the defaults, the reference file, the
 * page docs/job.md, the messages, and the resolved job that a run keeps. */
#ifndef FL_LAUNCHER_JOB_SCHEMA_SCHEMA_H
#define FL_LAUNCHER_JOB_SCHEMA_SCHEMA_H

#include "launcher/job/text/address.h"

#include <frostline/job.h>

#include <stdio.h>

/* How a field is written, and its type in fl_job. */
typedef enum fl_field_type {
    FL_FIELD_TEXT,     /* a name: char [FL_TEXT_MAX] */
    FL_FIELD_PATH,     /* char [FL_TEXT_MAX] */
    FL_FIELD_FILES,    /* a path, or {train: PATH, test: PATH}: char [2][FL_TEXT_MAX] */
    FL_FIELD_LINE,     /* any text of one line: char [FL_TEXT_MAX] */
    FL_FIELD_INTEGER,  /* int64_t */
    FL_FIELD_NUMBER,   /* double */
    FL_FIELD_SIZE,     /* int64_t bytes; "2GiB" */
    FL_FIELD_DURATION, /* int64_t milliseconds; "5s" */
    FL_FIELD_SPAN,     /* fl_span; "5%" or steps */
    FL_FIELD_PERIOD,   /* fl_period; "2 epochs" or "40 steps" */
    FL_FIELD_INTERVAL, /* fl_interval; "10min", "500 steps" or "2 epochs" */
    FL_FIELD_BOOLEAN,  /* bool */
    FL_FIELD_CHOICE,   /* an enum: the position in choices */
    FL_FIELD_LIST,     /* int64_t, a count, and the items right after it */
} fl_field_type;

/* Whether a run that continues from a checkpoint may have another value. Fixed is what the weights,
 * the moments and the place in the data depend on, and what would have no effect any more. */
typedef enum fl_field_resume {
    FL_RESUME_AS_SECTION, /* fixed in `model` and `data`, free in the others */
    FL_RESUME_FIXED,
    FL_RESUME_FREE,
} fl_field_resume;

typedef struct fl_list fl_list;

typedef struct fl_field {
    const char *path; /* "train.lr"; a path without a point is at the top */
    fl_field_type type;
    size_t offset;              /* in fl_job, bytes */
    const char *initial;        /* the default as a job file writes it */
    const char *unit;           /* of a plain number; NULL: none */
    int64_t least, most;        /* of an integer, a size, a duration; steps of a span or a period;
                                   steps or epochs of an interval; bytes of a text, at most 64, 0:
                                   64 */
    double low, high;           /* of a number; of a period's epochs, an interval's milliseconds */
    bool above_low;             /* a number must be more than low, */
    bool below_high;            /* and less than high */
    bool is_ratio;              /* a number may also be written as "1/3" */
    bool is_float;              /* a number that is used in 32 bits */
    bool is_int;                /* of a list's key that is an integer: int, not int64_t */
    const char *word;           /* "auto", "none" or "all": stored as 0 or ""; NULL: no such word */
    double word_number;         /* as what a number's word is stored */
    const char *off;            /* of an interval: a second word, stored as ms -1; NULL: none */
    const char *const *choices; /* ended by NULL */
    int n_offered; /* the first of them, which a job file may have; the others stand in the record
                      of a run only; 0: all */
    const fl_list *list;     /* of a list: its items */
    fl_address_kind address; /* of a text: FL_ADDRESS_NONE if it is no address of a host */
    fl_field_resume resume;
    const char *doc; /* one sentence */
} fl_field;

/* A key that users expect in a list, and where it belongs instead. */
typedef struct fl_foreign_key {
    const char *key, *where;
} fl_foreign_key;

/* The items of a list: integers, or mappings of integers, numbers, sizes, names and paths. Offsets
 * of keys are within an item; a name is a char [most + 1], a path a char [FL_TEXT_MAX]. */
struct fl_list {
    int least, capacity; /* items; least: of a list in brackets */
    size_t item_bytes;
    int n_keys;          /* of a mapping, at most 64; 0: an item is an integer, key[0] */
    int n_required;      /* of the keys, at least 1: the first ones */
    const fl_field *key; /* an absent integer is FL_LIST_ABSENT; anything else is zeros, which no
                            such key allows */
    bool rises;          /* the first key must rise from item to item */
    const fl_foreign_key *foreign; /* up to one with key NULL; NULL: none */
};

/* A group of fields, named after the folder that reads it. */
typedef struct fl_section {
    const char *name;
    const char *doc;
} fl_section;

enum {
    FL_SCHEMA_MAX = FL_JOB_FIELDS_MAX,
    FL_FIELD_ALLOWED_MAX = 256,
    FL_LIST_ABSENT = -1,
    FL_LIST_BYTES_MAX = sizeof(int64_t) + FL_JOB_HOSTS_MAX * sizeof(fl_job_host),
    FL_FIELD_VALUE_MAX = FL_JOB_HOSTS_MAX * 800, /* the longest hosts; longer than any other text */
};

int fl_schema_n_fields(void);
const fl_field *fl_schema_field(int index);
int fl_schema_n_sections(void);
const fl_section *fl_schema_section(int index);

/* The field or section of this name, or -1. */
int fl_schema_find(const char *path);
int fl_schema_find_section(const char *name);

/* The field's name within its section ("lr" of "train.lr"), and whether it is in `section` ("" is
 * the top). */
const char *fl_field_name(const fl_field *field);
bool fl_field_is_in(const fl_field *field, const char *section);

/* Whether a run that continues from a checkpoint may have another value than before. */
bool fl_field_may_change(const fl_field *field);

/* Describe the allowed values: "auto, or an integer from 1 to 128". Returns text. */
const char *fl_field_allowed(const fl_field *field, char text[FL_FIELD_ALLOWED_MAX]);

/* Store the value written as text [length]. `quoted` text is never a number or a boolean.
 * Returns FL_EINVAL with "found ..., allowed: ..."; *job is then unchanged. */
fl_status fl_field_parse(const fl_field *field, const char *text, size_t length, bool quoted,
                         fl_job *job) FL_MUST_CHECK;

/* The value as a job file writes it; parsing it gives the same value again. Returns text. */
const char *fl_field_format(const fl_field *field, const fl_job *job,
                            char text[FL_FIELD_VALUE_MAX]);

/* Refuse a value in *job that the field does not allow: for jobs that a program filled in.
 * FL_EINVAL with "found ..., allowed: ...". */
fl_status fl_field_check(const fl_field *field, const fl_job *job) FL_MUST_CHECK;

/* Write the job with every field, except those that do not apply to a program's own model and data
 * set: loading it gives the same job again.
 * Returns FL_EIO if the stream failed. */
fl_status fl_job_write(const fl_job *job, FILE *stream) FL_MUST_CHECK;

/* configs/reference.yaml and the table of docs/job.md. FL_EIO if the stream failed. */
fl_status fl_schema_write_yaml(FILE *stream) FL_MUST_CHECK;
fl_status fl_schema_write_markdown(FILE *stream) FL_MUST_CHECK;

#endif
