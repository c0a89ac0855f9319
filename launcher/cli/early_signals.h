/* Signals before a command's own loop reads them. */
#ifndef FL_LAUNCHER_CLI_EARLY_SIGNALS_H
#define FL_LAUNCHER_CLI_EARLY_SIGNALS_H

/* End this process at SIGTERM (exit code 5) and Ctrl-C (130), also where it is the first process of
 * a container, for which the kernel drops a signal without a handler. Signals that do not ask for
 * an end wait. */
void fl_early_signals_take(void);

#endif
