/* What `frostline` can do. */
#ifndef FL_LAUNCHER_MAIN_COMMANDS_H
#define FL_LAUNCHER_MAIN_COMMANDS_H

#include "launcher/cli/cli.h"

/* All commands, in the order of the help; NULL after the last. */
extern const fl_cli_command *const fl_commands[];

#endif
