/* The file that keeps what a model's layers cost on a device, so that the next run starts informed.
 * YAML for people; docs/planner.md shows one. */
#ifndef FL_LAUNCHER_RUN_PROFILE_FILE_H
#define FL_LAUNCHER_RUN_PROFILE_FILE_H

#include "launcher/run/profile_key.h"

enum { FL_PROFILE_FILE_MAX = 1024 * 1024, FL_PROFILE_WHEN_MAX = 32 };

/* Beside the costs. */
typedef struct fl_profile_about {
    char measured[FL_PROFILE_WHEN_MAX]; /* when, "2026-11-21T15:44:58Z" */
} fl_profile_about;

/* Read and check the file.
 * key      what the profile must be of; NULL: whatever it is of, it must only be of this model
 * Returns  FL_EIO with errno's text when it cannot be read, FL_EFORMAT with "file:line:column: ..."
 *          when it is broken, FL_EINVAL when it is of something else; *profile is then unchanged */
fl_status fl_profile_read(const char *path, const fl_profile_key *key, const fl_model *model,
                          fl_profile *profile, fl_profile_about *about) FL_MUST_CHECK;

/* The same from memory; `name` stands for the file in messages. */
fl_status fl_profile_parse(const char *name, const char *text, size_t size_bytes,
                           const fl_profile_key *key, const fl_model *model, fl_profile *profile,
                           fl_profile_about *about) FL_MUST_CHECK;

/* Write the file anew, its folders too; readers find the old one or the new one, whole.
 * Returns FL_EIO; FL_EINVAL when something else than a profile lies there, which is left alone. */
fl_status fl_profile_write(const char *path, const fl_profile_key *key, const fl_model *model,
                           const fl_profile *profile, const fl_profile_about *about) FL_MUST_CHECK;

/* Whether `text` begins as fl_profile_write begins. */
bool fl_profile_is_one(const char *text, size_t size_bytes);

#endif
