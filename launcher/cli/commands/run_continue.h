/* --continue of frostline run: one command line for the first start and for every later one. */
#ifndef FL_LAUNCHER_CLI_COMMANDS_RUN_CONTINUE_H
#define FL_LAUNCHER_CLI_COMMANDS_RUN_CONTINUE_H

#include "launcher/cli/cli.h"

#include <limits.h>

typedef enum fl_run_begin {
    FL_RUN_BEGIN_NEW,    /* the directory holds no run */
    FL_RUN_BEGIN_RESUME, /* one that was interrupted, with a checkpoint */
    FL_RUN_BEGIN_OVER,   /* one that has reached its last step */
} fl_run_begin;

/* Check the options, and what the directory of --run-dir holds. A run without a checkpoint gives
 * way: its directory gets another name. job out: where the job of the command line lies then, if it
 * is that of the directory; else "". FL_EINVAL, FL_EIO; FL_EBUSY: another process starts it. */
fl_status fl_run_continue_look(const fl_args *args, fl_run_begin *out,
                               char job[PATH_MAX]) FL_MUST_CHECK;

/* The command line of --resume for what `args` says: the same overrides. resume: its option. */
void fl_run_continue_args(const fl_args *args, const fl_cli_option *resume, fl_args *out);

#endif
