/* The commands of `frostline ctl` for its help, its man page, and completion. */
#ifndef FL_LAUNCHER_CLI_CTL_CTL_HELP_H
#define FL_LAUNCHER_CLI_CTL_CTL_HELP_H

#include "launcher/cli/cli.h"

#define FL_CTL_WATCH "watch" /* what a client does by itself: it shows events */

/* As of fl_cli_command. */
bool fl_ctl_word_at(int index, fl_cli_word *out);

/* The help of the first command among these words; false: none is there. */
bool fl_ctl_print_word(int argc, char **argv);

/* A line for each command. */
void fl_ctl_print_words(void);

#endif
