/* frostline ledger: the proof that each sample was used once an epoch. */
#include "autodp/ledger.h"
#include "launcher/cli/cli.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/runs.h"

#include <limits.h>
#include <stdio.h>

static fl_status find_ledger(const char *name, char dir[PATH_MAX], char path[PATH_MAX])
{
    FL_TRY(fl_run_find_dir(name, dir));
    return snprintf(path, PATH_MAX, "%s/ledger.bin", dir) < PATH_MAX
               ? FL_OK
               : fl_fail(FL_EINVAL, "%.64s...: a path of more than %d bytes", dir, PATH_MAX - 1);
}

static int show_ledger(const fl_args *args)
{
    char dir[PATH_MAX], path[PATH_MAX];
    fl_ledger_proof proof;
    fl_status status = find_ledger(args->operand, dir, path);
    if (status == FL_OK) {
        status = fl_ledger_prove(path, &proof);
    }
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return fl_exit_of(status);
    }
    fl_ledger_result result = fl_ledger_judge(&proof);
    bool alive = result == FL_LEDGER_INCOMPLETE && fl_run_is_live(dir);
    fl_ledger_print(&proof, alive, stdout);
    int code = result == FL_LEDGER_COMPLETE || alive ? FL_EXIT_DONE : FL_EXIT_FAILED;
    fl_ledger_proof_fini(&proof);
    return code;
}

const fl_cli_command fl_cli_command_ledger = {
    .name = "ledger",
    .operand = "RUN",
    .summary = "Prove that a run used each sample once per epoch.",
    .details =
        "RUN is a run directory, or the name of one or of a job below runs/; of several,\n"
        "the newest. Reads the run's ledger, checks every record, and counts. The result\n"
        "is \"complete\" (exit code 0), \"incomplete record\" (3: the ledger has no end,\n"
        "because its run failed, was killed or could not write), or \"broken\" (3: a sample\n"
        "came twice in an epoch, or not at all in a finished epoch).\n",
    .exit_codes = {{FL_EXIT_FAILED, "the record is incomplete or broken"}},
    .run = show_ledger,
};
