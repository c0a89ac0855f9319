#include "launcher/cli/ctl/ctl_place.h"

#include "control/agent/join/wait_record.h"
#include "device/errors/failure.h"
#include "device/system/clock.h"
#include "launcher/run/runs/runs.h"

#include <frostline/job.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { AGAIN_MS = 50 };

static fl_status find_far(fl_ctl_place *place, const char *name)
{
    if (place->key == NULL || place->server == NULL) {
        return fl_fail(FL_EINVAL, "%s: --key and --server must be given", name);
    }
    if (strlen(name) >= sizeof place->path) {
        return fl_fail(FL_EINVAL, "an address of %zu bytes", strlen(name));
    }
    snprintf(place->path, sizeof place->path, "%s", name);
    return FL_OK;
}

fl_status fl_ctl_place_find(const fl_args *args, const char *name, fl_ctl_place *place)
{
    fl_run_entry run;
    fl_job job;
    char waits[FL_WAIT_TEXT];
    *place = (fl_ctl_place){.key = fl_args_value(args, "--key"),
                            .server = fl_args_value(args, "--server")};
    place->far = name != NULL && strncmp(name, "tcp://", strlen("tcp://")) == 0;
    if (place->far) {
        return find_far(place, name);
    }
    fl_job_defaults(&job);
    fl_status status = fl_run_find(job.run.dir, name, &run);
    if (status == FL_OK || status == FL_EBUSY) {
        snprintf(place->path, sizeof place->path, "%s", run.path);
    }
    place->goes_back = status == FL_EBUSY && run.state == FL_RUN_RECOVERING;
    place->waits = status == FL_EBUSY && fl_wait_record_text(run.path, waits)[0] != '\0';
    return status;
}

static bool is_awaited(fl_status status, const fl_ctl_place *place, fl_ctl_patience patience)
{
    bool waits = place->waits && (patience != FL_CTL_PATIENT || !place->goes_back);
    bool told = waits || (place->goes_back && patience == FL_CTL_TELL_BACK);
    return status == FL_EBUSY && !told;
}

fl_status fl_ctl_place_await(const fl_args *args, const char *name, fl_ctl_patience patience,
                             int64_t deadline_us, fl_ctl_place *place)
{
    fl_status status = fl_ctl_place_find(args, name, place);
    while (is_awaited(status, place, patience) && fl_left_ms(deadline_us) > 0) {
        nanosleep(&(struct timespec){0, AGAIN_MS * 1000000L}, NULL);
        status = fl_ctl_place_find(args, name, place);
    }
    if (is_awaited(status, place, patience)) {
        char why[FL_MESSAGE_MAX];
        snprintf(why, sizeof why, "%s", fl_errmsg());
        return fl_fail(FL_EBUSY, "%s, or with a longer --timeout", why);
    }
    return status;
}

fl_status fl_ctl_place_open(const fl_ctl_place *place, bool events, fl_ctl_client_link **link)
{
    return place->far ? fl_ctl_client_open_far(place->path, events, place->key, place->server, link)
                      : fl_ctl_client_open(place->path, events, link);
}
