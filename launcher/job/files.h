/* A field that is a path, or a mapping of two: {train: PATH, test: PATH}. field.c handles the path
 * alone. */
#ifndef FL_LAUNCHER_JOB_FILES_H
#define FL_LAUNCHER_JOB_FILES_H

#include "launcher/job/field.h"

#include <yaml.h>

/* Store the paths of a mapping node. Returns FL_EINVAL with "found ..." or "test: found ...";
 * *culprit is then the node at fault, and *job is unchanged. */
fl_status fl_files_read(const fl_field *field, yaml_document_t *document, const yaml_node_t *node,
                        fl_job *job, const yaml_node_t **culprit) FL_MUST_CHECK;

/* The same from YAML in flow style. Also FL_ENOMEM. */
fl_status fl_files_parse(const fl_field *field, const char *text, size_t length,
                         fl_job *job) FL_MUST_CHECK;

/* Whether a program filled in paths that the field allows. */
bool fl__files_are_valid(const fl_field *field, const fl__files *files);

#endif
