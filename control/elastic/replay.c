/* A run that repeats another: the decisions come from the recording, each at its step.
 *
 *     the workers wait at a recorded step ──> its decisions, one after the other ──> the last one's
 *     answer (or a pass) lets them go on
 *
 * A plan is prepared ahead and committed at its step, as any other. A setting must take effect at
 * its step and no earlier, so it is sent once all steps before it are done: the workers then wait
 * there. Neither the job's script nor its freeze policy nor the tuner decides anything. */
#include "control/controller/parts.h"

#include <stdio.h>
#include <string.h>

static const fl_recorded *next_recorded(const fl_controller *controller)
{
    const fl_recording *recording = controller->options->recording;
    int i = controller->replay.n_done;
    return i < recording->n ? &recording->of[i] : NULL;
}

/* No other decision follows at its step. */
static bool is_last_at_step(const fl_controller *controller)
{
    const fl_recording *recording = controller->options->recording;
    int i = controller->replay.n_done;
    return i + 1 == recording->n || recording->of[i + 1].step != recording->of[i].step;
}

static void finish_setting(fl_controller *controller)
{
    int64_t step = next_recorded(controller)->step;
    bool last = is_last_at_step(controller);
    controller->replay.n_done++;
    if (last) {
        fl_router_command(
            &controller->router, &controller->plan,
            &(fl_command){.kind = FL_COMMAND_PASS, .due_step = step, .due = FL_DUE_REPLAY});
    }
}

static void send_setting(fl_controller *controller, const fl_recorded *recorded)
{
    fl_replay *replay = &controller->replay;
    replay->setting = (fl_setting){.kind = recorded->kind == FL_RECORDED_LR ? FL_SETTING_LR
                                                                            : FL_SETTING_END_EPOCH,
                                   .serial = FL_REPLAY_SERIAL + replay->n_done,
                                   .value = recorded->value};
    replay->waits = true;
    fl_router_command(&controller->router, &controller->plan,
                      &(fl_command){.kind = FL_COMMAND_SETTING, .setting = replay->setting});
}

const fl_setting *fl_replay_setting_done(fl_controller *controller, int64_t serial)
{
    fl_replay *replay = &controller->replay;
    if (!replay->waits || serial != replay->setting.serial) {
        return NULL;
    }
    replay->waits = false;
    finish_setting(controller);
    return &replay->setting;
}

bool fl_replay_next_plan(fl_controller *controller, fl_plan *next, int64_t *step,
                         fl_due_kind *answers)
{
    const fl_recorded *recorded = next_recorded(controller);
    if (recorded == NULL || recorded->kind != FL_RECORDED_PLAN || controller->replay.waits ||
        controller->stats.steps + controller->due.lead < recorded->step) {
        return false;
    }
    *next = *recorded->plan;
    *step = recorded->step;
    *answers = is_last_at_step(controller) ? FL_DUE_REPLAY : FL_DUE_NONE;
    memcpy(controller->usable.drained, next->departed, sizeof next->departed);
    controller->replay.n_done++;
    return true;
}

void fl_replay_watch(fl_controller *controller)
{
    const fl_recorded *recorded = next_recorded(controller);
    if (recorded == NULL || recorded->kind == FL_RECORDED_PLAN || controller->replay.waits ||
        controller->stats.steps < recorded->step) {
        return;
    }
    if (recorded->kind == FL_RECORDED_STOP) {
        fl_shutdown_stop(controller, "the run that is repeated ended here");
    } else {
        send_setting(controller, recorded);
    }
}
