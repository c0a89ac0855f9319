#include "control/checkpoint/checkpoints.h"

#include "device/errors/log.h"

#include <inttypes.h>
#include <stdio.h>

static void path_field(fl_json *j, int64_t step)
{
    char name[FL_CHECKPOINT_NAME_MAX], path[sizeof name + sizeof FL_CHECKPOINT_FOLDER + 1];
    snprintf(path, sizeof path, FL_CHECKPOINT_FOLDER "/%s", fl_checkpoint_folder_name(step, name));
    fl_json_text(j, "checkpoint", path);
}

void fl_event_log_checkpoint(fl_event_log *log, const fl_checkpoint_outcome *outcome)
{
    fl_json *j = fl_event_log_begin(log, "checkpoint.written");
    path_field(j, outcome->step);
    fl_json_integer(j, "step", outcome->step);
    fl_json_integer(j, "bytes", outcome->bytes);
    if (outcome->is_best) {
        fl_json_bool(j, "best", true);
    }
    fl_json_integer(j, "linked_bytes", outcome->linked_bytes);
    fl_json_rounded(j, "copy_ms", outcome->copy_ms, 3);
    fl_json_rounded(j, "write_ms", outcome->write_ms, 3);
    fl_json_rounded(j, "commit_ms", outcome->commit_ms, 3);
    fl_event_log_end(log);
}

void fl_event_log_no_checkpoint(fl_event_log *log, int64_t step, const char *why)
{
    fl_json *j = fl_event_log_begin(log, "checkpoint.failed");
    if (step >= 0) {
        path_field(j, step);
        fl_json_integer(j, "step", step);
    }
    fl_json_text(j, "why", why);
    fl_event_log_end(log);
    fl_log(FL_LOG_WARN, "no checkpoint was written: %s; the older ones stay", why);
}
