#include "launcher/cli/ctl/ctl_wait.h"

#include "control/agent/join/wait_record.h"
#include "control/socket/ctl_request.h"
#include "device/system/clock.h"
#include "launcher/run/runs/run_hold.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

enum { TURN_MS = 20 };

static fl_status end_wait(const char *path, int64_t deadline_us, bool *ended)
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

fl_status fl_ctl_wait_place(const fl_args *args, const char *name, int64_t deadline_us,
                            fl_ctl_place *place, bool *ended)
{
    *ended = false;
    fl_status status = fl_ctl_place_await(args, name, FL_CTL_TELL_WAITS, deadline_us, place);
    while (status == FL_EBUSY && place->waits) {
        FL_TRY(end_wait(place->path, deadline_us, ended));
        if (*ended) {
            return FL_OK;
        }
        status = fl_ctl_place_await(args, name, FL_CTL_TELL_WAITS, deadline_us, place);
    }
    return status;
}

void fl_ctl_wait_show(const char *request, bool as_json)
{
    if (!as_json) {
        printf("stopped while it waited for its hosts\n");
        return;
    }
    json_t *asked = json_loads(request, 0, NULL);
    printf("{\"v\": %d, \"id\": \"%s\", \"ok\": true, "
           "\"result\": {\"waited_for\": \"hosts\"}}\n",
           FL_CTL_VERSION, json_string_value(json_object_get(asked, "id")));
    json_decref(asked);
}
