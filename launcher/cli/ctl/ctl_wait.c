#include "launcher/cli/ctl/ctl_wait.h"

#include "control/agent/join/wait_record.h"
#include "device/system/clock.h"
#include "launcher/run/runs/run_hold.h"

#include <time.h>

enum { TURN_MS = 20 };

fl_status fl_ctl_wait_end(const char *path, int64_t deadline_us, bool *ended)
{
    bool asked = fl_wait_record_ask_stop(path);
    *ended = false;
    while (asked && fl_run_is_held(path)) {
        if (fl_run_is_live(path)) {
            return FL_OK; /* all hosts had joined before the run saw the request */
        }
        if (fl_left_ms(deadline_us) == 0) {
            return fl_fail(FL_EDEADLINE, "%s: the run is asked to stop, and has not ended in time",
                           path);
        }
        (void)fl_wait_record_ask_stop(path); /* its next wait, if the first one is over */
        nanosleep(&(struct timespec){0, TURN_MS * 1000000L}, NULL);
    }
    *ended = asked;
    return FL_OK;
}
