/* checkpoint: the reply follows when the checkpoint is durable, or when it has failed. */
#include "control/socket/ctl.h"

#include <stdio.h>

void fl_ctl_checkpoint(fl_ctl *ctl, fl_ctl_call *call)
{
    fl_status status = fl_checkpoints_request(ctl->checkpoints, &call->ticket);
    if (status != FL_OK) {
        fl_ctl_refuse(call, status == FL_ENOTSUP ? FL_CTL_NOT_AVAILABLE : FL_CTL_REFUSED, "%s",
                      fl_errmsg());
        return;
    }
    call->wait = FL_CTL_WAIT_CHECKPOINT;
}

bool fl_ctl_checkpoint_has_ended(const fl_ctl *ctl, fl_ctl_call *call)
{
    const fl_checkpoint_outcome *outcome =
        call->wait == FL_CTL_WAIT_CHECKPOINT
            ? fl_checkpoints_outcome_of(ctl->checkpoints, call->ticket)
            : NULL;
    if (outcome != NULL && !outcome->good && ctl->run->phase->back.returns) {
        fl_ctl_refuse_ending(ctl, call, ""); /* the return cut it off: a client asks again */
    } else if (outcome != NULL && !outcome->good) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "no checkpoint was written: %s", outcome->why);
    }
    return outcome != NULL;
}

void fl_ctl_checkpoint_result(const fl_ctl *ctl, fl_ctl_call *call)
{
    const fl_checkpoint_outcome *o = fl_checkpoints_outcome_of(ctl->checkpoints, call->ticket);
    char name[FL_CHECKPOINT_NAME_MAX], path[FL_TEXT_MAX + 4096];
    snprintf(path, sizeof path, "%s/" FL_CHECKPOINT_FOLDER "/%s", ctl->run->options->run_dir,
             fl_checkpoint_folder_name(o->step, name));
    fl_json_integer(call->result, "step", o->step);
    fl_json_text(call->result, "path", path);
    fl_json_integer(call->result, "bytes", o->bytes);
    fl_json_integer(call->result, "linked_bytes", o->linked_bytes);
    fl_json_rounded(call->result, "copy_ms", o->copy_ms, 3);
    fl_json_rounded(call->result, "seconds", o->seconds, 3);
}
