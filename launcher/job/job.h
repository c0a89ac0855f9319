/* Parts of reading a job file. */
#ifndef FL_LAUNCHER_JOB_JOB_H
#define FL_LAUNCHER_JOB_JOB_H

#include "launcher/job/schema.h"

enum { FL_JOB_FILE_MAX = 64 * 1024, FL_ORIGIN_TEXT_MAX = 128, FL_NAMES_MAX = 1024 };

/* Where a field's value comes from. */
typedef struct fl_origin {
    int line, column;             /* from 1; 0: not in the file */
    char set[FL_ORIGIN_TEXT_MAX]; /* "pipe.k=2" of the --set that gave it; empty: none */
} fl_origin;

typedef struct fl_origins {
    char file[FL_TEXT_MAX];
    fl_origin of[FL_SCHEMA_MAX]; /* by the field's index in the table */
} fl_origins;

/* Refuse what no job file needs, with the place of it, before any of it is interpreted: characters
 * that are no text, tabs in indentation, several documents, anchors, aliases, tags, deep nesting,
 * broken YAML. FL_EINVAL with "name:line:column: yaml: ...". */
fl_status fl_job_screen(const char *name, const char *text, size_t size_bytes) FL_MUST_CHECK;

/* Fill *job and *origins from a screened file; both hold rubbish on failure.
 * FL_EINVAL with "file:line:column: field: ...". */
fl_status fl_job_read(const char *text, size_t size_bytes, fl_origins *origins,
                      fl_job *job) FL_MUST_CHECK;

/* Checks that need more than one field, and every field's range. FL_EINVAL with "field: found ...";
 * a job that a program filled in goes through the same. */
fl_status fl_job_check(const fl_job *job) FL_MUST_CHECK;

/* What the model that the job is for allows: FL_EINVAL with "field: found ...". n_blocks >= 1. */
fl_status fl_job_check_model(const fl_job *job, int n_blocks) FL_MUST_CHECK;

/* What the devices that the run has allow: FL_EINVAL with "field: found ...". */
fl_status fl_job_check_devices(const fl_job *job, int n_devices) FL_MUST_CHECK;

/* Log a warning for each field that asks for something after the run's end: a run that was made
 * shorter for a trial is no mistake. n_steps >= 1: of the whole run. */
void fl_job_warn_length(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps);

/* "file:line:column: ", or "--set path=value: ", or "file: " for a value left at its default.
 * Returns text. */
const char *fl_origin_text(const fl_origins *origins, const char *path, char *text,
                           size_t size_bytes);

/* What fl_job_where answers from now on in this thread. */
void fl_origins_keep(const fl_origins *origins);
fl_origins *fl_origins_get(void);

/* The failure at hand may begin with a field's path ("pipe.k: ..."): put before it where that field
 * was written, or if it was not, the next field that the message names; and give `status` back.
 * Folders below know paths, and no files. */
fl_status fl_origins_locate(const fl_origins *origins, fl_status status) FL_MUST_CHECK;
fl_status fl_job_locate(fl_status status) FL_MUST_CHECK; /* in the file last loaded */

/* Fail with what the unknown `name` most likely means. section: of the file, "" for its top;
 * fl_job_unknown_path is for a whole path, as --set has it. */
fl_status fl_job_unknown(const char *section, const char *name) FL_MUST_CHECK;
fl_status fl_job_unknown_path(const char *path) FL_MUST_CHECK;

/* "epochs, batch, ..." of a section ("" is the top, which also has the sections). Returns text. */
const char *fl_job_names(const char *section, char text[FL_NAMES_MAX]);

#endif
