/* What the commands share that make files of a run directory. */
#ifndef FL_LAUNCHER_CLI_RUN_OUTPUT_H
#define FL_LAUNCHER_CLI_RUN_OUTPUT_H

#include "launcher/report/lines.h"

#include <stdio.h>

/* Writes the whole content; what it gives back is given back. */
typedef fl_status fl_file_writer(const void *context, FILE *file);

/* Write a file whole or not at all: under another name beside it, then renamed. FL_EIO, FL_EINVAL
 * for a path that is too long, what `write` gives. */
fl_status fl_replace_file(const char *path, fl_file_writer *write,
                          const void *context) FL_MUST_CHECK;

/* Say on standard error what of a file of the run could not be read; nothing if all could. */
void fl_say_gaps(const fl_lines *file);

#endif
