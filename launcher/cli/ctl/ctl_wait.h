/* The end of a run that waits for its hosts, and answers nobody meanwhile. */
#ifndef FL_LAUNCHER_CLI_CTL_CTL_WAIT_H
#define FL_LAUNCHER_CLI_CTL_CTL_WAIT_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

/* Ask the run in the directory `path` to end its wait, and wait until its process has ended.
 * *ended: false if the wait is over and the run goes on, so that it can be asked itself.
 * FL_EDEADLINE: it has not ended in time. */
fl_status fl_ctl_wait_end(const char *path, int64_t deadline_us, bool *ended) FL_MUST_CHECK;

#endif
