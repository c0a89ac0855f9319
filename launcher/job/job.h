/* Parts of reading a job file. */
#ifndef FL_LAUNCHER_JOB_JOB_H
#define FL_LAUNCHER_JOB_JOB_H

#include "launcher/job/schema.h"

enum { FL_JOB_FILE_MAX = 64 * 1024, FL_NAMES_MAX = 1024 };

/* Lines of fl_job_origins that are none. */
enum { FL_ORIGIN_DEFAULT = 0, FL_ORIGIN_OVERRIDE = -1 };

/* The longest place: a file or an override with its value, which may be cut off. */
enum { FL_PLACE_MAX = FL_TEXT_MAX + 128 };

/* Refuse what no job file needs, with the place of it, before any of it is interpreted: characters
 * that are no text, tabs in indentation, several documents, anchors, aliases, tags, deep nesting,
 * broken YAML. FL_EINVAL with "name:line:column: yaml: ...". */
fl_status fl_job_screen(const char *name, const char *text, size_t size_bytes) FL_MUST_CHECK;

/* Fill *job from a screened file, whose name is in job->origins already; *job is undefined on
 * failure. FL_EINVAL with "file:line:column: field: ...". */
fl_status fl_job_read(const char *text, size_t size_bytes, fl_job *job) FL_MUST_CHECK;

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

/* Where the field was written: "file:line:column: ", or "--set path=value: ", or "file: " for a
 * value left at its default, or "" without a file. Returns text. */
const char *fl_job_place(const fl_job *job, const char *path, char text[FL_PLACE_MAX]);

/* Put before the failure at hand (fl_fail_field) the place where its field was written, or if it
 * stands at its default, the first that was written of those it was compared with; and give
 * `status` back. A failure that is about no field stays as it is, so locating twice is harmless. */
fl_status fl_job_locate(const fl_job *job, fl_status status) FL_MUST_CHECK;

/* Fail with what the unknown `name` most likely means. section: of the file, "" for its top;
 * fl_job_unknown_path is for a whole path, as --set has it. */
fl_status fl_job_unknown(const char *section, const char *name) FL_MUST_CHECK;
fl_status fl_job_unknown_path(const char *path) FL_MUST_CHECK;

/* "epochs, batch, ..." of a section ("" is the top, which also has the sections). Returns text. */
const char *fl_job_names(const char *section, char text[FL_NAMES_MAX]);

#endif
