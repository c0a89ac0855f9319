/* Functions that read a job file. */
#ifndef FL_LAUNCHER_JOB_JOB_H
#define FL_LAUNCHER_JOB_JOB_H

#include "launcher/job/schema/schema.h"

enum { FL_JOB_FILE_MAX = 128 * 1024, FL_NAMES_MAX = 1024 };

/* Values of fl_job_origins that are not lines. */
enum { FL_ORIGIN_DEFAULT = 0, FL_ORIGIN_OVERRIDE = -1, FL_ORIGIN_PROGRAM = -2 };

/* The longest description of a place: a file, or an override with its value, which may be cut. */
enum { FL_PLACE_MAX = FL_TEXT_MAX + 128 };

/* Refuse constructs that no job file needs, with their place, before anything is interpreted:
 * characters that are not text, tabs in indentation, several documents, anchors, aliases, tags,
 * deep nesting, broken YAML. FL_EINVAL with "name:line:column: yaml: ...". */
fl_status fl_job_screen(const char *name, const char *text, size_t size_bytes) FL_MUST_CHECK;

/* As fl_job_load, of a file that a run keeps in its directory, which may have come from elsewhere:
 * only a regular file is read. */
fl_status fl_job_load_kept(const char *path, const char *const *overrides, int n_overrides,
                           fl_job *job) FL_MUST_CHECK;

/* The text of a job file for more than one look at it, because a pipe is read once. *text: by
 * fl_free; NULL after a failure. */
fl_status fl_job_load_text(const char *path, void **text, size_t *size_bytes) FL_MUST_CHECK;

/* As fl_job_parse, one part of a job that cannot be read because of another field: "hosts", "run"
 * or "autodp". *job must have the default values there, and keeps all its other fields. FL_EINVAL,
 * *job unchanged, if that part is wrong, too, or the text is no YAML. */
fl_status fl_job_parse_part(const char *name, const char *text, size_t size_bytes,
                            const char *const *overrides, int n_overrides, const char *part,
                            fl_job *job) FL_MUST_CHECK;

/* Fill *job from a screened file, whose name is already in job->origins; *job is undefined on
 * failure. FL_EINVAL with "file:line:column: field: ...". */
fl_status fl_job_read(const char *text, size_t size_bytes, fl_job *job) FL_MUST_CHECK;

/* The same of one field or section at the top of the file; all others are left out, whatever they
 * are. */
fl_status fl_job_read_only(const char *text, size_t size_bytes, const char *name,
                           fl_job *job) FL_MUST_CHECK;

/* Check every field's range, and combinations of several fields. FL_EINVAL with "field: found ...".
 * A job that a program filled in passes the same checks. */
fl_status fl_job_check(const fl_job *job) FL_MUST_CHECK;

/* Those of its checks that concern only one of the parts of fl_job_parse_part. */
fl_status fl_job_check_parts(const fl_job *job) FL_MUST_CHECK;

/* autodp.ports: the first and the last port; 0: any. */
void fl_job_ports(const fl_job *job, uint16_t ports[2]);

/* The share that a model built from the job's own fields drops. */
double fl_job_dropout(const fl_job *job);

/* Samples that data.validation takes out of the n_used that the job trains on; 0: none. Pure. */
int64_t fl_job_n_validation(const fl_job *job, int64_t n_used);

/* Check the job against its model: FL_EINVAL with "field: found ...". n_blocks >= 1. */
fl_status fl_job_check_model(const fl_job *job, int n_blocks) FL_MUST_CHECK;

/* Check the job against the devices of the run: FL_EINVAL with "field: found ...". */
fl_status fl_job_check_devices(const fl_job *job, int n_devices) FL_MUST_CHECK;

/* Check the job that an interrupted run shall continue with against the one that it had: FL_EINVAL
 * with a list of all fields that may not change, and both values. name: of the file of `before`. */
fl_status fl_job_check_resume(const fl_job *before, const fl_job *now,
                              const char *name) FL_MUST_CHECK;

/* The paths of all fields that differ, in the order of the table: changed [*n]. FL_ENOMEM. */
fl_status fl_job_list_changes(const fl_job *before, const fl_job *now,
                              const char *changed[FL_SCHEMA_MAX], int *n) FL_MUST_CHECK;

/* Log a warning for each field that takes effect only after the run's end, or never. It is not an
 * error: a run may have been made shorter for a trial. n_steps >= 1: of the whole run. */
void fl_job_warn_length(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps);

/* Where the field was set: "file:line:column: ", or "--set path=value: ", or "file: " for a default
 * value, or "" without a file. Returns text. */
const char *fl_job_place(const fl_job *job, const char *path, char text[FL_PLACE_MAX]);

/* Where an entry of hosts, from 0, is in the job's file, from 1; false: no file has it. */
bool fl_job_host_place(const fl_job *job, int64_t host, int *line, int *column);

/* Where an entry of elastic.script, from 0, was set, as fl_job_place. Returns text. */
const char *fl_job_entry_place(const fl_job *job, int64_t entry, char text[FL_PLACE_MAX]);

/* Make the current failure, "entry 2, ...", one of that entry of elastic.script: with its place in
 * the file; or, where the list or the field `other` (NULL: none) was set later, by --set or a
 * program, a failure of the fields. Returns FL_EINVAL. */
fl_status fl_job_refuse_entry(const fl_job *job, int64_t entry, const char *other) FL_MUST_CHECK;

/* Make the current failure, "entry 2, ...", one of that entry of hosts: with its place in the file,
 * or as a failure of the field. Returns FL_EINVAL. */
fl_status fl_job_refuse_host(const fl_job *job, int64_t host) FL_MUST_CHECK;

/* Prefix the current failure (fl_fail_field) with the place where its field was set, or one of
 * those it was compared with: the first that --set or a program has set, as the file alone may be
 * good; else the first that the file sets. Returns `status`. A failure that concerns no field stays
 * as it is, so locating twice is harmless. */
fl_status fl_job_locate(const fl_job *job, fl_status status) FL_MUST_CHECK;

/* The same for a message about the job that another host has sent, and that the current one quotes:
 * where it begins with the path of a field, with the place of that field in this job. */
fl_status fl_job_locate_quoted(const fl_job *job, const char *quoted,
                               fl_status status) FL_MUST_CHECK;

/* Fail with the most likely meaning of the unknown `name`. section: of the file, "" for its top;
 * fl_job_unknown_path is for a whole path, as --set has it. */
fl_status fl_job_unknown(const char *section, const char *name) FL_MUST_CHECK;
fl_status fl_job_unknown_path(const char *path) FL_MUST_CHECK;

/* "epochs, batch, ..." of a section ("" is the top, which also lists the sections). Returns text.
 */
const char *fl_job_names(const char *section, char text[FL_NAMES_MAX]);

#endif
