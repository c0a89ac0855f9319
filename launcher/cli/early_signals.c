#include "launcher/cli/early_signals.h"

#include "control/agent/process/signals.h"
#include "launcher/cli/cli.h"

#include <signal.h>
#include <unistd.h>

/* Until the command takes signals itself there is nothing to end but this process. */
static void end_process(int number)
{
    static const char text[] = "frostline: stopped before the training began\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(number == SIGTERM ? FL_EXIT_TERMINATED : FL_EXIT_STOPPED);
}

void fl_early_signals_take(void)
{
    sigset_t later;
    fl_signals_others(&later);
    sigprocmask(SIG_BLOCK, &later, NULL);
    signal(SIGTERM, end_process);
    signal(SIGINT, end_process);
}
