/* frostline top */
#ifndef FL_LAUNCHER_TOP_COMMAND_TOP_H
#define FL_LAUNCHER_TOP_COMMAND_TOP_H

#include "launcher/cli/cli.h"

extern const fl_cli_command fl_cli_command_top;

#endif
