/* What the commands share that make files of a run directory. */
#ifndef FL_LAUNCHER_CLI_RUN_OUTPUT_H
#define FL_LAUNCHER_CLI_RUN_OUTPUT_H

#include "launcher/report/read/lines.h"

#include <stdio.h>

/* Writes the whole content. fl_replace_file returns its status. */
typedef fl_status fl_file_writer(const void *context, FILE *file);

/* Replace a file completely or not at all: write a temporary file in the same folder, then rename
 * it. Returns FL_EIO, FL_EINVAL if the path is too long or something else than a regular file is
 * there, or the status of `write`. */
fl_status fl_replace_file(const char *path, fl_file_writer *write,
                          const void *context) FL_MUST_CHECK;

/* Say on standard error what of a file of the run could not be read; nothing if all could. */
void fl_say_gaps(const fl_lines *file);

#endif
