/* The path of a file or a folder that a command writes because the user named it. No command writes
 * to an empty path: cli.c refuses it as a value. */
#ifndef FL_LAUNCHER_CLI_OUTPUT_PATH_H
#define FL_LAUNCHER_CLI_OUTPUT_PATH_H

#include <frostline/status.h>

/* A file is written under another name and then renamed, which would replace a device, a pipe or a
 * link by a regular file: such a path is refused, and so is "-".
 *   name   what the message begins with, such as "--out"
 * Returns FL_OK if a regular file is there or nothing, else FL_EINVAL. */
fl_status fl_output_path_check(const char *name, const char *path) FL_MUST_CHECK;

/* The same of a folder that a command makes, or writes files into. A link to a folder is one.
 * Returns FL_OK if a folder is there or nothing, else FL_EINVAL. */
fl_status fl_output_folder_check(const char *name, const char *path) FL_MUST_CHECK;

#endif
