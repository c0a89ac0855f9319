/* frostline ledger: the proof that each sample was used once an epoch. */
#include "autodp/ledger.h"
#include "device/alloc.h"
#include "launcher/cli.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

/* An epoch that the run left in the middle has samples it never came to; none may come twice. */
static bool is_sound(const fl_ledger_epoch *epoch, bool is_last)
{
    return epoch->more == 0 && (is_last || epoch->never == 0);
}

static int print_epochs(const fl_ledger_epoch *epochs, int64_t n)
{
    int64_t n_broken = 0, n_whole = 0;
    printf("epoch    samples       once      never  more than once\n");
    for (int64_t i = 0; i < n; i++) {
        const fl_ledger_epoch *e = &epochs[i];
        printf("%5" PRId64 " %10" PRId64 " %10" PRId64 " %10" PRId64 " %15" PRId64 "\n",
               e->epoch + 1, e->n_samples, e->once, e->never, e->more);
        n_broken += is_sound(e, i == n - 1) ? 0 : 1;
        n_whole += e->once == e->n_samples ? 1 : 0;
    }
    if (n_broken > 0) {
        printf("broken: %" PRId64 " of %" PRId64 " epochs\n", n_broken, n);
        return FL_EXIT_FAILED;
    }
    printf("each sample exactly once in %" PRId64 " of %" PRId64 " epochs%s\n", n_whole, n,
           n_whole == n ? "" : ", the last one not finished");
    return FL_EXIT_DONE;
}

static int run(const fl_args *args)
{
    char path[PATH_MAX];
    fl_ledger_epoch *epochs = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/ledger.bin", args->operand);
    fl_status status = fl_ledger_read(path, &epochs, &n);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return fl_exit_of(status);
    }
    int code = print_epochs(epochs, n);
    fl_free(epochs);
    return code;
}

const fl_command fl_command_ledger = {
    .name = "ledger",
    .operand = "RUN_DIR",
    .summary = "Show that a run used each sample once an epoch.",
    .details =
        "Reads the ledger that the run kept, checks every record, and counts. Ends with 3 if a\n"
        "sample came twice in an epoch, or not at all in one that was finished.\n",
    .run = run,
};
