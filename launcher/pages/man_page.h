/* Man pages, made from the table of commands that --help is made from. Pure: a table to text in
 * the man macros of roff. Errors: those of the file, which the caller looks at (ferror). */
#ifndef FL_LAUNCHER_PAGES_MAN_PAGE_H
#define FL_LAUNCHER_PAGES_MAN_PAGE_H

#include "launcher/cli/cli.h"

#include <stdio.h>

/* frostline.1: what the program does, its commands and its exit codes.
 * commands  NULL after the last */
void fl_man_page_program(const fl_cli_command *const *commands, FILE *out);

/* frostline-NAME.1: one command, its options, and the words that it knows. */
void fl_man_page_command(const fl_cli_command *command, FILE *out);

#endif
