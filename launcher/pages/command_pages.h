/* frostline pages: the man pages and the completion for shells. */
#ifndef FL_LAUNCHER_PAGES_COMMAND_PAGES_H
#define FL_LAUNCHER_PAGES_COMMAND_PAGES_H

#include "launcher/cli/cli.h"

extern const fl_cli_command fl_cli_command_pages;

#endif
