/* frostline ledger: the proof that each sample was used once an epoch. */
#include "autodp/ledger.h"
#include "launcher/cli/cli.h"
#include "launcher/run/runs.h"

#include <limits.h>
#include <stdio.h>

static int show_ledger(const fl_args *args)
{
    char path[PATH_MAX];
    fl_ledger_proof proof;
    snprintf(path, sizeof path, "%s/ledger.bin", args->operand);
    fl_status status = fl_ledger_prove(path, &proof);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return fl_exit_of(status);
    }
    fl_ledger_command command = fl_ledger_judge(&proof);
    bool alive = command == FL_LEDGER_INCOMPLETE && fl_run_is_live(args->operand);
    fl_ledger_print(&proof, alive, stdout);
    int code = command == FL_LEDGER_COMPLETE || alive ? FL_EXIT_DONE : FL_EXIT_FAILED;
    fl_ledger_proof_fini(&proof);
    return code;
}

const fl_cli_command fl_cli_command_ledger = {
    .name = "ledger",
    .operand = "RUN_DIR",
    .summary = "Prove that a run used each sample once per epoch.",
    .details =
        "Reads the run's ledger, checks every record, and counts. The result is\n"
        "\"complete\" (exit code 0), \"incomplete record\" (3: the ledger has no end, because\n"
        "its run failed, was killed or could not write), or \"broken\" (3: a sample came\n"
        "twice in an epoch, or not at all in a finished epoch).\n",
    .run = show_ledger,
};
