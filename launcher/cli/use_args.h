/* What the commands that use a saved model have in common: their operands and options. */
#ifndef FL_LAUNCHER_CLI_USE_ARGS_H
#define FL_LAUNCHER_CLI_USE_ARGS_H

#include "launcher/cli/cli.h"
#include "launcher/run/saved/saved_model.h"

#define FL_USE_DETAILS                                                                             \
    "MODEL is a folder of weights with its config.json, a checkpoint, or a run: its\n"             \
    "directory, its name or its job's name below runs/. Of a run it is the model\n"                \
    "that it left; if it failed, was lost or still trains, its newest whole\n"                     \
    "checkpoint. Data and devices are those of JOB.yaml, else those of the run's own\n"            \
    "job, with the changes that options make.\n\n"

#define FL_USE_OPTIONS                                                                             \
    {"--data", 0, "PATH", "the folder of the data; short for --set data.path=PATH"},               \
        {"--split", 0, "NAME", "test, the default, train or validation"},                          \
        {"--checkpoint", 0, "STEP", "of the run MODEL: a number of steps, or best"},               \
    {                                                                                              \
        "--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"             \
    }

/* Operand 1 is the model, operand 2 a job file. Call fl_use_fini after a failure, too. */
fl_status fl_use_open_args(const fl_args *args, bool predicts, fl_use *out) FL_MUST_CHECK;

/* Print, on standard error, which weights of a run are used if not the model that it left. */
void fl_use_say_choice(const fl_saved_model *saved);

/* Remove this file if a signal ends the process before workers run; NULL: none. Borrowed. */
void fl_use_unlink_at_signal(const char *path);

/* Say what went wrong; returns the exit code. */
int fl_use_finish(fl_status status);

#endif
