/* Applies settings on a worker: the controller's changes to a run that leave its plan unchanged. */
#include "launcher/worker/worker_state.h"

#include "autodp/sampler.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

enum { SLICE_MS = 50, BEAT_MS = 1000 };

/* The end of the epoch that contains the step before this one. */
static int64_t epoch_end(const fl_worker_state *w, int64_t step)
{
    int64_t n = fl_sampler_steps_per_epoch(w->c->n_samples, fl_sampler_batch(w->c->job));
    int64_t end = (step + n - 1) / n * n;
    return end < w->end_step ? end : w->end_step;
}

void fl_setting_apply(fl_worker_state *w, const fl_setting *setting, int64_t step)
{
    w->last_setting = setting->serial;
    switch (setting->kind) {
    case FL_SETTING_PAUSE:
        if (step == w->end_step) {
            return; /* the run ends, and the controller refuses the request */
        }
        w->paused = true;
        break;
    case FL_SETTING_RESUME:
        w->paused = false;
        break;
    case FL_SETTING_END_EPOCH:
        w->end_step = epoch_end(w, step);
        w->step = step; /* a standby worker has not counted the steps; it may be at the end now */
        break;
    case FL_SETTING_LR:
        w->lr_factor = setting->value / w->c->job->train.lr;
        break;
    case FL_SETTING_LOG:
        fl_log_level_set((fl_log_level)setting->value);
        break;
    case FL_SETTING_NONE:
        break;
    }
    if (w->leads) {
        fl_link_setting_done(w->link, &(fl_setting_done_report){.serial = setting->serial,
                                                                .step = step,
                                                                .end_step = w->end_step});
    }
}

fl_status fl_setting_wait(fl_worker_state *w, fl_command *command)
{
    int64_t quarter_ms = w->c->job->fault.deadline_ms / 4;
    int64_t beat_us = fl_deadline_us(quarter_ms < BEAT_MS ? quarter_ms : BEAT_MS);
    command->kind = FL_COMMAND_NONE;
    while (!fl_link_wait_command(w->link, INT64_MAX, SLICE_MS, command)) {
        FL_TRY(fl_worker_check_abort(w));
        if (fl_left_ms(beat_us) == 0) {
            return FL_OK;
        }
    }
    return FL_OK;
}

fl_status fl_setting_take_wake(fl_worker_state *w)
{
    fl_link_patience patience = {0};
    while (!fl_link_wait_wake(w->link, SLICE_MS)) {
        FL_TRY(fl_worker_check_abort(w));
        if (fl_link_is_late(w->link, &patience, w->c->job->fault.deadline_ms)) {
            return fl_fail(FL_EDEADLINE, "the controller did not wake this worker with the others");
        }
    }
    return FL_OK;
}
