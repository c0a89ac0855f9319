/* The file that keeps the costs of a model's layers on a device, so that the next run need not
 * measure them. YAML, readable for people; docs/planner.md shows an example. */
#ifndef FL_LAUNCHER_RUN_COSTS_PROFILE_FILE_H
#define FL_LAUNCHER_RUN_COSTS_PROFILE_FILE_H

#include "launcher/run/costs/profile_key.h"

enum { FL_PROFILE_FILE_MAX = 1024 * 1024, FL_PROFILE_WHEN_MAX = 32 };

/* Facts about the costs. */
typedef struct fl_profile_about {
    char measured[FL_PROFILE_WHEN_MAX]; /* time of the measurement, "2026-11-21T15:44:58Z" */
    char
        program[FL_PROFILE_KEY_TEXT_MAX]; /* that measured, of a file that was read; "": this one */
} fl_profile_about;

/* Read and check the file.
 * key      what the profile must match; NULL: only the model must match
 * Returns  FL_EIO with errno's text when it cannot be read, FL_EFORMAT with "file:line:column: ..."
 *          when it is broken, FL_EINVAL when it does not match; *profile is then unchanged */
fl_status fl_profile_read(const char *path, const fl_profile_key *key, const fl_model *model,
                          fl_profile *profile, fl_profile_about *about) FL_MUST_CHECK;

/* The same from memory; messages call the file `name`. */
fl_status fl_profile_parse(const char *name, const char *text, size_t size_bytes,
                           const fl_profile_key *key, const fl_model *model, fl_profile *profile,
                           fl_profile_about *about) FL_MUST_CHECK;

/* Replace the file, and create its folders; a reader finds the old file or the new one, whole.
 * Returns FL_EIO; FL_EINVAL when the existing file is not a profile: it is left alone. */
fl_status fl_profile_write(const char *path, const fl_profile_key *key, const fl_model *model,
                           const fl_profile *profile, const fl_profile_about *about) FL_MUST_CHECK;

/* The same as a text, [*size_bytes]; the caller frees it with free. FL_ENOMEM */
fl_status fl_profile_print(const fl_profile_key *key, const fl_model *model,
                           const fl_profile *profile, const fl_profile_about *about, char **text,
                           size_t *size_bytes) FL_MUST_CHECK;

/* Whether `text` starts as fl_profile_write starts a file. */
bool fl_profile_is_one(const char *text, size_t size_bytes);

#endif
