/* A run that was to go back has ended before it could: what becomes of its snapshot in memory, and
 * the command that continues it. */
#ifndef FL_LAUNCHER_RUN_RETURN_END_H
#define FL_LAUNCHER_RUN_RETURN_END_H

#include "launcher/run/returns.h"

/* Write the newest snapshot as a checkpoint, if it is newer than all of those and the run keeps
 * checkpoints (checkpoint.every). Then name, in a warning that begins with `why`, the state that is
 * left and the command that continues from there; without any state, the one that begins again.
 * p     of the run, before its checks
 * dir   of the run; no controller has it */
void fl_return_end_keep(fl_run_losses *losses, const fl_preparation *p, const char *dir,
                        const char *why);

#endif
