/* The end of a run that waits for its hosts, and answers nobody meanwhile. */
#ifndef FL_LAUNCHER_CLI_CTL_CTL_WAIT_H
#define FL_LAUNCHER_CLI_CTL_CTL_WAIT_H

#include "launcher/cli/ctl/ctl_place.h"

/* As fl_ctl_place_await, for a request to stop: a run that waits for its hosts is asked to end the
 * wait, and *ended once its process has ended. If its wait is over before it sees that, the run is
 * found as others are. FL_EDEADLINE: it has not ended in time. */
fl_status fl_ctl_wait_place(const fl_args *args, const char *name, int64_t deadline_us,
                            fl_ctl_place *place, bool *ended) FL_MUST_CHECK;

/* The reply to the request, in place of the run. */
void fl_ctl_wait_show(const char *request, bool as_json);

#endif
