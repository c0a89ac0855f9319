#include "launcher/cli/ctl/ctl_ended.h"

#include "control/socket/ctl_request.h"
#include "launcher/run/runs/run_look.h"

#include <jansson.h>
#include <string.h>

/* "epoch": after the epoch, which ends the run as one that has finished. */
static bool has_stopped(const json_t *request, const char *path, int64_t *steps)
{
    fl_run_entry entry;
    const char *command = json_string_value(json_object_get(request, "cmd"));
    const json_t *args = json_object_get(request, "args");
    const char *when = json_string_value(json_object_get(args, "when"));
    bool stops = command != NULL && strcmp(command, "stop") == 0;
    bool by_epoch = when != NULL && strcmp(when, "epoch") == 0;
    if (!stops || fl_run_look(path, &entry) != FL_OK) {
        return false;
    }
    *steps = entry.steps;
    return entry.state == FL_RUN_STOPPED || (by_epoch && entry.state == FL_RUN_FINISHED);
}

char *fl_ctl_ended_reply(const char *path, const char *request)
{
    int64_t steps = 0;
    char *text = NULL;
    json_t *asked = json_loads(request, 0, NULL);
    if (has_stopped(asked, path, &steps)) {
        json_t *reply = json_pack("{s:i, s:O?, s:b, s:{s:I, s:I}}", "v", FL_CTL_VERSION, "id",
                                  json_object_get(asked, "id"), "ok", 1, "result", "step",
                                  (json_int_t)steps, "last_step", (json_int_t)steps);
        text = json_dumps(reply, 0);
        json_decref(reply);
    }
    json_decref(asked);
    return text;
}
